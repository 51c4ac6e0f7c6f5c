"""Keeps what lets somebody in, such as keys and tokens, out of everything that is shown."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
"""What stands in the place of a secret."""
_WORDS = r"TOKEN(?!S(?![A-Z])|I[SZ])|SECRET|PASSW(?:OR)?D|CREDENTIAL"
_NAME = re.compile(rf"KEY|{_WORDS}", re.IGNORECASE)
_IN_PROSE = re.compile(
    rf"(?:^|[_-])(?:{_WORDS}|(?:API|ACCESS|PRIVATE|SSH|AUTH|ENCRYPTION)[_-]?KEY)(?:$|[_-])", re.IGNORECASE
)
_OPTION = re.compile(r"(?<!\S)(--?[A-Za-z][\w.-]{0,80})(=|[ \t]{1,4}(?!-))(\S+)")
_ASSIGNED = re.compile(r"""(?<![\w-])([A-Za-z_]\w{0,80})(["']?[ \t]?[=:][ \t]?)(["']?)([^\s"',;&)}\]]+)""")
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|AKIA[A-Z0-9]{12,}|sk-[A-Za-z0-9_-]{16,}"
    r"|xox[abp]-[A-Za-z0-9-]{8,})"
)
"""Tokens of Hugging Face, GitHub, AWS, OpenAI and Slack, as their makers print them."""
_LOGIN = re.compile(r"(?<=://)[^\s/@:]{1,200}:[^\s/@]{1,200}(?=@)")
_BEARER = re.compile(r"(?<=\b[Bb]earer )[\w.~+/=-]{8,}")


def is_secret(name: str) -> bool:
    """Whether a setting of this name may hold a secret: *KEY*, *TOKEN*, *SECRET*, *PASSWORD*; TOKENIZERS do not."""
    return _NAME.search(name) is not None


def value_of(name: str, value: str) -> str:
    """The value of a setting as it may be shown."""
    return HIDDEN if is_secret(name) and value else hide(value)


def hide(text: str) -> str:
    """A line of a log, or a command line, without the secrets in it: what is assigned to such names, known shapes."""
    text = _OPTION.sub(_without_option, text)
    text = _ASSIGNED.sub(_without_value, text)
    return _BEARER.sub(HIDDEN, _LOGIN.sub(HIDDEN, _SHAPES.sub(HIDDEN, text)))


def _without_option(match: re.Match[str]) -> str:
    name = match[1].lstrip("-").replace(".", "-")
    return f"{match[1]}{match[2]}{HIDDEN}" if _IN_PROSE.search(name) else match[0]


def _without_value(match: re.Match[str]) -> str:
    """Names of variables count as those of settings do; in small letters only what is clearly a secret does.

    "KeyError: 'bias'" and the keys of a store are what the reader looks for.
    """
    name = match[1]
    secret = is_secret(name) if name.isupper() else _IN_PROSE.search(name)
    return f"{name}{match[2]}{match[3]}{HIDDEN}" if secret else match[0]
