"""What the task lists of other tools have in common: statuses that are words, and lists of dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runplan.plan.marks import Mark, Status, id_key, read_mark
from runplan.plan.reading import Remark

#: Statuses that are not worked. Nothing waits for a cancelled task.
_NOT_WORKED = {
    **dict.fromkeys(("review", "in review", "deferred", "on hold"), Status.BLOCKED),
    **dict.fromkeys(("cancelled", "canceled", "wont do", "won't do", "archived"), Status.DONE),
}


def read_word(word: str) -> Mark:
    plain = _plain(word)
    return Mark(_NOT_WORKED[plain]) if plain in _NOT_WORKED else read_mark(plain)


def list_unworked(id_: str, word: str | None, index: int) -> list[Remark]:
    """A remark on a task that its status keeps from being worked."""
    if (status := _NOT_WORKED.get(_plain(word or ""))) is None:
        return []
    waits = "; nothing waits for it" if status is Status.DONE else ", nor is what waits for it"
    return [Remark(index + 1, f"task {id_} has the status {word!r} and is not worked{waits}")]


def choose_words(used: Iterable[str], *, done: str, todo: str) -> tuple[str, str]:
    """The words for done and todo that a list uses, else those of its format."""
    by_status: dict[Status, str] = {}
    for word in used:
        mark = read_word(word)
        if mark.known and word and _plain(word) not in _NOT_WORKED:
            by_status.setdefault(mark.status, word)
    return by_status.get(Status.DONE, done), by_status.get(Status.TODO, todo)


def resolve_waits(listed: object, ids: Sequence[str], number: int) -> tuple[tuple[str, ...], list[str]]:
    """The tasks that a task waits for, and the unknown ones; all before it, where nothing is listed."""
    if not isinstance(listed, list):
        return tuple(ids[:number]), []
    by_key = {id_key(id_): id_ for id_ in ids}
    known = {id_: by_key.get(id_key(id_)) or by_key.get(id_key(id_.partition(".")[0])) for id_ in map(str, listed)}
    waits = (id_ for id_ in known.values() if id_ is not None and id_ != ids[number])
    return tuple(dict.fromkeys(waits)), [id_ for id_, other in known.items() if other is None]


def _plain(word: str) -> str:
    return word.strip().lower().replace("_", " ").replace("-", " ")
