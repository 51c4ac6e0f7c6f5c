"""Keeps what lets somebody in, such as keys, tokens and passwords, out of everything that is shown.

A secret is told by the name that it is assigned to, by the command or the header that it follows, or by its shape. The
words of names are those of the keyword plugin of detect-secrets and of the generic rule of gitleaks, and the services
that training jobs meet. The shapes are those of public lists: the rules of gitleaks (github.com/gitleaks/gitleaks,
config/gitleaks.toml), the plugins of detect-secrets (github.com/Yelp/detect-secrets, detect_secrets/plugins), and the
pages of the makers that neither list names. Lengths are shorter here, because a log may have cut a secret.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Literal, NamedTuple

HIDDEN = "(hidden)"
"""What stands in the place of a secret."""

Holds = Literal["", "credential", "token", "key", "password"]
"""The kinds of secrets that names announce. Of a "credential" only long values of mixed characters are secrets, of a
"token" those that are neither a number nor a word, of a "key" those that are no code, of a "password" all."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled at its first use: most logs need few of them."""
    return re.compile(pattern)


# Names.


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MOST_OF_NAME = 120
"""Characters at the end of a name that are looked at."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_LETTERS = re.compile(r"[^a-z]+")
_PASSWORD = re.compile(r"secret|passw(?:or)?d|passphrase|passcode|credential|creds?$")
_LOGINS = _words(
    "db database user mysql postgres pg pgsql redis mongo mongodb smtp ssh sudo ssl key admin root ldap proxy ftp "
    "rabbitmq registry docker http https email mail sql my service keystore truststore git"
)
"""Words before "pass": others pass forward and backward."""
_OPENERS = _words(
    "api access private secret ssh auth authentication authorization encryption decryption signing account service "
    "storage master license subscription client app application admin user deploy personal session wandb hf "
    "huggingface hub openai anthropic azure aws gcp google gcs github gitlab git bitbucket slack discord telegram "
    "npm pypi docker comet neptune mlflow kaggle replicate databricks stripe sendgrid vault age cohere groq xai "
    "together ngc nvidia nvapi modal runpod lambda mistral deepseek gemini cerebras fireworks clearml langsmith "
    "langchain pinecone weaviate qdrant redis mongo postgres mysql database db sentry datadog dd grafana newrelic "
    "honeycomb webhook jwt hmac rsa dsa ecdsa tls ssl project organization provider llm serper tavily exa jina voyage "
    "openrouter litellm determined swanlab wb consumer oauth bearer ingest"
)
"""Words before "key" by which it opens something; other keys are of caches, stores and dictionaries."""
_OPENED_KEYS = _words("api access secret private ssh auth")
_GLUED_KEY = re.compile(
    r"\w*(?:api|access|secret|private|auth|ssh|account|encryption|signing|master|license|subscription)keys?"
)
_GLUED_TOKEN = re.compile(
    r"(?:access|auth|api|bearer|identity|session|refresh|id|csrf|xsrf|bot|user|hf|github|gitlab|git|service|personal"
    r"|oauth|registry|npm|slack|wandb|security)tokens?"
)
_OF_LANGUAGE = _words(
    "pad eos bos unk sep cls mask image video audio special next per last first new max min start end stop prefix "
    "think thinking additional decoder encoder draft each vocab placeholder tool system assistant begin eot eom eod "
    "fim suffix middle unexpected current previous prev prompt output input generated sampled sample top bad good "
    "single every one sub text language boi eoi boa eoa fake latent speech patch"
)
"""Words before "token" that say that it is of a tokenizer."""
_OF_CACHES = _words("cache primary foreign sort num value dict hash graph lookup partition")
"""Words beside KEY in names of variables that hold no secret."""
_AFTERWARDS = _words("id ids data value string str base b pem material json file path secret key")
"""Words behind "key" or "token" that do not change what it is."""


@lru_cache(maxsize=1 << 14)
def _held_by(name: str) -> Holds:
    """The kind of secret that such a name announces; "" for none."""
    name = name[-_MOST_OF_NAME:]
    words = tuple(filter(None, _NO_LETTERS.split(_HUMP.sub("_", name).lower())))
    last, before = (("", "", *words)[-1], ("", "", *words)[-2])
    if any(map(_PASSWORD.search, words)) or (last in ("pass", "pwd") and before in _LOGINS):
        return "password"
    if _opens(words, is_variable=name.upper() == name) or (last == "pwd" and name not in ("PWD", "OLDPWD", "OLD_PWD")):
        return "key"
    if _is_token(words):
        return "token"
    return "credential" if last in ("auth", "jwt", "signature", "bearer") or name == "KEY" else ""


def _opens(words: tuple[str, ...], is_variable: bool) -> bool:
    """Whether a key with this name opens something."""
    if any(map(_GLUED_KEY.fullmatch, words)):
        return True
    if is_variable and "key" in words and len(words) > 1 and not _OF_CACHES & set(words):
        return True
    at = next((i for i, word in enumerate(words) if i and word in ("key", "keys")), 0)
    openers = _OPENED_KEYS if at and words[at] == "keys" else _OPENERS
    return at > 0 and words[at - 1] in openers and _AFTERWARDS.issuperset(words[at + 1 :])


def _is_token(words: tuple[str, ...]) -> bool:
    """Whether a token with this name is none of a tokenizer."""
    if any(map(_GLUED_TOKEN.fullmatch, words)):
        return True
    at = next((i for i, word in enumerate(words) if word == "token"), -1)
    if at < 0 or not (_AFTERWARDS - {"id", "ids"}).issuperset(words[at + 1 :]):
        return False
    return not at or words[at - 1] not in _OF_LANGUAGE


def is_secret(name: str) -> bool:
    """Whether a setting of this name may hold a secret: HF_TOKEN, apiKey, db-password; a number of tokens is none."""
    return _held_by(name) != ""


def value_of(name: str, value: str) -> str:
    """The value of a setting as it may be shown."""
    return HIDDEN if is_secret(name) and value else hide(value)


# Values, behind names, commands and headers.

_QUOTE = re.compile(r"[bruf]{0,2}(\\*)([\"'`])")
_TO_QUOTE = {quote: re.compile(rf"(?:[^{quote}\\\n]|\\(?!\n)[^\n])*+") for quote in "\"'`"}
_BARE = re.compile(
    r"""(?:[^\s"'`,;&)}\]<>|\\]|[,;&)}\]"'`<>|](?![\s"'`,;&)}\]<>|\\]|$|[\w.-]{1,40}=)|\\(?![nrt"'\\\s]|$))++"""
)
"""A value without quotes ends at a blank, and at a sign of its surroundings with nothing of its own behind it."""
_LIST = re.compile(r"\[[^\]\n]*+\]?|\{[^}\n]*+\}?")
_CALL = re.compile(r"[A-Za-z_][\w.]{0,80}(?:\(|\[(?!\d{0,3}m))")
"""The beginning of an expression, which is no secret; `[0m` is a colour that has lost its first byte."""
_TYPES = _words("str int bool bytes float any optional string dict list object union")
_NOTHING = _words("none null nil true false undefined yes no unset redacted")
_NOTHING_SHOWN = re.compile(r"[*x.<>\[\]_-]+|\(hidden\)", re.IGNORECASE)
_MARKER = re.compile(r"[\[<(](?:redacted|hidden(?: \d{1,6})?|masked|removed|not set|unset)[\])>]", re.IGNORECASE)
_PROSE = _words(
    "incorrect invalid required missing wrong expired not is was are must cannot mismatch mismatched failed denied "
    "authentication the a an no empty too unknown rejected for from error in on and or to please only being set unset "
    "given provided needed accepted refused unauthorized forbidden found does did has have with without"
)
"""Words of sentences about secrets."""
_NUMBER = re.compile(r"[+-]?\d{1,12}(?:[.,]\d{1,12})?[KMBkmb%]?")


def _span(text: str, at: int) -> tuple[int, int, bool]:
    """Begin and end of the value that begins at `at`, without its quotes, and whether it is quoted."""
    opened = _QUOTE.match(text, at)
    if opened is None:
        bare = _BARE.match(text, at)
        return at, bare.end() if bare else at, False
    begin, (slashes, quote) = opened.end(), opened.groups()
    if not slashes:
        closed = _TO_QUOTE[quote].match(text, begin)
        return begin, closed.end() if closed else begin, True
    line = text.find("\n", begin)
    end = text.find(slashes + quote, begin, line if line >= 0 else len(text))
    return begin, end if end >= 0 else line if line >= 0 else len(text), True


def _secret_span(text: str, at: int, holds: Holds, sign: str) -> tuple[int, int] | None:
    """Begin and end of the secret behind a name; None if what stands there is none."""
    if _MARKER.match(text, at):
        return None
    listed = _LIST.match(text, at)
    if listed is not None:
        # a tokenizer has lists of numbers
        whole = holds in ("password", "key") or '"' in listed[0] or "'" in listed[0]
        return listed.span() if whole else None
    call = _CALL.match(text, at)
    if call is not None and _QUOTE.match(text, call.end()):
        at = call.end()
    elif call is not None and (holds != "password" or call[0][:-1].rpartition(".")[2].lower() in _TYPES):
        return None
    begin, end, quoted = _span(text, at)
    value = text[begin:end]
    if not value or value.lower() in _NOTHING or _NOTHING_SHOWN.fullmatch(value):
        return None
    if not quoted and sign != "=" and (value.lower() in _TYPES or value.strip(".!").lower() in _PROSE):
        return None
    return (begin, end) if _may_be(holds, value, quoted, sign) else None


def _may_be(holds: Holds, value: str, quoted: bool, sign: str) -> bool:
    """Whether a value may be what its name holds."""
    if holds == "password":
        return True
    if holds == "credential":
        return _is_mixed(value)
    if holds == "token":
        prose = not quoted and sign == ":" and value.isalpha() and value.islower() and len(value) < 16
        return not prose and not _NUMBER.fullmatch(value)
    return True


def _is_mixed(value: str) -> bool:
    """Whether a text looks made by a machine: at least ten letters and digits in one word."""
    return len(value) >= 10 and not re.search(r"\s", value) and any(map(str.isdigit, value)) and not value.isdigit()


# Names with values.

_NAMED = re.compile(
    # by its groups: NAME=value, NAME: value, the NAME is value, name: NAME, value: value; NAME ... value in a table,
    # "--NAME", "value" in a list, <NAME>value</NAME>, --NAME value
    r"""(?:(?<=\\[nrt])|(?<![\w.\-]))([\w.\-]++)(?:
    (\\*["'`]?\]?[ \t]{0,40}(?:=>|:=|==|=)[ \t]{0,40}(?!=))
    |(\\*["'`]?\]?[ \t]{0,8}(?:[ ](?:provided|used|given|value))?:[ \t]{0,40}(?:!!\w{1,20}[ \t])?(?!//|:))
    |([ \t]{1,8}(?:is|was|are)[ \t]{1,8})
    |(\\*["']?,?\s{0,40}\\*["']?value\\*["']?[ \t]{0,4}[=:][ \t]{0,4})
    |([ \t]{1,8}(?:\.{3,}+|[|\u2502])[ \t]{1,60})
    |(\\*["'],\s{0,8}(?=\\*["']))
    |(>)
    |([ \t]{1,8}(?!-))
    )""",
    re.VERBOSE,
)
_SIGNS = ("=", ":", "is", "=", "=", "pair", "<", "option")
"""What stands between name and value, by the group of the pattern."""
_SETTERS = re.compile(r"(?:\bsetenv|\bENV|\bARG|\bsetx)[ \t]{1,4}$")
_FIRST_WORD = re.compile(r"([A-Za-z]{2,20})[ \t]$")


def _without_named(text: str) -> str:
    """The text without the values of names that hold secrets."""
    parts, done, at = [], 0, 0
    while (found := _NAMED.search(text, at)) is not None:
        at = found.end()
        group = found.lastindex or 2
        span = _named_span(text, found, _SIGNS[group - 2])
        if span is not None:
            parts += [text[done : span[0]], HIDDEN]
            done = at = span[1]
        elif group > 3:
            at = found.end(1)  # what may be no separator can begin the next name
    return "".join([*parts, text[done:]]) if parts else text


def _named_span(text: str, found: re.Match[str], sign: str) -> tuple[int, int] | None:
    name = found[1].rstrip(".-").removeprefix("-D")
    if text[found.start() - 1 : found.start()] == "\\" and name[0:1] in ("n", "r", "t") and not _held_by(name):
        name = name[1:]  # a line end as JSON writes it
    if name.lower() in ("key", "keys", "token", "phrase", "code"):
        # "API key: ..."
        first = _FIRST_WORD.search(text[max(0, found.start() - 22) : found.start()])
        name = f"{first[1]}_{name}" if first else name
    holds = _held_by(name)
    if not holds:
        return None
    if sign == "is" and "pass" not in name.lower():
        holds = "credential"
    if (
        sign == "option"
        and not name.startswith("-")
        and not _SETTERS.search(text[max(0, found.start() - 12) : found.start()])
    ):
        return None
    if sign == "pair" and not (name.startswith("-") or name.isupper()):
        return None
    if sign == "<" and text[found.start() - 1 : found.start()] != "<":
        return None
    return _secret_span(text, found.end(), holds, sign)


# Commands and headers.

_LEADS = (
    # the word that must be there, what stands before the secret, the secret; None for a value of any form
    ("uthorization", r"""(?i:\bauthorization\\*["']?[ \t]{0,4}[:=][ \t]{0,4}\\*["']?"""
        r"(?:(?:basic|bearer|token|digest|apikey|negotiate|key)[ \t]{1,4})?)", r"""(?!\(hidden\))[^\s"'\\,]{4,}"""),
    ("earer", r"\b(?:[Bb]earer|BEARER)[ \t]{1,4}", r"(?![a-z]+\b)[\w.~+/=-]{8,}"),
    ("ookie", r"""\b[Cc]ookie\\*["']?[ \t]{0,4}:[ \t]{0,4}\\*["']?""", r"""[^\r\n"'\\]{4,}"""),
    ("sshpass", r"\bsshpass[ \t]{1,4}(?:-[efdv]\S{0,80}+[ \t]{1,4}+){0,4}+-p[ \t]{0,4}", None),
    ("curl", r"(?<=\s)(?:-u|-U|--user|--proxy-user)[ \t=]{0,4}(?=\S{1,200}:)", None),
    (" login", r"(?<=\s)-p[ \t=]{0,4}", None),
    ("mysql", r"(?<=\s)-p(?=\S)", None),
    ("redis-cli", r"(?<=\s)-a[ \t]{1,4}", None),
    ("wandb login", r"\bwandb login(?:[ \t]{1,4}--?[\w=:/.-]{1,100}){0,4}[ \t]{1,4}", r"[\w-]{16,}"),
    ("login ", r"\blogin\s{1,8}\S{1,200}\s{1,8}(?:account\s{1,8}\S{1,200}\s{1,8})?password\s{1,8}", None),
    ("password ", r"\b(?:with|using)(?: the)? password[ \t]{1,4}", None),
    ("=", r"(?<=[?&;])(?:sig|signature|key|code|auth|sas|st)=", r"""[^\s"'<>&;]{8,}"""),
)  # fmt: skip


def _after_lead(text: str, lead: str, secret: str | None) -> str:
    """The text without what stands behind a command or a header."""
    parts, done, at = [], 0, 0
    while (found := _compiled(lead).search(text, at)) is not None:
        at = found.end()
        if secret is None:
            span = _secret_span(text, at, "password", ":")
        else:
            told = _compiled(secret).match(text, at)
            span = told.span() if told is not None and told[0] != HIDDEN else None
        if span is not None:
            parts += [text[done : span[0]], HIDDEN]
            done = at = span[1]
    return "".join([*parts, text[done:]]) if parts else text


# Whole texts.

_PARTS_OF_NAMES = ("key", "token", "secret", "pass", "pwd", "cred", "auth", "jwt", "signature", "bearer")
"""Parts of all names that hold a secret."""
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:[^-]|-(?!----END))*+-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|[\s\S]*+)"
    r"|PuTTY-User-Key-File-\d:[\s\S]*+"
)
"""A private key in any of its written forms, to its end, or to that of the text."""
_KEY_LINE = re.compile(
    r"(?<![\w+/])(?=[a-z0-9+/]{0,75}[A-Z])(?=[A-Z0-9+/]{0,75}[a-z])(?=[A-Za-z+/]{0,75}\d)"
    r"(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{76})(?![\w+/=.-])"
)
"""A line of a private key: a word of 64, 70 (OpenSSH) or 76 signs in base64."""
_KEY_LINE_SIGNS = 64
_LOGIN = re.compile(
    r"""(?<=://)(?![a-z_-]{1,12}@)(?:[^\s/?#"'<>]{1,400}(?=@)"""
    r"""|[^\s:/@?#"'<>]{0,200}+:(?!\d{1,5}[/?#])[^\s"'<>@]{1,400}+(?=@))"""
)
"""User and password, or a token, in an address; not a plain user, such as git."""
_BARE_LOGIN = re.compile(
    r"(?<![\w./@:-])[\w.-]{1,60}+:(?=[^\d\s]{0,200}\d)[\w.~!$%^*+=?-]{8,200}(?=@[A-Za-z0-9])", re.ASCII
)
"""User and password before a host, without the scheme of an address."""
_AWS_SECRET = re.compile(
    r"(?<![A-Za-z0-9+/=])(?=[a-z0-9+/]{0,39}[A-Z])(?=[A-Z0-9+/]{0,39}[a-z])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])"
)
_FORTY_DIGITS = re.compile(r"(?<![\w/@-])[0-9a-f]{40}(?!\w)")
_OF_GIT = re.compile(r"(?:commit|sha|rev|revision|hash|git|head|tree|branch)\W{0,6}$", re.IGNORECASE)
_KAGGLE_KEY = re.compile(
    r"(?<=key\": \")[0-9a-f]{32}(?=\")|(?<=key\":\")[0-9a-f]{32}(?=\")|(?<=key': ')[0-9a-f]{32}(?=')"
)
_BEGIN = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"
"""Where a secret begins: behind no letter, unless that is of a line end in JSON or of a sign in an address."""


class SecretShape(NamedTuple):
    """The shape of the secrets of one maker."""

    maker: str
    signs: str
    """Words in small letters, one of which every such secret holds, so that other lines are not searched."""
    pattern: str
    """A regular expression, of a secret that follows neither a letter nor a digit."""


SHAPES = (
    SecretShape("Hugging Face", "hf_", r"hf_[A-Za-z0-9]{16,}"),
    SecretShape("Hugging Face, organization", "api_org_", r"api_org_[A-Za-z0-9]{16,}"),
    SecretShape("OpenAI, Anthropic and others", "sk-", r"sk-(?=[\w-]{0,80}\d)[\w-]{16,}"),
    SecretShape("OpenAI, session", "sess-", r"sess-[A-Za-z0-9]{24,}"),
    SecretShape("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{16,}"),
    SecretShape("GitHub, fine-grained", "github_pat_", r"github_pat_\w{16,}"),
    SecretShape(
        "GitLab",
        "glpat- gldt- glptt- glrt- glcbt- glagent- glsoat- glimt- glft- gloas- glffct-",
        r"gl(?:pat|dt|ptt|rt|cbt|agent|soat|imt|ft|oas|ffct)-[\w.-]{16,}",
    ),
    SecretShape("GitLab, old runner", "gr1348941", r"GR1348941[\w-]{16,}"),
    SecretShape("AWS, key id", "akia asia abia acca a3t", r"(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}"),
    SecretShape("AWS, Bedrock", "absk", r"ABSK[A-Za-z0-9+/]{80,}={0,2}"),
    SecretShape("AWS, Bedrock for a short time", "bedrock-api-key-", r"bedrock-api-key-[\w+/=-]{16,}"),
    SecretShape("Google, API", "aiza", r"AIza[\w-]{28,}"),
    SecretShape("Google, OAuth", "ya29.", r"ya29\.[\w-]{16,}"),
    SecretShape("Google, refresh", "1//0", r"1//0[\w-]{30,}"),
    SecretShape("Google, client", "gocspx-", r"GOCSPX-[\w-]{16,}"),
    SecretShape("Azure, storage", "==", r"[A-Za-z0-9+/]{86}=="),
    SecretShape("Azure, application", "q~", r"[\w~.]{3}\dQ~[\w~.-]{31,34}"),
    SecretShape("Slack", "xox", r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{8,}"),
    SecretShape("Slack, application", "xapp-", r"xapp-\d-[A-Za-z0-9-]{8,}"),
    SecretShape("Slack, webhook", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w+/-]{8,}"),
    SecretShape("Discord, webhook", "/api/webhooks/", r"(?:discord(?:app)?\.com)?/api/webhooks/\d{5,}/[\w-]{16,}"),
    SecretShape("Discord, bot", "discord", r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),
    SecretShape("Teams, webhook", "webhook.office.com/", r"webhook\.office\.com/webhookb2/[\w@/-]{16,}"),
    SecretShape("Telegram, bot", ":a", r"(?:bot)?\d{5,16}:A[\w-]{34}"),
    SecretShape("npm", "npm_", r"npm_[A-Za-z0-9]{20,}"),
    SecretShape("PyPI", "pypi-ag", r"pypi-Ag[\w-]{16,}"),
    SecretShape("Docker", "dckr_", r"dckr_(?:pat|oat)_[\w-]{16,}"),
    SecretShape("Databricks", "dapi", r"dapi[a-f0-9]{32}(?:-\d)?"),
    SecretShape("DigitalOcean", "_v1_", r"do[opr]_v1_[a-f0-9]{32,}"),
    SecretShape("Stripe", "_test_ _live_ _prod_", r"(?:sk|rk)_(?:test|live|prod)_[A-Za-z0-9]{10,}"),
    SecretShape("Stripe, webhook", "whsec_", r"whsec_[A-Za-z0-9+/]{16,}"),
    SecretShape("SendGrid", "sg.", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    SecretShape("Mailgun", "key-", r"key-[0-9a-f]{32}"),
    SecretShape("Vault", "hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{20,}"),
    SecretShape("Terraform", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}"),
    SecretShape("age", "age-secret-key-1", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    SecretShape("1Password", "ops_eyj", r"ops_eyJ[A-Za-z0-9+/]{40,}={0,3}"),
    SecretShape(
        "Doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}"
    ),
    SecretShape("Weights & Biases", "wandb_v", r"wandb_v\d_\w{20,}"),
    SecretShape("Kaggle", "kgat_", r"KGAT_[A-Za-z0-9]{20,}"),
    SecretShape("Groq", "gsk_", r"gsk_[A-Za-z0-9]{20,}"),
    SecretShape("xAI", "xai-", r"xai-[A-Za-z0-9]{20,}"),
    SecretShape("Together", "tgp_v1_", r"tgp_v1_[\w-]{20,}"),
    SecretShape("Replicate", "r8_", r"r8_[A-Za-z0-9]{20,}"),
    SecretShape("Perplexity", "pplx-", r"pplx-[A-Za-z0-9]{20,}"),
    SecretShape("Fireworks", "fw_", r"fw_(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{20,}"),
    SecretShape("Cerebras", "csk-", r"csk-[a-z0-9]{20,}"),
    SecretShape("NVIDIA NGC", "nvapi-", r"nvapi-[\w-]{20,}"),
    SecretShape("Modal", "ak- as-", r"a[ks]-(?=[A-Za-z]{0,21}\d)[A-Za-z0-9]{22}(?![\w-])"),
    SecretShape("RunPod", "rpa_", r"rpa_[A-Z0-9]{20,}"),
    SecretShape("Lambda", "secret_", r"secret_[\w-]{1,60}_[0-9a-f]{32}\.[A-Za-z0-9]{16,}"),
    SecretShape("Artifactory", "akcp", r"AKCp[A-Za-z0-9]{40,}"),
    SecretShape("Artifactory, reference", "cmvmd", r"cmVmd[A-Za-z0-9]{50,}"),
    SecretShape("Atlassian", "atatt3", r"ATATT3[\w=-]{30,}"),
    SecretShape("Alibaba", "ltai", r"LTAI[A-Za-z0-9]{12,}"),
    SecretShape("Tencent", "akid", r"AKID[A-Za-z0-9]{28,}"),
    SecretShape("Yandex", "aqvn", r"AQVN[\w-]{30,}"),
    SecretShape("Grafana", "glc_ glsa_", r"gl(?:c|sa)_[\w+/=-]{20,}"),
    SecretShape("New Relic", "nrak- nrii- nrjs-", r"NR(?:AK|II|JS)-[A-Za-z0-9-]{19,}"),
    SecretShape("Sentry", "sntrys_ sntryu_", r"sntry[su]_[\w+/=-]{20,}"),
    SecretShape("Notion", "ntn_", r"ntn_[A-Za-z0-9]{20,}"),
    SecretShape("Linear", "lin_api_", r"lin_api_[A-Za-z0-9]{20,}"),
    SecretShape("Postman", "pmak-", r"PMAK-[a-f0-9]{20,}(?:-[a-f0-9]{1,40})?"),
    SecretShape("Pulumi", "pul-", r"pul-[a-f0-9]{30,}"),
    SecretShape("Prefect", "pnu_ pnb_", r"pn[ub]_[A-Za-z0-9]{20,}"),
    SecretShape("Sourcegraph", "sgp_", r"sgp_(?:(?:[a-fA-F0-9]{16}|local)_)?[a-fA-F0-9]{30,}"),
    SecretShape("Supabase", "sbp_", r"sbp_[a-f0-9]{30,}"),
    SecretShape("PlanetScale", "pscale_", r"pscale_(?:tkn|oauth|pw)_[\w=.-]{20,}"),
    SecretShape("Fly.io", "fo1_ fm1 fm2_", r"(?:fo1_[\w-]{30,}|fm[12][ar]?_[A-Za-z0-9+/]{60,}={0,3})"),
    SecretShape("Heroku", "hrku-", r"HRKU-[\w-]{20,}"),
    SecretShape("OpenShift", "sha256~", r"sha256~[\w-]{30,}"),
    SecretShape("Dynatrace", "dt0c01.", r"dt0c01\.[\w.]{40,}"),
    SecretShape("RubyGems", "rubygems_", r"rubygems_[a-f0-9]{30,}"),
    SecretShape("Facebook", "eaa", r"EAA[MC][A-Za-z0-9]{60,}"),
    SecretShape("a JSON Web Token, or other JSON in base64", "eyj", r"eyJ[\w+/=-]{14,}(?:\.[\w+/=-]*){0,4}"),
    SecretShape("a private key in base64", "ls0tls1crudjti", r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]*"),
)
"""One row for each kind of secret, each with an example in the tests."""
_SIGNED_SHAPES = tuple((sign, row.pattern) for row in SHAPES for sign in row.signs.split())


def _without_wandb_key(found: re.Match[str]) -> str:
    """A key of Weights & Biases has the form of a commit of git: the words before it tell them apart."""
    return found[0] if _OF_GIT.search(found.string[max(0, found.start() - 20) : found.start()]) else HIDDEN


_MOST_ROUNDS = 8


def hide(text: str) -> str:
    """A text, such as a line of a log or a command line, without the secrets in it; hidden once more, it stays."""
    for _ in range(_MOST_ROUNDS):
        # what is left can look like another secret: a name stood behind one without a blank
        shown = _hidden_once(text)
        if shown == text:
            break
        text = shown
    return text


def _hidden_once(text: str) -> str:
    if "PRIVATE KEY" in text or "PuTTY-User" in text:
        text = _PRIVATE_KEY.sub(HIDDEN, text)
    small = text.lower()
    for word, lead, secret in _LEADS:
        if word in text:
            text = _after_lead(text, lead, secret)
    if any(word in small for word in _PARTS_OF_NAMES):
        text = _without_named(text)
    if "://" in text:
        text = _LOGIN.sub(HIDDEN, text)
    if "@" in text:
        text = _BARE_LOGIN.sub(HIDDEN, text)
    if "akia" in small or "asia" in small:
        text = _AWS_SECRET.sub(HIDDEN, text)
    if "wandb" in small:
        text = _FORTY_DIGITS.sub(_without_wandb_key, text)
    if "username" in small or "kaggle" in small:
        text = _KAGGLE_KEY.sub(HIDDEN, text)
    for sign, pattern in _SIGNED_SHAPES:
        if sign in small:
            text = _compiled(f"{_BEGIN}(?:{pattern})").sub(HIDDEN, text)
    if len(text) >= _KEY_LINE_SIGNS and max(map(len, text.split()), default=0) >= _KEY_LINE_SIGNS:
        text = _KEY_LINE.sub(HIDDEN, text)
    return text


def clip(text: str, limit: int) -> str:
    """The first `limit` characters of a text, which loses its secrets first: of a cut one the shape is gone."""
    return text if len(text) <= limit else hide(text[: 2 * limit])[:limit]


_LITERALS = sorted({
    *_PARTS_OF_NAMES, *(word.lower() for word, _, _ in _LEADS if len(word) > 1), *(sign for sign, _ in _SIGNED_SHAPES),
    "wandb", "username", "putty-user", "://", "@",
})  # fmt: skip
MAY_HOLD = rf"(?i){'|'.join(map(re.escape, _LITERALS))}|[?&;](?:sig|sas|st|code)=|[a-z0-9+/]{{64}}"
"""A regular expression without look-around, for many texts at once: `hide` changes only those that it matches."""
