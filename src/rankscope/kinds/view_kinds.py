"""Tabs, kinds of views beside the lanes in the order of their tabs, and what features add to lanes and detail."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.kinds.functions import KindTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewKind:
    """A view of a job."""

    name: str
    """Its name in the line of tabs, and for `--view`."""
    tab: int
    """The number of its tab, a key of TABS."""
    meaning: str
    also: str
    """Further words that find it in the command palette."""
    page: str
    """Class of its page, as "module:class" below `rankscope`."""
    empty: str
    """Text for an input that holds nothing of it."""
    fill: str = ""
    """Command, option or setting that fills it."""
    table: str = ""
    """Field of `Dataset` without rows of which it holds nothing; "" where its page knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TabKind:
    """A tab of the screen: views that answer the same kind of question."""

    title: str
    meaning: str
    also: str
    """Further words that find it in the command palette."""


TABS: dict[int, TabKind] = {
    3: TabKind(
        title="stacks", meaning="members of the collective, and stacks of all hosts", also="peers python py-spy threads"
    ),
    4: TabKind(title="groups", meaning="process groups, and the mesh of ranks", also="communicator pending missing"),
    5: TabKind(title="time", meaning="where the time goes", also="traces heat breakdown path gains slow steps"),
    6: TabKind(title="state", meaning="numbers, memory and the model", also="tensors nan bytes oom parameters"),
    7: TabKind(title="evidence", meaning="findings in full, logs, settings and files", also="messages errors inputs"),
}
"""Tabs beside the verdict (1) and the lanes (2), by the key that opens each; again, it shows the tab's next view."""

VIEWS: KindTable[ViewKind] = KindTable(
    ViewKind(
        name="stacks",
        tab=3,
        meaning="Python stacks of all hosts, as a tree",
        also="py-spy hosts threads gil",
        page="features.stacks.hosts_page:HostsScreen",
        empty="no stacks loaded",
        fill="run rankscope stacks -o DUMPS on each host, or py-spy dump --native --pid PID > py-spy_rank_N.txt for"
        " each rank, and give the files too",
        table="threads",
    ),
    ViewKind(
        name="time",
        tab=3,
        meaning="stacks over time of all ranks, as a tree",
        also="flame py-spy record samples",
        page="features.stacks.shares_page:SharesScreen",
        empty="no stacks over time",
        fill="run rankscope stacks --record 30 -o DUMPS on each host, and give the files too",
    ),
    ViewKind(
        name="groups",
        tab=4,
        meaning="process groups, the stuck ones first",
        also="communicators members pending",
        page="tui.detail.screens.groups_page:GroupsScreen",
        empty="no process group is known",
        fill="give flight recorder dumps, which TORCH_FR_BUFFER_SIZE=2000 turns on"
        " (TORCH_NCCL_TRACE_BUFFER_SIZE before torch 2.10)",
        table="groups",
    ),
    ViewKind(
        name="mesh",
        tab=4,
        meaning="ranks as a grid of dp, pp, tp",
        also="device topology parallel",
        page="tui.detail.screens.mesh_page:MeshScreen",
        empty="no mesh: the groups do not clearly form a grid",
        fill="give the dumps of all ranks; with rankscope.capture in the job they name all members of each group",
    ),
    ViewKind(
        name="heat",
        tab=5,
        meaning="heat map of ranks and steps",
        also="map traces slow steps profiler",
        page="features.traces.page.heat_page:HeatScreen",
        empty="no steps loaded",
        fill="record with torch.profiler, call prof.step() in each step, and give the traces too:"
        " rankscope DUMPS TRACES",
    ),
    ViewKind(
        name="breakdown",
        tab=5,
        meaning="uses of time of each rank",
        also="traces compute idle exposed table",
        page="features.traces.page.breakdown_page:BreakdownScreen",
        empty="no traces loaded",
        fill="record with torch.profiler, and give the traces too: rankscope DUMPS TRACES",
    ),
    ViewKind(
        name="path",
        tab=5,
        meaning="critical path of each step",
        also="traces critical longest chain",
        page="features.traces.page.path_page:PathScreen",
        empty="no path of a step is known",
        fill="record with torch.profiler, call prof.step() in each step, and give the traces too:"
        " rankscope DUMPS TRACES",
    ),
    ViewKind(
        name="gains",
        tab=5,
        meaning="gains of mending: what a step would take without one cause",
        also="what-if slow steps stage sequence link straggler",
        page="features.whatif.gains_page:GainsScreen",
        empty="no times of steps are known",
        fill="record all ranks with torch.profiler, call prof.step() in each step, and give the traces too:"
        " rankscope DUMPS TRACES",
    ),
    ViewKind(
        name="collectives",
        tab=5,
        meaning="collectives by size, waits of ranks, who sends whom",
        also="bandwidth busbw latency skew all_to_all moe traces",
        page="features.traces.page.collectives_page:CollectivesScreen",
        empty="no collective with times on several ranks",
        fill="record kernels of all ranks with torch.profiler, and give the traces too: rankscope DUMPS TRACES; or set"
        " TORCH_NCCL_ENABLE_TIMING=1 for dumps",
    ),
    ViewKind(
        name="annotations",
        tab=5,
        meaning="GPU time by annotation and module",
        also="record_function nvtx user_annotation nn.Module traces",
        page="features.traces.page.ranges_page:RangesScreen",
        empty="no annotation or module",
        fill="mark ranges with torch.profiler.record_function, or record with with_modules=True or with_stack=True, and"
        " give the traces too: rankscope DUMPS TRACES",
    ),
    ViewKind(
        name="patterns",
        tab=5,
        meaning="kernels launched again and again",
        also="traces kernels counters cupti",
        page="features.traces.page.path_page:PatternScreen",
        empty="no repeated kernels or counters",
        fill="record kernels with torch.profiler, and give the traces too: rankscope DUMPS TRACES",
    ),
    ViewKind(
        name="numbers",
        tab=6,
        meaning="operations by ranks: numbers that are wrong",
        also="tensors gradients nan reference numerics values",
        page="features.numbers.page.numbers_page:NumbersScreen",
        empty="no numbers loaded",
        fill="record them in the job with from rankscope.capture import numbers; numbers.start(model, optimizer,"
        ' dumps="dumps"), or without a change: torchrun ... -m rankscope.capture --numbers auto -o dumps'
        " train.py",
        table="tensors",
    ),
    ViewKind(
        name="memory",
        tab=6,
        meaning="memory of ranks over time: leaks, full devices",
        also="heat map leak oom allocated reserved peak",
        page="features.memory.page.memory_page:MemoryScreen",
        empty="no samples of memory",
        fill="record them in the job with rankscope.capture, without a change: torchrun ... -m rankscope.capture"
        " -o dumps train.py; or give traces that torch.profiler recorded with profile_memory=True",
    ),
    ViewKind(
        name="snapshots",
        tab=6,
        meaning="memory snapshots: who holds it, on which rank",
        also="allocations segments fragmentation cuda pickle",
        page="features.memory.page.snapshots_page:SnapshotsScreen",
        empty="no memory snapshot",
        fill="call torch.cuda.memory._record_memory_history() at the start and"
        ' torch.cuda.memory._dump_snapshot(f"snapshot_rank_{rank}.pickle") on each rank, and give the files',
        table="snapshots",
    ),
    ViewKind(
        name="model",
        tab=6,
        meaning="the model on each rank: sharded, replicated, loose",
        also="parameters buffers gradients optimizer fsdp ddp wrapper placements",
        page="features.model.model_page:ModelScreen",
        empty="no record of a model",
        fill="call rankscope.capture.describe(model, optimizer) in the job on each rank, behind the wrappers",
    ),
    ViewKind(
        name="findings",
        tab=7,
        meaning="all findings, in full",
        also="root cause verdict problems",
        page="tui.detail.screens.findings_page:FindingsScreen",
        empty="no finding",
    ),
    ViewKind(
        name="logs",
        tab=7,
        meaning="log messages, causes first",
        also="messages errors stdout stderr output",
        page="features.logs.page.messages_page:MessagesScreen",
        empty="no logs loaded",
        fill="give the log files too: rankscope DUMPS LOGS. The best are stdout and stderr of each rank, written with"
        " NCCL_DEBUG=INFO",
        table="messages",
    ),
    ViewKind(
        name="settings",
        tab=7,
        meaning="settings and versions that differ",
        also="environment variables nccl config",
        page="tui.detail.screens.settings_page:SettingsScreen",
        empty="no settings loaded",
        fill="give logs written with NCCL_DEBUG=INFO, or the output of python -m torch.utils.collect_env",
        table="settings",
    ),
    ViewKind(
        name="files",
        tab=7,
        meaning="input files, and their problems",
        also="inputs dumps unread",
        page="tui.detail.screens.files_page:FilesScreen",
        empty="no file was read",
    ),
)
"""The views by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """Facts that a feature adds to the main screen from one table of a job."""

    table: str
    """Field of `Dataset`; without a row in it nothing is asked."""
    function: str
    """Function as "module:function" below `rankscope`; what it gets and returns stands at each list."""


DETAIL_PARTS: tuple[Addition, ...] = (
    Addition(table="memory", function="features.memory.page.memory_text:memory_part"),
    Addition(table="messages", function="features.logs.page.rank_messages:messages_part"),
)
"""Facts of a rank in the detail: (index, analysis, rank, its operation or None) -> `selection_facts.DetailPart`."""
TRACKS: tuple[Addition, ...] = (Addition(table="memory", function="features.memory.page.memory_track:build_track"),)
"""Lines below the lanes on the axis of time: (table, offsets of ranks in ns) -> `tui.row_window.Track` or None."""
LANE_MARKS: tuple[Addition, ...] = (
    Addition(table="tensors", function="features.numbers.page.number_grid:collectives_off"),
)
"""Collectives that are marked in lanes: (dataset, analysis) -> table of group, seq, rank."""
