"""Tasks in front matter: Cursor's `todos:`, and the task files of Backlog.md, one file for each."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from runplan.domain.errors import NotAPlan
from runplan.domain.names import split_files
from runplan.domain.plan.formats.task_lists import Task, read_list
from runplan.domain.plan.marks import id_key
from runplan.domain.plan.reading import Place, Reading, Remark, Spot, box_spots
from runplan.domain.plan.scan import Field, Lines, scan_lines

_PAIR = re.compile(r"([ \t]*)(-[ \t]+)?([A-Za-z_]+)[ \t]*:(?=[ \t]|\Z)[ \t]*")
_TASK_KEYS = ("id", "title", "status", "labels", "dependencies")  #: that Backlog.md writes into each file


def read_todos(lines: Lines) -> Iterator[Reading]:
    """The `todos:` of a Cursor plan; the document is the context of each."""
    field = lines.find_field("todos")
    maps: list[dict[str, Field]] = []
    depth = (0, 0)  # the columns of the dash and of the keys
    key = ""
    for i in range(field.at + 1, field.below) if field else ():
        row = lines.texts[i]
        pair = _PAIR.match(row)
        columns = (len(pair[1]), len(pair[1] + (pair[2] or ""))) if pair else (-1, -1)
        if pair and pair[2] and (not maps or columns[0] == depth[0]):
            maps.append({})
            depth = columns
        elif key and (pair is None or columns[1] != depth[1]):
            last = maps[-1][key]
            maps[-1][key] = replace(last, value=f"{last.value} {row.strip()}".strip(), below=i + 1)
            continue
        if pair and maps:
            key = pair[3]
            maps[-1][key] = Field(key, row[pair.end() :].strip(), i, pair.end(), len(row.rstrip()), i + 1)
    values = ({name: replace(value, value=_unquote(value.value)) for name, value in todo.items()} for todo in maps)
    todos = [todo for todo in values if "id" in todo and "content" in todo]
    if not todos:
        return
    document = "\n" + lines.text_between(lines.front + 1, len(lines.texts))
    tasks = []
    for todo in todos:
        status = todo.get("status")
        waits = todo.get("dependencies")
        end = max(value.below for value in todo.values())
        text = f"## Todo {todo['id'].value}\n\n{todo['content'].value}\n"
        place = Place(id=todo["id"].value, title=todo["content"].value, first=todo["id"].at, end=end, text=text)
        place = replace(place, spots=(_word_spot(lines, status, 0),) if status else (), context=document)
        tasks.append(Task(place, status.value if status else "", list_values(lines, waits) if waits else None))
    reading = read_list(tasks, lines, ("cursor", "Cursor todos"), ("completed", "pending"))
    yield replace(reading, title=lines.front_value("title") or lines.front_value("name"))


def _unquote(text: str) -> str:
    text = re.sub(r"\A[>|][+-]?[ ]", "", text)  # a block
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return " ".join((text[1:-1] if is_quoted else text).split())


def list_values(lines: Lines, field: Field) -> list[str]:
    """The values of `key: [a, b]` and of the entries `- a` below a key."""
    text = " ".join((lines.texts[field.at][field.begin :], *lines.texts[field.at + 1 : field.below]))
    return [word for word in re.split(r"[\s,\[\]\"']+", text) if word.strip("-")]


def _word_spot(lines: Lines, status: Field, offset: int) -> Spot:
    quoted = lines.texts[status.at][status.begin : status.begin + 1] in ("'", '"')
    return Spot("word", status.at + offset, status.begin + quoted, status.end - quoted)


def read_backlog(lines: Lines) -> Iterator[Reading]:
    files = split_files(lines.raw, lines.path)
    offset = 0
    tasks = []
    parents = []
    remarks = []
    for path, content in (files or {lines.path: lines.raw}).items():
        part = scan_lines(content, path=path)
        offset += bool(files)
        id_, title, status, _, waits = fields = [part.find_field(key) for key in _TASK_KEYS]
        if id_ and title and status and waits and all(fields):
            boxes = [replace(spot, at=spot.at + offset) for spot in box_spots(b for b in part.boxes if not b.optional)]
            text = f"# {id_.value}: {title.value}\n{part.text_between(part.front + 1, len(part.texts))}"
            place = Place(id=id_.value, title=title.value, first=offset, end=offset + len(part.texts), text=text)
            place = replace(place, spots=(_word_spot(part, status, offset), *boxes))
            tasks.append(Task(place, status.value, list_values(part, waits)))
            parents.append(id_key(part.front_value("parent_task_id")))
        elif files:
            remarks.append(Remark(offset, f"{path} is no task of Backlog.md and is left out"))
        offset += content.count(b"\n") + 1
    if files and not tasks:
        raise lines.error_at(0, "the folder has no task of Backlog.md; name the plan file in it", NotAPlan)
    if tasks:
        for number, epic in enumerate(tasks):  # it waits for its parts, but not for those that wait for it
            key = id_key(epic.place.id)
            parts = (task for task, parent in zip(tasks, parents, strict=True) if parent == key)
            ids = (part.place.id for part in parts if key not in map(id_key, part.waits or ()))
            tasks[number] = replace(epic, waits=[*(epic.waits or ()), *ids])
        reading = read_list(tasks, lines, ("backlog", "Backlog.md tasks"), ("Done", "To Do"))
        title_of_plan = "Backlog" if files else tasks[0].place.title
        yield replace(reading, remarks=(*remarks, *reading.remarks), title=title_of_plan)
