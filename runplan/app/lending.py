"""What a caller lends the run that it asks for; one that is at work already keeps what its own caller lent it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.app.holding import Declined
from runplan.core.errors import RunplanError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from runplan.app.desk import Accepted

    #: Called at the desk: whether it is to have nothing but what is lent now; what is answered takes it back.
    Lend: TypeAlias = Callable[[bool], Callable[[], None]]


def nothing(_anew: bool) -> Callable[[], None]:
    """For whoever brings nothing."""
    return lambda: None


def begun(lend: Lend, begin: Callable[[], Accepted | Declined], *, anew: bool) -> Accepted | Declined:
    """Begin with what is lent, and take it back where nothing was begun; unless `anew`, a run keeps what it has."""
    take_back = lend(anew)
    try:
        answer = begin()
    except RunplanError:
        take_back()
        raise
    if isinstance(answer, Declined) or not answer.fresh:
        take_back()
    return answer
