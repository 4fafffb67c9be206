"""Ways to a forge that all of them share: the address in a remote's URL, and tokens that other programs keep."""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from runplan.adapters.agents.environment import GITLAB_HOSTS
from runplan.adapters.forge.protocol import Address, Forge
from runplan.adapters.git.command import ANY, Git
from runplan.adapters.processes import run_program
from runplan.domain.errors import RefusedEarly
from runplan.domain.text import command

Ask: TypeAlias = Callable[[Sequence[str], str], str]
_SCP = re.compile(r"(?:[^/@:]+@)?(?P<host>[^/@:\[\]]{2,}):(?!//)(?P<path>.+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LOOPBACK = ("localhost", "127.0.0.1")  #: a token reaches them without TLS, and no other host
#: Names under which a forge serves ssh or its pages, and its own.
_ALIASES = {"ssh.github.com": "github.com", "www.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}
PROGRAM_S = 15  #: time limit of a program that is asked for a token
MODULES = {"github": "runplan.adapters.forge.github_access", "gitlab": "runplan.adapters.forge.gitlab"}


def find_forge(git: Git, *, remote: str, env: Mapping[str, str]) -> Forge:
    """The forge that a remote names, with the token of this environment; refused when there is none."""
    address = read_address(git, remote=remote, env=env)
    kind = forge_kind(address.host, env)
    try:
        module = import_module(MODULES[kind])  # its library takes 0.3 s to import
    except ModuleNotFoundError as error:
        if error.name != kind:
            raise
        install = command("pip", "install", f"runplan[{kind}]")
        raise RefusedEarly(f"{address.host} needs the library python-{kind}; run: {install}") from None
    opened: Forge = module.open_forge(git, address, env)
    return opened


def forge_kind(host: str, env: Mapping[str, str]) -> str:
    """`gitlab` for gitlab.com, hosts that are called so, and those that the environment names; else `github`."""
    values = [env.get(name, "").strip() for name in GITLAB_HOSTS]
    named = [urlsplit(value if "//" in value else f"//{value}").netloc for value in values]
    return "gitlab" if host.startswith("gitlab.") or host in named else "github"


class Token(Struct, frozen=True, kw_only=True):
    value: str
    source: str  #: for messages: the variable or program that gave it
    is_gits: bool = False  #: git finds it by itself
    app: str = ""  #: id of a GitHub App; then the value is the file with its private key


def read_address(git: Git, *, remote: str, env: Mapping[str, str]) -> Address:
    """The repository that a remote pushes to; refused when it is on no forge."""
    asked = git.run("remote", "get-url", "--push", "--", remote, ok=ANY)
    if asked.code:
        raise RefusedEarly(f"there is no remote {remote} here to push to; run: git remote add {remote} URL")
    address = parse_remote(asked.text, env)
    if address is None:
        public = re.sub(r"//[^/@]*@", "//", asked.text)
        needed = "landing by pr needs a repository on GitHub or GitLab"
        raise RefusedEarly(f"{needed}, and {remote} is {public}; use direct instead")
    return address


def parse_remote(url: str, env: Mapping[str, str]) -> Address | None:
    """The repository that a remote's URL names; None for a path."""
    short = _SCP.fullmatch(url) if "://" not in url else None
    parts = urlsplit(f"ssh://{short['host']}/" if short else url)
    if parts.scheme not in ("https", "http", "ssh", "git+ssh") or not parts.hostname:
        return None
    names = (short["path"] if short else parts.path).strip("/").removesuffix(".git").split("/")
    if len(names) < 2 or not all(_NAME.fullmatch(name) for name in names):
        return None
    owner = "/".join(names[:-1])  # groups of GitLab may be nested
    if "ssh" in parts.scheme:
        host = short["host"] if short else parts.hostname
        if "." not in host:  # a name of the configuration of ssh, which says what host it means
            _, output, _ = run_program(("ssh", "-G", host), env, within_s=PROGRAM_S)
            named = re.search(r"^hostname (\S+)$", output, re.MULTILINE)
            host = named[1] if named else host
        host = host.lower()
        return Address(host=_ALIASES.get(host, host), owner=owner, repository=names[-1])
    host = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    web = f"{parts.scheme}://{host}" if parts.scheme == "https" or parts.hostname in _LOOPBACK else ""
    password = unquote(parts.password or "")
    return Address(host=_ALIASES.get(host, host), owner=owner, repository=names[-1], password=password, web=web)


def ask_program(git: Git, env: Mapping[str, str], argv: Sequence[str], stdin: str) -> str:
    if argv[0] == "git":
        return git.run(*argv[1:], stdin=stdin.encode(), env={"GIT_TERMINAL_PROMPT": "0"}, ok=ANY).text
    code, output, _ = run_program(argv, env, within_s=PROGRAM_S)
    return "" if code else output


def find_stored_token(address: Address, ask: Ask) -> Token | None:
    """The token in the remote's URL, or that of git's credential helper."""
    if address.password:
        return Token(value=address.password, source="the remote's URL", is_gits=True)
    answer = ask(("git", "credential", "fill"), f"protocol=https\nhost={address.host}\n\n")
    password = re.search(r"^password=(.+)$", answer, re.MULTILINE)
    return Token(value=password[1], source="git credential", is_gits=True) if password else None


def header_settings(address: Address, account: str, token: str) -> tuple[str, ...]:
    basic = b64encode(f"{account}:{token}".encode()).decode()
    key = f"http.{address.web}/.extraHeader"
    return f"{key}=", f"{key}=Authorization: Basic {basic}"  # the first drops headers of the user's configuration
