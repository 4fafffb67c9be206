"""Signed links in notifications: each lets a person see one change and answer it once, until it expires."""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import time
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import astuple

from runplan.adapters.configuration.places import own_directory
from runplan.adapters.store.files import publish
from runplan.adapters.store.protocol import Store
from runplan.domain.errors import Unreachable
from runplan.domain.run.events import Answered

KEY_FILE = "links.key"
KEY_BYTES = 32
VALID_S = 24 * 3600  #: from the notice on


class Link(Struct, frozen=True):
    """The change or the proposed plan that a link shows, and to which its answer is bound."""

    repo: str  #: the key of the repository (`Known.key`)
    plan: str
    phase: str  #: empty of a proposed plan
    run: str
    tree: str  #: or the SHA-256 of a proposed plan
    expires: int  #: seconds since the epoch
    nonce: str

    @property
    def by(self) -> str:
        """The way of the answer, as the journal records it."""
        return f"link {self.nonce}"


class Unusable(StrEnum):
    EXPIRED = "expired"  #: a link of ours that is too old
    FORGED = "forged"  #: not signed with this key


def sign_link(key: bytes, link: Link) -> str:
    # json escapes paths that are not UTF-8; msgspec.json rejects them.
    content = _encode(json.dumps(astuple(link), separators=(",", ":")).encode("ascii"))
    return f"{content}.{_sign(key, content)}"


def read_link(key: bytes, text: str, now: float) -> Link | Unusable:
    """The link of a token. `now` is in seconds since the epoch."""
    content, _, signature = text.partition(".")
    # The signature is checked before anything else is read. Bytes: compare_digest takes no other text than ASCII.
    if not hmac.compare_digest(_sign(key, content).encode(), signature.encode("utf-8", "replace")):
        return Unusable.FORGED
    link = Link(*json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))))
    return link if now < link.expires else Unusable.EXPIRED


def _sign(key: bytes, content: str) -> str:
    return _encode(hmac.new(key, content.encode("utf-8", "replace"), hashlib.sha256).digest())


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def is_used(store: Store, nonce: str) -> bool:
    return any(fact.event.by == f"link {nonce}" for fact in store.list_facts(Answered))


def load_key(directory: Path) -> bytes:
    """The key of the links, made on first use, in the directory that the sandbox hides from agents."""
    path = own_directory(directory) / KEY_FILE
    draft = path.with_name(f"{KEY_FILE}.{os.urandom(4).hex()}")
    try:
        if not path.exists():
            publish(draft, os.urandom(KEY_BYTES), sync=True)
            with contextlib.suppress(FileExistsError):  # the first of two processes counts
                os.link(draft, path)
        key = path.read_bytes()
    except OSError as error:
        raise Unreachable(f"{path} cannot be used: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    if len(key) != KEY_BYTES:
        raise Unreachable(f"{path} is damaged; remove it, and links that were sent before do not work any more")
    return key


class LinkMaker:
    """Makes the links of notices, if the page has an address (`[web] url`)."""

    def __init__(self, url: str, keys: Path) -> None:
        self.url = url
        self._keys = keys  #: the directory of the key

    def link_to_page(self, repo: str = "", plan: str = "") -> str:
        if not self.url:
            return ""
        base = self.url.rstrip("/")
        return f"{base}/plan?{urlencode({'repo': repo, 'plan': os.fsencode(plan)})}" if plan else f"{base}/"

    def link_to_answer(self, repo: str, plan: str, phase: str, run: str, tree: str) -> str:
        """The link that shows the change and answers it; "" without an address."""
        if not self.url:
            return ""
        expires = int(time.time()) + VALID_S
        link = Link(repo=repo, plan=plan, phase=phase, run=run, tree=tree, expires=expires, nonce=os.urandom(8).hex())
        return f"{self.url.rstrip('/')}/a/{sign_link(load_key(self._keys), link)}"
