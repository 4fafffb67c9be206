"""The table of the matrix, for the terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.chaos.matrix import MODES
from tests.chaos.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.matrix import Result

COLUMNS = [(way.name, mode) for way in WAYS for mode in MODES]


def _rows(results: Sequence[Result]) -> Iterator[tuple[str, list[str]]]:
    """Each point with the number of its cells in each column; `ok/all` where some failed, nothing where none can be."""
    ran = Counter((result.cell.at.name, result.cell.at.way, result.cell.mode) for result in results)
    good = Counter((result.cell.at.name, result.cell.at.way, result.cell.mode) for result in results if result.ok)
    for name in sorted({key[0] for key in ran}):
        keys = [(name, *column) for column in COLUMNS]
        yield (
            name,
            [
                ("" if not ran[key] else str(ran[key]) if good[key] == ran[key] else f"{good[key]}/{ran[key]}")
                for key in keys
            ],
        )


def table(results: Sequence[Result]) -> str:
    """For a terminal."""
    rows = list(_rows(results))
    width = max((len(name) for name, _ in rows), default=0)
    head = "".join(f"{way.name:^{8 * len(MODES)}}" for way in WAYS)
    lines = [f"{'':{width}}{head}", f"{'point':{width}}" + "".join(f"{mode:>8}" for _, mode in COLUMNS)]
    lines += [f"{name:{width}}" + "".join(f"{cell or '·':>8}" for cell in cells) for name, cells in rows]
    return "\n".join(lines)
