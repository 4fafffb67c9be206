"""The table of the matrix, for the terminal and for docs/crash-safety.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.chaos.matrix import MODES
from tests.chaos.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.matrix import Result

PAGE = Path(__file__).parents[2] / "docs/crash-safety.md"
BEGIN, END = "<!-- the matrix, written by `make chaos-table` -->", "<!-- end of the matrix -->"
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


def write(results: Sequence[Result]) -> None:
    """Put the table between the two marks of the page."""
    kills, good = sum(result.kills for result in results), sum(result.ok for result in results)
    head = [
        f"{len(results)} cells, {kills} kills, {good} ended as they must.",
        "",
        "| point | " + " | ".join(f"{way}: {mode}" for way, mode in COLUMNS) + " |",
        "|---|" + "--:|" * len(COLUMNS),
    ]
    rows = [f"| `{name}` | " + " | ".join(cells) + " |" for name, cells in _rows(results)]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join([*head, *rows]) + f"\n{END}{after}", encoding="utf-8")


def points_told() -> list[str]:
    """The points of the page, in its order."""
    inside = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    return [line.split("`")[1] for line in inside.splitlines() if line.startswith("| `")]
