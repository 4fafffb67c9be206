"""Signing in to GitHub: the repository of a remote, its token, and git's own sign-in."""

from __future__ import annotations

import re
import subprocess
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from github import Auth, GithubIntegration
from jwt import PyJWTError

from runplan.errors import RefusedEarly
from runplan.forge.address import APP_KEY, Access, find_token, parse_remote
from runplan.forge.model import ForgeDenied
from runplan.forge.retry import Calls
from runplan.git.command import ANY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.forge.address import Address
    from runplan.git.command import Git

TIMEOUT_S = 15
#: Of every client. A phase makes a handful of calls, so none waits for another.
CLIENT: dict[str, Any] = {
    "timeout": TIMEOUT_S,
    "per_page": 100,
    "lazy": True,
    "retry": None,
    "seconds_between_requests": 0,
    "seconds_between_writes": 0,
}


def find_access(git: Git, *, remote: str, env: Mapping[str, str]) -> Access:
    """The repository of a remote, with the token of this environment; refused when there is none."""
    found = git.run("remote", "get-url", "--push", "--", remote, ok=ANY)
    if found.code:
        raise RefusedEarly(f"there is no remote {remote} here to push to; run: git remote add {remote} URL")
    url = found.text
    address = parse_remote(url, resolve=lambda host: _ssh_host(host, env))
    if address is None:
        public = re.sub(r"//[^/@]*@", "//", url)
        raise RefusedEarly(f"landing by pr needs a repository on GitHub, and {remote} is {public}; use direct instead")

    def ask(argv: Sequence[str], stdin: str) -> str:
        if argv[0] == "git":
            return git.run(*argv[1:], stdin=stdin.encode(), env={"GIT_TERMINAL_PROMPT": "0"}, ok=ANY).text
        return _output(argv, env)

    token = find_token(address, env, ask)
    if token is None:
        name = "GH_TOKEN" if address.is_cloud else "GH_ENTERPRISE_TOKEN"
        raise RefusedEarly(f"there is no token for {address.host}; set {name}, or run: gh auth login")
    auth = (
        _installation(address, token.app, token.value, api_of(address, env)) if token.app else Auth.Token(token.value)
    )
    return Access(address=address, auth=auth, source=token.source, is_gits=token.is_gits)


@cache  # each signature with the key takes 0.2 s
def _installation(address: Address, app: str, file: str, api: str) -> Auth.AppInstallationAuth:
    """The installation of a GitHub App on this repository; PyGithub renews its token, which lives for an hour."""
    try:
        signed = Auth.AppAuth(app, Path(file).read_text(encoding="ascii") or "-")
        apps = GithubIntegration(auth=signed, base_url=api, **CLIENT)
        found = Calls().attempt("find the app", lambda: apps.get_repo_installation(address.owner, address.repository))
    except ForgeDenied as error:
        raise RefusedEarly(f"the GitHub App {app} is not installed on {address.full_name}: {error}") from None
    except (OSError, ValueError, PyJWTError) as error:
        raise RefusedEarly(f"{APP_KEY}: {file or 'the file'} is no private key that can be read: {error}") from None
    return Auth.AppInstallationAuth(signed, found.id, requester=apps.requester)


def git_settings(access: Access) -> tuple[str, ...]:
    """Settings with which git signs in to this host alone; for its environment, never for its arguments."""
    if access.is_gits or not access.address.web:
        return ()
    token = Calls().attempt("renew the token", lambda: access.auth.token)
    basic = b64encode(f"x-access-token:{token}".encode()).decode()
    key = f"http.{access.address.web}/.extraHeader"
    return f"{key}=", f"{key}=Authorization: Basic {basic}"  # the first drops headers of the user's configuration


def api_of(address: Address, env: Mapping[str, str]) -> str:
    return env.get("GITHUB_API_URL", "") or address.api


def _ssh_host(alias: str, env: Mapping[str, str]) -> str:
    """The host name that ssh would use for a name of its configuration."""
    if "." in alias:
        return alias
    found = re.search(r"^hostname (\S+)$", _output(("ssh", "-G", alias), env), re.MULTILINE)
    return found[1] if found else alias


def _output(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The output of a program; "" when it is missing, fails or hangs."""
    try:
        return subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
