"""The daemon finds its repositories again after a reboot, whatever has become of them or of its list."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from runplan.daemon.repositories import FILE, Known, Repositories
from runplan.errors import Unreachable

AT = "2026-01-01T00:00:00Z"


def a_repository(path: Path) -> Path:
    """As much of one as is asked for: its common directory with its HEAD."""
    (path / ".git").mkdir(parents=True)
    (path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    return path


def added(state: Path, *roots: Path) -> Repositories:
    listed = Repositories(state)
    for root in roots:
        listed.add(common=root / ".git", root=root, at=AT)
    return listed


def test_what_was_added_is_recalled_by_another_process_in_order(tmp_path: Path) -> None:
    one, two = a_repository(tmp_path / "one"), a_repository(tmp_path / "two")
    added(tmp_path / "state", one, two)

    recalled = Repositories(tmp_path / "state").recall()

    assert recalled.known == tuple(Known(common=str(r / ".git"), root=str(r), added=AT) for r in (one, two))
    assert recalled.notes == ()


def test_a_repository_is_listed_once(tmp_path: Path) -> None:
    root = a_repository(tmp_path / "one")
    listed = Repositories(tmp_path / "state")

    assert listed.add(common=root / ".git", root=root, at=AT)
    assert not listed.add(common=root / ".git", root=root, at="2026-02-02T00:00:00Z")
    assert len(listed.recall().known) == 1


def test_a_checkout_that_moved_is_known_by_its_common_directory(tmp_path: Path) -> None:
    root = a_repository(tmp_path / "one")
    listed = added(tmp_path / "state", root)

    assert listed.add(common=root / ".git", root=tmp_path / "elsewhere", at="2026-02-02T00:00:00Z")
    assert listed.recall().known == (Known(common=str(root / ".git"), root=str(tmp_path / "elsewhere"), added=AT),)


def test_a_repository_that_is_gone_is_dropped_with_a_note_once(tmp_path: Path) -> None:
    stays, goes = a_repository(tmp_path / "stays"), a_repository(tmp_path / "goes")
    listed = added(tmp_path / "state", stays, goes)
    (goes / ".git").rename(tmp_path / "away")

    assert [one.root for one in listed.there()] == [str(stays)]
    recalled = listed.recall()

    assert [one.root for one in recalled.known] == [str(stays)]
    assert recalled.notes == (f"{goes} is gone; removed it from the list of repositories",)
    assert listed.recall().notes == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"repositories": 3}',
        '{"repositories": [{"common": "x"}]}',
        "\0\0\0",
        '{"repositories": ["x"]}',
        '{"repositories": [{"common": 1, "root": 2, "added": 3}]}',
    ],
)
def test_a_damaged_list_is_set_aside_and_begun_anew(tmp_path: Path, text: str) -> None:
    root = a_repository(tmp_path / "one")
    listed = added(tmp_path / "state", root)
    (tmp_path / "state" / FILE).write_text(text)

    recalled = listed.recall()

    assert recalled.known == ()
    assert "is damaged; kept as repositories.json.damaged-1" in recalled.notes[0]
    assert (tmp_path / "state" / f"{FILE}.damaged-1").read_text() == text
    assert listed.add(common=root / ".git", root=root, at=AT)
    assert len(listed.recall().known) == 1


def test_every_damaged_list_is_kept(tmp_path: Path) -> None:
    listed = Repositories(tmp_path)
    for _ in range(2):
        (tmp_path / FILE).write_text("{")
        listed.recall()
    assert {path.name for path in tmp_path.glob("*damaged*")} == {f"{FILE}.damaged-1", f"{FILE}.damaged-2"}


def test_what_a_later_version_added_is_ignored(tmp_path: Path) -> None:
    root = a_repository(tmp_path / "one")
    entry = {"common": str(root / ".git"), "root": str(root), "added": AT, "colour": "blue"}
    (tmp_path / FILE).write_text(json.dumps({"format": 2, "repositories": [entry], "more": 1}))

    assert len(Repositories(tmp_path).recall().known) == 1


def test_a_path_that_is_no_text_is_kept(tmp_path: Path) -> None:
    root = a_repository(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))
    listed = added(tmp_path / "state", root)

    assert [one.root for one in listed.recall().known] == [str(root)]


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    added(tmp_path / "state", a_repository(tmp_path / "one"))
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def _add_ten(state: Path, name: str) -> None:
    for number in range(10):
        added(state, a_repository(state.parent / f"{name}{number}"))


def test_many_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    at_work = [context.Process(target=_add_ten, args=(tmp_path / "state", name)) for name in "abc"]
    for process in at_work:
        process.start()
    for process in at_work:
        process.join()
    assert len(Repositories(tmp_path / "state").recall().known) == 30


def test_a_state_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreachable, match="cannot be used"):
        Repositories(tmp_path / "file" / "state").recall()
