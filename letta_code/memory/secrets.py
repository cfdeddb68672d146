"""Secrets in text that is about to become memory: found by their shape, and masked wherever they are named.

The shapes follow the rules of gitleaks and of Yelp's detect-secrets (AWS, GitHub, GitLab, Slack, Stripe,
JWT, private keys, basic authentication, keyword assignments). The latter is no dependency: its plugins
import an HTTP client, its keyword rule takes prose about passwords for one, and newer keys (`sk-ant-`,
`github_pat_`, `AIza`) are unknown to it. A rule's regular expression runs only where one of its hints
occurs, so that prose costs next to nothing. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from letta_code.errors import MemoryEditError

_SHOWN = 4
_HIDDEN = "…"


@dataclass(frozen=True, slots=True)
class Secret:
    """What looks like a secret. `line` is 1-based; `masked` is what may be shown of it."""

    kind: str
    line: int
    masked: str
    value: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.masked} in line {self.line}"


@dataclass(frozen=True, slots=True)
class _Rule:
    """`hints`: one of them is in any text that matches. Group 1 of the pattern is the secret; `shown`: its
    first characters only say what it is."""

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    shown: bool = True


def _token(kind: str, hints: str, pattern: str) -> _Rule:
    return _Rule(kind, tuple(hints.split()), re.compile(rf"(?<![A-Za-z0-9])({pattern})"))


_TOKENS = (
    _token("AWS key", "AKIA ASIA ABIA ACCA", r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Za-z])"),
    _token("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,255}"),
    _token("GitHub token", "github_pat_", r"github_pat_\w{20,255}"),
    _token("GitLab token", "glpat- gldt- glft- glsoat- glrt- glcbt- glptt- glagent- gloas-",
           r"gl(?:pat|dt|ft|soat|rt|cbt|ptt|agent|oas)-[\w-]{16,}"),
    _token("API key", "sk-", r"sk-[\w-]{16,400}"),
    _token("Slack token", "xox xapp-", r"(?:xox[abeoprs]|xapp)-[\w-]{10,}"),
    _token("Stripe key", "k_live_ k_test_ whsec_", r"(?:[rs]k_(?:live|test)_|whsec_)[0-9A-Za-z]{16,}"),
    _token("Google key", "AIza", r"AIza[\w-]{30,}"),
    _token("Google token", "GOCSPX- ya29.", r"(?:GOCSPX-|ya29\.)[\w-]{20,}"),
    _token("npm token", "npm_", r"npm_[A-Za-z0-9]{30,}"),
    _token("PyPI token", "pypi-", r"pypi-[A-Za-z0-9_-]{40,}"),
    _token("Hugging Face token", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _token("API key", "gsk_ xai- pplx- r8_", r"(?:gsk_|xai-|pplx-|r8_)[A-Za-z0-9]{32,}"),
    _token("SendGrid key", "SG.", r"SG\.[\w-]{16,64}\.[\w-]{16,64}"),
    _token("token", "dop_v1_ dckr_pat_ tskey- hvs. shpat_ lin_api_ ntn_ dapi",
           r"(?:dop_v1_|dckr_pat_|tskey-(?:auth|api)-|hvs\.|shpat_|lin_api_|ntn_|dapi)[\w-]{24,}"),
    _token("Telegram token", ":AA", r"\d{8,10}:AA[\w-]{32,34}"),
    _token("JSON web token", "eyJ", r"(?<![\w-])eyJ[\w-]{8,4000}\.eyJ[\w-]{8,8000}\.[\w-]{10,2000}"),
    _token("age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    _token("webhook", "hooks.slack.com", r"https://hooks\.slack\.com/(?:services|workflows|triggers)/T\w+/\w+/\w+"),
    _token("webhook", "api/webhooks/", r"https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}"),
    _token("webhook", "webhook.office.com", r"https://[\w-]+\.webhook\.office\.com/webhookb2/[\w@/-]{20,}"),
    _token("Azure key", "AccountKey= AccessKey=", r"(?:Account|SharedAccess)Key=[A-Za-z0-9+/]{30,}={0,2}"),
    _token("Azure signature", "sig=", r"sig=[A-Za-z0-9%+/]{40,}"),
)  # fmt: skip

# The header alone is prose; a line of base64 below it (quoted, indented or with `\n` in JSON) is a key.
_PEM = _Rule(
    "private key",
    ("PRIVATE KEY",),
    re.compile(
        r"(-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----(?:[ \t>]*(?:\r?\n|\\r|\\n)[ \t>]*)+"
        r"(?:[A-Z][A-Za-z-]{2,20}: [^\n]{0,200}\n[\s>]*)*"
        r"(?:[A-Za-z0-9+/=]{16}|[A-Za-z0-9+/=]{4,15}\s*(?:\\r|\\n)*\s*(?:\.{3}|…|-----END))"
        r"[\s\S]*?(?:-----END [A-Z0-9 ]{0,60}-----|\Z))"
    ),
    shown=False,
)
_PUTTY = _Rule(
    "private key", ("Private-Lines: ",), re.compile(r"Private-Lines: \d+\s+([A-Za-z0-9+/=\s]{16,})"), False
)
_URL = _Rule(
    "credentials in a URL",
    ("://",),
    re.compile(r"://[^\s/:@?#'\"<>`]{0,200}:([^\s/'\"<>`]{1,400})@(?=[\w\[.$-])"),
    shown=False,
)
_HEADER = _Rule(
    "credentials",
    ("earer ", "EARER ", "asic "),
    re.compile(r"(?i:\bbearer|authorization[\"']?\s*:\s*[\"']?(?:basic|token))\s+([\w.~+/=-]{16,2000})"),
    shown=False,
)
# Matched where one of the hints begins; of a "key" the word before says whether it is meant. After a word or
# a bar instead of a sign, or after a blank alone, prose is likelier and the value has to look the part.
_ASSIGNED = _Rule(
    "password or key",
    ("password", "passwd", "passphrase", "_pass", "pwd", "secret", "token", "credential", "key", "passwort",
     "kennwort", "contraseña", "mot de passe", "senha", "пароль", "密码", "密碼", "口令", "密钥", "密鑰",
     "パスワード", "비밀번호"),
    re.compile(
        r"(?P<more>[A-Za-z0-9_-]{0,40})[\"'`*\]]{0,3}[ \t]{0,3}"
        r"(?::=|=>|={1,3}|[:：]|(?P<weak>\||is\b|est\b|ist\b|es\b|是|为|為|は)|(?P<blank>(?<=[ \t])))"
        r"[ \t]{0,3}\*{0,2}[ \t]?(?P<quote>[\"'`]?)"
        r"(?P<value>[^\s\"'`\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef]{6,400})"
    ),
    shown=False,
)  # fmt: skip
_USER = _Rule(
    "password",
    ("-u ", "--user"),
    re.compile(r"(?<!\S)(?:-u|--user)[ =][\"']?[^\s:\"'`]{1,100}:([^\s\"'`]{6,200})"),
    shown=False,
)
_KEYS = (
    "api",
    "access",
    "auth",
    "account",
    "private",
    "encryption",
    "secret",
    "master",
    "signing",
    "storage",
)

_PREFIX = re.compile(r"[A-Za-z0-9]{2,10}(?:[_.-][a-z0-9]{1,8}(?=[_.-]))*[_.=-]+|^https?://")
_STANDS_FOR = re.compile(
    r"(?i)example|placeholder|your|redacted|replace|change.?me|insert|x{4}|\*{3}|\.{3}|…|"
    r"\$[{(A-Za-z_]|\{\{|%[({sd]|<|>"
)
# Passwords that documentation writes for a password.
_WORDS = frozenset(
    {"password", "passwd", "pass", "pw", "pwd", "secret", "token", "key", "apikey", "api_key", "user", "none",
     "null", "true", "false", "hidden", "masked", "removed", "todo", "undefined"}
)  # fmt: skip
# Names that hold digits and are no secret: a value is judged without them.
_TERMS = re.compile(
    r"(?i)sha-?\d+|base-?\d+(?:url)?|o?auth-?\d|md5|argon2(?:id?)?|p?bkdf2|[hre]s(?:256|384|512)|aes-?\d+|"
    r"utf-?\d+|ed25519|x509|k8s|\d?fa2?|1password|v\d+|s3|ec2|p256"
)
_NAMES = re.compile(
    r"(?i)(?:file|path|dir|folder|name|url|uri|env|var|id|type|length|len|size|count|limit|policy|field|"
    r"header|prefix|format|store|manager|ring|chain|ref|version|expiry|ttl|less|iz(?:e|er|ed|ing|ation))s?\Z"
)
_CODE = re.compile(
    r"[A-Za-z_][\w.]*[(\[]|[a-z_]+(?:\.[A-Za-z_]\w*)+\Z|[a-z]+(?:_(?:[a-z]+|\d{1,2}))+\Z|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\Z|[~./\\]|\w+://|@|\d{4}-\d\d-\d\d"
)


def found(text: str) -> tuple[Secret, ...]:
    """Everything in `text` that looks like a secret, by position. Placeholders and documented example keys
    (`AKIA…EXAMPLE`, `<your-key>`, `${TOKEN}`, `user:password@`) are none."""
    secrets = []
    for start, end, rule in _spans(text):
        value = text[start:end]
        shown = value[:_SHOWN] if rule.shown else ""
        secrets.append(Secret(rule.kind, text.count("\n", 0, start) + 1, shown + _HIDDEN, value))
    return tuple(secrets)


def masked(text: str) -> str:
    """`text` with every secret in it cut to its first characters."""
    parts, at = [], 0
    for start, end, rule in _spans(text):
        parts += [text[at:start], text[start : start + _SHOWN] if rule.shown else "", _HIDDEN]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def new_secrets(text: str, known: Iterable[str]) -> tuple[Secret, ...]:
    """The secrets of `text` that none of the texts `known` holds already."""
    secrets = found(text)
    if not secrets:
        return ()
    values = {secret.value for other in known for secret in found(other)}
    return tuple(secret for secret in secrets if secret.value not in values)


def refuse_secret(where: str, text: str, overrides: frozenset[str] = frozenset()) -> None:
    """Refuse `text` when it holds a secret; `where` says what it is: a path, "the reason".

    Raises:
        MemoryEditError: it does, and `overrides` has no "secret". The secret is masked.
    """
    if "secret" not in overrides and (secrets := found(text)):
        raise MemoryEditError(f"{masked(where)}: {refusal(secrets)}")


def refusal(secrets: Iterable[Secret]) -> str:
    """Why text with these secrets is refused, and what to do."""
    what = "; ".join(dict.fromkeys(map(str, secrets)))
    return (
        f"holds what looks like a secret ({what}); memory is kept for ever and may be shared: write "
        "where it is kept instead. A person can commit it with letta memory commit --allow-secret"
    )


def _spans(text: str) -> Iterator[tuple[int, int, _Rule]]:
    """Where secrets are; parts that overlap are one."""
    spans = sorted(_matches(text), key=lambda span: (span[0], -span[1]))
    at = 0
    while at < len(spans):
        start, end, rule = spans[at]
        at += 1
        while at < len(spans) and spans[at][0] < end:
            end = max(end, spans[at][1])
            at += 1
        yield start, end, rule


def _matches(text: str) -> Iterator[tuple[int, int, _Rule]]:
    for rule in _TOKENS:
        if _hinted(rule, text):
            for match in rule.pattern.finditer(text):
                if _is_random(match[1]):
                    yield *match.span(1), rule
    for rule in (_PEM, _PUTTY):
        if _hinted(rule, text):
            for match in rule.pattern.finditer(text):
                yield *match.span(1), rule
    if _hinted(_URL, text):
        for match in _URL.pattern.finditer(text):
            if not _stands_for_one(match[1]):
                yield *match.span(1), _URL
    if _hinted(_HEADER, text):
        for match in _HEADER.pattern.finditer(text):
            if _is_mixed(match[1]) and not _stands_for_one(match[1]):
                yield *match.span(1), _HEADER
    if _hinted(_USER, text):
        for match in _USER.pattern.finditer(text):
            if _is_password(match[1], False):
                yield *match.span(1), _USER
    for start, end in _assigned(text):
        yield start, end, _ASSIGNED


def _assigned(text: str) -> Iterator[tuple[int, int]]:
    """Values that are given to a name such as `password`."""
    lower = text.replace("\u0130", "i").lower()  # the one letter whose small form is longer
    ascii_only = text.isascii()
    for hint in _ASSIGNED.hints:
        at = lower.find(hint) if hint.isascii() or not ascii_only else -1
        while at != -1:
            after = at + len(hint)
            if hint != "key" or lower[max(at - 11, 0) : at].rstrip("_- ").endswith(_KEYS):
                match = _ASSIGNED.pattern.match(text, after)
                if match is not None and not _NAMES.search(match["more"]) and match["more"] != "s":
                    value = match["value"].rstrip(".,;:!?)]}*")
                    sure = match["weak"] is None and match["blank"] is None
                    if _is_password(value, bool(match["quote"])) if sure else _looks_made(value, match):
                        yield match.start("value"), match.start("value") + len(value)
            at = lower.find(hint, after)


def _hinted(rule: _Rule, text: str) -> bool:
    return any(map(text.__contains__, rule.hints))  # asked some thirty times for each text


def _is_random(token: str) -> bool:
    """Whether a token with a known beginning is a value, not a name or a filling."""
    if _STANDS_FOR.search(token):
        return False
    tail = _PREFIX.sub("", token, count=1)
    if len(set(tail)) < 5:
        return False
    parts = re.split(r"[^A-Za-z0-9]", tail)
    return any(len(part) >= 16 or (len(part) >= 8 and _is_mixed(part)) for part in parts)


def _stands_for_one(value: str) -> bool:
    plain = value.strip("[](){}*_-.").lower()
    return not plain or plain in _WORDS or bool(_STANDS_FOR.search(value)) or set(plain) <= {"x"}


def _is_mixed(value: str) -> bool:
    plain = _TERMS.sub("", value)
    return any(c.isdigit() for c in plain) and any(c.isalpha() for c in plain) and len(set(plain)) >= 5


def _looks_made(value: str, match: re.Match[str]) -> bool:
    """Whether a value that no sign introduces is one: it mixes more than words and names do."""
    digits = sum(c.isdigit() for c in _TERMS.sub("", value))
    if match["weak"] is None:
        return len(value) >= 16 and digits >= 4 and value.isalnum() and _is_password(value, False)
    return digits >= 2 and _is_password(value, False)


def _is_password(value: str, quoted: bool) -> bool:
    if len(value) < 8 or _stands_for_one(value) or _CODE.match(value):
        return False
    if _is_mixed(value):
        return True
    # Without a digit only what no word looks like: upper and lower case with signs, in quotes.
    signs = any(c in "!@#$%^&*+=?~|" for c in value)
    return quoted and signs and len(set(value)) >= 6
