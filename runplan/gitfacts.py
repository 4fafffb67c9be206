"""Values about commits and worktrees that pure packages share with `git`."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

Oid: TypeAlias = str  #: a full object id, 40 or 64 hex digits


class Identity(Struct, frozen=True, kw_only=True):
    """Name and address of a person or an agent."""

    name: str
    email: str


AGENT = Identity(name="runplan agent", email="agent@runplan.invalid")


def signing(dispatch: str) -> Identity:
    """The committer of one dispatch."""
    return Identity(name=AGENT.name, email=f"agent+{dispatch}@runplan.invalid")


def committing_as(dispatch: str) -> dict[str, str]:
    """The variables that make git commit as this dispatch, so that reflogs name it."""
    who = signing(dispatch)
    return {"GIT_COMMITTER_NAME": who.name, "GIT_COMMITTER_EMAIL": who.email}


def is_agent(who: Identity) -> bool:
    """Whether it is the identity of an agent, in any dispatch."""
    user, _, host = who.email.partition("@")
    own, _, place = AGENT.email.partition("@")
    return who.name == AGENT.name and host == place and user.partition("+")[0] == own


def read_person(line: str) -> tuple[Identity, str]:
    """Name, address and time of `Name <address> <seconds> <zone>`; a missing part is empty."""
    person, _, when = line.partition("> ")
    name, _, email = person.partition(" <")
    return Identity(name=name, email=email), when


class Commit(Struct, frozen=True, kw_only=True):
    """One commit as it is stored."""

    oid: Oid
    tree: Oid
    parents: tuple[Oid, ...]
    author: Identity
    authored: str  #: git's own form: "<seconds> <zone>"
    committer: Identity
    message: str

    @classmethod
    def parse(cls, oid: Oid, content: bytes) -> Commit:
        """Read a raw commit. An agent can write one by hand that lacks any of its lines."""
        head, _, message = content.partition(b"\n\n")
        lines = (line.partition(" ") for line in head.decode("utf-8", "surrogateescape").split("\n"))
        fields = [(name, value) for name, _, value in lines if name]  # lines of a signature start with a blank
        values = dict(reversed(fields))
        author, authored = read_person(values.get("author", ""))
        return cls(
            oid=oid,
            tree=values.get("tree", ""),
            parents=tuple(value for name, value in fields if name == "parent"),
            author=author,
            authored=authored,
            committer=read_person(values.get("committer", ""))[0],
            message=message.decode("utf-8", "surrogateescape"),
        )


class Change(Struct, frozen=True, kw_only=True):
    """One path that differs between two trees."""

    path: str
    kind: str  #: A added, M modified, D deleted, T type changed
    old_mode: str
    new_mode: str
    old: Oid
    new: Oid


class Untracked(Struct, frozen=True, kw_only=True):
    """An untracked file of a worktree."""

    path: str
    size: int  #: bytes
