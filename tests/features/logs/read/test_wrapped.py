"""Lines behind what Kubernetes, collectors and bars of progress put around them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rankscope.features.logs.read.log_files import looks_like_log
from tests.features.logs.read.lines import info, life, log
from tests.features.logs.read.test_decode import WATCHDOG

NCCL = info(life())
ROUND: dict[str, Callable[[str], str]] = {
    "docker": lambda text: json.dumps({"log": f"{text}\n", "stream": "stderr", "time": "2026-11-20T20:34:56.1Z"}),
    "docker, other order": lambda text: json.dumps({"stream": "stderr", "log": f"{text}\n"}),
    "fluentd": lambda text: json.dumps({"@timestamp": "2026-11-20T20:34:56Z", "kubernetes": {}, "message": text}),
    "cloud": lambda text: json.dumps({"severity": "ERROR", "textPayload": text}, separators=(",", ":")),
    "coloured": lambda text: json.dumps({"msg": f"\x1b[31m{text}\x1b[0m"}),
    "kubectl": lambda text: f"[pod/job-worker-2/pytorch] {text}",
    "stern": lambda text: f"job-worker-2 pytorch {text}",
    "bar": lambda text: f"Epoch 1:  3%|#  | 3/100 [00:10<05:00, 1.37it/s]\rEpoch 1:  4%|#  | 4/100 [1.37it/s]{text}",
}


@pytest.mark.parametrize("style", ROUND)
def test_the_line_is_read(style: str) -> None:
    around = ROUND[style]
    assert looks_like_log(f"{around(WATCHDOG)}\n".encode())
    content = log(*[around("loss 0.3")] * 100, around(WATCHDOG), around(NCCL))
    assert [(event.kind, event.rank) for event in content.events][:1] == [("watchdog-timeout", 3)]
    assert [(row.pointer, row.rank) for row in content.comms] == [("0x55bef0201370", 0)]


def test_the_time_of_the_collector_counts_where_the_line_has_none() -> None:
    content = log(ROUND["docker"](NCCL))
    assert content.comms[0].completed is not None
    assert content.comms[0].completed.is_utc


@pytest.mark.parametrize(
    "line", ['{"message": 3}', '{"message": "text"', '{"loss": 0.3}', '{"log": ["a"]}', "{", '{"msg": null}']
)
def test_other_json_is_no_log(line: str) -> None:
    assert not looks_like_log(f"{line}\n".encode())
    assert log(line, NCCL).counts["records"] == 2
