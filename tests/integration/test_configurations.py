"""The daemon goes by the files as they are, tells of each fault once, and never by what cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runplan.daemon.repositories import Configurations
from runplan.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


class Place:
    """A user with a file and two repositories."""

    def __init__(self, place: Path) -> None:
        self.env = {"XDG_CONFIG_HOME": str(place / "config"), "HOME": str(place)}
        self.user = place / "config/runplan/runplan.toml"
        self.roots = [place / "one", place / "two"]
        for folder in (self.user.parent, *self.roots):
            folder.mkdir(parents=True)
        self.told: list[tuple[str, str]] = []

    def open(self) -> Configurations:
        found = Configurations(self.env, lambda whose, words: self.told.append((whose, words)))
        for root in self.roots:
            found.read(root, self.env)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_has_not_changed_is_not_taken_for_a_change(place: Place) -> None:
    found = place.open()
    for anew in (False, True, False):
        changed = found.look(anew=anew)
        assert (changed.user, changed.roots) == (False, ())


def test_a_change_is_told_of_whom_it_concerns_and_only_once(place: Place) -> None:
    found = place.open()
    (place.roots[1] / "runplan.toml").write_text('[run]\ntimezone = "Asia/Tokyo"\n')
    assert found.look().roots == (str(place.roots[1]),)
    assert found.look().roots == ()
    assert found.read(place.roots[1], place.env).run.timezone == "Asia/Tokyo"
    assert found.read(place.roots[0], place.env).run.timezone == "UTC"


def test_the_users_file_holds_for_all_unless_they_say_otherwise(place: Place) -> None:
    (place.roots[0] / "runplan.toml").write_text('[run]\ntarget = "own"\n')
    found = place.open()
    place.user.write_text('[run]\ntarget = "all"\n[daemon]\nmax_parallel = 7\n')
    changed = found.look()
    assert changed.user
    assert [found.read(root, place.env).run.target for root in place.roots[:2]] == ["own", "all"]
    assert found.user.daemon.max_parallel == 7


def test_a_file_that_comes_or_goes_is_a_change(place: Place) -> None:
    found = place.open()
    (place.roots[0] / "config").mkdir()
    (place.roots[0] / "config/runplan.toml").write_text('[run]\ntarget = "trunk"\n')
    assert found.look().roots == (str(place.roots[0]),)
    (place.roots[0] / "config/runplan.toml").unlink()
    assert found.look().roots == (str(place.roots[0]),)
    assert found.read(place.roots[0], place.env).run.target == "main"


def test_a_repository_read_between_two_looks_is_still_told_at_the_next(place: Place) -> None:
    found = place.open()
    (place.roots[0] / "runplan.toml").write_text('[run]\ntarget = "trunk"\n')
    assert found.read(place.roots[0], place.env).run.target == "trunk"
    assert found.look().roots == (str(place.roots[0]),)


def test_what_was_good_before_holds_while_a_file_is_broken_and_everybody_is_told_once(place: Place) -> None:
    place.user.write_text("[daemon]\nmax_parallel = 7\n")
    found = place.open()
    place.user.write_text("[daemon]\nmax_paralel = 8\n")
    words = f"{place.user}:2: [daemon] max_paralel: unknown key; did you mean 'max_parallel'?"
    for anew in (False, False, True):
        assert found.look(anew=anew).roots == ()
        assert found.read(place.roots[0], place.env).daemon.max_parallel == 7
    assert (found.user.daemon.max_parallel, found.troubles) == (7, (words,))
    assert place.told == [("", words)], "one fault, not one for each repository"
    place.user.write_text("[daemon]\nmax_parallel = 8\n")
    assert found.look().user
    assert (found.user.daemon.max_parallel, found.troubles) == (8, ())
    assert place.told[1:] == [("", "")]


def test_another_fault_of_the_same_file_is_told_too(place: Place) -> None:
    found = place.open()
    file = place.roots[0] / "runplan.toml"
    for text in ("[run\n", "[ran]\n", "[ran]\n# a remark\n"):
        file.write_text(text)
        found.look()
    assert [words.partition(": ")[2] for _, words in place.told if words] == [
        "invalid TOML: Expected ']' at the end of a table declaration",
        "[ran]: unknown section; did you mean [run]?",
    ]
    assert {whose for whose, _ in place.told} == {str(place.roots[0])}


def test_without_good_ones_a_repository_is_refused_until_they_are_mended(place: Place) -> None:
    file = place.roots[0] / "runplan.toml"
    file.write_text("[run\n")
    found = Configurations(place.env, lambda *_: None)
    with pytest.raises(SettingsError, match=r"runplan\.toml:1: invalid TOML"):
        found.read(place.roots[0], place.env)
    assert found.look().roots == ()
    file.write_text("[run]\n")
    assert found.look().roots == (str(place.roots[0]),)


def test_a_user_without_good_ones_is_refused_at_the_start(place: Place) -> None:
    place.user.write_text("[daemon]\nmax_parallel = 0\n")
    with pytest.raises(SettingsError, match="must be 1 or more"):
        place.open()
