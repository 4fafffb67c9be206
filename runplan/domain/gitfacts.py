"""Values about commits and worktrees that pure packages share with `git`, and the trailers of landed commits."""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TypeAlias

from msgspec import Struct

from runplan.domain.text import one_line

Oid: TypeAlias = str  #: a full object id, 40 or 64 hex digits
PLAN = "Runplan-Plan"
PHASE = "Runplan-Phase"
RUN = "Runplan-Run"
LANDING = "Runplan-Landing"
UNDOES = "Runplan-Undoes"
TAKEN_BY = "Runplan-Taken-By"  #: the repository that works on an issue, on the first commit of its branch
_TRAILER = r"([A-Za-z0-9][A-Za-z0-9-]*)[ \t]*:[ \t]*(.*)"
_PICKED = "(cherry picked from commit "  # git counts this line into the block
_OURS = r"(?im)^(runplan-[a-z0-9-]*)[ \t]*:(.*)\n?"


class Identity(Struct, frozen=True, kw_only=True):
    name: str
    email: str


AGENT = Identity(name="runplan agent", email="agent@runplan.invalid")


def signing(dispatch: str) -> Identity:
    return Identity(name=AGENT.name, email=f"agent+{dispatch}@runplan.invalid")


def committing_as(dispatch: str) -> dict[str, str]:
    who = signing(dispatch)
    return {"GIT_COMMITTER_NAME": who.name, "GIT_COMMITTER_EMAIL": who.email}


def is_agent(who: Identity, run: str = "") -> bool:
    """Whether it is an agent: of this run, or of any."""
    user, _, host = who.email.partition("@")
    own_user, _, place = AGENT.email.partition("@")
    is_meant = user.startswith(f"{own_user}+{run}.") if run else user.partition("+")[0] == own_user
    return who.name == AGENT.name and host == place and is_meant


def read_person(line: str) -> tuple[Identity, str]:
    """Name, address and time of `Name <address> <seconds> <zone>`; a missing part is empty."""
    person, _, when = line.partition("> ")
    name, _, email = person.partition(" <")
    return Identity(name=name, email=email), when


class Commit(Struct, frozen=True, kw_only=True):
    oid: Oid
    tree: Oid
    parents: tuple[Oid, ...]
    author: Identity
    authored: str  #: git's own form: "<seconds> <zone>"
    committer: Identity
    message: str

    @classmethod
    def parse(cls, oid: Oid, content: bytes) -> "Commit":
        """Read a raw commit. An agent can write one by hand that lacks any of its lines."""
        head, _, message = content.partition(b"\n\n")
        lines = (line.partition(" ") for line in head.decode("utf-8", "surrogateescape").split("\n"))
        fields = [(name, value) for name, _, value in lines if name]  # lines of a signature start with a blank
        values = dict(reversed(fields))
        author, authored = read_person(values.get("author", ""))
        committer, _ = read_person(values.get("committer", ""))
        parents = tuple(value for name, value in fields if name == "parent")
        tree = values.get("tree", "")
        text = message.decode("utf-8", "surrogateescape")
        for codec in (values.get("encoding", "utf-8"), "utf-8"):  # UTF-8 where it is that, whatever the commit says
            with suppress(LookupError, ValueError):
                text = message.decode(codec)
        return cls(
            oid=oid, tree=tree, parents=parents, author=author, authored=authored, committer=committer, message=text
        )


class Change(Struct, frozen=True, kw_only=True):
    path: str
    kind: str  #: A added, M modified, D deleted, T type changed
    old_mode: str
    new_mode: str
    old: Oid
    new: Oid


def add_trailers(message: str, trailers: Sequence[tuple[str, str]]) -> str:
    """Add trailers, each once, to the block at the end of the message, or as a paragraph; other Runplan-* lines go."""
    paragraphs = _paragraphs(re.sub(_OURS, "", message)) or [["(no message)"]]
    if len(paragraphs) == 1 or not _is_block(paragraphs[-1]):
        paragraphs.append([])
    lines = (f"{key}: {one_line(value)}" for key, value in trailers)
    paragraphs[-1] += [line for line in lines if line not in paragraphs[-1]]
    return "\n\n".join("\n".join(paragraph) for paragraph in paragraphs if paragraph) + "\n"


def read_trailers(message: str) -> dict[str, str]:
    paragraphs = _paragraphs(message)
    if len(paragraphs) < 2 or not _is_block(paragraphs[-1]):
        return {}
    matches = (re.match(_TRAILER, line) for line in paragraphs[-1])
    return {match[1]: match[2] for match in matches if match}


def _paragraphs(message: str) -> list[list[str]]:
    groups = groupby((line.rstrip() for line in message.split("\n")), key=bool)
    return [list(lines) for is_text, lines in groups if is_text]


def _is_block(paragraph: Sequence[str]) -> bool:
    return all(re.match(_TRAILER, line) or line.startswith(_PICKED) for line in paragraph)


class StandingLanding(Struct, frozen=True, kw_only=True):
    landing: str
    commits: tuple[Oid, ...]  #: newest first, its bookkeeping among them


class Unclear(Struct, frozen=True, kw_only=True):
    """A commit with trailers of several landings, or with text below them: it was changed since it landed."""

    commit: Oid


def with_originals(
    on_target: Iterable[tuple[Oid, str]], originals: Sequence[tuple[Oid, str]]
) -> tuple[tuple[Oid, str], ...]:
    """The commits (id, message) without copies: those of a squash or rebase have the landings of the originals."""
    copied = {landing for _, message in originals for landing in _marks(message)[LANDING]}
    return (*originals, *(marked for marked in on_target if not _marks(marked[1])[LANDING] & copied))


def newest_landing(marked: Iterable[tuple[Oid, str]], *, plan: str, phase: str) -> StandingLanding | Unclear | None:
    """The phase's newest landing among commits (id, message), newest first; None when there is none to undo."""
    read = [(oid, message, _marks(message)) for oid, message in marked]
    undone = {landing for _, _, marks in read for landing in marks[UNDOES]}
    expected = {PLAN: {one_line(plan)}, PHASE: {one_line(phase)}, UNDOES: set[str]()}
    own = (marks for _, _, marks in read if expected[PLAN] <= marks[PLAN] and expected[PHASE] <= marks[PHASE])
    standing = (sorted(marks[LANDING] - undone) for marks in own if not marks[UNDOES])
    landing = next(filter(None, standing), [""])[0]
    commits = []
    for oid, message, marks in read:
        if landing and landing in marks[LANDING]:
            if marks != expected | {LANDING: {landing}} or read_trailers(message).get(LANDING) != landing:
                return Unclear(commit=oid)
            commits.append(oid)
    return StandingLanding(landing=landing, commits=tuple(commits)) if landing else None


def _marks(message: str) -> dict[str, set[str]]:
    """The values of Runplan-* lines anywhere in the message; that of a squashed commit has several of a kind."""
    lines = [(key.lower(), one_line(value)) for key, value in re.findall(_OURS, message)]
    return {key: {value for name, value in lines if name == key.lower()} for key in (PLAN, PHASE, LANDING, UNDOES)}


class Removed(Struct, frozen=True, kw_only=True):
    what: str
    parked: str = ""


class Kept(Struct, frozen=True, kw_only=True):
    what: str
    why: str
    tip: Oid = ""  #: of a ref with work that did not land
