"""What a person was told of is not told again by the next daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runplan.daemon.observer import FILE, MOST, Noticed

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_remembered_until_the_run_has_ended(tmp_path: Path) -> None:
    Noticed(tmp_path).add("r1", "1 approval")
    again = Noticed(tmp_path)
    assert [again.has(*one) for one in (("r1", "1 approval"), ("r1", "2 approval"), ("r2", "1 approval"))] == [
        True,
        False,
        False,
    ]
    again.forget("r1")
    assert not Noticed(tmp_path).has("r1", "1 approval")


@pytest.mark.parametrize("text", [b"", b"{}", b"\xff", b'[["r1"], ["r1", 2], 3]'])
def test_a_file_that_says_nothing_is_begun_anew(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE).write_bytes(text)
    found = Noticed(tmp_path)
    assert not found.has("r1", "1 approval")
    found.add("r1", "1 approval")
    assert Noticed(tmp_path).has("r1", "1 approval")


def test_it_does_not_grow_for_ever_and_needs_no_place(tmp_path: Path) -> None:
    found = Noticed(tmp_path / "nowhere")
    for number in range(MOST + 1):
        found.add(f"r{number}", "1 approval")
    assert (found.has("r0", "1 approval"), found.has(f"r{MOST}", "1 approval")) == (False, True)
