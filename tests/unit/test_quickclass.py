"""Our dataclasses are those of the standard library in everything but the time it takes to make them."""

from __future__ import annotations

import collections
import copy
import dataclasses
import pickle
from typing import Any

import pytest

from runplan.quickclass import NamedTuple, dataclass
from runplan.run import actions, events


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A thing."""

    name: str
    size: int = 1
    rest: tuple[str, ...] = ()

    @property
    def double(self) -> int:
        return 2 * self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
    """Another thing with the same content."""

    name: str
    size: int = 1
    rest: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """A thing."""

    name: str
    size: int = 1
    rest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """Nothing."""


def test_it_holds_what_it_was_given_and_the_defaults() -> None:
    one = Ours(name="a", rest=("b",))
    assert (one.name, one.size, one.rest, one.double) == ("a", 1, ("b",), 2)
    assert Ours.__doc__ == "A thing."


@pytest.mark.parametrize("given", [{}, {"size": 2}, {"name": "a", "other": 1}], ids=["none", "missing", "unknown"])
def test_wrong_arguments_are_refused_as_by_the_standard_library(given: dict[str, object]) -> None:
    for kind in (Ours, Standard):
        with pytest.raises(TypeError):
            kind(**given)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Ours("a")  # type: ignore[call-arg]


def test_it_cannot_be_changed_and_takes_no_further_attribute() -> None:
    one = Ours(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.other = 1  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.name
    assert not hasattr(one, "__dict__")


def test_equal_are_the_same_kind_with_the_same_content_and_they_hash_alike() -> None:
    assert Ours(name="a") == Ours(name="a", size=1)
    assert hash(Ours(name="a")) == hash(Ours(name="a", size=1))
    assert Ours(name="a") != Ours(name="b")
    assert Ours(name="a") != Same(name="a")  # type: ignore[comparison-overlap]
    assert Empty() == Empty()
    assert Empty() != actions.ReadPlan()  # type: ignore[comparison-overlap]


def test_the_tools_of_the_standard_library_work_on_it() -> None:
    ours, standard = Ours(name="a", rest=("b",)), Standard(name="a", rest=("b",))
    assert repr(ours) == repr(standard).replace("Standard", "Ours")
    assert dataclasses.asdict(ours) == dataclasses.asdict(standard)
    assert dataclasses.replace(ours, size=3) == Ours(name="a", size=3, rest=("b",))
    described = [
        [(f.name, f.type, f.default, f.kw_only) for f in dataclasses.fields(kind)] for kind in (Ours, Standard)
    ]
    assert described[0] == described[1]


def test_it_is_matched_by_its_kind_and_its_fields() -> None:
    match Ours(name="a", size=4):
        case Ours(name="a", size=size):
            assert size == 4
        case _:
            pytest.fail("no match")


def test_no_function_is_made_for_a_class() -> None:
    assert vars(events.RunStarted)["__init__"] is vars(events.RunEnded)["__init__"]


# --- tuples -----------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two things."""

    left: str
    right: int = 2

    @property
    def both(self) -> str:
        return f"{self.left}{self.right}"


def test_a_named_tuple_is_the_standard_one() -> None:
    pair = Pair("a")
    assert (pair.left, pair.right, pair.both) == ("a", 2, "a2")
    assert pair == Pair(left="a", right=2) == ("a", 2)
    assert pair._replace(right=3) == ("a", 3)
    assert pair._asdict() == {"left": "a", "right": 2}
    assert repr(pair) == "Pair(left='a', right=2)"
    assert (Pair.__doc__, Pair.__module__, Pair._fields) == ("Two things.", __name__, ("left", "right"))
    match pair:
        case Pair(left, right):
            assert (left, right) == ("a", 2)


@pytest.mark.parametrize(
    ("values", "given"),
    [((), {}), (("a", 2, 3), {}), (("a",), {"left": "b"}), (("a",), {"other": 1}), ((), {"right": 1})],
    ids=["none", "too-many", "twice", "unknown", "missing"],
)
def test_a_named_tuple_refuses_what_the_standard_one_refuses(values: tuple[Any, ...], given: dict[str, Any]) -> None:
    for kind in (Pair, collections.namedtuple("Standard", "left right", defaults=[2])):
        with pytest.raises(TypeError):
            kind(*values, **given)


@pytest.mark.parametrize("given", [{"left": "a", "right": 3}, {"right": 3, "left": "a"}], ids=["in-order", "turned"])
def test_a_named_tuple_takes_its_fields_in_any_order_and_can_be_copied(given: dict[str, Any]) -> None:
    pair = Pair(**given)
    assert pair == Pair("a", 3) == Pair("a", right=3) == copy.copy(pair) == pickle.loads(pickle.dumps(pair))
    assert type(copy.copy(pair)) is Pair
