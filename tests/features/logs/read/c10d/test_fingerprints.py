"""TORCH_DISTRIBUTED_DEBUG=DETAIL and monitored barriers."""

from __future__ import annotations

from tests.features.logs.read.c10d.lines import events, only, values

OPTIONS = "TensorOptions(dtype=float (default), device={}, layout=Strided (default), memory_format=(nullopt))"
HEAD = "[rank2]:[I1120 19:13:12.103253 ProcessGroupWrapper.cpp:710] [Rank 2] Running collective: "


def fingerprint(seq: int, op: str, shape: str = "4", dtype: str = "Float", device: str = "cuda") -> str:
    where = OPTIONS.format(device)
    return (
        f"CollectiveFingerPrint(SequenceNumber={seq}, OpType={op}, TensorShape=[{shape}], TensorDtypes={dtype}, "
        f"TensorDeviceTypes={where})"
    )


def test_every_collective_is_an_event() -> None:
    said = events(
        f"{HEAD}{fingerprint(3, 'BROADCAST', '4, 16', 'BFloat16')}\n"
        f"{HEAD}CollectiveFingerPrint(SequenceNumber=4OpType=BARRIER)\n"
        f"{HEAD}{fingerprint(5, '_ALLGATHER_BASE', '')}"
    )
    assert [(e.kind, e.rank, *values(e, "seq", "op", "shape", "dtype", "device")) for e in said] == [
        ("fingerprint", 2, 3, "BROADCAST", [4, 16], "BFloat16", "cuda"),
        ("fingerprint", 2, 4, "BARRIER", None, None, None),
        ("fingerprint", 2, 5, "_ALLGATHER_BASE", [], "Float", "cuda"),
    ]


def test_a_mismatch() -> None:
    one, other = fingerprint(485, "ALLREDUCE", "25"), fingerprint(486, "BROADCAST", "1", "Long", "cpu")
    event = only(
        f"RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: {one}, but Rank "
        f"0 is running collective: {other}.Collectives differ in the following aspects: \t Sequence number: 485vs 486"
        "  Op type: ALLREDUCEvs BROADCAST  Tensor Tensor shapes: 25vs 1  Tensor Tensor dtypes: Floatvs Long"
    )
    assert event.kind == "fingerprint-mismatch"
    assert event.values["ranks"] == [1, 0]
    assert event.values["fingerprints"] == [
        [485, "ALLREDUCE", [25], "Float", "cuda"], [486, "BROADCAST", [1], "Long", "cpu"],
    ]  # fmt: skip
    assert event.values["aspects"] == [
        ["sequence number", "485", "486"], ["op type", "ALLREDUCE", "BROADCAST"], ["shapes", "25", "1"],
        ["dtypes", "Float", "Long"],
    ]  # fmt: skip


def test_a_mismatch_that_is_cut() -> None:
    said = f"Rank 1 is running collective: {fingerprint(4, 'ALLREDUCE')}, but R"
    event = only(f"Detected mismatch between collectives on ranks. {said}", torn=[1])
    assert values(event, "ranks", "aspects") == ([1], [])
    assert event.values["fingerprints"] == [[4, "ALLREDUCE", [4], "Float", "cuda"]]


def test_monitored_barriers() -> None:
    said = events(
        "[rank4]:[E X.cpp:2901] [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms\n"
        "[rank6]:[E X.cpp:67] Rank 2 successfully reached monitoredBarrier, but received errors while waiting\n"
        "[rank7]: RuntimeError: Rank 3 timed out in monitoredBarrier after 80 ms."
    )
    assert [(e.rank, *values(e, "outcome", "reporter", "failed_ranks", "timeout_ms")) for e in said] == [
        (4, "failed", 0, [1, 3], 5000), (6, "reached", 2, [], None), (7, "timed-out", 3, [], 80),
    ]  # fmt: skip
