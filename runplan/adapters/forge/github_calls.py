"""Calls to GitHub through PyGithub: its errors in the words of a forge, and answers that are checked."""

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

from github import GithubException
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester
from requests import RequestException

from runplan.adapters.forge.retry import Calls, Outage, limit_call, not_the_forge, redact_answer, refuse_call
from runplan.domain.errors import RunplanError

TIMEOUT_S = 15
API = "GITHUB_API_URL"
#: Of every client. A phase makes a handful of calls, so none waits for another.
CLIENT: Mapping[str, Any] = {
    "timeout": TIMEOUT_S,
    "per_page": 100,
    "lazy": True,
    "retry": None,
    "seconds_between_requests": 0,
    "seconds_between_writes": 0,
}
SECONDARY_S = 60.0  #: the pause that GitHub asks for when it names none
REDIRECTS = 5  #: in a row


def translate_error(action: str, error: Exception, now: float) -> RunplanError:
    if not isinstance(error, GithubException):
        return Outage(f"cannot {action}: {type(error).__name__}: the forge does not answer")
    wait_s = read_pause(error, now)
    return limit_call(action, wait_s, now) if wait_s else refuse_call(action, error.status, describe_error(error))


def read_pause(error: GithubException, now: float) -> float:
    """For how long the forge asks for no further call; 0.0 when it does not."""
    # GraphQL answers with status 200 and an error, which PyGithub makes 400:
    # docs.github.com/en/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
    headers = {key.lower(): str(value) for key, value in (error.headers or {}).items()}
    after = headers.get("retry-after", "")
    reset = headers.get("x-ratelimit-reset", "")
    if after.isdigit():
        return max(1.0, float(after))
    if error.status not in (400, 403, 429):
        return 0.0
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdigit():
        return max(1.0, float(reset) - now)
    return SECONDARY_S if error.status == 429 or "rate limit" in describe_error(error).lower() else 0.0


GitHubCalls = functools.partial(Calls, (RequestException, GithubException), translate_error)


def describe_error(error: GithubException) -> str:
    """The forge's own words, on one line."""
    data = error.data if isinstance(error.data, dict) else {}
    details = [detail.get("message", "") for detail in data.get("errors") or () if isinstance(detail, dict)]
    words = [str(data.get("message") or ""), *map(str, details)]
    return " ".join(" ".join(words).split()) or f"status {error.status}"


def is_refusal(error: GithubException) -> bool:
    """Whether GraphQL refused a change, for which PyGithub has status 400; no limit of calls."""
    return error.status == 400 and not read_pause(error, 0.0)


@contextmanager
def ignore_status(status: int) -> Iterator[None]:
    try:
        yield
    except GithubException as error:
        if error.status != status:
            raise


@contextmanager
def note_refusal(refused: list[str], permission: str) -> Iterator[None]:
    """Add the permission to the list where the token lacks it for a call."""
    try:
        yield
    except GithubException as error:
        if error.status not in (403, 404) or read_pause(error, 0.0):
            raise
        refused.append(permission)


class CheckedAnswers:
    """Mixed into PyGithub's connections: follows redirects, and refuses answers that are not the forge's.

    PyGithub drops the query of a 301, takes a 307 or a web page for an empty success, and ends in a RuntimeError when
    a redirect leads to another host.
    """

    def getresponse(self: Any) -> Any:
        for _ in range(REDIRECTS):
            response = super().getresponse()  # type: ignore[misc]
            redact_answer(response.response, self.headers.get("Authorization", ""))
            location = response.headers.get("location", "")
            if response.status not in (301, 302, 307, 308) or not location:
                break
            here = f"{self.protocol}://{self.host}:{self.port}{self.url}"
            there = urlsplit(urljoin(here, location))
            if self.url.endswith("/logs"):  # the caller follows it, without the token
                break
            if (there.scheme, there.hostname) != (self.protocol, self.host):
                raise not_the_forge(self.host, f"redirects to {there.scheme}://{there.netloc}", API)
            self.url = f"{there.path}?{there.query}" if there.query else there.path
        else:
            raise not_the_forge(self.host, f"redirects more than {REDIRECTS} times", API)
        kind = response.headers.get("content-type", "")
        if response.status < 500 and "json" not in kind and response.read():
            raise not_the_forge(self.host, f"sends {kind or 'no type'} instead of JSON (status {response.status})", API)
        return response


# Every client of PyGithub uses checked answers from here on.
_CLASSES = (HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass)
Requester.injectConnectionClasses(*(type(f"Checked{base.__name__}", (CheckedAnswers, base), {}) for base in _CLASSES))
