"""The repository on GitHub that a remote names, its token, and git's own sign-in."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from github import Auth, GithubIntegration
from jwt import PyJWTError
from msgspec import Struct

from runplan.errors import NotAllowed, RefusedEarly
from runplan.forge.github import GitHub
from runplan.forge.github_calls import CLIENT, TIMEOUT_S, GitHubCalls
from runplan.forge.model import Address
from runplan.git.command import ANY

if TYPE_CHECKING:
    from runplan.git.command import Git

    #: Run a command with this standard input; its output, or "" when it fails.
    Ask = Callable[[Sequence[str], str], str]

_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/@:\[\]]{2,}):(?!//)(?P<path>.+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
APP_ID = "GITHUB_APP_ID"
APP_KEY = "GITHUB_APP_PRIVATE_KEY_FILE"
_LOOPBACK = ("localhost", "127.0.0.1")  #: a token reaches them without TLS, and no other host


def find_github(git: Git, *, remote: str, env: Mapping[str, str]) -> GitHub:
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
        name = "GH_TOKEN" if _is_cloud(address.host) else "GH_ENTERPRISE_TOKEN"
        raise RefusedEarly(f"there is no token for {address.host}; set {name}, or run: gh auth login")
    api = env.get("GITHUB_API_URL", "") or api_address(address.host)
    auth = _find_installation(address, token.app, token.value, api) if token.app else Auth.Token(token.value)
    return GitHub(address, auth, api=api, token_source=token.source, is_gits=token.is_gits)


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


# --- the address ------------------------------------------------------------------------------------------


def _is_cloud(host: str) -> bool:
    """github.com or *.ghe.com, for which gh uses other variables than for a server of one's own."""
    return host == "github.com" or host.endswith(".ghe.com")


def api_address(host: str) -> str:
    if host == "github.com":
        return "https://api.github.com"
    return f"https://api.{host}" if _is_cloud(host) else f"https://{host}/api/v3"


def parse_remote(url: str, *, resolve: Callable[[str], str] = lambda host: host) -> Address | None:
    """The repository that a remote's URL names; None for a path. `resolve` maps an ssh alias to its host name."""
    short = _SCP.fullmatch(url) if "://" not in url else None
    parts = urlsplit(f"ssh://{short['host']}/" if short else url)
    if parts.scheme not in ("https", "http", "ssh", "git+ssh") or not parts.hostname:
        return None
    names = (short["path"] if short else parts.path).strip("/").removesuffix(".git").split("/")
    if len(names) != 2 or not all(_NAME.fullmatch(name) for name in names):
        return None
    if "ssh" in parts.scheme:
        host = resolve(short["host"] if short else parts.hostname).lower()
        host = "github.com" if host == "ssh.github.com" else host
        return Address(host=host, owner=names[0], repository=names[1])
    host = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    is_private = parts.scheme == "https" or parts.hostname in _LOOPBACK
    return Address(
        host="github.com" if host == "www.github.com" else host,
        owner=names[0],
        repository=names[1],
        password=unquote(parts.password or ""),
        web=f"{parts.scheme}://{host}" if is_private else "",
    )


# --- the token --------------------------------------------------------------------------------------------


class Token(Struct, frozen=True, kw_only=True):
    value: str
    source: str  #: for messages: the variable or program that gave it
    is_gits: bool = False  #: git finds it by itself
    app: str = ""  #: id of a GitHub App; then the value is the file with its private key


def find_token(address: Address, env: Mapping[str, str], ask: Ask) -> Token | None:
    """The token for this host, in the order of the `gh` program; never from a file of the repository."""
    is_actions = urlsplit(env.get("GITHUB_SERVER_URL", "")).netloc == address.host  # a workflow has one token
    cloud = ("GH_TOKEN", "GITHUB_TOKEN") if _is_cloud(address.host) or is_actions else ()
    own = () if _is_cloud(address.host) else ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
    for name in (*own, *cloud):
        if value := env.get(name, "").strip():
            return Token(value=value, source=f"${name}")
    if app := env.get(APP_ID, "").strip():
        return Token(value=env.get(APP_KEY, ""), source=f"the GitHub App {app}", app=app)
    if value := ask(("gh", "auth", "token", "--hostname", address.host), "").strip():
        return Token(value=value, source="gh auth token")
    if address.password:
        return Token(value=address.password, source="the remote's URL", is_gits=True)
    answer = ask(("git", "credential", "fill"), f"protocol=https\nhost={address.host}\n\n")
    password = re.search(r"^password=(.+)$", answer, re.MULTILINE)
    return Token(value=password[1], source="git credential", is_gits=True) if password else None
