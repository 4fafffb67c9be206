"""Sends one notice through Apprise, in a process of its own: `python -m runplan.adapters.notify.apprise_child`.

The message and its address come on standard input, as arguments and variables can be read by other processes. Apprise
takes 20 MB and half a second to import, and some of its services have no time limit.
"""

import importlib
import logging
import re
import sys
from urllib.parse import unquote

from msgspec import Struct

from runplan.domain.decoding import decode_json

UNUSABLE = 3  #: exit code when another attempt does not help
INSTALL = "install it: pip install 'runplan[notify]'"
#: The type of Apprise by the kind of a notice; `info` for others. Services show it as a colour or an icon.
TYPES = {"done": "success", "failed": "failure", "waiting": "warning"}
SHORTEST = 3  #: characters of a part of an address that is no secret


class AppriseMessage(Struct, frozen=True, kw_only=True):
    url: str
    kind: str  #: of the notice
    title: str
    body: str


def main() -> int:
    message = decode_json(sys.stdin.buffer.read(), AppriseMessage)
    try:
        apprise = importlib.import_module("apprise")
    except ImportError:
        return _fail(f"Apprise is not installed; {INSTALL}", UNUSABLE)
    service = apprise.Apprise(asset=apprise.AppriseAsset(storage_mode=apprise.PersistentStoreMode.MEMORY))
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
        if not service.add(message.url):
            scheme = message.url.partition(":")[0]
            return _fail(f"Apprise does not understand this {scheme}:// address; see its documentation", UNUSABLE)
        kind = TYPES.get(message.kind, "info")
        is_sent = service.notify(title=message.title, body=message.body, notify_type=kind, body_format="text")
        return 0 if is_sent else _fail(redact_parts(log.getvalue(), message.url) or "Apprise gives no reason", 1)


def _fail(why: str, code: int) -> int:
    sys.stderr.write(f"{why}\n")
    return code


def redact_parts(text: str, url: str) -> str:
    """The text in one line, without the parts of the address: host, path and parameters may each be a secret."""
    rest = url.partition("://")[2]
    parts = {part for word in (rest, unquote(rest)) for part in re.split(r"[/:@?&=#,;\s]+", word)}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) > SHORTEST:
            text = text.replace(part, "…")
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
