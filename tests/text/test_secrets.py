"""What lets somebody in is hidden; what tells why a job broke is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.analysis.model import Evidence
from rankscope.report import words
from rankscope.text.secrets import HIDDEN, MAY_HOLD, clip, hide, is_secret, value_of


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


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: api_key=@",
        "RuntimeError: login failed: password=@",
        'ValueError: config: {"api_key": "@", "b": 1}',
        "env: WANDB_API_KEY=@",
        "line\\napi_key=@\\nnext",
        "3api_key=@",
        "apiKey=@",
        "accessToken: @",
        "wandb.api_key=@",
        "hf-token: @",
        "--wandb_key @ --lr 3",
        "['train.py', '--api-key', '@', '--lr']",
        '("HF_TOKEN", "@")',
        '{"name": "HF_TOKEN", "value": "@"}',
        "- name: DB_PASSWORD\n  value: @",
        r"{\"api_key\": \"@\"}",
        r'{\\"api_key\\": \\"two @\\"}',
        "Namespace(lr=1, api_key='@', x=2)",
        "Config(token=SecretStr('@'))",
        "{'token': b'@'}",
        'os.environ["HF_TOKEN"] = "@"',
        'export HF_TOKEN="@"',
        "setenv HF_TOKEN @",
        "ENV HF_TOKEN @",
        "docker run -e HF_TOKEN=@ image",
        "docker run --env=HF_TOKEN=@ image",
        "java -Dapi.key=@",
        "    token: @",
        "api_key: !!str @",
        "    client-key-data: @",
        "  wandb_api_key ................... @",
        "| api_key | @ |",
        "\u2502 hf_token \u2502 @ \u2502",
        "<password>@</password>",
        'api_keys: ["a", "@"]',
        'credentials: {"user": "@"}',
        "password is @",
        'the password was "two @"',
        "token is @",
        "with password @",
        "API key: @",
        "API Key provided: @.",
        "aws_secret_access_key = @",
        "MYSQL_PWD=@",
        "DB_PASS=@",
        'password="two words @"',
        "password='two words @' --lr 3",
        "password='cut @ off",
        "password=a&@",
        "password: /@",
        "api_key:               @",
        "api_keys: [a, @]",
        "api_keys: {'a': '@'}",
        "token=@[0m",
        "X-Api-Key: @",
        "Authorization: Basic @",
        "'Authorization': 'token @'",
        "Cookie: session=a; csrf=b; d=@",
        "https://eve:@@host.test/x",
        "https://@@host.test/x",
        "https://x-access-token:@@github.test/a",
        "redis://:@@host.test:6379/0",
        "postgres://eve:p@@@host.test/db",
        "mongodb+srv://eve:a/@@host.test/db",
        "proxy eve:@@host.test:3128",
        "Server=x;Pwd=@;Database=y",
        "AccountName=a;AccountKey=@==;EndpointSuffix=core",
        "https://x.test/a?sv=2020&sig=@%3D&se=1",
        "https://x.test/k?X-Amz-Credential=@%2F2020&X-Amz-Signature=@",
        "https://x.test/k?X-Amz-Security-Token=@&x=1",
        "https://x.test/k?X-Goog-Signature=@&x=1",
        '{"auths": {"r.test": {"auth": "@"}}}',
        "//registry.test/:_authToken=@",
        "curl -u eve:@ https://x.test",
        'curl --user "eve:@ x" https://x.test',
        "sshpass -p @ ssh x",
        "mysql -uroot -p@ db",
        "docker login -u eve -p @ r.test",
        "wandb login --relogin @abcdefgh",
        "machine api.wandb.ai login user password @",
        "machine a.test\n  login eve\n  password @",
    ],
)
def test_what_a_secret_is_assigned_to_hides_it(text: str) -> None:
    secret = "Sx7Qp9" + "Zk2Lm4"
    told = text.replace("@@@", f"@{secret}@").replace("@@", f"{secret}@") if "@@" in text else text.replace("@", secret)
    shown = hide(told)
    assert HIDDEN in shown
    assert secret not in shown
    assert hide(shown) == shown
    assert re.search(MAY_HOLD, told)


PEM_BODY = "Qq7Xw9Kd2Lm4Tb8R" * 4


@pytest.mark.parametrize("end", ["\n", "\\n", "\n[rank0]: ", " "])
def test_private_keys_are_hidden_to_their_end(end: str) -> None:
    head, foot = "-----BEGIN " + "RSA PRIVATE KEY-----", "-----END RSA " + "PRIVATE KEY-----"
    key = end.join([head, PEM_BODY, PEM_BODY, "Zk2Lm4==", foot])
    assert hide(f"bad key {key}, see the manual") == "bad key (hidden), see the manual"
    assert hide(f"bad key {key[:-40]}") == "bad key (hidden)"


def test_a_line_of_a_private_key_is_hidden_alone() -> None:
    assert hide(PEM_BODY) == hide(f"rank 3: {PEM_BODY}").removeprefix("rank 3: ") == HIDDEN


def test_what_stands_beside_a_key_of_aws_is_hidden() -> None:
    text = f"got {'AK' + 'IA'}{'Q7XW' * 4} and {'wJalr/Xt+' * 4}abcd here"
    assert hide(text) == "got (hidden) and (hidden) here"


def test_forty_digits_beside_wandb_are_a_key_and_elsewhere_a_commit() -> None:
    key = "0123456789" * 4
    assert hide(f"wandb: bad key {key}") == "wandb: bad key (hidden)"
    for text in (f"at {key}", f"wandb: {{'commit': '{key}'}}", f"https://wandb.test/x/tree/{key}"):
        assert hide(text) == text


ORDINARY = """\
KeyError: 'bias'
KeyError: 'layers.0.key_proj.weight'
tokens: 8192, num_tokens=4096 max_tokens=12 tokenizer=gpt2 pad_token_id=0 eos_token='</s>' per_token: 0.3
TOKENIZERS_PARALLELISM=false PWD=/home/eve OLDPWD=/x NCCL_IB_PKEY=0 num_key_value_heads: 8
key=layer.0.weight group_key=dp_0 store_key=abc cache_key=0a1b2c3d4e5f6a7b8c9d
variable coll_fabric_mgr_token=<not set>
missing keys: ['a.b', 'c'], unexpected keys: []
fx graph cache key=f0123456789abcdef0123456789abcdef01234567
commit 0123456789abcdef0123456789abcdef01234567
sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
forward_pass: 12 ms, pass=3, pass 1 of 2: ok
token: 'x' is unexpected
Unexpected token: end
the token is invalid; password is required; the secret is out; API key is missing
password: incorrect
store key is /default_pg/0
api_key=None token=null password=***
def f(token: str, api_key: Optional[str] = None)
token = tokens[i]; token = self.get(x)
token=[1, 2, 3] api_key=(hidden 2)
tokens per second per gpu: 123, time to first token=0.3
http://10.0.0.1:29500/x?a=b@c tcp://node01:29500 ssh://git@github.com/a git@github.com:a/b.git bob@x.org
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f6c8b2a4617 in /opt/conda/libc10.so)
_ZN3c1016ProcessGroupNCCL8WorkNCCL17checkTimeoutEN3c108optionalINSt6chrono8durationIlSt5ratioILl1ELl1000EEEEEE
GPU-123e4567-e89b-12d3-a456-426614174000
author: Bob, keyboard interrupt: key pressed
Bearer authentication failed
/usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/errors/handlers.py:12
task-0123456789abcdef0123 disk-1234567890123456789
token_type_ids=[0, 1], attention_mask
special_tokens_map: {"eos_token": "</s>"}""".splitlines()


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_lines_stay(text: str) -> None:
    assert hide(text) == text


PIECES = [
    "KEY", "KEY_", "--token ", "a=", "-", "://a:", "://a@", "hf_a", "key key", "password='", "password=[", "api key ",
    '\\"key\\":', "key .... ", "key |", "-----BEGIN PRIVATE KEY-----", "Aa1", "eyJa.", "sk-a", "login a password ",
    "sshpass -e ", "curl -u ", "wandb 0", "AKIA", "a@b:1", "password=a,b", "?sig=", "token\n", "=", ":", "secret_a_",
]  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_long_hostile_lines_come_to_an_end(piece: str) -> None:
    # a pattern that backtracks would not end
    assert hide(hide(piece * 20_000)) == hide(piece * 20_000)


@settings(deadline=None)
@given(st.lists(st.sampled_from([*PIECES, "password", "=", ": ", '"', "'", "\\", "abc1defghi2", ",", "(hidden)", "}"])))
def test_what_is_hidden_stays_as_it_is(pieces: list[str]) -> None:
    shown = hide("".join(pieces))
    assert hide(shown) == shown


@settings(deadline=None)
@given(st.lists(st.sampled_from([*PIECES, *ORDINARY, "abc1defghi2", "x" * 30, "=", ":", "\n"])))
def test_only_texts_that_may_hold_a_secret_change(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert re.search(MAY_HOLD, text) or hide(text) == text


def test_a_text_loses_its_secrets_before_it_is_cut() -> None:
    secret = "hf_" + "Zq7Xw9Kd2Lm4Tb8R" * 2
    assert clip(f"token {secret}", 20) == "token (hidden)"
    assert clip("x" * 30, 20) == "x" * 20


def test_an_empty_secret_is_seen_to_be_empty() -> None:
    assert is_secret("HF_TOKEN")
    assert value_of("HF_TOKEN", "") == ""
