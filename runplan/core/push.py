"""Reads what `git push --porcelain` said about one ref: taken, declined by its owner, or nothing that is certain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from runplan.core.quickclass import NamedTuple, dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The remote has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """Nothing was changed: whoever owns the remote does not let us."""

    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertain:
    """Outrun, interrupted, or broken: only a look at the remote tells what has happened."""

    said: str


PushAnswer: TypeAlias = Taken | Declined | Uncertain

_TAKEN = " *="
_REMOTE_REJECTED = "[remote rejected]"
#: Reasons of a server that would have let us: somebody was faster, or it is not well.
_NO_REFUSAL = re.compile(
    r"cannot lock ref|failed to (?:update|lock|read) ref|incorrect old value provided|reference already exists"
    r"|unpack|missing necessary objects|unable to migrate|out of memory|internal (?:server )?error",
    re.IGNORECASE,
)
#: How forges say, before anything is sent, that this account may not write.
_MAY_NOT = re.compile(
    r"returned error: 403\b|\bdenied to \S|marked as read only|read-only (?:repository|access|mode)"
    r"|not allowed to (?:push|upload)|repository .{0,80}\barchived",
    re.IGNORECASE,
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
#: Progress, decoration and advice that stand between the words that matter.
_IDLE = re.compile(
    r"(?:Enumerating|Counting|Compressing|Writing) objects:|Resolving deltas:|Total \d|Everything up-to-date|Done$"
    r"|hint: |error: failed to push some refs|\W*$|Please make sure you have the correct access rights"
    r"|and the repository exists\.",
)
_LONGEST = 400


class _Status(NamedTuple):
    flag: str
    summary: str

    @property
    def reason(self) -> str:
        _, _, rest = self.summary.partition(" (")
        return rest.removesuffix(")")

    @property
    def declined(self) -> bool:
        return self.summary.startswith(_REMOTE_REJECTED) and not _NO_REFUSAL.search(self.reason)


def read_push(*, ref: str, code: int, out: str, err: str) -> PushAnswer:
    """What a push to `ref` came to; with several push addresses, the answer on which all of them agree."""
    statuses = list(_statuses(ref, out))
    if code == 0 and statuses and all(one.flag in _TAKEN for one in statuses):
        return Taken()
    said = _said(err, (one.reason for one in statuses if one.flag == "!"))
    may_not = not statuses and _MAY_NOT.search(err)
    if may_not or (statuses and all(one.declined for one in statuses)):
        return Declined(said=said or "without a word")
    return Uncertain(said=said or f"git push ended with code {code}")


def words(err: str) -> str:
    """What git and the server said, on one line, without progress and advice."""
    lines = [_plain(line) for line in err.splitlines()]
    kept = [line for line in dict.fromkeys(lines) if line and not _IDLE.match(line)]
    return _short(" / ".join(kept))


def _statuses(ref: str, out: str) -> Iterator[_Status]:
    for line in out.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[1].rpartition(":")[2] == ref:
            yield _Status(flag=fields[0], summary=fields[2])


def _said(err: str, reasons: Iterable[str]) -> str:
    said = words(err)
    left = [reason for reason in dict.fromkeys(reasons) if reason and reason not in said]
    return " ".join([said, *(f"({reason})" for reason in left)]).strip() if said else "; ".join(left)


def _plain(line: str) -> str:
    text = _ESCAPES.sub("", line).strip()
    text = text.removeprefix("remote:").strip()
    return text if text.startswith("error: failed to push") else text.removeprefix("error:").strip()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4].rstrip()} ..."
