"""Recognises secrets by file name, form and variable name, and removes them from text and streams."""

import functools
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import AnyStr
from urllib.parse import quote, quote_plus, unquote_to_bytes

REDACTED = "[redacted]"
#: No secret of a known form is longer; a token is at most this long.
LONGEST = 16 * 1024
LONGEST_TOKEN = 512
LONGEST_CLAIMS = 4 * LONGEST_TOKEN  #: the middle of a signed token
SHORTEST_VALUE = 8
SENSITIVE_FILES = (
    r"(?i)(?:^|/)(?:"
    r"\.env(?:\.(?!example|sample|template|dist|test)[^/]*)?"
    r"|[^/]*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?!\.pub)[^/]*"
    r"|\.?(?:credentials|secrets?)(?:\.(?:json|ya?ml|toml|ini|txt|csv|xml|env))?"
    r"|\.(?:netrc|pgpass|pypirc|git-credentials|htpasswd)"
    r"|(?:service[-_]account|client_secret)[^/]*\.json"
    r")$"
)
_USER = r"//([^\s/?#:@]{0,200}):([^\s/?#]{1,200})@"  # of an address, with a password
_GAP = r"(?:\\{1,4}[nr]|\s){0,8}+"  # line ends, also as JSON writes them
_KEY_LINES = rf"(?:{_GAP}[A-Za-z0-9+/=]{{16,80}}+){{0,150}}+"
_KEY_END = rf"(?:{_GAP}(?:[A-Za-z0-9+/=]{{1,15}}{_GAP})?-----END [A-Z ]{{0,60}}-----)?"
_WORD = rf"[A-Za-z0-9_-]{{%d,{LONGEST_TOKEN}}}"
_LONG_WORD = rf"[A-Za-z0-9_-]{{10,{LONGEST_CLAIMS}}}"
#: The name of a secret's kind, its beginning, and the rest. `(?<!…)` looks back over the beginning: inside of a word
#: it is no secret.
_FORMS = (
    ("a private key", "-----BEGIN ", rf"(?:[A-Z]{{1,20}} ){{0,3}}PRIVATE KEY-----{_KEY_LINES}{_KEY_END}"),
    ("an npm token", ":_authToken", rf"[ \t]{{0,8}}=[ \t]{{0,8}}(?!\$)[^\s\"',]{{1,{LONGEST_TOKEN}}}"),
    *(("an AWS key", word, r"(?<!\w.{4})[0-9A-Z]{16}\b") for word in ("AKIA", "ASIA")),
    *(("a GitHub token", f"gh{kind}_", rf"(?<!\w.{{4}})[A-Za-z0-9]{{36,{LONGEST_TOKEN}}}") for kind in "pousr"),
    ("a GitHub token", "github_pat_", rf"(?<!\w.{{11}})\w{{40,{LONGEST_TOKEN}}}"),
    ("a Slack token", "xox", r"(?<!\w.{3})[abprs]-" + _WORD % 20),
    ("an API key", "sk-", r"(?<!\w.{3})" + _WORD % 32),
    ("a Google key", "AIza", r"(?<!\w.{4})[A-Za-z0-9_-]{35}(?![\w-])"),
    ("a GitLab token", "glpat-", r"(?<!\w.{6})" + _WORD % 20),
    ("an npm token", "npm_", r"(?<!\w.{4})[A-Za-z0-9]{36}\b"),
    ("a Hugging Face token", "hf_", r"(?<!\w.{3})[A-Za-z0-9]{30,64}\b"),
    *(("a Stripe key", f"{kind}_live_", rf"(?<!\w.{{8}})[A-Za-z0-9]{{20,{LONGEST_TOKEN}}}") for kind in ("sk", "rk")),
    ("a PyPI token", "pypi-", r"(?<!\w.{5})AgE" + _WORD % 32),
)
_KNOWN = tuple((begin, re.escape(begin) + rest) for _, begin, rest in _FORMS)
#: Signed tokens are redacted, but are no reason to refuse work: tests and documents contain many.
_SIGNED = ("eyJ", rf"eyJ(?<!\w.{{3}}){_WORD % 10}\.eyJ{_LONG_WORD}\.{_WORD % 20}")
#: A word as long as this is no token, so an endless line does not wait for its end.
_LONGEST_WORD = LONGEST_CLAIMS + 3 * LONGEST_TOKEN
_STREAM_KEY_END = re.compile(rb"-----END [A-Z ]{0,60}-----")


def secrets_in(text: str) -> dict[str, str]:
    return {
        match.group(): kind
        for (begin, pattern), (kind, _, _) in zip(_KNOWN, _FORMS, strict=True)
        if begin in text
        for match in re.finditer(pattern, text, re.ASCII)
    }


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    telling = (value for name, value in environment.items() if re.search(r"(?i)(?:KEY|TOKEN|SECRET|PASSWORD)S?$", name))
    values = [value for value in telling if len(value) >= SHORTEST_VALUE]
    addresses = (value for value in environment.values() if "://" in value)
    for user, password in (match for address in addresses for match in re.findall(_USER, address)):
        plain = unquote_to_bytes(_to_bytes(password)).decode(errors="surrogateescape")
        words = dict.fromkeys((password, plain))
        # A short one, which other text may contain, comes with its user.
        values += [word if len(word) >= SHORTEST_VALUE else f"//{user}:{word}@" for word in words]
    forms = dict.fromkeys(values)
    for value in values:
        written = [value, *(json.dumps(value, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))]
        forms |= dict.fromkeys((*written, *(form.replace("/", r"\/") for form in written)))
        data = _to_bytes(value)
        quoted = [quote(data), quote(data, safe=""), quote_plus(data, safe="/"), quote_plus(data)]
        forms |= dict.fromkeys(quoted)
        forms |= dict.fromkeys(re.sub("%..", lambda code: code[0].lower(), form) for form in quoted)
    return tuple(forms)


def redact_text(text: str, values: Collection[str] = ()) -> str:
    spans = _find_spans(text, _known_forms(tuple(values))) if text else []
    return _replace_spans(text, spans, REDACTED) if spans else text


def redacted_bytes(data: bytes, values: Collection[str] = ()) -> bytes:
    spans = byte_spans(data, values)
    return _replace_spans(data, spans, REDACTED.encode()) if spans else data


def byte_spans(data: bytes, values: Collection[str] = ()) -> list[tuple[int, int]]:
    return _find_spans(data, _byte_forms(tuple(values)))


@functools.lru_cache(maxsize=8)
def _known_forms(values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return (*((value, re.escape(value)) for value in values), *_KNOWN, _SIGNED)


@functools.lru_cache(maxsize=8)  # without it each read of a pipe takes 130 µs instead of 50
def _byte_forms(values: tuple[str, ...]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((_to_bytes(begin), _to_bytes(pattern)) for begin, pattern in _known_forms(values))


def _to_bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _find_spans(data: AnyStr, forms: Iterable[tuple[AnyStr, AnyStr]]) -> list[tuple[int, int]]:
    # A pattern is compiled when its beginning is found: to compile all takes five milliseconds in every dispatch.
    known = ((begin, form) for begin, form in forms if begin in data)
    spans = [match.span() for _, form in known for match in re.finditer(form, data, re.ASCII)]
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _replace_spans(data: AnyStr, spans: list[tuple[int, int]], word: AnyStr) -> AnyStr:
    starts = [0, *(end for _, end in spans)]
    ends = [*(start for start, _ in spans), len(data)]
    return word.join(data[start:end] for start, end in zip(starts, ends, strict=True))


class Redactor:
    """Removes the secrets from a stream. A line that is not complete is held back."""

    def __init__(self, values: Collection[str] = ()) -> None:
        self._values = tuple(values)
        self._of_lines = tuple(_to_bytes(value) for value in values if "\n" in value)
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """The part of the stream in which no secret can be incomplete, without its secrets."""
        known = self._held + chunk
        size = len(known)
        # No incomplete secret can begin before `sure`.
        sure = known.rfind(b"\n", max(0, size - _LONGEST_WORD)) + 1 or max(0, size - _LONGEST_WORD)
        key = known.rfind(b"-----BEGIN", max(0, size - LONGEST))
        if key >= 0 and not _STREAM_KEY_END.search(known, key):
            sure = min(sure, key)
        for value in self._of_lines:
            begun = known.find(value[:1], max(0, size - len(value) + 1))
            while begun >= 0 and not value.startswith(known[begun:]):
                begun = known.find(value[:1], begun + 1)
            sure = min(sure, begun) if begun >= 0 else sure
        pieces: list[bytes] = []
        place = 0
        for start, end in byte_spans(known, self._values):
            # A secret at the end may be incomplete; one that is too long is not waited for.
            if (end > sure or end == size) and end - start < LONGEST:
                sure = min(sure, start)
                break
            pieces += [known[place:start], REDACTED.encode()]
            place = end
            sure = max(sure, end)
        self._held = known[sure:]
        return b"".join((*pieces, known[place:sure]))

    def take_rest(self) -> bytes:
        rest = self._held
        self._held = b""
        return rest

    def finish(self) -> bytes:
        return redacted_bytes(self.take_rest(), self._values)
