"""Trailers of landed commits, and the landings found by them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.plan.model import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runplan.gitfacts import Oid
    from runplan.plan.model import Plan


PLAN = "Runplan-Plan"
PHASE = "Runplan-Phase"
RUN = "Runplan-Run"
LANDING = "Runplan-Landing"
UNDOES = "Runplan-Undoes"

_TRAILER = re.compile(r"^([A-Za-z0-9][A-Za-z0-9-]*)[ \t]*:[ \t]*(.*)$")
_PICKED = "(cherry picked from commit "  # git counts this line into the block
_OURS = re.compile(r"^runplan-[a-z0-9-]*[ \t]*:", re.IGNORECASE)


class Mark(Struct, frozen=True):
    """The trailers of one landing in a message; a missing one is empty."""

    plan: str = ""  #: as it is written: runs of blanks are one
    phase: str = ""
    landing: str = ""
    undoes: str = ""


_FIELDS = {PLAN.lower(): "plan", PHASE.lower(): "phase", LANDING.lower(): "landing", UNDOES.lower(): "undoes"}


def add_trailers(message: str, trailers: Sequence[tuple[str, str]]) -> str:
    """Add trailers to the block at the end of the message, or as a paragraph; other Runplan-* lines are removed."""
    paragraphs = _paragraphs(_without_ours(message)) or [["(no message)"]]
    added = [f"{key}: {single_spaced(value)}" for key, value in trailers]
    if not added:
        return _joined(paragraphs)
    if len(paragraphs) > 1 and _is_block(paragraphs[-1]):
        return _joined([*paragraphs[:-1], [*paragraphs[-1], *added]])
    return _joined([*paragraphs, added])


def read_trailers(message: str) -> dict[str, str]:
    """The trailers of the message by key; the last one of a key counts."""
    paragraphs = _paragraphs(message)
    if len(paragraphs) < 2 or not _is_block(paragraphs[-1]):
        return {}
    found = (_TRAILER.match(line) for line in _unfolded(paragraphs[-1]))
    return {match.group(1): match.group(2).strip() for match in found if match}


def single_spaced(value: str) -> str:
    """A value as a trailer holds it: in one line, with single blanks."""
    return " ".join(value.split())


def marks(message: str) -> tuple[Mark, ...]:
    """Every landing in the message; the message of a squashed commit has several."""
    found: list[dict[str, str]] = []
    for line in (line for paragraph in _paragraphs(message) for line in _unfolded(paragraph)):
        trailer = _TRAILER.match(line)
        field = _FIELDS.get(trailer.group(1).lower()) if trailer else None
        if trailer is None or field is None:
            continue
        if not found or field in found[-1]:
            found.append({})
        found[-1][field] = single_spaced(trailer.group(2))
    return tuple(dict.fromkeys(Mark(**fields) for fields in found))


def _without_ours(message: str) -> str:
    kept: list[str] = []
    dropping = False
    for line in message.split("\n"):
        dropping = bool(_OURS.match(line)) or (dropping and line.startswith((" ", "\t")) and bool(line.strip()))
        if not dropping:
            kept.append(line)
    return "\n".join(kept)


def _paragraphs(message: str) -> list[list[str]]:
    """The message split at blank lines."""
    paragraphs: list[list[str]] = [[]]
    for line in message.split("\n"):
        if line.strip():
            paragraphs[-1].append(line.rstrip())
        elif paragraphs[-1]:
            paragraphs.append([])
    return [paragraph for paragraph in paragraphs if paragraph]


def _joined(paragraphs: list[list[str]]) -> str:
    return "\n\n".join("\n".join(paragraph) for paragraph in paragraphs) + "\n"


def _is_block(paragraph: list[str]) -> bool:
    if paragraph[0].startswith((" ", "\t")):
        return False
    return all(_TRAILER.match(line) or line.startswith(_PICKED) for line in _unfolded(paragraph))


def _unfolded(paragraph: list[str]) -> list[str]:
    parts: list[list[str]] = []
    for line in paragraph:
        if line.startswith((" ", "\t")) and parts:
            parts[-1].append(line.strip())
        else:
            parts.append([line])
    return [" ".join(one) for one in parts]


class Undoable(Struct, frozen=True, kw_only=True):
    """A landing that stands on the target."""

    landing: str
    commits: tuple[Oid, ...]  #: newest first, its bookkeeping among them


class Unclear(Struct, frozen=True, kw_only=True):
    """A commit of the landing was changed since, so its content is unknown."""

    commit: Oid
    why: str


def newest_landing(marked: Iterable[tuple[Oid, str]], *, plan: str, phase: str) -> Undoable | Unclear | None:
    """The phase's newest landing among commits (id, message), newest first; None when there is none to undo."""
    read = [(oid, message, marks(message)) for oid, message in marked]
    undone = {mark.undoes for _, _, found in read for mark in found}
    sought = (single_spaced(plan), single_spaced(phase))
    all_marks = (mark for _, _, found in read for mark in found if not mark.undoes)
    landings = (mark.landing for mark in all_marks if (mark.plan, mark.phase) == sought)
    landing = next((one for one in landings if one and one not in undone), "")
    if not landing:
        return None
    whole = Mark(plan=sought[0], phase=sought[1], landing=landing)
    commits = []
    for oid, message, found in read:
        if all(mark.landing != landing for mark in found):
            continue
        if why := _unclear(message, found, whole):
            return Unclear(commit=oid, why=why)
        commits.append(oid)
    return Undoable(landing=landing, commits=tuple(commits))


def _unclear(message: str, found: tuple[Mark, ...], whole: Mark) -> str:
    """Why the commit is not one of this landing alone; empty when it is."""
    others = [
        f"phase {mark.phase} of {mark.plan}" for mark in found if (mark.plan, mark.phase) != (whole.plan, whole.phase)
    ]
    if others:
        return f"also has trailers of {', '.join(others)}"
    if found != (whole,):
        return "belongs to more than one landing"
    if single_spaced(read_trailers(message).get(LANDING, "")) != whole.landing:
        return "has text below its Runplan trailers, which have to be its last paragraph"
    return ""


def built_upon(plan: Plan, phase: str) -> tuple[str, ...]:
    """The done phases that depend on this one, the last one first."""
    done = (other for other in plan.phases if other.status is Status.DONE and phase in other.depends)
    return tuple(other.id for other in done)[::-1]
