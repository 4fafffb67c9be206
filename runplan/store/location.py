"""Where the store of a repository is: a directory of this machine, or the database of a fleet."""

from __future__ import annotations

import hashlib
import posixpath
import re
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from runplan.errors import UsageError

_SCP = re.compile(r"(?:[^/@]+@)?([^/:@\[\]]+|\[[^]]+\]):(.+)")
_PORTS = {"ssh": 22, "git": 9418, "http": 80, "https": 443}
_PAIR = re.compile(r"(\w+)\s*=\s*('(?:\\.|[^'\\])*'|\S+)")
_SHOWN = ("host", "hostaddr", "port", "dbname", "user", "service")


class FleetLocation(Struct, frozen=True):
    """The schema of a repository in the database of a fleet."""

    dsn: str  #: a secret
    url: str  #: the normalised URL of the repository's remote; "" for a repository without one
    output: int = 4_000_000  #: bytes that it keeps of each output

    @property
    def schema(self) -> str:
        return f"repository_{hashlib.sha256(self.url.encode()).hexdigest()[:16]}"

    def __repr__(self) -> str:
        return f"FleetLocation({self.url!r})"


Location: TypeAlias = Path | FleetLocation


def normalize_url(url: str) -> str:
    """The name of a repository, equal for all spellings of its remote: github.com/acme/app, or a path."""
    scp = _SCP.fullmatch(url) if "://" not in url else None
    parts = urlsplit(f"ssh://{scp[1]}/{scp[2]}" if scp else url)
    if parts.scheme in ("", "file"):
        path = unquote(parts.path) if parts.scheme else url
        return posixpath.normpath(path).removesuffix("/.git").removesuffix(".git") if path else ""
    try:
        port = f":{parts.port}" if parts.port not in (None, _PORTS.get(parts.scheme)) else ""
    except ValueError:
        raise UsageError(f"{hide_password(url)} is not the URL of a repository: its port is no number") from None
    path = posixpath.normpath(parts.path).strip("/").removesuffix(".git")
    if not parts.hostname or not path.strip("."):
        raise UsageError(f"{hide_password(url)} is not the URL of a repository; one is https://HOST/OWNER/NAME")
    return f"{parts.hostname}{port}/{path}"


def strip_secrets(url: str) -> str:
    """The URL of a remote as others can use it: a user counts for ssh only, and may be a token elsewhere."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.scheme == "ssh" and parts.username else ""
    return f"{parts.scheme}://{user}{parts.netloc.rpartition('@')[2]}{parts.path}"


def hide_password(address: str) -> str:
    """The place that a URL or a connection string of PostgreSQL names, and the user, without a password."""
    if "://" not in address:
        return " ".join(f"{name}={value}" for name, value in _PAIR.findall(address) if name in _SHOWN)
    scheme, _, rest = address.partition("://")
    rest, _, query = rest.partition("?")
    if "@" in query:  # the password may contain the question mark
        return f"{scheme}://..."
    user, at, place = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}{at}{place}"
