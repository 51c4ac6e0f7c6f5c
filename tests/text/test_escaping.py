"""Nothing a file says may act on the terminal or on the page it is shown on."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rankscope.text.escaping import code_block, code_span, markdown, plain

HOSTILE = [
    "\x1b]52;c;ZXZpbA==\x07", "\x9b31m", "a\nb\r\nc\td", "\u202egnp.exe", "zero\u200bwidth", "line\u2028sep",
    "\udc80 lone", "\x00\x7f", "[link](https://x.test)", "![i](x)", "<img src=x onerror=y>", "@everyone hi",
    "``` fence", "a `b` c", "| a | b |", "# head", "1. list", "- item", "https://x.test/?a=1", "www.x.test", "#12",
    "GH-12", "**bold** _it_", "&lt;b&gt;", "$x^2$", "$`x`$", "\\`x`", "a\\|b", ":bomb:", "me@x.test", "~~no~~",
    "===", "> quote", "[x]: /u", "- [ ] t", "deadbeef1", "`", "``", "\\",
]  # fmt: skip
PAGE = MarkdownIt("gfm-like", {"linkify": True, "html": True})


@pytest.mark.parametrize("text", HOSTILE)
def test_plain_leaves_nothing_invisible(text: str) -> None:
    assert plain(text).isprintable()


def test_plain_shows_what_it_replaced() -> None:
    assert plain("a\x1b[31m\nb\u202ec\u00a0d") == "a\\x1b[31m\\nb\\u202ec d"


def test_plain_keeps_ordinary_text() -> None:
    assert plain("größe 模型 all_reduce #3") == "größe 模型 all_reduce #3"


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 10])
def test_plain_is_bounded(limit: int) -> None:
    assert len(plain("\x1b" * 1000, limit)) == limit


def test_plain_cuts_with_dots_only_when_needed() -> None:
    assert (plain("abcdef", 6), plain("abcdefg", 6)) == ("abcdef", "abc...")


def test_plain_keeps_as_much_as_anybody_reads() -> None:
    assert len(plain("x" * 10_000)) == 2_000
    assert len(plain("x" * 10_000, None)) == 10_000
    assert plain(None) == ""


@given(st.text())
def test_plain_holds_for_any_text(text: str) -> None:
    shown = plain(text, 200)
    assert len(shown) <= 200
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def _inline_kinds(source: str) -> set[str]:
    tokens = PAGE.parse(source)
    kinds = {t.type for t in tokens}
    return kinds | {c.type for t in tokens for c in t.children or []}


TEXT_ONLY = {"paragraph_open", "paragraph_close", "inline", "text", "code_inline"}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("frame", ["{}", "rank {} waits", "{}\n---", "{} {}"])
def test_markdown_makes_only_text_and_code(text: str, frame: str) -> None:
    kinds = _inline_kinds(frame.replace("{}", markdown(text)))
    assert kinds - TEXT_ONLY <= ({"hr", "heading_open", "heading_close"} if "---" in frame else set())


@given(st.text(alphabet=st.sampled_from(list("ab1 `*_[]()<>|\\#@!~$&:/.-+=\n\x1b\u202e")), max_size=40))
def test_markdown_makes_only_text_and_code_of_any_text(text: str) -> None:
    assert _inline_kinds("x " + markdown(text)) <= TEXT_ONLY
    assert _inline_kinds(markdown(text)) <= TEXT_ONLY


@given(st.text(alphabet=st.sampled_from(list("ab` |\\-\n")), max_size=30))
def test_markdown_stays_in_its_table_cell(text: str) -> None:
    tokens = PAGE.parse(f"| a | b |\n| --- | --- |\n| {markdown(text)} | end |\n")
    cells = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "td_open"]
    assert len(cells) == 2
    assert cells[1] == "end"


def test_mentions_and_links_stand_in_code() -> None:
    assert markdown("mail @bob or https://x.test/a now") == "mail `@bob` or `https://x.test/a` now"


def test_neighbours_share_one_span() -> None:
    assert (
        markdown("never issued all_reduce #3; ranks [1, 2] wait") == "never issued `all_reduce #3`; ranks `[1, 2]` wait"
    )


def test_prose_stays_prose() -> None:
    text = "Rank 12's host is stuck (3.2 ms), 99% sure: 255 ranks wait."
    assert markdown(text) == text
    change = "-11.2 % (-24.2 .. +8.3): 210 ms -> 187 ms"
    assert markdown(change) == change


def test_brackets_of_prose_stay_outside() -> None:
    assert markdown("see (dmesg, nvidia-smi -q).") == "see (dmesg, nvidia-smi `-q`)."
    assert markdown("calls f(x)") == "calls `f(x)`"


def test_code_span_and_block_cannot_be_left() -> None:
    assert code_span("a``b`") == "``` a``b` ```"
    assert code_block(["x", "```", "<b>"]).splitlines() == ["````", "x", "```", "<b>", "````"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("py-spy dump --pid PID (rank 3): what is it doing?", "`py-spy dump --pid PID` (rank 3): what is it doing?"),
        ("Take stacks: py-spy dump --native, or gdb.", "Take stacks: `py-spy dump --native`, or gdb."),
    ],
)
def test_a_command_stands_in_one_code_span(text: str, shown: str) -> None:
    assert markdown(text) == shown
