"""The one loop that waits for what no descriptor and no signal tells."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def until(condition: Callable[[], T], *, within_s: float, every_s: float = 0.01) -> T:
    """Ask until the answer is true or the time is up; the last answer. It is asked at least once."""
    deadline = time.monotonic() + within_s
    while not (answer := condition()) and time.monotonic() < deadline:
        time.sleep(every_s)
    return answer
