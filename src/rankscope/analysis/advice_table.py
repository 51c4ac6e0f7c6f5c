"""Table of next steps: what to do about a kind of failure, by backend and by what starts the processes.

A row has a sentence for the card of a finding, or lines for the shell of `report --only next`, or both. Fields in
braces are filled in from the finding and its lines: `{alloc}` variable of the allocator, `{step}`, `{first}` three
steps before it, `{pid}`, `{on}` comment with the hosts, `{at}` the same in a sentence, both empty where no host is
known, `{there}` comment with the address, `{size}` bytes that are reserved and unused, `{into}` directory of what is
collected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PATTERNS: dict[str, frozenset[str]] = {
    "device-memory": frozenset({"cuda-out-of-memory", "nccl-out-of-memory"}),
    "host-memory": frozenset({"host-allocation", "host-out-of-memory", "ray-memory", "memory-limit"}),
    "not-finite": frozenset({"nan-gradient", "nan-result"}),
    "kernel": frozenset({"illegal-access", "device-assert", "launch-failure"}),
    "ib-protection": frozenset({"ib-protection"}),
    "ib-flushed": frozenset({"ib-flushed"}),
    "ib-access": frozenset({"ib-remote-access"}),
    "ib-retry": frozenset({"ib-retry-exceeded"}),
    "ib-not-ready": frozenset({"ib-receiver-not-ready"}),
    "ib-other": frozenset({"ib-completion", "ib-local"}),
    "died": frozenset({"segfault", "bus-error", "killed"}),
    "wait": frozenset({
        "watchdog-timeout", "blocking-wait-timeout", "hccl-timeout", "hccl-stream-timeout", "store-wait",
        "gloo-timeout",
        "engine-call-timeout", "experts-timeout", "hccl-peer",
    }),
    "watchdog": frozenset({"watchdog-stuck"}),
    "rendezvous": frozenset({
        "store-timeout", "store-unreachable", "host-not-found", "host-unresolved", "rendezvous", "rendezvous-lost",
        "connection-refused",
        "connection-timeout", "no-route",
    }),
    "port": frozenset({"port-in-use", "port-taken"}),
    "hardware": frozenset({
        "gpu-lost", "ecc", "xid", "sxid-fatal", "nvml", "fabric", "gpu-hang", "amdgpu-fault",
        "amdgpu-reset", "amdgpu-page-fault",
        "rocm-tool", "xpu-lost", "xpu-start",
    }),
    "ccl": frozenset({"oneccl-error"}),
}  # fmt: skip
"""Ids of known errors of each kind of failure; kinds of events and of findings tell theirs in their rows."""
COLLECTED = frozenset({"", "died", "wait", "watchdog"})
"""Kinds of failure about which dumps of flight recorders tell more."""
CAPTURED = COLLECTED | {"device-memory", "host-memory", "not-finite", "slower"}
"""Kinds of failure about which the capture tells more: samples of memory, numbers of tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A row: what to do about some kinds of failure."""

    failures: tuple[str, ...]
    backends: str = "*"
    """Backends that it is for, separated by spaces; "*" for all, "-hccl" for all but one."""
    launchers: str = "*"
    """What started the processes, in the same way."""
    needs: str = ""
    """A fact of the finding without which the row is left out: a name of `Situation.facts`."""
    says: str = ""
    """Sentence for the card."""
    when: Literal["now", "next", "change"] = "next"
    """While the job still runs or its hosts are there, in the next run, or what to change."""
    command: str = ""
    """Lines for a shell."""


ADVICE: tuple[Advice, ...] = (
    # memory of devices
    Advice(failures=("device-memory",), backends="xccl", launchers="-vllm -sglang", when="change",
           says="Make a step smaller (micro batch, sequence length), recompute activations, or shard more (FSDP, ZeRO "
                "3)."),
    Advice(failures=("device-memory",), backends="-xccl", needs="gap", when="change",
           says="Set {alloc}=expandable_segments:True: {size} are reserved and unused, in pieces that are too small.",
           command="export {alloc}=expandable_segments:True"),
    Advice(failures=("device-memory",), backends="-xccl", needs="no-gap", launchers="-vllm -sglang", when="change",
           says="Make a step smaller (micro batch, sequence length), recompute activations, or shard more (FSDP, ZeRO "
                "3); {alloc}=expandable_segments:True helps only where much is reserved and unused.",
           command="export {alloc}=expandable_segments:True  # helps only where much is reserved and unused"),
    Advice(failures=("device-memory",), launchers="vllm", when="change",
           says="Leave the server less to reserve: --gpu-memory-utilization 0.85, a smaller --max-model-len or "
                "--max-num-seqs."),
    Advice(failures=("device-memory",), launchers="sglang", when="change",
           says="Leave the server less to reserve: --mem-fraction-static 0.8, a smaller --chunked-prefill-size or "
                "--cuda-graph-max-bs."),
    Advice(failures=("device-memory",), backends="-hccl -xccl", launchers="-vllm -sglang",
           says="Record who holds the memory: torch.cuda.memory._record_memory_history() at the start, and "
                "torch.cuda.memory._dump_snapshot('oom.pickle') where the error is caught; rankscope report "
                "--only memory oom.pickle.",
           command="# in the program: torch.cuda.memory._record_memory_history(max_entries=100000) at its start, and "
                   "where the error is caught\n"
                   "# torch.cuda.memory._dump_snapshot(f\"oom_rank_{{os.environ['RANK']}}.pickle\"); then: rankscope "
                   "report --only memory oom_rank_*.pickle"),
    Advice(failures=("device-memory",), backends="hccl",
           says="Record who holds the memory: torch_npu.npu.memory._record_memory_history() at the start, and "
                "torch_npu.npu.memory._dump_snapshot('oom.pickle') where the error is caught."),
    Advice(failures=("device-memory",), backends="-hccl -rccl -xccl", when="now",
           command="nvidia-smi --query-compute-apps=pid,gpu_bus_id,used_memory --format=csv  # who else is on the "
                   "device"),
    Advice(failures=("device-memory",), backends="rccl", when="now", command="rocm-smi --showpids --showmeminfo vram"),
    Advice(failures=("device-memory",), backends="hccl", when="now", command="npu-smi info  # who else is on the "
                                                                             "device"),
    # memory of hosts
    Advice(failures=("host-memory",), when="now",
           says="Ask the kernel{at} what was killed, and how much each process held: dmesg -T.",
           command="dmesg -T | grep -iE -A12 'oom-kill|out of memory' | tail -60{on}"),
    Advice(failures=("host-memory",), launchers="slurm", when="now",
           command="sacct -j \"$SLURM_JOB_ID\" --format=JobID,State,ExitCode,MaxRSS,ReqMem,NodeList"),
    Advice(failures=("host-memory",), when="change",
           says="Fewer workers of data loaders, or fewer pinned and prefetched batches, hold less memory of the host."),
    # a process that died
    Advice(failures=("died",), needs="killed", when="now",
           says="A kill without an error is most often the kernel's, for memory: dmesg -T{at} tells.",
           command="dmesg -T | grep -iE 'oom-kill|out of memory|killed process' | tail -20{on}"),
    Advice(failures=("died",), needs="signal",
           says="Set PYTHONFAULTHANDLER=1: the process then prints its stacks when such a signal ends it.",
           command="export PYTHONFAULTHANDLER=1  # stacks at a crash"),
    Advice(failures=("died",), needs="signal", launchers="-vllm -sglang", when="now",
           command="coredumpctl --no-pager list | tail -5; coredumpctl --no-pager info | head -60{on}"),
    # numbers
    Advice(failures=("not-finite",), needs="step", launchers="-vllm -sglang -deepspeed -accelerate -slurm -mpirun -ray",
           says="Record the tensors of the steps before it, which name the module and the rank where it begins: start "
                "the program through rankscope.capture with --numbers steps={first}-{step} (rankscope report --only "
                "next writes the line); then rankscope report --only numbers dumps."),
    Advice(failures=("not-finite",),
           says="Let autograd name the operation: torch.autograd.set_detect_anomaly(True) in the steps before it, from "
                "the last checkpoint.",
           command="# in the program, in the steps before it only (it is slow): "
                   "torch.autograd.set_detect_anomaly(True)"),
    Advice(failures=("not-finite",), when="change",
           says="If the gradient norm rose before: clip gradients, warm up longer, or lower the learning rate; in "
                "float16, try bfloat16; from one batch on, look at that batch."),
    Advice(failures=("slower",), when="now",
           says="Record two windows of steps with torch's profiler on all ranks, one fast and one slow: rankscope diff "
                "fast/ slow/ names what takes longer, and on which rank."),
    # compilers
    Advice(failures=("recompiles",),
           says="Set TORCH_LOGS=recompiles,guards: it prints which guard failed, for which size.",
           command="export TORCH_LOGS=recompiles,guards,graph_breaks  # which guard failed, for which size\n"
                   "export TORCH_TRACE=\"$PWD/dumps/compile\"  # for rankscope report, and for tlparse"),
    Advice(failures=("recompiles",), when="change",
           says="If a size changes, call torch._dynamo.mark_dynamic(tensor, dimension) before the function, or pad to "
                "a few sizes."),
    # kernels
    Advice(failures=("kernel",), backends="-hccl -rccl -xccl",
           says="Set CUDA_LAUNCH_BLOCKING=1: the stack is then that of the kernel that failed.",
           command="export CUDA_LAUNCH_BLOCKING=1  # the stack is then that of the kernel that failed\n"
                   "export TORCH_SHOW_CPP_STACKTRACES=1"),
    Advice(failures=("kernel",), backends="-hccl -rccl -xccl", when="now",
           says="An Xid in the kernel's log{at} means hardware: dmesg -T.",
           command="dmesg -T | grep -iE 'xid|nvrm' | tail -20{on}"),
    Advice(failures=("kernel",), backends="rccl",
           says="Set AMD_SERIALIZE_KERNEL=3: the stack is then that of the kernel that failed.",
           command="export AMD_SERIALIZE_KERNEL=3  # the stack is then that of the kernel that failed"),
    Advice(failures=("kernel",), backends="hccl",
           says="Set ASCEND_LAUNCH_BLOCKING=1: the stack is then that of the operator that failed.",
           command="export ASCEND_LAUNCH_BLOCKING=1  # the stack is then that of the operator that failed"),
    # InfiniBand, by the status of the completion
    Advice(failures=("ib-protection",), when="change",
           says="Status 4 is a local protection error: the card may not reach the memory, so the link is not to blame. "
                "Load nvidia_peermem, switch ACS of the PCIe bridges off, or set NCCL_NET_GDR_LEVEL=0 to try without "
                "GPUDirect.",
           command="export NCCL_NET_GDR_LEVEL=0  # to try: no GPUDirect RDMA"),
    Advice(failures=("ib-protection",), when="now",
           command="lsmod | grep -E 'nvidia_peermem|nv_peer_mem'; sudo lspci -vvv | grep -i acsctl{on}"),
    Advice(failures=("ib-access",), when="change",
           says="Statuses 9 to 11 come from the other end; 10 is a remote access error. Use one version of NCCL and "
                "one driver on both ends; NCCL_NET_GDR_LEVEL=0 to try without GPUDirect.",
           command="export NCCL_NET_GDR_LEVEL=0  # to try: no GPUDirect RDMA"),
    Advice(failures=("ib-retry",), when="change",
           says="Status 12 means that nothing came back in time: the other end died, or the way to it is broken. See "
                "first whether the other process ended; then links and switches, and NCCL_IB_TIMEOUT=22 for a slow "
                "fabric.",
           command="export NCCL_IB_TIMEOUT=22 NCCL_IB_RETRY_CNT=7  # only for a slow fabric"),
    Advice(failures=("ib-not-ready",), when="change",
           says="Status 13 means that the receiver was not ready: it is behind or gone. Look at the process at the "
                "other end."),
    Advice(failures=("ib-flushed",), when="now",
           says="Status 5 only follows from an error before it on the same connection: look for another status."),
    Advice(failures=("ib-other", "ib-retry"), when="now",
           says="Check the link and its counters on both hosts: ibstat, perfquery.",
           command="ibstat; perfquery; dmesg -T | grep -i mlx5 | tail -20{on}"),
    # waits, where no dump is
    Advice(failures=("wait", "watchdog"), backends="hccl", when="now",
           says="The logs of HCCL tell who failed first: in ~/ascend/log/debug/plog of each host, the rank without an "
                "error EI0002, or with the earliest other one.",
           command="grep -rnE 'ERROR|EI0002|EI0006|EJ0001' \"${{ASCEND_PROCESS_LOG_PATH:-$HOME/ascend/log}}\"/*/plog | "
                   "head -60{on}"),
    Advice(failures=("wait", "watchdog"), backends="hccl",
           says="Set ASCEND_GLOBAL_LOG_LEVEL=1, ASCEND_PROCESS_LOG_PATH and HCCL_ENTRY_LOG_ENABLE=1, so that each "
                "process keeps its plog; HCCL_EXEC_TIMEOUT must be equal on all ranks.",
           command="export ASCEND_GLOBAL_LOG_LEVEL=1 ASCEND_GLOBAL_EVENT_ENABLE=1  # information, into the plog"),
    Advice(failures=("wait", "watchdog", "died"), launchers="vllm", when="now",
           says="Take stacks of the engine and its workers: pgrep -f VLLM:: lists them, py-spy dump --native reads "
                "one.",
           command="for p in $(pgrep -f 'VLLM::'); do py-spy dump --native --pid \"$p\" > {into}/\"pyspy_$p.txt\"; "
                   "done{on}"),
    Advice(failures=("wait", "watchdog", "died"), launchers="vllm",
           says="Start the server with VLLM_LOGGING_LEVEL=DEBUG, VLLM_LOG_STATS_INTERVAL=1 and NCCL_DEBUG=INFO.",
           command="export VLLM_LOGGING_LEVEL=DEBUG VLLM_LOG_STATS_INTERVAL=1  # what each step does"),
    Advice(failures=("wait", "watchdog", "died"), launchers="sglang", needs="no-py-spy", when="change",
           says="Install py-spy where the server runs (pip install py-spy): then its watchdog prints the stacks "
                "itself.",
           command="pip install py-spy  # in the environment of the server"),
    Advice(failures=("wait", "watchdog", "died"), launchers="sglang", when="now",
           says="Take stacks of its schedulers: pgrep -f sglang::scheduler lists them, py-spy dump --native reads one.",
           command="for p in $(pgrep -f 'sglang::scheduler'); do py-spy dump --native --pid \"$p\" > "
                   "{into}/\"pyspy_$p.txt\"; done{on}"),
    Advice(failures=("wait", "watchdog", "died"), launchers="sglang",
           says="Start the server with SGLANG_LOG_FORWARD_ITERS=1, SGLANG_PYSPY_DUMP_BEFORE_CRASH=1 and "
                "SGLANG_CUDA_COREDUMP=1.",
           command="export SGLANG_LOG_FORWARD_ITERS=1 SGLANG_PYSPY_DUMP_BEFORE_CRASH=1 SGLANG_CUDA_COREDUMP=1"),
    Advice(failures=("died",), launchers="ray", when="now",
           says="Ray keeps what the worker printed in /tmp/ray/session_latest/logs of its node.",
           command="ls -t /tmp/ray/session_latest/logs | head -20{on}"),
    Advice(failures=("died",), launchers="ray", needs="pid", when="now",
           command="tail -n 40 /tmp/ray/session_latest/logs/*{pid}*{on}"),
    # where processes find each other
    Advice(failures=("rendezvous",), when="now",
           says="See whether rank 0 still listens, and whether this host reaches it: the process of rank 0 may have "
                "ended first, with its own error.",
           command="getent hosts {address}; timeout 5 bash -c '</dev/tcp/{address}/{port}' && echo reached  # from each"
                   " host\n"
                   'ss -ltnp | grep ":{port} "{there}'),
    Advice(failures=("port",), when="change",
           says="End the process that holds the port, or take a free one: torchrun --master-port, or --rdzv-endpoint "
                "with port 0 on one host.",
           command="export MASTER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind((\"\", 0)); "
                   "print(s.getsockname()[1])')  # the same value on all hosts"),
    Advice(failures=("port",), when="now", command='ss -ltnp | grep ":{port} "  # who holds it: {address}'),
    # hardware
    Advice(failures=("hardware",), backends="-rccl -xccl -hccl", when="now",
           command="dmesg -T | grep -iE 'xid|nvrm|aer:' | tail -40; nvidia-smi -L; nvidia-smi -q -d "
                   "ECC,ROW_REMAPPER{on}"),
    Advice(failures=("hardware",), backends="rccl", when="now",
           command="dmesg -T | grep -iE 'amdgpu|kfd|aer:' | tail -40; rocm-smi --showrasinfo all; rocm-smi "
                   "--showpids{on}"),
    Advice(failures=("hardware",), backends="xccl", when="now",
           command="dmesg -T | grep -iE 'i915|xe |guc|aer:' | tail -40; xpu-smi discovery; xpu-smi health -l{on}"),
    # AMD and Intel
    Advice(failures=("wait", "watchdog"), backends="rccl", when="now",
           says="RCCL reads the variables of NCCL. See first whether a GPU hangs or resets: dmesg for amdgpu.",
           command="dmesg -T | grep -iE 'amdgpu|kfd' | tail -20; rocm-smi --showuse --showpids{on}"),
    Advice(failures=("wait", "watchdog"), backends="rccl", when="change",
           says="If it hangs in its first collective, look at the way between GPUs: iommu=pt on the command line of "
                "the kernel, ACS off, and NCCL_P2P_DISABLE=1 to try.",
           command="export NCCL_P2P_DISABLE=1  # to try, if it hangs in its first collective"),
    Advice(failures=("wait", "watchdog", "ccl"), backends="xccl", when="now",
           says="See whether an Intel GPU hangs or resets: dmesg for i915 or xe lines; xpu-smi health -l.",
           command="dmesg -T | grep -iE 'i915|xe |guc' | tail -20; xpu-smi health -l{on}"),
    Advice(failures=("wait", "watchdog", "ccl"), backends="xccl",
           says="Set CCL_LOG_LEVEL=debug: oneCCL then tells its transport, its interface and each collective; compare "
                "oneCCL, MPI and driver of all hosts, CCL_ATL_TRANSPORT, CCL_KVS_IFACE and FI_PROVIDER.",
           command="export CCL_LOG_LEVEL=debug FI_LOG_LEVEL=warn  # transport, interface, each collective"),
    Advice(failures=("device-memory",), backends="xccl", when="now", command="xpu-smi ps  # who else is on the device"),
    Advice(failures=("device-memory",), backends="xccl",
           says="Print torch.xpu.memory_summary() where the error is caught: it tells what is held and what is only "
                "reserved."),
    Advice(failures=("kernel",), backends="xccl",
           says="Set UR_L0_SERIALIZE=2: each call then waits for its kernel, so the stack is that of the one that "
                "failed.",
           command="export UR_L0_SERIALIZE=2  # each call waits for its kernel"),
    Advice(failures=("kernel",), backends="rccl", when="now",
           command="dmesg -T | grep -iE 'amdgpu|kfd' | tail -20{on}"),
)  # fmt: skip
"""Every next step; those of one failure in the order in which they are told."""

MARKS: tuple[tuple[str, str], ...] = (
    ("sglang", r"(?i)sglang|\bself\.watchdog_timeout="),
    ("vllm", r"vllm|Vllm|VLLM|EngineCore"),
    (
        "ray",
        r"\"framework\":\"ray\"|\(raylet|ray\.exceptions|ray::|/ray/_private/"
        r"|\(\w{1,60} pid=\d{1,10}(?:, ip=[^)]{2,45})?\)[ \"]",
    ),
    ("deepspeed", r"\[launch\.py:\d|deepspeed/launcher"),
    ("accelerate", r"accelerate/commands/launch"),
    ("mpirun", r"mpirun|mpiexec|prterun"),
    ("slurm", r"srun: |slurmstepd: "),
)
"""Words in lines and stacks that tell what started the processes; the first that fits counts, without any torchrun."""
SERVERS = ("vllm", "sglang")
"""What starts servers: comparing the arguments of each collective would slow them down too much."""
MEASURED = "--interval 10"
HOST_MARKS: tuple[tuple[str, str], ...] = (
    (
        "kubernetes",
        r"(?i)\bkubelet|\bkubectl|OOMKilled|CrashLoopBackOff|\bpods?/|\bkubernetes\b",
    ),
    ("ray", MARKS[2][1]),
    ("slurm", MARKS[-1][1] + r"|SLURM_"),
)
"""Words in lines that tell what placed the processes on hosts; the first that fits counts, without any torchrun."""
HOST_FINDERS: dict[str, str] = {
    "kubernetes": "kubectl get pods -o wide  # which pod is on which node",
    "ray": "ray list nodes; ray list actors --filter state=DEAD --detail  # which worker is on which node",
    "slurm": "squeue --me --states=all --format='%A %j %T %N'; sacct -X --format=JobID,JobName,State,NodeList",
    "torchrun": "grep -rhE '^ *(host|rank) +:' --include='*.log' --include='*.out' --include='*.err' .  # as torchrun "
    "prints host and rank of a failure",
}
"""A command that finds the hosts of a job, where no source tells that of the failure."""
SCRIPT = "${SCRIPT:?set it to your script with its arguments}"
"""The script in a command: a shell that does not know it says so and runs nothing."""
SERVE = "${SERVE:?set it to your model and its options}"
"""The model of a server in a command, in the same way."""
STARTS: dict[str, tuple[str, ...]] = {
    "torchrun": (
        "LAUNCH='--nproc-per-node {each}'  # your options of torchrun",
        "torchrun $LAUNCH -m rankscope.capture -o {directory} {options} {script}",
    ),
    "slurm": ("srun --export=ALL --kill-on-bad-exit=1 python -m rankscope.capture -o {directory} {options} {script}",),
    "mpirun": ("mpirun -n {world} python -m rankscope.capture -o {directory} {options} {script}",),
    "deepspeed": ("deepspeed --module rankscope.capture -o {directory} {options} {script}",),
    "accelerate": ("accelerate launch -m rankscope.capture -o {directory} {options} {script}",),
    "ray": (
        "# rankscope.capture.start() in the workers of your driver records dumps",
        "RAY_DEDUP_LOGS=0 python {script} 2>&1 | tee {directory}/driver.log",
    ),
    "vllm": ("vllm serve {serve} 2>&1 | tee {directory}/server.log",),
    "sglang": ("python -m sglang.launch_server {serve} --log-level debug 2>&1 | tee {directory}/server.log",),
}
"""Lines of a shell that start the processes again, by what started them, with `SCRIPT` and `SERVE`."""
