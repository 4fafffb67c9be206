"""The one retry layer for calls to a forge.

Short faults are retried here. Longer ones are raised as Unreachable or RateLimited, so that the run waits in the
journal. The library of a forge retries nothing itself: it would repeat writes that have happened, and its waits cannot
be interrupted.
"""

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from msgspec import Struct

from runplan.adapters.forge.protocol import has_marker
from runplan.domain.checks.secrets import REDACTED
from runplan.domain.errors import NotAllowed, RateLimited, RunplanError, TokenRefused, Unreachable
from runplan.domain.text import in_words

if TYPE_CHECKING:
    from requests import Response  # notices are retried here too, and most runs call no forge

CERTIFICATES = "GIT_SSL_CAINFO"  #: the file of authorities that git and the forge's library trust
P = ParamSpec("P")
T = TypeVar("T")
DELAYS_S = (0.5, 2.0, 5.0)  #: between the attempts of one call
LONGEST_S = 86_400.0  #: no forge limits calls for longer; the clock of this machine is behind
PATIENCE_S = 20.0  #: with one call; a forge that answers slowly is not asked again


class Outage(Unreachable):
    """The forge does not answer, or fails; the same call may succeed soon."""


def not_the_forge(host: str, fault: str, variable: str) -> Unreachable:
    """The error for an answer that is not the forge's; `variable` sets the address of its API."""
    why = "a proxy or a login page answers in its place, or the address of the API is wrong"
    return Unreachable(f"{host} {fault}: {why}; check the network and {variable}")


def refuse_call(action: str, status: int, said: str) -> RunplanError:
    if status >= 500:
        return Outage(f"cannot {action}: the forge answers {status}")
    if status == 401:
        return TokenRefused(f"cannot {action}: the token has expired or was revoked (401 {said})")
    return NotAllowed(f"cannot {action}: {status} {said}")


def redact_answer(answer: "Response", authorization: str) -> None:
    """Take the token of the request out of its answer: a proxy or a server in debug mode repeats headers."""
    secret = authorization.rpartition(" ")[2].encode()
    if secret and secret in answer.content:
        answer._content = answer.content.replace(secret, REDACTED.encode())  # noqa: SLF001 - requests has no other way


def limit_call(action: str, wait_s: float, now: float) -> RateLimited:
    wait_s = min(wait_s, LONGEST_S)
    return RateLimited(f"cannot {action}: rate limit of the forge for {in_words(wait_s)}", until=now + wait_s)


def repeatable(action: str) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[Concatenate[Any, P], T]]:
    """Retry a method that reads, or that may be repeated; `action` names it in errors, with its arguments in braces."""

    def decorate(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
        @functools.wraps(method)
        def retried(self: Any, /, *args: P.args, **named: P.kwargs) -> T:
            calls: Calls = self.calls
            return calls.attempt(action.format(*args, **named), lambda: method(self, *args, **named))

        return retried

    return decorate


class OwnComment(NamedTuple):
    text: str
    edit: Callable[[str], object]


class Calls(Struct, eq=False):
    """Calls with retries. `sleep` and `now` are those of the caller. A pause that the forge asks for holds for all."""

    faults: tuple[type[Exception], ...]
    translate: Callable[[str, Exception, float], RunplanError]  #: makes them errors of runplan, or an Outage
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    limited_until: float = 0.0  #: no call is sent before, whatever it asks for

    def call_once(self, action: str, call: Callable[[], T]) -> T:
        if (now := self.now()) < self.limited_until:
            raise limit_call(action, self.limited_until - now, now)
        try:
            return call()
        except self.faults as fault:
            error = self.translate(action, fault, self.now())
            if isinstance(error, RateLimited):
                self.limited_until = error.until
            raise error from fault

    def attempt(self, action: str, call: Callable[[], T], happened: Callable[[], T | None] = lambda: None) -> T:
        """Call, and again after a fault. Of a write `happened` reads the result of an attempt whose answer was lost."""
        began = self.now()
        for delay_s in (*DELAYS_S, None):
            try:
                return self.call_once(action, call)
            except RateLimited as limit:
                pause_s = max(0.0, limit.until - self.now())
                if delay_s is None or pause_s > DELAYS_S[-1]:
                    raise
                self.sleep(pause_s)
                self.limited_until = 0.0
                continue
            except Outage as error:
                outage = error
            if (result := happened()) is not None:
                return result
            if delay_s is None or self.now() - began > PATIENCE_S:
                raise Unreachable(str(outage)) from outage
            self.sleep(delay_s)
        raise AssertionError

    def put_comment(
        self, action: str, marker: str, text: str, read: Callable[[], list[OwnComment]], create: Callable[[str], object]
    ) -> None:
        """Create a comment with a hidden mark, unless `read` lists one of ours; or change its text."""
        body = f"{text}\n\n<!-- {marker} -->"

        def happened() -> OwnComment | None:
            return next((comment for comment in self.attempt(action, read) if has_marker(comment.text, marker)), None)

        existing = happened()
        if existing is None:
            self.attempt(action, lambda: create(body), happened)
        elif existing.text != body:
            self.attempt(action, lambda: existing.edit(body))
