#!/bin/bash
# TaskProlog of Slurm: each task gets the settings with which torch and NCCL leave evidence behind.
#
# slurm.conf: TaskProlog=/etc/slurm/rankscope_task_prolog.sh    (or: srun --task-prolog=task_prolog.sh)
#
# It runs as the user before each task. Slurm takes lines "export NAME=value" from its output into the environment of
# the task. What the user has set stays. A task prolog that fails ends the task, so this one always ends with 0.
set -u

base=${SLURM_JOB_WORK_DIR:-$(pwd -P)}
dumps=${RANKSCOPE_DUMPS:-$base/rankscope-${SLURM_JOB_ID:-0}}

give() { # NAME VALUE
    if [ -z "${!1+set}" ]; then
        printf 'export %s=%s\n' "$1" "$2"
    fi
}

if ! mkdir -p "$dumps"; then
    echo "rankscope: $dumps cannot be made, so this task leaves no dumps" >&2
    exit 0
fi

give RANKSCOPE_DUMPS "$dumps"
# the flight recorder: TORCH_FR_* since torch 2.10, TORCH_NCCL_* before
give TORCH_FR_BUFFER_SIZE 2000
give TORCH_NCCL_TRACE_BUFFER_SIZE 2000
give TORCH_FR_DUMP_ON_TIMEOUT 1
give TORCH_NCCL_DUMP_ON_TIMEOUT 1
give TORCH_FR_DUMP_TEMP_FILE "$dumps/fr_trace_rank_"
give TORCH_NCCL_DEBUG_INFO_TEMP_FILE "$dumps/fr_trace_rank_"
# the log of NCCL: communicators, versions and settings, not every collective
if [ -z "${NCCL_DEBUG+set}" ]; then
    give NCCL_DEBUG INFO
    give NCCL_DEBUG_SUBSYS INIT,ENV
    give NCCL_DEBUG_FILE "$dumps/nccl_%h_%p.log"
fi
exit 0
