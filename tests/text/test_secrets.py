"""What lets somebody in is hidden; what tells why a job broke is not."""

from __future__ import annotations

import pytest

from rankscope.analysis.model import Evidence
from rankscope.report import words
from rankscope.text.secrets import HIDDEN, hide, is_secret, value_of


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "hf_token", "DB_PASSWORD", "PASSWD", "APIKEY"])
def test_values_of_these_names_are_hidden(name: str) -> None:
    assert value_of(name, "abc") == HIDDEN


@pytest.mark.parametrize("name", ["NCCL_ALGO", "TOKENIZERS_PARALLELISM", "MAX_TOKENS", "version:nccl"])
def test_values_of_other_names_are_shown(name: str) -> None:
    assert value_of(name, "abc") == "abc"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py --api-key abc --lr 3", "train.py --api-key (hidden) --lr 3"),
        ("train.py --verbose --hf-token=abc x", "train.py --verbose --hf-token=(hidden) x"),
        ("export WANDB_API_KEY=abc; run", "export WANDB_API_KEY=(hidden); run"),
        ("{'access_token': 'abc', 'n': 3}", "{'access_token': '(hidden)', 'n': 3}"),
        ("Authorization: Bearer abcdefgh123", "Authorization: Bearer (hidden)"),
        ("from https://eve:abc@host.test/x", "from https://(hidden)@host.test/x"),
        ("login with hf_abcdefghijklmnopqrst failed", "login with (hidden) failed"),
    ],
)
def test_secrets_in_prose_are_hidden(text: str, shown: str) -> None:
    assert hide(text) == shown
    assert words.evidence_lines([Evidence(text)]) == [shown]


@pytest.mark.parametrize(
    "text",
    [
        "KeyError: 'layers.0.bias'",
        "wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
        "key: default_pg/0, max_tokens=4096 --tokens-per-batch 4096 tokenizer=gpt2",
        "Failed to get store key 'x' from 10.0.0.1:29500",
        "",
    ],
)
def test_what_the_reader_looks_for_stays(text: str) -> None:
    assert hide(text) == text


@pytest.mark.parametrize("piece", ["KEY", "KEY_", "--token ", "a=", "-", "://a:", "hf_a", "key key"])
def test_long_hostile_lines_take_no_time(piece: str) -> None:
    assert len(hide(piece * 20_000)) <= len(piece) * 20_000  # ends at all: a pattern that backtracks would not


def test_an_empty_secret_is_seen_to_be_empty() -> None:
    assert is_secret("HF_TOKEN")
    assert value_of("HF_TOKEN", "") == ""
