"""Task lists in JSON: task-master's `tasks.json`, the user stories of a `prd.json`, and lists like them.

A task is a phase. The text of a phase is a Markdown form of its fields; statuses are written into the JSON.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runplan.errors import NotAPlan
from runplan.plan.formats.task_lists import choose_words, list_unworked, read_word, resolve_waits
from runplan.plan.marks import Mark, Status, id_key
from runplan.plan.reading import Place, Reading, Remark, Spot
from runplan.plan.scan import Entry

if TYPE_CHECKING:
    from runplan.plan.scan import Lines

_PIECE = r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]:,"]+'
_LISTS = ("tasks", "userStories", "user_stories", "stories", "features")
_PASSES = ("passes", "complete", "completed", "done")
_WAITS = ("dependencies", "dependsOn", "depends_on", "blockedBy")
_CRITERIA = ("acceptanceCriteria", "acceptance_criteria", "testStrategy", "test_strategy", "steps")
_TITLES = ("title", "name", "description")
#: Fields that have a place of their own in the text of a phase, or none.
_NOT_TEXT = ("id", "title", "name", "status", "subtasks", "updatedAt", *_PASSES, *_WAITS, *_CRITERIA)


class Node(Struct, frozen=True):
    """The place of a value in a JSON text."""

    begin: int
    end: int
    inner: dict[str, Node] = {}  #: the values of an object by key, those of a list by number


class Task(Struct, frozen=True):
    fields: dict[str, Any]
    node: Node

    def get(self, *names: str) -> Any:
        """The first of these fields that has a value; None for none."""
        return next((self.fields[name] for name in names if self.fields.get(name) not in (None, "")), None)

    @property
    def title(self) -> str:
        return str(self.get(*_TITLES) or "").split("\n")[0]

    @property
    def statuses(self) -> list[str]:
        """The fields that say whether it is done; the first decides."""
        names = [name for name in _PASSES if isinstance(self.fields.get(name), bool)][:1]
        return [*names, "status"] if isinstance(self.fields.get("status"), str) else names

    @property
    def mark(self) -> Mark:
        value = self.fields[self.statuses[0]] if self.statuses else False
        return read_word(value) if isinstance(value, str) else Mark(Status.DONE if value else Status.TODO)

    @property
    def subtasks(self) -> list[Task]:
        return _list_tasks(self.fields.get("subtasks"), self.node.inner.get("subtasks"))


def locate_values(text: str) -> Node:
    """The places of the values of a valid JSON text."""
    root: list[Node] = []
    opened = [(0, root)]
    for piece in re.finditer(_PIECE, text):
        if piece[0] in ("{", "["):
            opened.append((piece.start(), []))
        elif piece[0] in ("}", "]"):
            begin, values = opened.pop()
            inner = {str(number): value for number, value in enumerate(values)}
            if piece[0] == "}":
                keys = (json.loads(text[key.begin : key.end]) for key in values[::2])
                inner = dict(zip(keys, values[1::2], strict=True))
            opened[-1][1].append(Node(begin, piece.end(), inner))
        else:
            opened[-1][1].append(Node(*piece.span()))
    return root[0]


def read_tasks(lines: Lines) -> Iterator[Reading]:
    """The list of tasks of a file with the ending `.json`."""
    if not lines.path.lower().endswith(".json"):
        return
    text = lines.raw.removeprefix(b"\xef\xbb\xbf").decode()
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise lines.error_at(error.lineno - 1, f"this is no JSON: {error.msg} in column {error.colno}") from None
    except RecursionError:
        raise lines.error_at(0, "the values are nested too deeply for a task list") from None
    tasks, others = _find_tasks(data, locate_values(text), lines)
    starts = [0, *(end.end() for end in re.finditer("\n", text))]
    ids = [str(task.get("id") or number) for number, task in enumerate(tasks, 1)]
    used = [task.fields["status"] for task in tasks if "status" in task.statuses]
    words = choose_words(used, done="done", todo="pending")
    places = []
    remarks = [Remark(1, f"the tags {', '.join(others)} are left out; only master is worked")] if others else []
    for number, (id_, task) in enumerate(zip(ids, tasks, strict=True)):
        line = bisect(starts, task.node.begin) - 1
        waits, unknown = resolve_waits(task.get(*_WAITS), ids, number)
        message = f"task {id_} depends on {', '.join(unknown)}, which is not among {', '.join(ids)}"
        if unknown and task.mark.status is not Status.DONE:
            raise lines.error_at(line, message)
        if not task.statuses:
            raise lines.error_at(line, f'task {id_} has no status; add "status": "pending"')
        if id_key(id_) in map(id_key, ids[:number]):
            raise lines.error_at(line, f"two tasks have the id {id_!r}; rename one")
        remarks += [Remark(line + 1, message)] if unknown else []
        place = Place(
            id=id_,
            title=task.title,
            mark=task.mark,
            first=line,
            end=bisect(starts, task.node.end),
            spots=tuple(spot for work in (task, *task.subtasks) for spot in _list_spots(work, starts, words)),
            entries=tuple(Entry(line, 0, 0, " ", optional=False, text=_name(subtask)) for subtask in task.subtasks),
            depends=waits,
            text=_write_text(task, id_),
        )
        places.append(place)
        remarks += list_unworked(id_, task.get("status"), place.at)
    name = "JSON user stories" if "passes" in tasks[0].fields else "JSON task list"
    title = str(Task(data, Node(0, 0)).get("project", "name", "title") or "") if isinstance(data, dict) else ""
    yield Reading("json", name, tuple(places), 0, "task", tuple(remarks), title=title)


def _find_tasks(data: Any, root: Node, lines: Lines) -> tuple[list[Task], list[str]]:
    """The tasks in the order of work, and the tags that are left out.

    They are those of the only list, or of the tag `master`; user stories are in the order of their priorities.
    """
    fields = data if isinstance(data, dict) else {}
    tags = [tag for tag, value in fields.items() if isinstance(value, dict) and "tasks" in value]
    tags.sort(key="master".__ne__)
    if len(tags) > 1 and tags[0] != "master":
        raise lines.error_at(0, f"the file has the tags {', '.join(tags)}; name one of them master, or keep only one")
    for key in (*tags[:1], *_LISTS):
        if isinstance(data, dict) and key in data:
            data = data[key]
            root = root.inner[key]
    tasks = _list_tasks(data, root)
    if not tasks or not all(task.title for task in tasks):
        lists = ", ".join(_LISTS)
        message = f"no tasks with titles: the file is neither a list nor an object with one of {lists}"
        raise lines.error_at(0, message, NotAPlan)
    are_numbers = all(type(task.get("priority")) in (int, float) for task in tasks)
    return sorted(tasks, key=lambda task: float(task.fields["priority"])) if are_numbers else tasks, tags[1:]


def _list_tasks(values: object, node: Node | None) -> list[Task]:
    """The objects of a list with their places."""
    pairs = zip(values, node.inner.values(), strict=True) if isinstance(values, list) and node else ()
    return [Task(fields, place) for fields, place in pairs if isinstance(fields, dict)]


def _list_spots(task: Task, starts: Sequence[int], words: tuple[str, str]) -> Iterator[Spot]:
    for name in task.statuses:
        node = task.node.inner[name]
        line = bisect(starts, node.begin) - 1
        written = (json.dumps(words[0]), json.dumps(words[1])) if name == "status" else ("true", "false")
        yield Spot("word", line, node.begin - starts[line], node.end - starts[line], written)


# --- the text of a phase ----------------------------------------------------------------------------------


def _write_text(task: Task, id_: str) -> str:
    """The task as a section of Markdown, with every field but its status."""
    parts = [f"## Task {id_}: {task.title}"]
    for subtask in task.subtasks:
        box = "x" if subtask.mark.status is Status.DONE else " "
        details = (line for name in ("description", "details") for line in _as_text(subtask.get(name)).splitlines())
        parts.append("\n  ".join((f"- [{box}] {_name(subtask)}", *details)))
    values = [task.fields[name] for name in _CRITERIA if task.get(name) is not None]
    criteria = [_as_text(entry) for value in values for entry in (value if isinstance(value, list) else [value])]
    if criteria:
        rows = ("- " + "\n  ".join(filter(None, map(str.strip, text.splitlines()))) for text in criteria)
        parts += ["### Acceptance Criteria", "\n".join(rows)]
    for name, value in task.fields.items():
        if name not in _NOT_TEXT and value not in (None, "", [], {}):
            parts += [f"### {name.title()}", _as_text(value)]
    return "\n\n".join(parts) + "\n"


def _name(subtask: Task) -> str:
    return f"{_as_text(subtask.get('id'))} {subtask.title}".strip()


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
