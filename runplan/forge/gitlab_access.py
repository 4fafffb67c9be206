"""A project on GitLab, and the token for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from runplan.errors import RefusedEarly
from runplan.forge.access import Token, ask_with, find_stored_token
from runplan.forge.gitlab import GitLab

if TYPE_CHECKING:
    from runplan.forge.access import Ask
    from runplan.forge.model import Address
    from runplan.git.command import Git

TOKENS = ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN")  #: in the order of the `glab` program
JOB_TOKEN = "CI_JOB_TOKEN"  # noqa: S105  the name of a variable


def open_forge(git: Git, address: Address, env: Mapping[str, str]) -> GitLab:
    token = find_token(address, env, ask_with(git, env))
    if token is None:
        job = f": {JOB_TOKEN} may neither open merge requests nor read members" if env.get(JOB_TOKEN) else ""
        needed = f"set {TOKENS[0]} to one with the scopes api and write_repository"
        raise RefusedEarly(f"there is no token for {address.host}{job}; {needed}")
    url = server_address(address, env)
    return GitLab(address, token.value, url=url, token_source=token.source, is_gits=token.is_gits)


def server_address(address: Address, env: Mapping[str, str]) -> str:
    """The address of the server; that of its API may be given instead, as CI of GitLab does."""
    given = env.get("GITLAB_API_URL", "").strip().rstrip("/")
    return given.removesuffix("/api/v4") or address.web or f"https://{address.host}"


def find_token(address: Address, env: Mapping[str, str], ask: Ask) -> Token | None:
    """The token for this host; never from a file of the repository."""
    for name in TOKENS:
        if value := env.get(name, "").strip():
            return Token(value=value, source=f"${name}")
    if value := ask(("glab", "config", "get", "token", "--host", address.host), "").strip():
        return Token(value=value, source="glab config")
    return find_stored_token(address, ask)
