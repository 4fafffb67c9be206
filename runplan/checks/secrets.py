"""Knows secrets by file name, form and variable name, and takes them out of text and streams."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, AnyStr

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping


REDACTED = "[redacted]"

#: No secret of a known form is longer; a token is at most this long.
LONGEST = 16 * 1024
LONGEST_TOKEN = 512
LONGEST_CLAIMS = 4 * LONGEST_TOKEN  #: what stands in the middle of a signed one
SHORTEST_VALUE = 8

_FILES = re.compile(
    r"(?:^|/)(?:"
    r"\.env(?:\.(?!example|sample|template|dist|test)[^/]*)?"
    r"|[^/]*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?!\.pub)[^/]*"
    r"|\.?(?:credentials|secrets?)(?:\.(?:json|ya?ml|toml|ini|txt|csv|xml|env))?"
    r"|\.(?:netrc|pgpass|pypirc|git-credentials|htpasswd)"
    r"|(?:service[-_]account|client_secret)[^/]*\.json"
    r")$",
    re.IGNORECASE,
)
_USUAL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"
_VARIABLE = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD)S?$", re.IGNORECASE)

_USER = r"//([^\s/?#:@]{0,200}):([^\s/?#]{1,200})@"  # of an address, with a password

_GAP = r"(?:\\{1,4}[nr]|\s){0,8}+"  # line ends, also as JSON writes them
_KEY_LINES = rf"(?:{_GAP}[A-Za-z0-9+/=]{{16,80}}+){{0,150}}+"
_KEY_END = rf"(?:{_GAP}(?:[A-Za-z0-9+/=]{{1,15}}{_GAP})?-----END [A-Z ]{{0,60}}-----)?"
_WORD = rf"[A-Za-z0-9_-]{{%d,{LONGEST_TOKEN}}}"
_LONG_WORD = rf"[A-Za-z0-9_-]{{10,{LONGEST_CLAIMS}}}"

#: How a secret begins, and how it goes on. `(?<!…)` looks back over the beginning: inside of a word it is none.
_FORMS = (
    ("-----BEGIN ", rf"(?:[A-Z]{{1,20}} ){{0,3}}PRIVATE KEY-----{_KEY_LINES}{_KEY_END}"),
    (":_authToken", rf"[ \t]{{0,8}}=[ \t]{{0,8}}(?!\$)[^\s\"',]{{1,{LONGEST_TOKEN}}}"),
    *((word, r"(?<!\w.{4})[0-9A-Z]{16}\b") for word in ("AKIA", "ASIA")),
    *((f"gh{kind}_", rf"(?<!\w.{{4}})[A-Za-z0-9]{{36,{LONGEST_TOKEN}}}") for kind in "pousr"),
    ("github_pat_", rf"(?<!\w.{{11}})\w{{40,{LONGEST_TOKEN}}}"),
    ("xox", r"(?<!\w.{3})[abprs]-" + _WORD % 20),
    ("sk-", r"(?<!\w.{3})" + _WORD % 32),
    ("AIza", r"(?<!\w.{4})[A-Za-z0-9_-]{35}(?![\w-])"),
    ("glpat-", r"(?<!\w.{6})" + _WORD % 20),
    ("npm_", r"(?<!\w.{4})[A-Za-z0-9]{36}\b"),
    ("hf_", r"(?<!\w.{3})[A-Za-z0-9]{30,64}\b"),
    *((f"{kind}_live_", rf"(?<!\w.{{8}})[A-Za-z0-9]{{20,{LONGEST_TOKEN}}}") for kind in ("sk", "rk")),
    ("pypi-", r"(?<!\w.{5})AgE" + _WORD % 32),
)
#: Taken out of what is written down, but no reason to refuse work: tests and documents are full of them.
_EXAMPLES = (("eyJ", rf"(?<!\w.{{3}}){_WORD % 10}\.eyJ{_LONG_WORD}\.{_WORD % 20}"),)

#: What each of them is called, in the same order.
_KINDS = (
    "a private key",
    "an npm token",
    *["an AWS key"] * 2,
    *["a GitHub token"] * 6,
    "a Slack token",
    "an API key",
    "a Google key",
    "a GitLab token",
    "an npm token",
    "a Hugging Face token",
    *["a Stripe key"] * 2,
    "a PyPI token",
)


def named_like_secret(path: str) -> bool:
    """Whether a file of this name usually holds a secret."""
    return _FILES.search(path) is not None


def holds_secret(text: str) -> bool:
    """Whether the text holds a key or a token of a known form."""
    return bool(_spans(text, _known()))


def secrets_in(text: str) -> dict[str, str]:
    """Every key and token of a known form in the text, each with a name for its kind."""
    return {
        match.group(): kind
        for (begin, pattern), kind in zip(_known(), _KINDS, strict=True)
        if begin in text
        for match in re.finditer(pattern, text, re.ASCII)
    }


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """What is secret in variables, also as JSON and addresses write it.

    That is the whole value where the name says so, and the password in an address, whatever the name.
    """
    values = [value for name, value in environment.items() if _VARIABLE.search(name) and len(value) >= SHORTEST_VALUE]
    values += (word for value in environment.values() if "://" in value for word in _passwords(value))
    written = (json.dumps(value, ensure_ascii=plain)[1:-1] for value in values for plain in (True, False))
    told = tuple(dict.fromkeys((*values, *written)))
    slashed = (value.replace("/", r"\/") for value in told)
    forms = [(plain, form) for plain in ("", "/") for form in ("%%%02X", "%%%02x")]
    quoted = [_quoted(value, plain, form) for value in values for plain, form in forms]
    return tuple(dict.fromkeys((*told, *slashed, *quoted, *(value.replace("%20", "+") for value in quoted))))


def _passwords(address: str) -> Iterator[str]:
    """The passwords in it; one so short that it would be found everywhere, only with its user."""
    for match in re.finditer(_USER, address):
        user, password = match.groups()
        meant = re.sub(rb"%([0-9A-Fa-f]{2})", lambda code: bytes([int(code[1], 16)]), _encoded(password))
        for word in dict.fromkeys((password, meant.decode(errors="surrogateescape"))):
            yield word if len(word) >= SHORTEST_VALUE else f"//{user}:{word}@"


def _quoted(value: str, plain: str, form: str) -> str:
    """The value as a part of an address; `plain` are the characters that may stand there besides the usual ones."""
    usual = frozenset((_USUAL + plain).encode())
    return "".join(chr(byte) if byte in usual else form % byte for byte in value.encode(errors="surrogateescape"))


def redacted(text: str, values: Collection[str] = ()) -> str:
    """The text without its secrets; takes time in proportion to its length."""
    spans = _spans(text, _forms(tuple(values))) if text else []
    return _replaced(text, spans, REDACTED) if spans else text


def redacted_bytes(data: bytes, values: Collection[str] = ()) -> bytes:
    """The same for what need not be text."""
    spans = byte_spans(data, values)
    return _replaced(data, spans, REDACTED.encode()) if spans else data


def byte_spans(data: bytes, values: Collection[str] = ()) -> list[tuple[int, int]]:
    """Where the secrets are: beginnings and ends, in order, none touching another."""
    return _spans(data, _byte_forms(tuple(values)))


@functools.lru_cache(maxsize=1)
def _known() -> tuple[tuple[str, str], ...]:
    return tuple((begin, re.escape(begin) + rest) for begin, rest in _FORMS)


@functools.lru_cache(maxsize=8)
def _forms(values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    examples = ((begin, re.escape(begin) + rest) for begin, rest in _EXAMPLES)
    return (*((value, re.escape(value)) for value in values), *_known(), *examples)


@functools.lru_cache(maxsize=8)
def _byte_forms(values: tuple[str, ...]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((_encoded(begin), _encoded(pattern)) for begin, pattern in _forms(values))


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _spans(data: AnyStr, forms: Iterable[tuple[AnyStr, AnyStr]]) -> list[tuple[int, int]]:
    # Compiled where the word is found: all of them take five milliseconds, and every dispatch is looked at.
    found = [
        match.span() for begin, pattern in forms if begin in data for match in re.finditer(pattern, data, re.ASCII)
    ]
    joined: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _replaced(data: AnyStr, spans: list[tuple[int, int]], word: AnyStr) -> AnyStr:
    pieces: list[AnyStr] = []
    at = 0
    for start, end in spans:
        pieces += (data[at:start], word)
        at = end
    pieces.append(data[at:])
    return data[:0].join(pieces)


_BLANKS = (b"\n", b" ", b"\t")

#: A word as long as this is no token, so that an endless line does not wait for its end.
_LONGEST_WORD = LONGEST_CLAIMS + 3 * LONGEST_TOKEN

#: Blanks may stand in these: a name and its token are near each other, a key goes on to its last line.
_NAME, _NAME_SPAN = b":_authToken", 64
_KEY = b"-----BEGIN"
_STREAM_KEY_END = re.compile(rb"-----END [A-Z ]{0,60}-----")


class Redactor:
    """One stream; what it hands out may be written down."""

    def __init__(self, values: Collection[str] = ()) -> None:
        self._values = tuple(values)
        self._encoded = tuple(value.encode(errors="surrogateescape") for value in values)
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can be said of the stream so far, without its secrets."""
        known = self._held + chunk if self._held else chunk
        sure = self._sure(known)
        pieces, at = [], 0
        for start, end in byte_spans(known, self._values):
            # A secret that reaches the end may go on there; what is too long for one is not waited for.
            if (end > sure or end == len(known)) and end - start < LONGEST:
                sure = min(sure, start)
                break
            pieces += [known[at:start], REDACTED.encode()]
            at, sure = end, max(sure, end)
        self._held = known[sure:]
        return b"".join((*pieces, known[at:sure]))

    def take_rest(self) -> bytes:
        """What still waits, as it came; it waits no longer."""
        rest, self._held = self._held, b""
        return rest

    def finish(self) -> bytes:
        """What still waited, when nothing comes any more."""
        return redacted_bytes(self.take_rest(), self._values)

    def _sure(self, known: bytes) -> int:
        """Up to where no secret of which the rest is still to come can have begun."""
        size = len(known)
        word = max(known.rfind(blank, max(0, size - _LONGEST_WORD)) for blank in _BLANKS) + 1
        sure = word or max(0, size - _LONGEST_WORD)
        if (at := known.rfind(_NAME, max(0, size - _NAME_SPAN))) >= 0:
            sure = min(sure, at)
        if (at := known.rfind(_KEY, max(0, size - LONGEST))) >= 0 and not _STREAM_KEY_END.search(known, at):
            sure = min(sure, at)
        return min([sure, *(size - _begun(known, value) for value in self._encoded)])


def redacted_end(data: bytes, values: Collection[str] = (), *, size: int) -> bytes:
    """The last `size` bytes or less; what stands before them is looked at, lest half a secret be left."""
    start = max(0, len(data) - size)
    across = (end for begin, end in byte_spans(data, values) if begin < start < end)
    return redacted_bytes(data[next(across, start) :], values)


def overlap(values: Collection[str]) -> int:
    """How much has to be known before a place to see every secret that lies across it."""
    return max(LONGEST, *(4 * len(value) for value in values), 0)


def _begun(known: bytes, value: bytes) -> int:
    """How much of the value stands at the end."""
    last = known[1 - len(value) :]
    at = last.find(value[:1])
    while at >= 0:
        if value.startswith(last[at:]):
            return len(last) - at
        at = last.find(value[:1], at + 1)
    return 0
