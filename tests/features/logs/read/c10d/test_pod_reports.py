"""Ends of containers, as kubectl and engines above Kubernetes print them."""

from __future__ import annotations

import pytest

from rankscope.features.logs.read.log_files import looks_like_log
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.environment import decode_environment
from tests.features.logs.read.c10d.lines import events, only, values
from tests.features.logs.rules.pods import described


def test_the_end_of_a_container_in_a_description() -> None:
    event = only(described("llama-worker-2", 137, "OOMKilled"))
    assert (event.kind, event.text) == (
        "pod-exit", "container pytorch of pod llama-worker-2 ended with exit code 137 (OOMKilled)",
    )  # fmt: skip
    assert values(event, "pod", "node", "how", "exitcode", "restarts") == (
        "llama-worker-2", "gpu-node-07", "Out Of Memory", 137, 1,
    )  # fmt: skip
    assert values(event, "env_rank", "env_world") == (3, 4)
    assert event.stamp is not None and event.stamp.ns == 1_748_942_342_000_000_000 and event.stamp.is_utc


def test_each_pod_of_several_is_one_end() -> None:
    text = "\n\n".join(described(f"job-worker-{at}", code, "Error") for at, code in ((0, 1), (1, 139)))
    assert [values(event, "pod", "exitcode") for event in events(text)] == [("job-worker-0", 1), ("job-worker-1", 139)]


def test_a_pod_that_kubernetes_ended() -> None:
    text = (
        "Name:  job-worker-1\nNamespace:  ml\nStatus:  Failed\nReason:  Evicted\nMessage:  The node was low on memory."
    )
    event = only(text)
    assert values(event, "pod", "how", "message") == ("job-worker-1", "Evicted", "The node was low on memory.")
    assert looks_like_log(text.encode())


@pytest.mark.parametrize(
    ("line", "pod", "how"),
    [
        ("llama-worker-2   0/1     OOMKilled   0          14m", "llama-worker-2", "Out Of Memory"),
        ("llama-worker-2   0/1     Evicted     0          14m", "llama-worker-2", "Evicted"),
        (
            "3m12s   Warning   Evicted   pod/job-worker-0   The node was low on resource: memory.",
            "job-worker-0",
            "Evicted",
        ),
        ("2m      Warning   NodeNotReady   pod/job-worker-0   Node is not ready", "job-worker-0", "NodeNotReady"),
    ],
    ids=["list", "list of an evicted pod", "events", "a lost node"],
)
def test_a_row_of_a_list_or_of_events(line: str, pod: str, how: str) -> None:
    assert values(only(line), "pod", "how") == (pod, how)
    assert looks_like_log(f"{line}\n".encode())


def test_rows_of_pods_that_run_tell_no_end() -> None:
    assert (
        events("job-worker-0   1/1     Running     0   14m\nName:   job-worker-0\nNamespace:  ml\nStatus:  Running")
        == []
    )


def test_a_description_with_an_end_is_read_as_a_log() -> None:
    text = described("llama-worker-2", 137, "OOMKilled").encode()
    assert looks_like_log(text)
    with pytest.raises(NotThisKindError):
        decode_environment(text)
    running = text.replace(b"Terminated", b"Running")
    assert decode_environment(running).processes[0].rank == 3
