"""What the task lists of other tools have in common: statuses that are words, and lists of dependencies."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.plan.marks import Mark, Status, id_key, read_mark
from runplan.domain.plan.reading import Format, Place, Reading, Remark
from runplan.domain.plan.scan import Lines

LONGEST_ID = 80
#: Statuses that are not worked. Nothing waits for a cancelled task.
_NOT_WORKED = {
    **dict.fromkeys(("review", "in review", "deferred", "on hold"), Status.BLOCKED),
    **dict.fromkeys(("cancelled", "canceled", "wont do", "won't do", "archived"), Status.DONE),
}


class Task(Struct, frozen=True):
    place: Place  #: without its dependencies and the words of its status
    status: str
    waits: Sequence[str] | None  #: ids as written; None for all tasks before it


def read_list(tasks: Sequence[Task], lines: Lines, form: tuple[Format, str], words: tuple[str, str]) -> Reading:
    """The plan of a task list; `words` are those for done and todo, where the list uses no others."""
    words = choose_words((task.status for task in tasks), words)
    ids = [task.place.id for task in tasks]
    by_key = {id_key(id_): id_ for id_ in ids}
    places = []
    remarks = []
    for number, task in enumerate(tasks):
        place = task.place
        if not task.status:
            raise lines.error_at(place.first, f"task {place.id} has no status; add one: {words[1]}")
        if len(place.id) > LONGEST_ID or not place.id.isprintable():
            raise lines.error_at(place.first, f"the id of a task has at most {LONGEST_ID} printable characters")
        if id_key(place.id) in map(id_key, ids[:number]):
            raise lines.error_at(place.first, f"two tasks have the id {place.id!r}; rename one")
        mark = read_word(task.status)
        # `2.1` is a part of task 2.
        known = {id_: by_key.get(id_key(id_)) or by_key.get(id_key(id_.partition(".")[0])) for id_ in task.waits or ()}
        unknown = [id_ for id_, other in known.items() if other is None]
        waits = ids[:number] if task.waits is None else [id_ for id_ in known.values() if id_ and id_ != place.id]
        message = f"task {place.id} depends on {', '.join(unknown)}, which is not here"
        if unknown and mark.status is not Status.DONE and form[0] != "backlog":
            raise lines.error_at(place.first, f"{message}; the tasks are {', '.join(ids)}")
        if unknown and mark.status is not Status.DONE:  # a task that is done moves to another folder
            remarks.append(Remark(place.first + 1, f"{message}; that counts as done"))
        if (status := _NOT_WORKED.get(_plain(task.status))) is not None:
            more = "; nothing waits for it" if status is Status.DONE else ", nor is what waits for it"
            message = f"task {place.id} has the status {task.status!r} and is not worked{more}"
            remarks.append(Remark(place.at + 1, message))
        spots = (replace(spot, words=words) if spot.words == ("", "") else spot for spot in place.spots)
        places.append(replace(place, mark=mark, depends=tuple(dict.fromkeys(waits)), spots=tuple(spots)))
    return Reading(*form, tuple(places), tasks[0].place.first, "task", tuple(remarks))


def read_word(word: str) -> Mark:
    plain = _plain(word)
    return Mark(_NOT_WORKED[plain]) if plain in _NOT_WORKED else read_mark(plain)


def choose_words(used: Iterable[str], words: tuple[str, str]) -> tuple[str, str]:
    """The words for done and todo that a list uses, else these."""
    by_status: dict[Status, str] = {}
    for word in used:
        mark = read_word(word)
        if mark.known and _plain(word) not in ("", *_NOT_WORKED):
            by_status.setdefault(mark.status, word)
    return by_status.get(Status.DONE, words[0]), by_status.get(Status.TODO, words[1])


def _plain(word: str) -> str:
    return word.strip().lower().replace("_", " ").replace("-", " ")
