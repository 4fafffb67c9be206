"""Builds small plan texts for tests."""

from __future__ import annotations


def tracker(*rows: str, header: str = "| Phase | Status | Commit | Notes |") -> str:
    """A tracker of the given rows."""
    return "\n".join(["## Progress Tracker", "", header, "|---|---|---|---|", *rows, "", ""])


def a_plan(cells: dict[str, str], bodies: dict[str, str] | None = None, *, front: str = "") -> bytes:
    """A tracker plan: phase id to status cell, and what stands in the phases."""
    rows = [f"| {id_} — Phase {id_} | {status} | | |" for id_, status in cells.items()]
    sections = [f"## Phase {id_} — Title {id_}\n\n{(bodies or {}).get(id_, 'Text.')}\n\n" for id_ in cells]
    return (front + "# Plan: A plan\n\n" + tracker(*rows) + "".join(sections)).encode()


def waiting(dependencies: str, *, own: str = "9", others: str = "1 2 3 3a 4 5") -> bytes:
    """A plan whose last phase has the given Dependencies."""
    cells = dict.fromkeys([*others.split(), own], "⬚")
    return a_plan(cells, {own: f"### Dependencies\n\n{dependencies}\n"})
