"""Signing in to GitHub: the repository of a remote, its token, and git's own sign-in."""

from __future__ import annotations

import re
import subprocess
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from github import Auth, GithubIntegration
from jwt import PyJWTError
from msgspec import Struct

from runplan.errors import NotAllowed, RefusedEarly
from runplan.forge.address import APP_KEY, find_token, parse_remote
from runplan.forge.github import GitHub
from runplan.forge.github_calls import CLIENT, TIMEOUT_S, GitHubCalls
from runplan.git.command import ANY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.forge.address import Address
    from runplan.git.command import Git


class GitHubAccess(Struct, frozen=True, kw_only=True):
    """A repository on GitHub, and how to sign in to it."""

    address: Address
    auth: Auth.Auth  #: its token may be renewed at any time
    source: str
    api: str = ""
    is_gits: bool = False

    def open_forge(self) -> GitHub:
        return GitHub(self.address, self.auth, api=self.api)

    def git_settings(self) -> tuple[str, ...]:
        if self.is_gits or not self.address.web:
            return ()
        token = GitHubCalls().attempt("renew the token", lambda: self.auth.token)
        basic = b64encode(f"x-access-token:{token}".encode()).decode()
        key = f"http.{self.address.web}/.extraHeader"
        return f"{key}=", f"{key}=Authorization: Basic {basic}"  # the first drops headers of the user's configuration


def find_github_access(git: Git, *, remote: str, env: Mapping[str, str]) -> GitHubAccess:
    asked = git.run("remote", "get-url", "--push", "--", remote, ok=ANY)
    if asked.code:
        raise RefusedEarly(f"there is no remote {remote} here to push to; run: git remote add {remote} URL")
    url = asked.text
    address = parse_remote(url, resolve=lambda host: _ssh_host(host, env))
    if address is None:
        public = re.sub(r"//[^/@]*@", "//", url)
        raise RefusedEarly(f"landing by pr needs a repository on GitHub, and {remote} is {public}; use direct instead")

    def ask(argv: Sequence[str], stdin: str) -> str:
        if argv[0] == "git":
            return git.run(*argv[1:], stdin=stdin.encode(), env={"GIT_TERMINAL_PROMPT": "0"}, ok=ANY).text
        return _run_program(argv, env)

    token = find_token(address, env, ask)
    if token is None:
        name = "GH_TOKEN" if address.is_cloud else "GH_ENTERPRISE_TOKEN"
        raise RefusedEarly(f"there is no token for {address.host}; set {name}, or run: gh auth login")
    api = env.get("GITHUB_API_URL", "") or address.api
    auth = _find_installation(address, token.app, token.value, api) if token.app else Auth.Token(token.value)
    return GitHubAccess(address=address, auth=auth, source=token.source, api=api, is_gits=token.is_gits)


@cache  # each signature with the key takes 0.2 s
def _find_installation(address: Address, app: str, file: str, api: str) -> Auth.AppInstallationAuth:
    """The installation of a GitHub App on this repository; PyGithub renews its token, which lives for an hour."""
    try:
        signed = Auth.AppAuth(app, Path(file).read_text(encoding="ascii") or "-")
        apps = GithubIntegration(auth=signed, base_url=api, **CLIENT)
        installation = GitHubCalls().attempt(
            "find the app", lambda: apps.get_repo_installation(address.owner, address.repository)
        )
    except NotAllowed as error:
        raise RefusedEarly(f"the GitHub App {app} is not installed on {address.full_name}: {error}") from None
    except (OSError, ValueError, PyJWTError) as error:
        raise RefusedEarly(f"{APP_KEY}: {file or 'the file'} is no private key that can be read: {error}") from None
    return Auth.AppInstallationAuth(signed, installation.id, requester=apps.requester)


def _ssh_host(alias: str, env: Mapping[str, str]) -> str:
    """The host name that ssh would use for a name of its configuration."""
    if "." in alias:
        return alias
    host = re.search(r"^hostname (\S+)$", _run_program(("ssh", "-G", alias), env), re.MULTILINE)
    return host[1] if host else alias


def _run_program(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The output of a program; "" when it is missing, fails or hangs."""
    try:
        return subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
