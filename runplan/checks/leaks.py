"""Finds secrets in what would land: in added text, in new file names, in commit messages.

A secret that was there before is not the agent's; a file that the phase names may hold whatever it is to hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks.secrets import secrets_in
from runplan.checks.tamper import Tampering, TamperKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from runplan.checks.tamper import Permit

MESSAGE = "a commit message"


class Written(Struct, frozen=True, kw_only=True):
    """One file as the work has it, or had it in between."""

    path: str
    before: str  #: what it held before the phase; "" when it was not there, or not text
    after: str  #: what it holds; "" when it is gone, or not text
    added: bool = False


def leaks(files: Sequence[Written], messages: Iterable[str], permit: Permit) -> tuple[Tampering, ...]:
    """Every place that holds a secret which was nowhere in these files before; told without the secret."""
    known = {secret for file in files for secret in secrets_in(file.before)}
    found = dict.fromkeys(one for file in files if not permit.names(file.path) for one in _leaks(file, known))
    told = dict.fromkeys(_found(MESSAGE, kind) for message in messages for kind in _kinds(message, known))
    return (*found, *told)


def _leaks(file: Written, known: set[str]) -> Iterator[Tampering]:
    for kind in _kinds(file.after, known):
        yield _found(file.path, kind)
    if file.added and (kinds := _kinds(file.path, set())):
        yield Tampering(kind=TamperKind.SECRET, path=file.path, detail=f"its name holds what looks like {kinds[0]}")


def _kinds(text: str, known: set[str]) -> list[str]:
    return list(dict.fromkeys(kind for secret, kind in secrets_in(text).items() if secret not in known))


def _found(path: str, kind: str) -> Tampering:
    return Tampering(kind=TamperKind.SECRET, path=path, detail=f"holds what looks like {kind}")
