"""Which forge, owner and repository a remote's URL names, and which token belongs to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    #: Run a command with this standard input; its output, or "" when it fails.
    Ask = Callable[[Sequence[str], str], str]

_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/@:]{2,}):(?!//)(?P<path>.+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
APP_ID, APP_KEY = "GITHUB_APP_ID", "GITHUB_APP_PRIVATE_KEY_FILE"
_LOOPBACK = ("localhost", "127.0.0.1")  #: a token reaches them without TLS, and no other host


class Address(Struct, frozen=True, kw_only=True):
    host: str
    owner: str
    repository: str
    password: str = ""  #: from an https URL that holds one
    web: str = ""  #: scheme and host to which a token may be sent, such as https://github.com; "" for ssh

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.repository}"

    @property
    def is_cloud(self) -> bool:
        """github.com or *.ghe.com, for which gh uses other variables than for a server of one's own."""
        return self.host == "github.com" or self.host.endswith(".ghe.com")

    @property
    def api(self) -> str:
        if self.host == "github.com":
            return "https://api.github.com"
        return f"https://api.{self.host}" if self.is_cloud else f"https://{self.host}/api/v3"


def parse_remote(url: str, *, resolve: Callable[[str], str] = lambda host: host) -> Address | None:
    """The repository that a remote's URL names; None for a path. `resolve` maps an ssh alias to its host name."""
    password, web, is_ssh = "", "", False
    if "://" in url:
        parts = urlsplit(url)
        if parts.scheme not in ("https", "http", "ssh", "git+ssh") or not parts.hostname:
            return None
        host, path, is_ssh = parts.hostname, parts.path, "ssh" in parts.scheme
        password = "" if is_ssh else unquote(parts.password or "")
        if not is_ssh and parts.port:
            host = f"{host}:{parts.port}"
        if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            web = f"{parts.scheme}://{host}"
    elif (short := _SCP.fullmatch(url)) is not None:
        host, path, is_ssh = short["host"], short["path"], True
    else:
        return None
    names = path.strip("/").removesuffix(".git").split("/")
    if len(names) != 2 or not all(_NAME.fullmatch(name) for name in names):
        return None
    host = (resolve(host) if is_ssh else host).lower()
    host = "github.com" if host in ("ssh.github.com", "www.github.com") else host
    return Address(host=host, owner=names[0], repository=names[1], password=password, web=web)


class Token(Struct, frozen=True, kw_only=True):
    value: str
    source: str  #: for messages: the variable or program that gave it
    is_gits: bool = False  #: git finds it by itself
    app: str = ""  #: id of a GitHub App; then the value is the file with its private key


def find_token(address: Address, env: Mapping[str, str], ask: Ask) -> Token | None:
    """The token for this host, in the order of the `gh` program; never from a file of the repository."""
    names = ("GH_TOKEN", "GITHUB_TOKEN") if address.is_cloud else ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
    for name in names:
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
