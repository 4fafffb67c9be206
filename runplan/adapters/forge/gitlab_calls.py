"""Calls to GitLab through python-gitlab: its errors in the words of a forge, and answers that are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from gitlab.exceptions import GitlabError
from requests import RequestException, Response, Session

from runplan.adapters.forge.retry import Calls, Outage
from runplan.domain.errors import NotAllowed, NotThere, RateLimited, Unreachable
from runplan.domain.text import in_words

T = TypeVar("T")

TIMEOUT_S = 15
LIMITED_S = 60.0  #: the pause after a rate limit that names none
_PLAIN = ("/trace", "/raw")  #: ends of the paths whose answers are no JSON


class TooManyRequests(Exception):
    """An answer 429, with its headers."""


class CheckedSession(Session):
    """Refuses answers that are not the forge's, and raises a rate limit with its headers.

    python-gitlab sleeps through a limit and drops its headers. It takes a web page for a success, and requests would
    send a token in a header of GitLab's own to any host that a redirect names.
    """

    def send(self, request: Any, **named: Any) -> Response:
        response = super().send(request, **named)
        if response.status_code == 429:
            raise TooManyRequests(response.headers)
        kind = response.headers.get("content-type", "")
        is_plain = urlsplit(response.url).path.endswith(_PLAIN)
        if response.status_code < 500 and "json" not in kind and response.content and not is_plain:
            fault = f"sends {kind or 'no type'} instead of JSON (status {response.status_code})"
            raise _not_the_forge(response.url, fault)
        return response

    def get_redirect_target(self, resp: Any) -> str | None:
        target: str | None = super().get_redirect_target(resp)
        there = urlsplit(target or "")
        if there.netloc and (there.scheme, there.netloc) != urlsplit(resp.url)[:2]:
            raise _not_the_forge(resp.url, f"redirects to {there.scheme}://{there.netloc}")
        return target


def _not_the_forge(url: str, fault: str) -> Unreachable:
    why = "a proxy or a login page answers in its place, or the address of the API is wrong"
    return Unreachable(f"{urlsplit(url).netloc} {fault}: {why}; check the network and GITLAB_API_URL")


class GitLabCalls(Calls):
    def _call(self, action: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except TooManyRequests as error:
            self._raise_limit(action, error)
        except RequestException as error:
            raise Outage(f"cannot {action}: {type(error).__name__}: the forge does not answer") from error
        except GitlabError as error:
            self._raise_known(action, error)

    def _raise_limit(self, action: str, error: TooManyRequests) -> NoReturn:
        (headers,) = error.args
        after, reset = headers.get("retry-after", ""), headers.get("ratelimit-reset", "")
        wait_s = max(1.0, float(reset) - self._now()) if reset.isdigit() else LIMITED_S
        wait_s = float(after) if after.isdigit() else wait_s
        text = f"cannot {action}: rate limit of the forge for {in_words(wait_s)}"
        raise RateLimited(text, until=self._now() + wait_s) from error

    def _raise_known(self, action: str, error: GitlabError) -> NoReturn:
        """Raise the error of ours for a fault or a refusal."""
        status = error.response_code
        said = describe_error(error)
        if status is None:  # a write was redirected, or an answer cannot be parsed
            raise Unreachable(f"cannot {action}: {said}") from error
        if status >= 500:
            raise Outage(f"cannot {action}: the forge answers {status}") from error
        if status == 401:
            raise NotAllowed(f"cannot {action}: the token has expired or was revoked (401 {said})") from error
        kind = NotThere if status in (404, 410) else NotAllowed
        raise kind(f"cannot {action}: {status} {said}") from error


def describe_error(error: GitlabError) -> str:
    """The forge's own words, on one line; GitLab sends a text, a list, or lists by field."""
    said: Any = error.error_message
    if isinstance(said, dict):
        said = [
            f"{field}: {', '.join(map(str, texts)) if isinstance(texts, list) else texts}"
            for field, texts in said.items()
        ]
    words = "; ".join(map(str, said)) if isinstance(said, list) else str(said)
    return " ".join(words.split()) or f"status {error.response_code}"
