"""Ranks of log processes, from a prefix or from the communicator of all ranks.

`[cudaDev]` is no rank, and the rank in a communicator is global only in that of the whole job. Uncertain ranks stay
unknown: a lane with a wrong number would accuse the wrong rank. Communicators are identified over processes first,
because a pointer has no meaning outside of its process.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from rankscope.assemble import file_names
from rankscope.features.logs.rows.launchers import MPIRUN, SRUN, read_front
from rankscope.features.logs.rows.log_processes import CommLife, LogFile, LogScene
from rankscope.kinds.event_kinds import EVENTS

AGREEING_TASKS = 2
"""Fewest tasks that must have the number of their rank, if some are missing in the log."""
_TASK = re.compile(r"^\[(\d{1,6})\] ?$")


def settle_process_ranks(scene: LogScene, world: int, highest: int, pattern: re.Pattern[str] | None) -> None:
    """Sets the ranks of log processes and lives, and `world`.

    `world` is the size of the job from other files than logs, else 0; `highest` is the highest global rank in any log,
    -1 without one.
    """
    _find_runs(scene)
    for speaker in scene.speakers:
        if len(speaker.told) == 1 and not speaker.old:
            speaker.rank, speaker.how = min(speaker.told), "prefix"
    _by_name(scene, pattern)
    _by_lines(scene)
    size, lives = _world(scene, world, highest)
    for life in lives:
        life.rank = life.comm.rank
    _by_communicator(scene, lives)
    _by_launcher(scene, size)
    _by_device(scene, size, lives)
    _unclaimed_twice(scene)
    for speaker in scene.speakers:
        if world and speaker.rank is not None and speaker.rank >= world:
            speaker.rank, speaker.how = None, ""
    for life in scene.lives:
        if life.rank is None:
            life.rank = scene.speakers[life.speaker].rank
        for piece in life.rest:
            piece.rank = life.rank
    ranks = [s.rank for s in scene.speakers if s.rank is not None]
    scene.world = world or max([size, highest + 1, *(1 + r for r in ranks)])
    scene.sized = scene.world in (world, size) or _says_size(scene)
    scene.is_covered = scene.world > 1 and {*ranks, *_line_ranks(scene)}.issuperset(range(scene.world))


def _line_ranks(scene: LogScene) -> set[int]:
    """The ranks that wrote lines, or of which lines tell."""
    ranks = {event.rank for log in scene.logs for event in log.content.events}
    return {rank for rank in ranks | {log.source.rank for log in scene.logs} if rank is not None}


def _says_size(scene: LogScene) -> bool:
    """Whether a log covers all ranks by its form: RAS, a desync report, settings of a group, fingerprints."""
    return any(
        log.content.ras or any(EVENTS[event.kind].says_size for event in log.content.events) for log in scene.logs
    )


def _find_runs(scene: LogScene) -> None:
    """Finds consecutive runs in a log: communicators of one size, each of other processes."""
    largest = max((life.comm.nranks or 0 for life in scene.lives), default=0)
    by_log: dict[int, list[tuple[int, set[int]]]] = defaultdict(list)
    for lives in scene.identities().values():
        logs = {life.log for life in lives}
        if lives[0].comm.nranks == largest > 1 and len(logs) == 1 and len(lives) == largest:
            begins = min(life.comm.offset for life in lives)
            by_log[logs.pop()].append((begins, {life.speaker for life in lives}))
    for log, runs in by_log.items():
        begins, newest = max(runs, key=lambda run: run[0])
        earlier = [speakers for _, speakers in runs if speakers.isdisjoint(newest)]
        ends = max((life.comm.offset for life in scene.lives if life.speaker in set().union(*earlier)), default=0)
        if earlier and ends < begins:
            scene.since[log] = begins
            for at in set().union(*earlier):
                scene.speakers[at].old = True


def _by_name(scene: LogScene, pattern: re.Pattern[str] | None) -> None:
    """Sets the rank of a log of one process, from its name or the user's option."""
    for log in scene.logs:
        shown = log.source.shown
        rank = file_names.rank_by(pattern, shown) if pattern is not None else None
        if rank is None and file_names.says_rank(shown):
            rank = file_names.rank_of(shown)
        if rank is not None and len(set(log.speakers)) <= 1:
            log.source.rank, log.source.rank_source = rank, "option" if pattern is not None else "name"
            for at in log.speakers:
                speaker = scene.speakers[at]
                if speaker.rank is None:
                    speaker.rank, speaker.how = rank, "name"


FEWEST_LOGS = 3
"""Fewest logs that each name a rank of their own, as those of a job that keeps a log for each process."""


def _by_lines(scene: LogScene) -> None:
    """Sets the rank of a log of one process by those of its lines that name it: others of its lines name none."""
    by_rank: dict[int, list[LogFile]] = defaultdict(list)
    for log in scene.logs:
        # the ranks of the writers of a log's lines; none where a launcher's prefix shows that several may have written
        events = [e for e in log.content.events if not (EVENTS[e.kind].of_others or EVENTS[e.kind].by_launcher)]
        if any(event.values.get("label") or event.values.get("front") for event in events):
            ranks = set()
        else:
            ranks = {event.rank for event in events if event.rank is not None}
        if len(ranks) == 1 and len(set(log.speakers)) <= 1:
            by_rank[ranks.pop()].append(log)
    if sum(len(logs) == 1 for logs in by_rank.values()) < FEWEST_LOGS:
        return
    for rank, logs in by_rank.items():
        source = logs[0].source
        if len(logs) == 1 and source.rank is None:
            source.rank, source.rank_source = rank, "content"


def _world(scene: LogScene, world: int, highest: int) -> tuple[int, list[CommLife]]:
    """The size of the largest communicator, and the lives of this size if they cover the whole job."""
    identities = scene.identities()
    largest = max((life.comm.nranks or 0 for life in scene.lives), default=0)
    size = world or largest
    if size != largest or size < 2 or highest >= size:
        return size if size == world else largest, []
    old = {at for at, speaker in enumerate(scene.speakers) if speaker.old}
    users = {life.speaker for life in scene.lives if (life.comm.nranks or 0) > 1} - old
    named = {k: v for k, v in identities.items() if v[0].comm.nranks == size and v[0].speaker not in old}
    sets = {frozenset((life.speaker, life.comm.rank) for life in lives) for lives in named.values()}
    places: dict[int, set[int | None]] = defaultdict(set)
    for members in sets:
        for speaker, rank in members:
            places[speaker].add(rank)
    one_each = len(users) <= size and all(len(ranks - {None}) <= 1 for ranks in places.values())
    ranks = [rank for members in places.values() for rank in members if rank is not None]
    if (not one_each and len(users) > 1) or len(set(ranks)) < len(ranks):
        return size, []
    lives = [life for lives in named.values() for life in lives]
    ranked = [(life, scene.speakers[life.speaker].rank) for life in lives]
    if any(rank is not None and life.comm.rank not in (None, rank) for life, rank in ranked):
        return size, []
    return size, lives


def _by_communicator(scene: LogScene, lives: Sequence[CommLife]) -> None:
    ranks: dict[int, set[int]] = defaultdict(set)
    for life in lives:
        if life.comm.rank is not None:
            ranks[life.speaker].add(life.comm.rank)
    for at, own in ranks.items():
        if len(own) == 1 and scene.speakers[at].rank is None:
            scene.speakers[at].rank, scene.speakers[at].how = min(own), "communicator"


def _by_launcher(scene: LogScene, size: int) -> None:
    """Sets ranks from launchers: mpirun counts processes; srun counts tasks, which are ranks if their numbers agree."""
    open_ = [s for s in scene.speakers if s.rank is None]
    for form, needs_size in ((MPIRUN, False), (SRUN, True)):
        tasks: dict[int, list[int]] = defaultdict(list)
        for i, speaker in enumerate(scene.speakers):
            for number in {pairs[1] for pairs in map(_numbered, speaker.labels) if pairs and pairs[0] == form}:
                tasks[number].append(i)
        users = {i for processes in tasks.values() for i in processes}
        if (
            not open_
            or len(users) < len(scene.speakers)
            or any(len(set(processes)) > 1 for processes in tasks.values())
        ):
            continue
        pairs = [(task, scene.speakers[processes[0]].rank) for task, processes in tasks.items()]
        known = [task == rank for task, rank in pairs if rank is not None]
        # a launcher with another numbering than the job proves nothing; of a part of the tasks two must agree
        fits = len(tasks) == size or (sum(known) >= AGREEING_TASKS and max(tasks) < size)
        if len(users) != len(tasks) or not all(known) or (needs_size and not fits):
            continue
        for rank, processes in tasks.items():
            speaker = scene.speakers[processes[0]]
            if speaker.rank is None:
                speaker.rank, speaker.how = rank, "launcher"


def _numbered(label: str) -> tuple[str, int] | None:
    """The launcher that numbers processes in a prefix, and the number."""
    if (task := _TASK.match(label)) is not None:
        return SRUN, int(task[1])
    front = read_front(label)
    return None if front is None else (front.form, front.number)


def _by_device(scene: LogScene, size: int, lives: Sequence[CommLife]) -> None:
    """Sets ranks from devices: on one host with a device for each rank, torch's launcher numbers both alike."""
    hosts = {speaker.host for speaker in scene.speakers}
    if len(hosts) != 1 or any(s.rank is not None for s in scene.speakers) or not lives:
        return
    devices = {i: s.device for i, s in enumerate(scene.speakers) if s.device is not None}
    devices |= {life.speaker: life.comm.device for life in lives if life.comm.device is not None}
    highest = max(devices.values(), default=-1)
    if len(set(devices.values())) == len(devices) > 1 and highest < size:
        for at, device in devices.items():
            scene.speakers[at].rank, scene.speakers[at].how = device, "device"


def _unclaimed_twice(scene: LogScene) -> None:
    """Removes the rank of processes that claim the same one."""
    claims: dict[int, list[int]] = defaultdict(list)
    for i, speaker in enumerate(scene.speakers):
        if speaker.rank is not None:
            claims[speaker.rank].append(i)
    for own in claims.values():
        if len(own) > 1:
            for i in own:
                scene.speakers[i].rank, scene.speakers[i].how = None, ""


MOST_SPLITS = 64
"""Most nested splits that are followed."""


def identify_lives(scene: LogScene) -> None:
    """Sets `identity` of every life for which it is known."""
    lives = [life for life in scene.lives if life.stands]
    # for each split, the number of earlier splits of the same parent and colour in its process
    counted: Counter[tuple[int, int | None]] = Counter()
    ordinals: dict[int, int] = {}
    for life in lives:
        if life.parent is not None:
            key = (id(life.parent), life.comm.color)
            ordinals[id(life)] = counted[key]
            counted[key] += 1
    for life in lives:
        life.identity = life.recalled or _direct(life)
    _keep_sound(lives)
    for life in lives:
        if not life.identity and _is_split(life):
            life.identity = _split(life, ordinals, MOST_SPLITS)
    _keep_sound(lives)
    _by_order([life for life in lives if not life.identity and not _is_split(life)], lives)


def _is_split(life: CommLife) -> bool:
    return bool(life.comm.parent)


def _direct(life: CommLife) -> str:
    unset = _is_split(life) and life.comm.split is None
    return "" if unset else life.comm.comm_id


def _split(life: CommLife, ordinals: dict[int, int], depth: int) -> str:
    parent = life.parent
    if parent is None or not depth:
        return ""
    known = parent.identity or (_split(parent, ordinals, depth - 1) if _is_split(parent) else "")
    if not known or life.comm.color is None:
        return ""
    number = f"#{ordinals[id(life)]}" if life.comm.split is None else str(life.comm.split)
    return f"{known}/{number}:{life.comm.color}"


def _keep_sound(lives: Iterable[CommLife]) -> None:
    """Removes identities whose members contradict each other."""
    for members in _by_identity(lives).values():
        ranks = [life.comm.rank for life in members if life.comm.rank is not None]
        sizes = {life.comm.nranks for life in members} - {None}
        if len(set(ranks)) < len(ranks) or len(sizes) > 1:
            for life in members:
                life.identity = ""


def _by_identity(lives: Iterable[CommLife]) -> dict[str, list[CommLife]]:
    found: dict[str, list[CommLife]] = defaultdict(list)
    for life in lives:
        if life.identity:
            found[life.identity].append(life)
    return found


def _by_order(unnamed: list[CommLife], lives: list[CommLife]) -> None:
    """Joins the k-th communicator of a size of each process, if as many processes have one as it has ranks."""
    largest = max((life.comm.nranks or 0 for life in lives), default=0)
    by_size: dict[int, dict[int, list[CommLife]]] = defaultdict(lambda: defaultdict(list))
    for life in unnamed:
        if life.comm.nranks is not None and life.comm.nranks > 1:
            by_size[life.comm.nranks][life.speaker].append(life)
    for size, speakers in by_size.items():
        counts = {len(own) for own in speakers.values()}
        full = len(speakers) == size or (len(speakers) < size == largest)
        if len(counts) != 1 or not full:
            continue
        for k, members in enumerate(zip(*speakers.values(), strict=True)):
            ranks = [life.comm.rank for life in members if life.comm.rank is not None]
            if len(set(ranks)) == len(ranks):
                for life in members:
                    life.identity = f"of {size} ranks, unnamed" + (f" {k + 1}" if k else "")
