"""Commands as messages show them: every word quoted where a shell would take it apart."""

from __future__ import annotations


def command(*words: str) -> str:
    """The line to copy into a shell."""
    if all(word and word.isascii() and word.translate(_PLAIN).isalnum() for word in words):
        return " ".join(words)
    import shlex  # dear, and most words are plain

    return shlex.join(words)


_PLAIN = str.maketrans("-_./:=+,@%", "a" * 10)


def committing(path: str, message: str) -> str:
    """The line that commits one file."""
    return f"{command('git', 'add', path)} && {command('git', 'commit', '-m', message, '--', path)}"
