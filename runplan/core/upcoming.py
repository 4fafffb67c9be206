"""Old names of what readers ask about a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.slots import is_due as is_due, upcoming as upcoming

if TYPE_CHECKING:
    from runplan.core.rows import ScheduleRow


def spelled(row: ScheduleRow) -> str:
    return f"every {row.spec}"
