"""Phases side by side, killed at every point they pass; which passing of it, chance decides."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from zlib import crc32

from tests.chaos.listing import Listed
from tests.chaos.matrix import Cell
from tests.chaos.scenes import SIDE_BY_SIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.matrix import Bench, Result

MODES = ("daemon", "power", "git")
LEAST = 0.75  #: the share of cells in which somebody has to be killed


def cells(bench: Bench, *ways: str) -> list[Cell]:
    """Every point that an undisturbed run passes, by everybody who can die there; always the same passing of it."""
    chosen = []
    for way in ways:
        (passed,) = bench.undisturbed(SIDE_BY_SIDE.name, way).passed
        for name, count in sorted(Counter(passed).items()):
            for mode in MODES:
                if mode == "git" and not name.startswith("git."):
                    continue
                number = 1 + crc32(f"{way} {name} {mode}".encode()) % count
                chosen.append(Cell(at=_listed(way, f"{name}#{number}"), mode=mode))
    return chosen


def too_few(results: Sequence[Result]) -> str:
    """What is wrong when so many cells were passed by that the others prove little; "" when enough were tried."""
    tried = sum(result.tried for result in results)
    return "" if tried >= LEAST * len(results) else f"in {len(results) - tried} of {len(results)} nobody was killed"


def _listed(way: str, point: str) -> Listed:
    return Listed(scene=SIDE_BY_SIDE.name, way=way, start=1, point=point)
