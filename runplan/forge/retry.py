"""The one retry layer for calls to a forge.

PyGithub's own retries are off: they repeat writes that have happened, and their waits cannot be interrupted. Short
faults are retried here. Longer ones are raised as Unreachable or ForgeBusy, so that the run waits in the journal.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar
from urllib.parse import urljoin, urlsplit

from github import GithubException
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester
from requests import RequestException

from runplan.errors import Unreachable
from runplan.forge.model import ForgeBusy, ForgeDenied
from runplan.text import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

DELAYS_S = (0.5, 2.0, 5.0)  #: between the attempts of one call
PATIENCE_S = 20.0  #: with one call; a forge that answers slowly is not asked again
SECONDARY_S = 60.0  #: the pause that GitHub asks for when it names none
REDIRECTS = 5  #: in a row


def repeatable(what: str) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[Concatenate[Any, P], T]]:
    """Retry a method that reads, or that may be repeated; `what` names it in errors, with its arguments in braces."""

    def decorate(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
        @functools.wraps(method)
        def retried(self: Any, /, *args: P.args, **named: P.kwargs) -> T:
            calls: Calls = self.calls
            return calls.attempt(what.format(*args, **named), lambda: method(self, *args, **named))

        return retried

    return decorate


class Calls:
    """Calls with retries. `sleep` and `now` are those of the caller."""

    def __init__(self, *, sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.time) -> None:
        self._sleep = sleep
        self._now = now

    def attempt(self, what: str, call: Callable[[], T], happened: Callable[[], T | None] = lambda: None) -> T:
        """Call, and again after a fault. Of a write `happened` reads the result of an attempt whose answer was lost."""
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
        said, wait_s = describe(error), None
        if error.status in (403, 429):
            after, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
            if after.isdigit():
                wait_s = float(after)
            elif headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
                wait_s = max(1.0, float(reset) - self._now())
            elif error.status == 429 or "rate limit" in said.lower():
                wait_s = SECONDARY_S
        if error.status == 401:
            raise ForgeDenied(f"cannot {what}: the token has expired or was revoked (401 {said})") from error
        if wait_s is not None:
            raise ForgeBusy(f"cannot {what}: rate limit of the forge for {in_words(wait_s)}", wait_s) from error
        raise ForgeDenied(f"cannot {what}: {error.status} {said}") from error


def describe(error: GithubException) -> str:
    """The forge's own words, on one line."""
    data = error.data if isinstance(error.data, dict) else {}
    details = [one.get("message", "") for one in data.get("errors") or () if isinstance(one, dict)]
    words = [str(data.get("message") or ""), *(str(one) for one in details)]
    return " ".join(" ".join(words).split()) or f"status {error.status}"


class CheckedAnswers:
    """Mixed into PyGithub's connections: follows redirects, and refuses answers that are not the forge's.

    PyGithub drops the query of a 301, takes a 307 or a web page for an empty success, and ends in a RuntimeError when
    a redirect leads to another host.
    """

    def getresponse(self: Any) -> Any:
        for _ in range(REDIRECTS):
            response = super().getresponse()  # type: ignore[misc]
            location = response.headers.get("location", "")
            if response.status not in (301, 302, 307, 308) or not location:
                break
            here = f"{self.protocol}://{self.host}:{self.port}{self.url}"
            there = urlsplit(urljoin(here, location))
            if self.url.endswith("/logs"):  # the caller follows it, without the token
                break
            if (there.scheme, there.hostname) != (self.protocol, self.host):
                raise _not_the_forge(self.host, f"redirects to {there.scheme}://{there.netloc}")
            self.url = f"{there.path}?{there.query}" if there.query else there.path
        else:
            raise _not_the_forge(self.host, f"redirects more than {REDIRECTS} times")
        kind = response.headers.get("content-type", "")
        if response.status < 500 and "json" not in kind and response.read():
            raise _not_the_forge(self.host, f"sends {kind or 'no type'} instead of JSON (status {response.status})")
        return response


def _not_the_forge(host: str, what: str) -> Unreachable:
    why = "a proxy or a login page answers in its place, or the address of the API is wrong"
    return Unreachable(f"{host} {what}: {why}; check the network and GITHUB_API_URL")


@functools.cache
def check_answers() -> None:
    """Have every later client of PyGithub use checked answers."""
    classes = (HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass)
    Requester.injectConnectionClasses(
        *(type(f"Checked{base.__name__}", (CheckedAnswers, base), {}) for base in classes)
    )
