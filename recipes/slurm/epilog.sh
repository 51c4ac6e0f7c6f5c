#!/bin/bash
# Epilog of Slurm: of a job with dumps, keeps what the kernel said on each node; of one that failed, writes a report on
# the first node.
#
# slurm.conf: Epilog=/etc/slurm/rankscope_epilog.sh
#
# It runs as root on each node when the job has ended. It writes only as the user of the job, for the directory is the
# user's. A failing epilog drains its node, so this one always ends with 0, and after a while in any case.
set -u
# Slurm sets no search path
PATH=${RANKSCOPE_PATH:-/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin}
export PATH

KERNEL='Xid|NVRM|[Oo]ut of memory|oom-kill|Killed process|mlx5|EDAC|[Hh]ardware [Ee]rror|MCE|segfault|link (is )?down'
LONGEST_S=${RANKSCOPE_LONGEST_S:-300}
OTHERS_S=${RANKSCOPE_OTHERS_S:-5}

say() {
    logger -t rankscope -- "job ${SLURM_JOB_ID:-?}: $1" 2>/dev/null || echo "rankscope: job ${SLURM_JOB_ID:-?}: $1" >&2
}

as_user() {
    if [ "$(id -u)" -eq 0 ]; then
        runuser -u "$SLURM_JOB_USER" -- "$@"
    else
        "$@"
    fi
}

# Whether the job failed: its script, or any of its steps. Older versions of Slurm do not tell. A job that was cancelled
# or ran into its time limit, as most that hang, has 0 here: only the controller knows the signal that ended it.
failed() {
    if [ -z "${SLURM_JOB_EXIT_CODE+set}" ] || [ "$SLURM_JOB_EXIT_CODE" != 0 ] || [ "${SLURM_JOB_DERIVED_EC:-0}" != 0 ]; then
        return 0
    fi
    timeout 10 scontrol --oneliner show job "$SLURM_JOB_ID" 2>/dev/null | grep -qE ' ExitCode=[0-9]+:[1-9]'
}

kernel_lines() {
    local since=${SLURM_JOB_START_TIME:-}
    if ! journalctl -k -q -o short-iso ${since:+--since "@$since"} 2>/dev/null; then
        dmesg --time-format iso ${since:+--since "@$since"} 2>/dev/null
    fi | grep -E "$KERNEL" | tail -n 1000
}

first_node() {
    local first
    first=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}" 2>/dev/null | head -n 1)
    [ "${SLURMD_NODENAME:-$(hostname -s)}" = "${first:-${SLURMD_NODENAME:-$(hostname -s)}}" ]
}

report() { # DUMPS
    local code=0
    sleep "$OTHERS_S"
    as_user timeout "$LONGEST_S" rankscope report "$1" --output "$1.md" --force --no-cache || code=$?
    if [ "$code" -le 1 ]; then
        say "$(as_user sed -n '/[^[:space:]]/{s/^#* *//;p;q;}' "$1.md")"
    else
        say "rankscope ended with $code, and left no report on $1"
    fi
}

main() {
    local dumps=${SLURM_JOB_WORK_DIR:-/nonexistent}/rankscope-${SLURM_JOB_ID:-0} lines
    if ! as_user test -d "$dumps"; then
        return
    fi
    lines=$(kernel_lines)
    if [ -n "$lines" ]; then
        as_user tee "$dumps/kernel_${SLURMD_NODENAME:-$(hostname -s)}.log" <<<"$lines" >/dev/null
    fi
    # the prolog gives each job a directory, and most jobs leave nothing in it
    if first_node && ! as_user rmdir "$dumps" 2>/dev/null && failed; then
        report "$dumps"
    fi
}

main
exit 0
