"""Roots on devices: a device that stopped, a device that never reached an operation, an operation that never ends."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.analysis.facts import Facts
from rankscope.analysis.graph import Root, WaitGraph, WaitNode
from rankscope.analysis.instances import Instance
from rankscope.analysis.places import host_steps
from rankscope.analysis.reliability import Reliability, shows
from rankscope.analysis.signatures import ROOTED_OPS, wire_name
from rankscope.text.wording import ranks_text

_TIMING_STEP = "Set TORCH_NCCL_ENABLE_TIMING=1 to see whether a device started the operation."
_NETWORK_STEP = "Read the NCCL_DEBUG logs of the members for NET/IB errors; run nccl-tests on their hosts."
_BATCH_NOTE = (
    "the hook of torch 2.15 records no start, and marks a batch of sends and receives as finished when it is issued"
)


@dataclass(frozen=True)
class DeviceRules:
    """Turns sinks that are devices, or operations that all members joined, into roots."""

    facts: Facts
    graph: WaitGraph
    reliability: Reliability

    def stopped(self, nodes: list[WaitNode]) -> list[Root]:
        """One root for all devices that stopped in groups they share, else one root for each."""
        open_nodes, roots = list(nodes), []
        while open_nodes:
            together = [open_nodes.pop(0)]
            lagging = set(self._lagging(together[0].rank))
            for node in list(open_nodes):
                if lagging & set(self._lagging(node.rank)):
                    together.append(node)
                    open_nodes.remove(node)
            roots.append(self._device(tuple(sorted(together))))
        return roots

    def _lagging(self, rank: int) -> list[int]:
        return self.reliability.lagging_groups(self.facts, rank)

    def _device(self, nodes: tuple[WaitNode, ...]) -> Root:
        ranks = tuple(node.rank for node in nodes)
        own = [i for node in nodes for i in self.graph.instances.values() if node.rank in i.waiting() and not i.is_pair]
        focus = min(
            own,
            key=lambda i: (not i.is_known, i.entries[min(set(i.waiting()) & set(ranks))].position, i.key),
            default=None,
        )
        where = f" in {focus.name} of {self.facts.label(focus.group)}" if focus else ""
        peers = self._counted_only(focus) if focus is not None else ()
        if focus is not None and peers:
            return self._apart(ranks, nodes, focus, where, peers)
        return Root(
            kind="gpu-stuck",
            culprits=ranks,
            nodes=nodes,
            focus=focus,
            title=(
                f"{ranks_text(ranks)} {'is' if len(ranks) == 1 else 'are'} stuck{where} on the device; the peers "
                "finished it"
            ),
            explanation=(
                f"Completions of {ranks_text(ranks)} stopped while other members of the same groups finished the "
                "same collectives: the device, or the thread that watches it, is dead."
            ),
            notes={r: _lag_text(self.facts, r, *self.reliability.dead_devices[r]) for r in ranks},
            next_steps=(
                f"Look for Xid and ECC errors on the hosts of {ranks_text(ranks)} (dmesg, nvidia-smi -q).",
                *host_steps(self.facts.dataset, ranks, native=True),
            ),
        )

    def _counted_only(self, focus: Instance) -> tuple[int, ...]:
        """Peers that finished the operation by their counters alone, so the kind of their operation is unknown."""
        if not self.facts.dataset.from_logs or focus.is_pair:
            return ()
        done = [r for (r, group), seq in self.facts.completed.items() if group == focus.group and seq >= focus.seq]
        return () if any(rank in focus.entries for rank in done) else tuple(sorted(done))

    def _apart(
        self, ranks: tuple[int, ...], nodes: tuple[WaitNode, ...], focus: Instance, where: str, peers: tuple[int, ...]
    ) -> Root:
        """The root of a device that only counters accuse: it may be dead, or have another collective under the same
        number."""
        alone = len(peers) > len(ranks)
        return Root(
            kind="gpu-stuck",
            culprits=ranks if alone else (),
            nodes=nodes,
            focus=focus,
            title=(
                f"{ranks_text(ranks)} {'is' if len(ranks) == 1 else 'are'} stuck{where}, and {ranks_text(peers)} "
                "went past that number: a device stopped, or the collectives differ"
            ),
            explanation=(
                f"The counters of {ranks_text(peers)} are past this number. If they finished the same collective, "
                f"the device of {ranks_text(ranks)} is dead; if not, the ranks diverged before."
            ),
            candidates=() if alone else tuple(sorted({*ranks, *peers})),
            confidence="medium" if alone else "low",
            reasons=("the logs do not show which collective the others finished under that number",),
            next_steps=(
                "Set TORCH_DISTRIBUTED_DEBUG=DETAIL, or keep flight recorder dumps: both show what each rank called.",
                f"Look for Xid and ECC errors on the hosts of {ranks_text(ranks)} (dmesg, nvidia-smi -q).",
            ),
        )

    def joined(self, node: WaitNode) -> Root | None:
        """The root of an operation that all joined and nobody leaves: a device that never got there, or the network."""
        focus = self.graph.instances[node.key]  # type: ignore[index]
        if self._incomplete(focus) or self._unnoticed(focus):
            return None
        if any(not e.pending for e in focus.entries.values()):
            return self._left_behind(focus, node)
        if self._is_alone(focus):
            return self._without_peers(focus, node)
        started = sorted(r for r, e in focus.entries.items() if e.state == "started")
        issued_ns = max((e.created_ns or 0 for e in focus.entries.values()), default=0)
        waiting = self._dumped_after(issued_ns, [r for r in focus.waiting() if r not in started])
        label = f"{focus.name} of {self.facts.label(focus.group)}"
        if started and waiting and self.facts.has_timing:
            return self._before(focus, node, tuple(waiting), label)
        return self._stuck(focus, node, label)

    def _is_alone(self, focus: Instance) -> bool:
        """Whether one rank waits in a group of which no other member is known; it must have others, or would not
        wait."""
        group = self.facts.groups[focus.group]
        return not focus.is_pair and len(group.ranks) == 1 and group.membership == "inferred"

    def _without_peers(self, focus: Instance, node: WaitNode) -> Root:
        """The root if the rest of the group acted in dumps that are missing."""
        label, missing = f"{focus.name} of {self.facts.label(focus.group)}", self.facts.dataset.missing_ranks
        unread = [rank for rank in missing if rank in self.facts.dataset.unread_dumps]
        left = f"; no dump of {ranks_text(missing)} could be read" if missing else ""
        others = "no dump of another member could be read" if unread else "no other member left a dump"
        return Root(
            kind="missing-rank",
            culprits=(),
            nodes=(node,),
            focus=focus,
            title=f"{ranks_text(focus.waiting())} waits in {label}, and {others}",
            explanation=f"The dumps do not show which other ranks are in this group{left}.",
            candidates=missing,
            confidence="low",
            reasons=("no dump lists the members of the group",),
            residual=True,
            next_steps=("Collect the dumps of all ranks; rankscope.capture records the members of groups.",),
        )

    def _stuck(self, focus: Instance, node: WaitNode, label: str) -> Root:
        """The root if the network stopped, or an operation in front of it that the recorder does not show."""
        hooked = focus.group in self.facts.hook_groups
        front = "a device kernel or a batch of sends and receives" if hooked else "a device kernel"
        joined = sorted(focus.entries)
        unseen = () if self.facts.has_timing else ("without timing, a device that never started it looks the same",)
        return Root(
            kind="stuck-in-collective",
            culprits=(),
            nodes=(node,),
            focus=focus,
            title=f"all {len(focus.entries):,} members ({ranks_text(joined)}) joined {label}, but it does not finish",
            explanation=(
                f"Every member issued {label} with fitting arguments, nothing older holds anybody up, and nobody "
                f"finished it. The cause is the network or the hardware between them, or {front} in front of it."
            ),
            candidates=tuple(joined) if len(joined) <= 2 else (),
            confidence="low" if hooked else "medium",
            reasons=(_BATCH_NOTE,) if hooked else unseen,
            residual=hooked,
            next_steps=(
                *host_steps(self.facts.dataset, focus.waiting()[:3], native=True),
                _NETWORK_STEP,
            )
            if hooked
            else ((_NETWORK_STEP,) if self.facts.has_timing else (_TIMING_STEP, _NETWORK_STEP)),
        )

    def _unnoticed(self, focus: Instance) -> bool:
        """Whether the hook of each waiting rank may not have noticed the completion yet."""
        if focus.group not in self.facts.hook_groups:
            return False
        return not any(self.reliability.overdue(rank, focus.entries[rank].created_ns) for rank in focus.waiting())

    def _left_behind(self, focus: Instance, node: WaitNode) -> Root | None:
        """The root if others have finished an operation that needs all members: the device of the rest is dead."""
        done = [entry.row for entry in focus.entries.values() if not entry.pending]
        finished_ns = self.facts.dataset.ops["completed_ns"].gather(done).min()
        behind = tuple(self._dumped_after(finished_ns if isinstance(finished_ns, int) else 0, focus.waiting()))
        rooted = wire_name(focus.op) in ROOTED_OPS
        few = 0 < 2 * len(behind) <= len(focus.entries)
        if focus.group in self.facts.gloo_groups or rooted or not focus.counted or not few:
            return None
        label = f"{focus.name} of {self.facts.label(focus.group)}"
        return Root(
            kind="gpu-stuck",
            culprits=behind,
            nodes=(node,),
            focus=focus,
            title=(
                f"{ranks_text(behind)} {'is' if len(behind) == 1 else 'are'} stuck in {label} on the device; the "
                "peers finished it"
            ),
            explanation=(
                f"The other members have finished {label}, and nothing older "
                f"holds up {ranks_text(behind)}: the device, or the thread that watches it, is dead."
            ),
            notes=dict.fromkeys(behind, "issued it, but never finished it; the others did"),
            next_steps=(f"Look for Xid and ECC errors on the hosts of {ranks_text(behind)} (dmesg, nvidia-smi -q).",),
        )

    def _dumped_after(self, since_ns: int, ranks: list[int]) -> list[int]:
        """The ranks of `ranks` whose dump is new enough to show that moment."""
        return [rank for rank in ranks if shows(self.reliability.written_ns, rank, since_ns)]

    def _incomplete(self, focus: Instance) -> bool:
        if focus.is_pair:
            return len(focus.entries) < 2
        return set(focus.entries) < set(self.facts.groups[focus.group].ranks)

    def _before(self, focus: Instance, node: WaitNode, waiting: tuple[int, ...], label: str) -> Root:
        root = Root(
            kind="gpu-stuck",
            culprits=waiting,
            nodes=(node,),
            focus=focus,
            title=f"{ranks_text(waiting)} issued {label}, but the device never started it",
            explanation=(
                f"All members issued {label}. It started on the others, but not on {ranks_text(waiting)}: something "
                "in front of it on the device does not finish, such as a compute kernel."
            ),
            notes=dict.fromkeys(waiting, "issued it, but it never started on the device"),
            next_steps=(
                f"Run cuda-gdb on {ranks_text(waiting)}: which kernel is running?",
                *host_steps(self.facts.dataset, waiting, native=True),
            ),
        )
        few = 2 * len(waiting) <= len(focus.entries)
        return root if few else root.weaken("medium", "most members never started it")


def _lag_text(facts: Facts, rank: int, group: int, seq: int) -> str:
    done = max(v for (r, g), v in facts.completed.items() if g == group and r != rank)
    return f"completed #{seq - 1} of {facts.label(group)} while its peers completed #{done}"
