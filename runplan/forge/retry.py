"""The one retry layer for calls to a forge.

PyGithub's own retries are off: they repeat writes that have happened, and their waits cannot be interrupted. Short
faults are retried here. Longer ones are raised as Unreachable or ForgeBusy, so that the run waits in the journal.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NoReturn, TypeVar

from runplan.errors import Unreachable
from runplan.forge.model import ForgeBusy, ForgeDenied
from runplan.text import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from github import GithubException

T = TypeVar("T")

DELAYS_S = (0.5, 2.0, 5.0)  #: between the attempts of one call
PATIENCE_S = 20.0  #: with one call; a forge that answers slowly is not asked again
SECONDARY_S = 60.0  #: the pause that GitHub asks for when it names none
RECHECK_S = 300.0  #: until a token that was refused is tried again


class Calls:
    """Calls with retries; a read is repeated, a write only after a look at what has happened."""

    def __init__(self, *, sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.time) -> None:
        self._sleep = sleep
        self._now = now

    def read(self, what: str, call: Callable[[], T]) -> T:
        return self._attempt(what, call, happened=lambda: None)

    def write(self, what: str, call: Callable[[], T], happened: Callable[[], T | None]) -> T:
        """`happened` reads the result of an earlier attempt whose answer was lost; None when there is none."""
        return self._attempt(what, call, happened=lambda: self.read(what, happened))

    def _attempt(self, what: str, call: Callable[[], T], happened: Callable[[], T | None]) -> T:
        from github import GithubException
        from requests import RequestException

        began = self._now()
        for delay_s in (*DELAYS_S, None):
            try:
                return call()
            except RequestException as error:
                fault = Unreachable(f"cannot {what}: {type(error).__name__}: the forge does not answer")
                cause: Exception = error
            except GithubException as error:
                if error.status < 500:
                    self._raise_known(what, error)
                fault, cause = Unreachable(f"cannot {what}: the forge answers {error.status}"), error
            if (found := happened()) is not None:
                return found
            if delay_s is None or self._now() - began > PATIENCE_S:
                raise fault from cause
            self._sleep(delay_s)
        raise AssertionError

    def _raise_known(self, what: str, error: GithubException) -> NoReturn:
        """Raise the error of ours for a rate limit or a refusal."""
        headers = {key.lower(): str(value) for key, value in (error.headers or {}).items()}
        said = describe(error)
        if error.status in (403, 429):
            wait_s = self._limited_s(headers, said, error.status)
            if wait_s is not None:
                raise ForgeBusy(f"cannot {what}: rate limit of the forge for {in_words(wait_s)}", wait_s) from error
        raise ForgeDenied(f"cannot {what}: {error.status} {said}") from error

    def _limited_s(self, headers: dict[str, str], said: str, status: int) -> float | None:
        """Seconds until the rate limit ends; None for a refusal that is no limit."""
        if (after := headers.get("retry-after", "")).isdigit():
            return float(after)
        reset = headers.get("x-ratelimit-reset", "")
        if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
            return max(1.0, float(reset) - self._now())
        return SECONDARY_S if status == 429 or "rate limit" in said.lower() else None


def describe(error: GithubException) -> str:
    """The forge's own words, on one line."""
    data = error.data if isinstance(error.data, dict) else {}
    details = [one.get("message", "") for one in data.get("errors") or () if isinstance(one, dict)]
    words = [str(data.get("message") or ""), *(str(one) for one in details)]
    return " ".join(" ".join(words).split()) or f"status {error.status}"
