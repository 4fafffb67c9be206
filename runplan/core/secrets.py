"""Knows files that must not be committed: secrets, by their names and their content."""

from __future__ import annotations

import re

_NAMES = re.compile(
    r"(?:^|/)(?:"
    r"\.env(?:\.(?!example|sample|template|dist|test)[^/]*)?"
    r"|[^/]*\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?!\.pub)[^/]*"
    r"|\.?(?:credentials|secrets?)(?:\.(?:json|ya?ml|toml|ini|txt|csv|xml|env))?"
    r"|\.(?:netrc|pgpass|pypirc|git-credentials|htpasswd)"
    r"|(?:service[-_]account|client_secret)[^/]*\.json"
    r")$",
    re.IGNORECASE,
)
_TEXT = re.compile(
    r"-----BEGIN (?:[A-Z ]+ )?PRIVATE KEY-----|:_authToken\s*=\s*(?!\$)\S|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}|\bgithub_pat_\w{40}|\bxox[abprs]-[\w-]{20}|\bsk-(?:ant-|proj-)?[\w-]{32}"
)


def named_like_secret(path: str) -> bool:
    """Whether a file of this name usually holds a secret."""
    return _NAMES.search(path) is not None


def holds_secret(text: str) -> bool:
    """Whether the text holds a key or a token of a known form."""
    return _TEXT.search(text) is not None
