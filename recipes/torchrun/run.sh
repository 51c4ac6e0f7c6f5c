#!/bin/bash
# Trains under torchrun with the capture, follows it, and ends a job that hangs with a report instead of at its timeout.
#
#   ./run.sh train.py --steps 1000
#
# DUMPS, NPROC, FREEZE_AFTER (seconds) and PYTHON can be set. The exit code is that of torchrun, or 1 after a hang.
set -u

DUMPS=${DUMPS:-dumps}
PYTHON=${PYTHON:-python}
mkdir -p "$DUMPS"

"$PYTHON" -m torch.distributed.run --standalone --nproc-per-node "${NPROC:-2}" \
    -m rankscope.capture --output "$DUMPS" --interval "${INTERVAL:-10}" "$@" &
job=$!

# it ends with exit code 1 when the job freezes or fails
"$PYTHON" -m rankscope watch "$DUMPS" --until-frozen ${FREEZE_AFTER:+--freeze-after "$FREEZE_AFTER"} &
watcher=$!

wait -n "$job" "$watcher"
code=$?
if kill -0 "$job" 2>/dev/null; then
    # the ranks still hang: this is the moment for stacks, where py-spy is installed and may be used
    "$PYTHON" -m rankscope stacks --output "$DUMPS" || echo "run.sh: no stacks were taken" >&2
    kill -TERM "$job"
    wait "$job"
    code=1
else
    kill -TERM "$watcher" 2>/dev/null
fi
wait "$watcher"
if [ "$code" -ne 0 ]; then
    "$PYTHON" -m rankscope report "$DUMPS" --output "$DUMPS.md" --force
    "$PYTHON" -m rankscope report "$DUMPS"
fi
exit "$code"
