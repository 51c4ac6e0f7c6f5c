"""The table of operations: the columns of all dumps, in order of rank, each in the order of its dump."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl

from rankscope.assemble import recorders
from rankscope.assemble.groups import GroupIndex
from rankscope.assemble.op_names import P2P_OPS, is_closer_name, library_of, op_of, p2p_ranks
from rankscope.assemble.recorders import records_no_states
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.flight_recorder.model import CODES, NUMBERS, Dump, RecordedCall, RecordedShape
from rankscope.parsers.matrices import NULL, Numbers, row_keys
from rankscope.schema.tables import BLIND_HOOK, COALESCED, HOOK, OPS, SOURCES, STACKS, STATES, Coalesced, Source, State

_CODE_TABLES = {"call": "calls", "shape": "shapes", "stack": "stacks"}


class HasStacks(Protocol):
    """The content of a file with stacks, each once."""

    @property
    def frames(self) -> Sequence[StackFrame]:
        """The frames of all stacks, each once."""
        ...

    @property
    def stacks(self) -> Sequence[Sequence[int]]:
        """The stacks as rows of `frames`, the innermost first."""
        ...


class StackIds:
    """The stacks of all dumps, each once, in order of first appearance."""

    def __init__(self) -> None:
        self._frames: dict[StackFrame, int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._stacks)

    def ids(self, dumps: Iterable[HasStacks]) -> pl.Series:
        """The id of each stack of each dump."""
        frames, stacks = self._frames, self._stacks
        ids: list[int] = []
        for dump in dumps:
            places = [frames.setdefault(frame, len(frames)) for frame in dump.frames]
            ids.extend(stacks.setdefault(tuple(places[i] for i in stack), len(stacks)) for stack in dump.stacks)
        return pl.Series(ids, dtype=pl.UInt32)

    def table(self) -> pl.DataFrame:
        """The table `stacks`."""
        lengths = [len(stack) for stack in self._stacks]
        flat = pl.Series([i for stack in self._stacks for i in stack], dtype=pl.Int64)
        columns = list(zip(*self._frames, strict=True)) or [(), (), ()]
        table = pl.DataFrame(
            {
                "stack_id": np.repeat(np.arange(len(lengths)), lengths),
                "depth": [depth for n in lengths for depth in range(n)],
                **{
                    name: pl.Series(columns[i], dtype=kind).gather(flat)
                    for i, (name, kind) in enumerate((("function", pl.String), ("file", pl.String), ("line", pl.Int64)))
                },
            },
        )
        return table.select([pl.col(n).cast(t) for n, t in STACKS.items()])


class LaterStacks:
    """Stacks of files that are read after the dumps: their rows stand behind those of the table that is there."""

    def __init__(self, tables: Mapping[str, pl.DataFrame]) -> None:
        self._before = tables.get("stacks", StackIds().table())
        highest = self._before["stack_id"].max()
        self._first = 1 + highest if isinstance(highest, int) else 0
        self._known: dict[tuple[StackFrame, ...], int] = {}

    def number(self, frames: Iterable[StackFrame]) -> int:
        """The id of a stack."""
        return self._known.setdefault(tuple(frames), self._first + len(self._known))

    def table(self) -> pl.DataFrame:
        """The table `stacks`."""
        rows = [(number, depth, *frame) for own, number in self._known.items() for depth, frame in enumerate(own)]
        return pl.concat([self._before, pl.DataFrame(rows, schema=STACKS, orient="row")])


def stack_table(dumps: Sequence[HasStacks]) -> tuple[pl.DataFrame, pl.Series]:
    """The table `stacks`, and the id of each stack of each dump."""
    stacks = StackIds()
    ids = stacks.ids(dumps)
    return stacks.table(), ids


def operation_table(
    frame: pl.DataFrame, sources: Sequence[SourceFile], torchcomms_files: Sequence[int]
) -> pl.DataFrame:
    """The table `ops`, from the entries of sources in order of rank; torchcomms wrote some of the files."""
    if len({s.rank for s in sources}) < len(sources):
        # entries of several recorders of one process interleave
        frame = frame.sort("rank", "created_ns", maintain_order=True)
    frame = resolve_coalesced(recorders.renumber_groups(frame, torchcomms_files))
    return frame.select([pl.col(n).cast(t) for n, t in OPS.items()])


def entry_rows(
    sources: Sequence[SourceFile], places: Sequence[int], groups: GroupIndex, stacks: StackIds
) -> pl.DataFrame:
    """The raw entries of each source, in the words of the frame; no row depends on another one."""
    dumps = [source.dump or Dump() for source in sources]
    shapes = [shape for dump in dumps for shape in dump.shapes]
    repeated = {
        "call": call_meanings(list(sources), groups),
        "shape": pl.DataFrame({name: _shape_column(shapes, name) for name in RecordedShape._fields}),
        "stack": pl.DataFrame({"stack_id": stacks.ids(dumps)}),
        "source": _source_columns(sources, places),
    }
    of_entry = np.repeat(np.arange(len(dumps), dtype=np.uint32), [dump.rows for dump in dumps])
    codes = pl.DataFrame({**{name: _joined_codes(dumps, name) for name in CODES}, "source": of_entry})
    # one call: polars gathers several columns at a time
    frame = codes.select(
        pl.lit(values).gather(pl.col(code)).alias(values.name) for code, table in repeated.items() for values in table
    )
    frame = frame.with_columns(_nullable(name, [dump.column(name) for dump in dumps]) for name in NUMBERS)
    hooked = [place for place, source in zip(places, sources, strict=True) if source.recorder == HOOK]
    return _as_hooks_mean(frame, hooked).with_columns(
        pl.lit(SOURCES[0], Source).alias("source"),
        pl.lit(COALESCED[0], Coalesced).alias("coalesced"),
    )


def _as_hooks_mean(frame: pl.DataFrame, hooked: list[int]) -> pl.DataFrame:
    """Removes starts from a hook, which are its ends, and ends of batches, which are their issues.

    A hook sees a batch of sends and receives as completed as soon as it is issued, whatever happens to it.
    """
    if not hooked:
        return frame
    theirs = pl.col("file").is_in(hooked)
    at_once = pl.col("completed_ns") - pl.col("created_ns") < recorders.AT_ISSUE_NS
    batched = theirs & pl.col("is_p2p") & (pl.col("state") == "completed") & at_once.fill_null(value=False)
    return frame.with_columns(
        started_ns=pl.when(~theirs).then("started_ns"),
        completed_ns=pl.when(~batched).then("completed_ns"),
        state=pl.when(batched).then(pl.lit("unknown", dtype=State)).otherwise("state"),
    )


def _shape_column(shapes: Sequence[RecordedShape], name: str) -> pl.Series:
    return pl.Series(name, [getattr(shape, name) for shape in shapes], dtype=pl.String).cast(OPS[name])


def _source_columns(sources: Sequence[SourceFile], places: Sequence[int]) -> pl.DataFrame:
    """Columns with one value for all entries of a dump."""
    return pl.DataFrame(
        {
            "file": pl.Series(places, dtype=pl.UInt32),
            "rank": pl.Series([s.rank for s in sources], dtype=pl.Int32),
            "attempt": pl.Series([s.attempt for s in sources], dtype=pl.UInt16),
            "host": pl.Series([s.host for s in sources], dtype=pl.String).cast(pl.Categorical),
        }
    )


def _nullable(name: str, parts: Sequence[Numbers]) -> pl.Series:
    values = np.concatenate([np.empty(0, np.int64), *parts])
    series = pl.Series(name, values)
    return series.replace(NULL, None) if len(values) and values.min() == NULL else series


def _joined_codes(dumps: Sequence[Dump], name: str) -> pl.Series:
    """Codes into the joined tables of all dumps; null for none."""
    codes = np.concatenate([np.empty(0, np.int32), *(dump.code(name) for dump in dumps)])
    lengths = [len(getattr(dump, _CODE_TABLES[name])) for dump in dumps]
    offsets = np.repeat(np.cumsum([0, *lengths])[:-1].astype(np.uint32), [dump.rows for dump in dumps])
    joined = pl.Series(codes.view(np.uint32) + offsets)
    return joined.set(pl.Series(codes < 0), None) if len(codes) and codes.min() < 0 else joined


# Coalesced groups: operations launched together, and the closer with their state.

_KEY = ("file", "group", "seq", "p2p_seq")
_CARRIED_COLUMNS = ("state", "retired", "started_ns", "completed_ns")


def resolve_coalesced(ops: pl.DataFrame) -> pl.DataFrame:
    """Marks inner operations and closers; inner ones get the closer's state, and the closer gets their sort."""
    closing = pl.col("names_closer") & (pl.col("in_sizes") == "[]") & (pl.col("out_sizes") == "[]")
    closes = ops.select(closing.fill_null(value=False)).to_series()
    if not closes.any():
        return ops
    # few groups coalesce: all others stay as they are
    some = ops.select(pl.col("group").is_in(ops["group"].filter(closes).unique().implode())).to_series()
    near = ops.lazy().select("op", "is_p2p", *_KEY).with_row_index("row").filter(some).collect()
    closers = near.filter(closes.filter(some))
    key = row_keys(*(near[name].cast(pl.Int64).fill_null(NULL).to_numpy() for name in _KEY))
    distinct, first = np.unique(key[closes.filter(some)], return_index=True)
    place = np.minimum(np.searchsorted(distinct, key), len(distinct) - 1)
    near = near.with_columns(closer=closers["row"].gather(pl.Series(first[place])))
    inner = near.filter((pl.col("row") < pl.col("closer")) & pl.Series(distinct[place] == key))
    return _with_closers(ops, closers["row"], inner["row"], inner["closer"], _pair_closers(closers, inner))


def _with_closers(
    ops: pl.DataFrame, closers: pl.Series, inner: pl.Series, closer_of: pl.Series, pairs: pl.Series
) -> pl.DataFrame:
    """The operations with roles by row; `pairs` are the closers of sends and receives."""
    role, source = np.zeros(ops.height, np.uint8), np.arange(ops.height, dtype=np.uint32)
    role[inner], role[closers] = 1, 2
    source[inner] = closer_of
    is_pair = np.zeros(ops.height, np.bool_)
    is_pair[pairs] = True
    taken = pl.Series(source)
    return ops.with_columns(
        *(ops[name].gather(taken) for name in _CARRIED_COLUMNS),
        is_p2p=pl.col("is_p2p") | pl.Series(is_pair),
        coalesced=pl.Series(COALESCED, dtype=Coalesced).gather(pl.Series(role)),
    )


def _pair_closers(closers: pl.DataFrame, inner: pl.DataFrame) -> pl.Series:
    """Rows of the closers of sends and receives.

    A closer whose operations were overwritten in the ring has the sort of all others of its group and name.
    """
    place = np.searchsorted(closers["row"].to_numpy(), inner["closer"].to_numpy())
    told, pairs = np.zeros((2, closers.height), np.bool_)
    told[place] = True
    pairs[place[inner["is_p2p"].to_numpy()]] = True
    told_sorts = closers.filter(told).with_columns(pairs=pl.Series(pairs[told])).group_by("group", "op")
    others = closers.filter(~told).join(told_sorts.agg(pl.col("pairs").all()), on=["group", "op"])
    return pl.concat([closers["row"].filter(pl.Series(pairs)), others.filter("pairs")["row"]])


def complete_filtered(
    ops: pl.DataFrame, reached: dict[int, dict[int, int]], descriptions: pl.DataFrame
) -> pl.DataFrame:
    """Completes inner operations whose closer is missing in a dump of active operations: the closer had completed.

    This is known for collectives that share a number, and for sends and receives on groups (or on others with their
    description) that launch them together. `reached` has the files of such dumps, each with the last completed
    operation in `pg_status`, by group.
    """
    if not reached:
        return ops
    filtered_files = sorted(reached)
    launched_together = pl.col("group").is_in(_batched_groups(ops, descriptions, reached))
    shares_its_number = pl.len().over("file", "group", "is_p2p", "seq") > 1
    orphan = (
        pl.col("file").is_in(filtered_files)
        & pl.when("is_p2p").then(launched_together).otherwise(shares_its_number)
        & (pl.col("coalesced") == "none")
        & (pl.col("state") != "completed")
    )
    return ops.with_columns(
        pl.when(orphan).then(pl.lit("completed")).otherwise(pl.col("state").cast(pl.String)).alias("state"),
        pl.when(orphan).then(pl.lit("inner")).otherwise(pl.col("coalesced").cast(pl.String)).alias("coalesced"),
    )


def _batched_groups(ops: pl.DataFrame, descriptions: pl.DataFrame, reached: dict[int, dict[int, int]]) -> list[int]:
    """Groups whose sends and receives are launched together, here or in a group of the same description."""
    p2p = ops.filter(pl.col("is_p2p"))
    sharing = p2p.group_by("file", "group", "p2p_seq").len().filter(pl.col("len") > 1)["group"]
    batched = p2p.filter(pl.col("coalesced") != "none")["group"]
    seen = set(sharing.to_list()) | set(batched.to_list()) | _left_behind(ops, reached)
    roles = set(descriptions.filter(pl.col("group").is_in(list(seen)))["description"].to_list()) - {"", "undefined"}
    alike = descriptions.filter(pl.col("description").is_in(list(roles)))["group"].to_list()
    return sorted(seen | set(alike))


def _left_behind(ops: pl.DataFrame, reached: dict[int, dict[int, int]]) -> set[int]:
    """Groups with kept operations that `pg_status` counts as completed: their closers had completed.

    Only for groups with sends and receives alone, because `pg_status` has one place for both counters. A single
    operation may have completed at the moment of the dump.
    """
    table = pl.DataFrame(
        [(file, group, last) for file, groups in reached.items() for group, last in groups.items()],
        schema={"file": ops.schema["file"], "group": ops.schema["group"], "completed": pl.Int64},
        orient="row",
    )
    alone = (pl.col("is_p2p") & (pl.col("seq").fill_null(0) == 0)).all().over("group")
    kept = ops.filter(alone & (pl.col("state") != "completed")).join(table, on=["file", "group"])
    told = (
        kept.filter(pl.col("p2p_seq") <= pl.col("completed"))
        .group_by("file", "group")
        .agg(last=pl.col("p2p_seq").max(), completed=pl.col("completed").first(), count=pl.len())
    )
    return set(told.filter((pl.col("last") == pl.col("completed")) & (pl.col("count") > 1))["group"].to_list())


# Repeated values in the operations of all dumps, computed once for each distinct value.


class CallMeaning(NamedTuple):
    """A call in the words of the frame; columns of `call_meanings` in this order."""

    group: int
    library: str
    op: str
    is_p2p: bool
    peer: int | None
    thread: str | None
    timeout_ms: int | None
    state: str
    retired: bool | None
    names_closer: bool


SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "group": pl.UInt32, "library": pl.Categorical, "op": pl.Categorical, "is_p2p": pl.Boolean, "peer": pl.Int32,
    "thread": pl.Categorical, "timeout_ms": pl.Int64, "state": pl.Enum(STATES), "retired": pl.Boolean,
    "names_closer": pl.Boolean,
}  # fmt: skip


def call_meanings(sources: list[SourceFile], groups: GroupIndex) -> pl.DataFrame:
    """The meanings of all calls of all sources, in order."""
    rows: list[CallMeaning] = []
    for i, source in enumerate(sources):
        dump = source.dump or Dump()
        threads = _thread_names(dump.calls)
        state = _states(source, dump)
        for call, group in zip(dump.calls, groups.by_call.get(i, []), strict=True):
            rows.append(_meaning(call, group, groups, threads, state(call)))
    columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA)
    return pl.DataFrame(dict(zip(SCHEMA, map(list, columns), strict=True)), schema=SCHEMA)


def _states(source: SourceFile, dump: Dump) -> Callable[[RecordedCall], str]:
    """A function from a call of a dump to its state, as its recorder defines it."""
    if source.recorder == BLIND_HOOK:
        return lambda _: "unknown"
    return _by_retirement if records_no_states(dump) else _as_written


def _meaning(
    call: RecordedCall, group: int, groups: GroupIndex, threads: dict[tuple[str | None, str | None], str], state: str
) -> CallMeaning:
    op = op_of(call.profiling_name)
    p2p = p2p_ranks(call.profiling_name)
    return CallMeaning(
        group,
        library_of(call.profiling_name),
        op,
        op in P2P_OPS or bool(call.is_p2p),
        None if p2p is None else _peer(p2p[1], group, groups),
        threads.get((call.thread_name, call.thread_id)),
        call.timeout_ms,
        state,
        call.retired,
        is_closer_name(op),
    )


def _peer(place: int | None, group: int, groups: GroupIndex) -> int | None:
    """The global rank at a place of a group; None for inferred members, which may be incomplete."""
    if place is None:
        return None
    members = groups.members[group]
    stated = groups.rows[group].key.members is not None or members == tuple(range(len(members)))
    return members[place] if stated and place < len(members) else None


def _by_retirement(call: RecordedCall) -> str:
    return "unknown" if call.retired is None else "completed" if call.retired else "scheduled"


def _as_written(call: RecordedCall) -> str:
    return call.state if call.state in STATES else "unknown"


def _thread_names(calls: Iterable[RecordedCall]) -> dict[tuple[str | None, str | None], str]:
    """The label of each thread: its name, with its id if two have the same."""
    ids: dict[str | None, set[str | None]] = defaultdict(set)
    for call in calls:
        ids[call.thread_name].add(call.thread_id)
    labels = {}
    for name, members in ids.items():
        for thread_id in members:
            text = name if name and len(members) == 1 else " ".join(x for x in (name, thread_id) if x)
            labels[name, thread_id] = text
    return {key: text for key, text in labels.items() if text}
