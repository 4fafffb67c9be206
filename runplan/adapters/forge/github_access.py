"""The token and the address of GitHub's API for a repository."""

import functools
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from github import Auth, GithubIntegration
from jwt import PyJWTError

from runplan.adapters.forge import protocol as m
from runplan.adapters.forge.access import Ask, Token, ask_program, find_stored_token
from runplan.adapters.forge.github import GitHub
from runplan.adapters.forge.github_calls import CLIENT, GitHubCalls
from runplan.adapters.forge.retry import CERTIFICATES
from runplan.adapters.git.command import Git
from runplan.domain.errors import NotAllowed, RefusedEarly

APP_ID = "GITHUB_APP_ID"
APP_KEY = "GITHUB_APP_PRIVATE_KEY_FILE"


def open_forge(git: Git, address: m.Address, env: Mapping[str, str]) -> GitHub:
    if "/" in address.owner:
        raise RefusedEarly(f"{address.full_name} is no repository on GitHub; for GitLab set GITLAB_HOST={address.host}")
    token = find_token(address, env, functools.partial(ask_program, git, env))
    if token is None:
        name = "GH_TOKEN" if _is_cloud(address.host) else "GH_ENTERPRISE_TOKEN"
        raise RefusedEarly(f"there is no token for {address.host}; set {name}, or run: gh auth login")
    usual = f"https://api.{address.host}" if _is_cloud(address.host) else f"https://{address.host}/api/v3"
    api = env.get("GITHUB_API_URL", "") or usual
    verify = env.get(CERTIFICATES, "") or True
    auth = _find_installation(address, token.app, token.value, api, verify) if token.app else Auth.Token(token.value)
    return GitHub(address, auth, token, api=api, verify=verify)


@functools.cache  # each signature with the key takes 0.2 s
def _find_installation(
    address: m.Address, app: str, file: str, api: str, verify: str | bool
) -> Auth.AppInstallationAuth:
    """The installation of a GitHub App on this repository; PyGithub renews its token, which lives for an hour."""
    try:
        signed = Auth.AppAuth(app, Path(file).read_text(encoding="ascii") or "-")
        apps = GithubIntegration(auth=signed, base_url=api, verify=verify, **CLIENT)
        find = functools.partial(apps.get_repo_installation, address.owner, address.repository)
        installation = GitHubCalls().attempt("find the app", find)
    except NotAllowed as error:
        raise RefusedEarly(f"the GitHub App {app} is not installed on {address.full_name}: {error}") from None
    except (OSError, ValueError, PyJWTError) as error:
        raise RefusedEarly(f"{APP_KEY}: {file or 'the file'} is no private key that can be read: {error}") from None
    return Auth.AppInstallationAuth(signed, installation.id, requester=apps.requester)


def _is_cloud(host: str) -> bool:
    """github.com or *.ghe.com, for which gh uses other variables than for a server of one's own."""
    return host == "github.com" or host.endswith(".ghe.com")


def find_token(address: m.Address, env: Mapping[str, str], ask: Ask) -> Token | None:
    """The token for this host, in the order of the `gh` program; never from a file of the repository."""
    is_actions = urlsplit(env.get("GITHUB_SERVER_URL", "")).netloc == address.host  # a workflow has one token
    cloud = ("GH_TOKEN", "GITHUB_TOKEN") if _is_cloud(address.host) or is_actions else ()
    enterprise = () if _is_cloud(address.host) else ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
    for name in (*enterprise, *cloud):
        if value := env.get(name, "").strip():
            return Token(value=value, source=f"${name}")
    if app := env.get(APP_ID, "").strip():
        return Token(value=env.get(APP_KEY, ""), source=f"the GitHub App {app}", app=app)
    if value := ask(("gh", "auth", "token", "--hostname", address.host), "").strip():
        return Token(value=value, source="gh auth token")
    return find_stored_token(address, ask)
