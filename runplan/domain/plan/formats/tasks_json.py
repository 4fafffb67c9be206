"""Task lists in JSON: task-master's `tasks.json`, the user stories of a `prd.json`, and lists like them.

A task is a phase. The text of a phase is a Markdown form of its fields; statuses are written into the JSON.
"""

import json
import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.errors import NotAPlan
from runplan.domain.plan.formats.task_lists import Task, read_list, read_word
from runplan.domain.plan.marks import Status
from runplan.domain.plan.reading import Place, Reading, Remark, Spot
from runplan.domain.plan.scan import Entry, Lines

_LISTS = ("tasks", "userStories", "user_stories", "stories", "features")
_PASSES = ("passes", "complete", "completed", "done")
_WAITS = ("dependencies", "dependsOn", "depends_on", "blockedBy")
_CRITERIA = ("acceptanceCriteria", "acceptance_criteria", "testStrategy", "test_strategy", "steps")
#: Fields that have a place of their own in the text of a phase, or none.
_NOT_TEXT = ("id", "title", "name", "status", "subtasks", "updatedAt", *_PASSES, *_WAITS, *_CRITERIA)


class Node(Struct, frozen=True):
    begin: int
    end: int
    inner: dict[str, "Node"] = {}  #: the values of an object by key, those of a list by number


class Object(Struct, frozen=True):
    fields: dict[str, Any]
    node: Node

    def get(self, *names: str) -> Any:
        """The first of these fields that has a value; None for none."""
        return next((self.fields[name] for name in names if self.fields.get(name) not in (None, "")), None)

    @property
    def title(self) -> str:
        return " ".join(str(self.get("title", "name", "description") or "").strip().split("\n")[0].split())

    @property
    def statuses(self) -> list[str]:
        """The fields that say whether it is done; the first decides."""
        names = [name for name in _PASSES if isinstance(self.fields.get(name), bool)][:1]
        return [*names, "status"] if isinstance(self.fields.get("status"), str) else names

    @property
    def status(self) -> str:
        """Its status as a word; "" for none."""
        value = self.fields[self.statuses[0]] if self.statuses else ""
        return value if isinstance(value, str) else "done" if value else "todo"

    @property
    def subtasks(self) -> list["Object"]:
        return _list_tasks(self.fields.get("subtasks"), self.node.inner.get("subtasks"))


def locate_values(text: str) -> Node:
    """The places of the values of a valid JSON text."""
    root: list[Node] = []
    opened = [(0, root)]
    for piece in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]:,"]+', text):
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
    if not lines.path.lower().endswith(".json"):
        return
    text = lines.raw.removeprefix(b"\xef\xbb\xbf").decode()
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise lines.error_at(error.lineno - 1, f"this is no JSON: {error.msg} in column {error.colno}") from None
    except (RecursionError, ValueError):
        raise lines.error_at(0, "the values are nested too deeply, or a number is too long") from None
    # The tasks of the only list, or of the tag `master`, in the order of work.
    fields = data if isinstance(data, dict) else {}
    tags = [tag for tag, value in fields.items() if isinstance(value, dict) and "tasks" in value]
    tags.sort(key="master".__ne__)
    if len(tags) > 1 and tags[0] != "master":
        raise lines.error_at(0, f"the file has the tags {', '.join(tags)}; name one of them master, or keep only one")
    node = locate_values(text)
    for key in (*tags[:1], *_LISTS):
        if isinstance(data, dict) and key in data:
            data = data[key]
            node = node.inner[key]
    entries = _list_tasks(data, node)
    if not entries or not all(entry.title for entry in entries):
        lists = ", ".join(_LISTS)
        raise lines.error_at(0, f"no tasks with titles; runplan reads a list of tasks, or one under {lists}", NotAPlan)
    if all(type(entry.get("priority")) in (int, float) for entry in entries):
        entries.sort(key=lambda entry: entry.fields["priority"])
    starts = [0, *(end.end() for end in re.finditer("\n", text))]
    tasks = []
    for number, entry in enumerate(entries, 1):
        id_ = str(number if entry.get("id") is None else entry.get("id"))
        line = bisect(starts, entry.node.begin) - 1
        if not entry.status and (name := next((name for name in _PASSES if name in entry.fields), "")):
            raise lines.error_at(line, f"the field {name} of task {id_} is neither true nor false")
        end = bisect(starts, entry.node.end)
        place = Place(id=id_, title=entry.title, first=line, end=end, text=_write_text(entry, id_))
        spots = tuple(spot for work in (entry, *entry.subtasks) for spot in _list_spots(work, starts))
        boxes = tuple(Entry(line, 0, 0, " ", optional=False, text=_name(subtask)) for subtask in entry.subtasks)
        place = replace(place, spots=spots, entries=boxes)
        waits = entry.get(*_WAITS)
        tasks.append(Task(place, entry.status, [str(id_) for id_ in waits] if isinstance(waits, list) else None))
    name = "JSON user stories" if "passes" in entries[0].fields else "JSON task list"
    reading = read_list(tasks, lines, ("json", name), ("done", "pending"))
    left_out = [Remark(1, f"left out: the tasks of {', '.join(tags[1:])}; only master is worked")] if tags[1:] else []
    titles = [fields.get(key) for key in ("project", "name", "title")]
    title = next((title for title in titles if isinstance(title, str)), "")
    yield replace(reading, remarks=(*left_out, *reading.remarks), title=title)


def _list_tasks(values: object, node: Node | None) -> list["Object"]:
    pairs = zip(values, node.inner.values(), strict=True) if isinstance(values, list) and node else ()
    return [Object(fields, place) for fields, place in pairs if isinstance(fields, dict)]


def _list_spots(task: Object, starts: Sequence[int]) -> Iterator[Spot]:
    for name in task.statuses:
        is_text = name == "status"  # the quotes stay
        node = task.node.inner[name]
        line = bisect(starts, node.begin) - 1
        columns = (node.begin + is_text - starts[line], node.end - is_text - starts[line])
        yield Spot("word", line, *columns, ("", "") if is_text else ("true", "false"))


def _write_text(task: Object, id_: str) -> str:
    """The task as a section of Markdown, with every field but its status."""
    parts = [f"## Task {id_}: {task.title}"]
    for subtask in task.subtasks:
        box = "x" if read_word(subtask.status).status is Status.DONE else " "
        details = (line for name in ("description", "details") for line in _as_text(subtask.get(name)).splitlines())
        parts.append("\n  ".join((f"- [{box}] {_name(subtask)}", *details)))
    values = [task.fields[name] for name in _CRITERIA if task.get(name) is not None]
    criteria = [_as_text(entry) for value in values for entry in (value if isinstance(value, list) else [value])]
    rows = []
    for text in criteria:
        for number, line in enumerate(filter(None, map(str.strip, text.splitlines()))):
            entry = re.sub(r"\A(?:[-*]|[0-9]{1,3}[.)])[ \t]+", "", line)
            rows.append(f"- {entry}" if number == 0 or entry != line else f"  {line}")
    parts += ["### Acceptance Criteria", "\n".join(rows)] if rows else []
    for name, value in task.fields.items():
        if name not in _NOT_TEXT and value not in (None, "", [], {}):
            parts += [f"### {name.title()}", _as_text(value)]
    return "\n\n".join(parts) + "\n"


def _name(subtask: Object) -> str:
    return f"{_as_text(subtask.get('id'))} {subtask.title}".strip()


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
