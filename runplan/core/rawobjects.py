"""Reads commits as git stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.gitfacts import Commit, Identity

if TYPE_CHECKING:
    from runplan.core.gitfacts import Oid


def read_commit(oid: Oid, content: bytes) -> Commit:
    """A raw commit as a value, as far as it says anything: one that an agent made by hand may lack every line."""
    head, _, message = content.partition(b"\n\n")
    fields: list[tuple[str, str]] = []
    for line in head.decode("utf-8", "surrogateescape").split("\n"):
        name, _, value = line.partition(" ")
        if name:  # continuation lines of a signature start with a blank
            fields.append((name, value))
    values = dict(reversed(fields))
    author, when = read_person(values.get("author", ""))
    committer, _ = read_person(values.get("committer", ""))
    return Commit(
        oid=oid,
        tree=values.get("tree", ""),
        parents=tuple(value for key, value in fields if key == "parent"),
        author=author,
        authored=when,
        committer=committer,
        message=message.decode("utf-8", "surrogateescape"),
    )


def read_person(line: str) -> tuple[Identity, str]:
    """Name, address and time of `Name <address> <seconds> <zone>`; what is missing is empty."""
    person, _, when = line.partition("> ")
    name, _, email = person.partition(" <")
    return Identity(name=name, email=email), when
