"""The daemon uses the settings files as they are, reports each error once, and keeps the last valid settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runplan.daemon.repositories import SettingsFiles
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
        self.reported: list[tuple[str, str]] = []

    def open(self) -> SettingsFiles:
        found = SettingsFiles(self.env, lambda root, error: self.reported.append((root, error)))
        for root in self.roots:
            found.read(root, self.env)
        return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_unchanged_files_are_no_change(place: Place) -> None:
    found = place.open()
    for anew in (False, True, False):
        assert found.changes(anew=anew) == []


def test_a_change_is_reported_once_for_its_repository(place: Place) -> None:
    found = place.open()
    (place.roots[1] / "runplan.toml").write_text('[run]\ntimezone = "Asia/Tokyo"\n')
    assert found.changes(anew=False) == [place.roots[1]]
    assert found.changes(anew=False) == []
    assert found.read(place.roots[1], place.env).run.timezone == "Asia/Tokyo"
    assert found.read(place.roots[0], place.env).run.timezone == "UTC"


def test_the_users_file_applies_to_repositories_that_do_not_override_it(place: Place) -> None:
    (place.roots[0] / "runplan.toml").write_text('[run]\ntarget = "own"\n')
    found = place.open()
    place.user.write_text('[run]\ntarget = "all"\n[daemon]\nmax_parallel = 7\n')
    assert found.changes(anew=False)[0] is None
    assert [found.read(root, place.env).run.target for root in place.roots[:2]] == ["own", "all"]
    assert found.user.daemon.max_parallel == 7


def test_a_file_that_comes_or_goes_is_a_change(place: Place) -> None:
    found = place.open()
    (place.roots[0] / "config").mkdir()
    (place.roots[0] / "config/runplan.toml").write_text('[run]\ntarget = "trunk"\n')
    assert found.changes(anew=False) == [place.roots[0]]
    (place.roots[0] / "config/runplan.toml").unlink()
    assert found.changes(anew=False) == [place.roots[0]]
    assert found.read(place.roots[0], place.env).run.target == "main"


def test_a_change_that_was_read_in_between_is_still_reported(place: Place) -> None:
    found = place.open()
    (place.roots[0] / "runplan.toml").write_text('[run]\ntarget = "trunk"\n')
    assert found.read(place.roots[0], place.env).run.target == "trunk"
    assert found.changes(anew=False) == [place.roots[0]]


def test_the_last_valid_settings_apply_while_a_file_is_invalid_and_the_error_is_reported_once(place: Place) -> None:
    place.user.write_text("[daemon]\nmax_parallel = 7\n")
    found = place.open()
    place.user.write_text("[daemon]\nmax_paralel = 8\n")
    words = f"{place.user}: [daemon] max_paralel: unknown key; did you mean 'max_parallel'?"
    for anew in (False, False, True):
        assert found.changes(anew=anew) == []
        assert found.read(place.roots[0], place.env).daemon.max_parallel == 7
    assert (found.user.daemon.max_parallel, found.errors) == (7, (words,))
    assert place.reported == [("", words)], "one fault, not one for each repository"
    place.user.write_text("[daemon]\nmax_parallel = 8\n")
    assert None in found.changes(anew=False)
    assert (found.user.daemon.max_parallel, found.errors) == (8, ())
    assert [error for _, error in place.reported[1:]] == [""]


def test_another_error_in_the_same_file_is_reported_too(place: Place) -> None:
    found = place.open()
    file = place.roots[0] / "runplan.toml"
    for text in ("[run\n", "[ran]\n", "[ran]\n# a remark\n"):
        file.write_text(text)
        found.changes(anew=False)
    assert [words.partition(": ")[2] for _, words in place.reported if words] == [
        "invalid TOML: Expected ']' at the end of a table declaration (at line 1, column 5)",
        "[ran]: unknown section; did you mean [run]?",
    ]
    assert {root for root, _ in place.reported} == {str(place.roots[0])}


def test_a_repository_without_valid_settings_is_refused_until_they_are_fixed(place: Place) -> None:
    file = place.roots[0] / "runplan.toml"
    file.write_text("[run\n")
    found = SettingsFiles(place.env, lambda *_: None)
    with pytest.raises(SettingsError, match=r"runplan\.toml: invalid TOML"):
        found.read(place.roots[0], place.env)
    assert found.changes(anew=False) == []
    file.write_text("[run]\n")
    assert found.changes(anew=False) == [place.roots[0]]


def test_a_user_without_valid_settings_is_refused_at_the_start(place: Place) -> None:
    place.user.write_text("[daemon]\nmax_parallel = 0\n")
    with pytest.raises(SettingsError, match="must be 1 or more"):
        place.open()
