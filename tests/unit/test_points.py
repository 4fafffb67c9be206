"""No effect and no action is without a point at which a test can let the process die."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import pytest

from runplan import ports
from runplan.landing.lander import Lander
from runplan.wiring import points
from runplan.wiring.testing import KillPoint

PORTS = {
    name: kind
    for name, kind in (vars(ports) | {"Lander": Lander}).items()
    if inspect.isclass(kind) and Protocol in kind.__bases__ and kind is not Protocol
}


def members(kind: type) -> set[str]:
    named = {*vars(kind), *kind.__annotations__}
    return {name for name in named if not name.startswith("_")}


@pytest.mark.parametrize("port", sorted(PORTS))
def test_every_method_of_a_port_is_either_an_effect_or_a_look(port: str) -> None:
    """A new one cannot be forgotten: it has to be put into one of the two tables."""
    effects, reads = points.EFFECTS.get(port, frozenset()), points.READS.get(port, frozenset())
    assert effects | reads == members(PORTS[port]), f"runplan/wiring/points.py: put every member of {port} into a table"
    assert not effects & reads


def test_the_tables_speak_of_no_port_that_is_not_there() -> None:
    assert set(points.EFFECTS) == set(points.READS) == set(PORTS)


class _Port:
    def __init__(self) -> None:
        self.done: list[str] = []

    def append(self) -> str:
        self.done.append("append")
        return "appended"

    def newest(self) -> str:
        return "newest"


def test_a_watched_port_tells_of_its_effects_and_of_nothing_else() -> None:
    port, told = _Port(), list[str]()
    watched: Any = points.Watched(port, "Store", lambda name: told.append(f"{name} {port.done}"))
    assert (watched.append(), watched.newest()) == ("appended", "newest")
    assert told == ["Store.append.before []", "Store.append.after ['append']"]


def test_without_a_wish_nothing_is_watched() -> None:
    rooms = object()
    assert KillPoint({}).watched(rooms) is rooms


@pytest.mark.parametrize(
    ("words", "verb"),
    [
        (("status", "--porcelain=v2"), "status"),
        (("-c", "core.trustctime=false", "read-tree", "-m"), "read-tree"),
        (("--literal-pathspecs", "commit", "-q"), "commit"),
    ],
)
def test_a_git_child_is_named_by_its_verb(words: tuple[str, ...], verb: str) -> None:
    assert points.subcommand(words) == verb
