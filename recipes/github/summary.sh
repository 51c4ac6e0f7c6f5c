#!/bin/bash
# The step of action.yml: a report on the dumps of a failed job, as job summary and as files to upload.
#
# In: DUMPS (what `rankscope report` reads), REDACT (true or false), OUT (a directory to make). GitHub sets
# GITHUB_STEP_SUMMARY and GITHUB_OUTPUT. Outputs: found, status, verdict, culprits, report.
set -u

# GitHub refuses a summary of more than 1 MiB
MOST_BYTES=1000000

# The outputs that the report tells, each on one line: a verdict holds names from files.
outputs() {
    python3 - "$OUT/report.json" <<'PYTHON'
import json, sys

with open(sys.argv[1], encoding="utf-8") as file:
    report = json.load(file)
culprits = {rank for finding in report["findings"] if finding["root_cause"] for rank in finding["culprit_ranks"]}
told = {"status": report["status"], "verdict": report["verdict"], "culprits": ",".join(map(str, sorted(culprits)))}
for name, value in told.items():
    print(f"{name}={''.join(char if char.isprintable() else ' ' for char in value)}")
PYTHON
}

report() { # FILE
    local code=0
    local paths=()
    while IFS= read -r path; do
        if [ -n "$path" ]; then
            paths+=("$path")
        fi
    done <<<"$DUMPS"
    local names=(--redact)
    if [ "${REDACT:-true}" = false ]; then
        names=()
    fi
    rankscope report "${names[@]}" --force --output "$1" -- "${paths[@]}" || code=$?
    return "$code"
}

mkdir -p "$OUT"
code=0
report "$OUT/report.md" || code=$?
if [ "$code" -gt 1 ]; then
    echo "::warning title=rankscope::no report: rankscope ended with $code; see the log of this step"
    echo "found=false" >>"$GITHUB_OUTPUT"
    exit 0
fi
report "$OUT/report.json"
head -c "$MOST_BYTES" "$OUT/report.md" >>"$GITHUB_STEP_SUMMARY"
{
    echo "found=true"
    echo "report=$OUT/report.md"
    outputs
} >>"$GITHUB_OUTPUT"
