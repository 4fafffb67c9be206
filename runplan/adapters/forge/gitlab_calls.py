"""Calls to GitLab through python-gitlab: its errors in the words of a forge, and answers that are checked."""

import functools
from typing import Any
from urllib.parse import urlsplit

from gitlab.exceptions import GitlabError
from requests import RequestException, Response, Session

from runplan.adapters.forge.retry import Calls, Outage, limit_call, not_the_forge, redact_answer, refuse_call
from runplan.domain.errors import RunplanError, Unreachable

TIMEOUT_S = 15
API = "GITLAB_API_URL"
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
        redact_answer(response, request.headers.get("Authorization", ""))
        if response.status_code == 429 or (response.status_code >= 400 and "retry-after" in response.headers):
            raise TooManyRequests(response.headers)
        kind = response.headers.get("content-type", "")
        is_plain = urlsplit(response.url).path.endswith(_PLAIN)
        if response.status_code < 500 and "json" not in kind and response.content and not is_plain:
            fault = f"sends {kind or 'no type'} instead of JSON (status {response.status_code})"
            raise not_the_forge(urlsplit(response.url).netloc, fault, API)
        return response

    def get_redirect_target(self, resp: Any) -> str | None:
        target: str | None = super().get_redirect_target(resp)
        there = urlsplit(target or "")
        if there.netloc and (there.scheme, there.netloc) != urlsplit(resp.url)[:2]:
            raise not_the_forge(urlsplit(resp.url).netloc, f"redirects to {there.scheme}://{there.netloc}", API)
        return target


def translate_error(action: str, error: Exception, now: float) -> RunplanError:
    if isinstance(error, TooManyRequests):
        (headers,) = error.args
        after, reset = headers.get("retry-after", ""), headers.get("ratelimit-reset", "")
        wait_s = max(1.0, float(reset) - now) if reset.isdigit() else LIMITED_S
        return limit_call(action, float(after) if after.isdigit() else wait_s, now)
    if not isinstance(error, GitlabError):
        return Outage(f"cannot {action}: {type(error).__name__}: the forge does not answer")
    said = describe_error(error)
    if error.response_code is None:  # a write was redirected, or an answer cannot be parsed
        return Unreachable(f"cannot {action}: {said}")
    return refuse_call(action, error.response_code, said)


GitLabCalls = functools.partial(Calls, (TooManyRequests, RequestException, GitlabError), translate_error)


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
