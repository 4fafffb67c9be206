"""Where the store of a repository is: a directory of this machine, or the database of a fleet."""

import posixpath
import re
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from runplan.domain.errors import UsageError
from runplan.domain.names import digest_of

_PORTS = {"ssh": ":22", "git": ":9418", "http": ":80", "https": ":443"}
_PAIR = r"(\w+)\s*=\s*('(?:\\.|[^'\\])*'|\S+)"
_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service")


class FleetLocation(Struct, frozen=True):
    dsn: str  #: a secret
    url: str  #: the normalised URL of the repository's remote; "" for a repository without one
    output: int = 4_000_000  #: bytes that it keeps of each output
    host: str = ""  #: of the worker that opens it

    @property
    def schema(self) -> str:
        return f"repository_{digest_of(self.url.encode())[:16]}"

    @property
    def role(self) -> str:
        """The group of roles with the rights of people in this repository alone; PostgreSQL cuts a longer name."""
        name = f"runplan_{self.url}"
        return name if len(name.encode()) < 64 else f"runplan_{self.schema}"

    def __repr__(self) -> str:
        return f"FleetLocation({self.url!r})"


Location: TypeAlias = Path | FleetLocation


def normalize_url(url: str) -> str:
    """The name of a repository, equal for all spellings of its remote: github.com/acme/app, or a path."""
    if "://" not in url and (scp := re.fullmatch(r"(?:[^/@]+@)?([^/:@\[\]]+|\[[^]]+\]):(.+)", url)):
        url = f"ssh://{scp[1]}/{scp[2]}"
    if "://" not in url or url.startswith("file://"):
        path = url.removeprefix("file://")
        return posixpath.normpath(path).removesuffix("/.git").removesuffix(".git") if path else ""
    parts = re.match(r"([\w+.-]+)://(?:[^/]*@)?(?:\[(.*?)\]|([^/:]+))(:\d+)?/([^?#]*)", url)
    path = posixpath.normpath(parts[5]).strip("/").removesuffix(".git") if parts else ""
    if parts is None or not path.strip("."):
        raise UsageError(f"{hide_password(url)} is not the URL of a repository; one is https://HOST/OWNER/NAME")
    port = parts[4] or ""
    return f"{(parts[2] or parts[3]).lower()}{port if port != _PORTS.get(parts[1]) else ''}/{path}"


def strip_secrets(url: str) -> str:
    """The URL of a remote as others can use it: a user counts for ssh only, and may be a token elsewhere."""
    url = url.partition("?")[0] if "://" in url else url
    return re.sub(r"^(ssh://[^/:]*)(:[^/]*)?@", r"\1@", url) if url.startswith("ssh") else re.sub("//[^/]*@", "//", url)


def hide_password(address: str) -> str:
    """The place that a URL or a connection string of PostgreSQL names, and the user, without a password."""
    if "://" not in address:
        return " ".join(f"{name}={value}" for name, value in re.findall(_PAIR, address) if name in _SHOWN)
    scheme, _, rest = address.partition("://")
    rest, _, query = rest.partition("?")
    if "@" in query:  # the password may contain the question mark
        return f"{scheme}://..."
    user, sign, place = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{sign}{place}"
