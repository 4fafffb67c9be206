"""Reads git's configuration for what would have it run a program, read other files, or write files otherwise.

Whoever sets such a thing decides what a checkout looks like: tests could then see other bytes than those that land.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Keys as `settings` gives them: section and name in small letters, what is between them as it is written.
_OBEYED = re.compile(
    r"filter\..*\.(?:clean|smudge|process)|merge\..*\.driver|diff\.(?:.*\.)?(?:textconv|command|external)"
    r"|include(?:if\..*)?\.path"
    r"|core\.(?:fsmonitor|sshcommand|hookspath|attributesfile|gitproxy|askpass|alternaterefscommand"
    r"|worktree|autocrlf|eol|symlinks)"
    r"|credential\.(?:.*\.)?helper|gpg\.(?:.*\.)?(?:program|defaultkeycommand)|trailer\..*\.(?:command|cmd)"
    r"|remote\..*\.(?:uploadpack|receivepack|vcs|promisor)|uploadpack\.packobjectshook"
    r"|lfs\.(?:customtransfer\..*\.path|standalonetransferagent)",
    re.DOTALL,
)
_INCLUDES = re.compile(r"include(?:if\..*)?\.path", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}
_SECTION = re.compile(r'\[([A-Za-z0-9.-]*)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?[ \t]*\]')
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=?)")
_VALUE = re.compile(
    r'(?:[^"\\\n#;]|\\["\\ntb\n]|"(?:[^"\\\n]|\\["\\ntb\n])*")*(?:[#;][^\n]*)?(?=\n|\Z)'
)  #: to its end, as far as git takes it for one
_BARE = re.compile(r"[ \t]*(?=\n|\Z)")  #: behind a name without a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: `filter.x.clean`, and what it is set to."""

    key: str
    value: str


@functools.lru_cache(maxsize=32)  # the same few files are read again and again
def settings(text: str) -> tuple[Setting, ...]:
    """Every setting of a configuration file, in order, up to where git itself could not read on."""
    return tuple(_settings(text))


def _settings(text: str) -> Iterator[Setting]:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section, at = "", 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] in "#;":
            at = _line_end(text, at)
        elif found := _SECTION.match(text, at):
            section, at = _section(found), found.end()
        elif (found := _NAME.match(text, at)) and section:
            value, at = _value(text, found.end()) if found[2] else ("true", found.end())
            yield Setting(key=f"{section}.{found[1].lower()}", value=value)
        else:
            return


def readable(text: str) -> bool:
    """Whether git itself can read a configuration file; where that is not certain, it can."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] in "#;":
            at = _line_end(text, at)
        elif found := _SECTION.match(text, at):
            at = found.end()
        elif found := _NAME.match(text, at):
            end = _VALUE.match(text, found.end()) if found[2] else _BARE.match(text, found.end())
            if end is None:
                return False
            at = end.end()
        else:
            return False
    return True


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _section(found: re.Match[str]) -> str:
    name = found[1].lower()
    if found[2] is None:
        return name
    below = re.sub(r"\\(.)", r"\1", found[2])
    return f"{name}.{below}"


def _value(text: str, at: int) -> tuple[str, int]:
    """A value from behind its sign to the end of its last line: quotes, escapes, comments and lines that go on."""
    signs: list[str] = []
    quoted, kept = False, 0  # `kept`: how many of them are more than trailing blanks
    while at < len(text) and text[at] != "\n":
        sign = text[at]
        if sign == "\\" and at + 1 < len(text):
            at += 1
            if text[at] != "\n":
                signs.append(_ESCAPES.get(text[at], text[at]))
                kept = len(signs)
        elif sign == '"':
            quoted, kept = not quoted, len(signs)
        elif sign in "#;" and not quoted:
            at = _line_end(text, at)
            break
        else:
            signs.append(sign)
            kept = len(signs) if quoted or not sign.isspace() else kept
        at += 1
    return "".join(signs) if quoted else "".join(signs[:kept]).lstrip(), at


def includes(text: str) -> tuple[str, ...]:
    """The files that a configuration file has git read besides, as it names them; whether a condition holds or not."""
    return tuple(one.value for one in settings(text) if _INCLUDES.fullmatch(one.key))


def attribute_files(text: str) -> tuple[str, ...]:
    return tuple(one.value for one in settings(text) if one.key == "core.attributesfile")


def summary(text: str, *, by_line: bool = False) -> str:
    """A file in a few lines that give nothing of it away but what git obeys there, each with a sign of its value.

    `by_line`: every line counts, as in a file of attributes.
    """
    if by_line:
        lines = (line.strip() for line in text.splitlines())
        obeyed = [f"{_sign(line)} a line of it" for line in lines if line and not line.startswith("#")]
    else:
        obeyed = [f"{_sign(one.value)} {one.key}" for one in settings(text) if _OBEYED.fullmatch(one.key)]
    return "\n".join((_sign(text), *(line.replace("\n", " ") for line in obeyed)))


def newly_obeyed(before: str, after: str) -> tuple[str, ...]:
    """The keys that say something in the second summary that they did not in the first."""
    known = before.split("\n")[1:]
    new = (line for line in after.split("\n")[1:] if line not in known)
    return tuple(dict.fromkeys(line.partition(" ")[2] for line in new))


def _sign(text: str) -> str:
    import hashlib  # dear, and reading verbs need none

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
