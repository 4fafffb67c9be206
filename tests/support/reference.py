"""Pages that are made from the code: settings, events, types of JSON, and known agents.

`python -m tests.support.reference` (`make docs`) writes them; `tests/unit/test_docs_tables.py` compares them.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import ModuleType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, UnsetType
from msgspec.structs import fields

from runplan.adapters.agents.clis import agent_of
from runplan.app.health import SetupCheck
from runplan.app.machine import ServiceState
from runplan.app.operations.upkeep import Setting
from runplan.app.views.board import QueueView
from runplan.app.views.changes import ChangeView, ProposalView
from runplan.app.views.checks import CheckedPlan
from runplan.app.views.journal import ExplainedStep
from runplan.app.views.plans import NextView
from runplan.app.views.status import PlanView
from runplan.domain.fleet import FleetState
from runplan.domain.gitfacts import Kept, Removed
from runplan.domain.run import recorded
from runplan.domain.run.events import Event
from runplan.domain.settings.schema import KEYS, USER_SECTIONS
from runplan.domain.text import toml_value
from runplan.engine.report.inbox import Inbox
from runplan.engine.report.lessons import Lesson
from runplan.engine.report.summary import PhaseRecord, RepositoryNews
from tests.support.documents import ROOT, read, rows
from tests.support.samples import expected

MADE = "<!-- made by `make docs` from {source}; do not edit -->\n\n"
#: The names under which people know the programs.
TITLES = {
    "aider": "aider",
    "claude": "Claude Code",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "mini": "mini-swe-agent",
    "opencode": "opencode",
    "qwen": "Qwen Code",
}


def table(head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + "\n"


def settings_page() -> str:
    text = "# Settings\n\n" + MADE.format(source="`runplan/domain/settings/schema.py`")
    text += (
        "Every setting with its default. [Configuration](configuration.md) says where values come from,\n"
        "and has more on some of them.\n\n"
    )
    for section in dict.fromkeys(key.section for key in KEYS):
        keys = [key for key in KEYS if key.section == section]
        text += f"## {section}\n\n"
        if section in USER_SECTIONS:
            text += "In your user file only; in a repository's file they are an error.\n\n"
        body = [(f"`{key.path}`", f"`{toml_value(key.written)}`", escape(key.why)) for key in keys]
        text += table(("setting", "default", "meaning"), body)
    return text.rstrip() + "\n"


def escape(text: str) -> str:
    """The text in a cell of a table: angle brackets are no tags and bars no borders."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def events_page() -> str:
    text = "# Events\n\n" + MADE.format(source="the classes of `runplan/domain/run`")
    text += (
        "The journal of a run, as [`runplan logs PLAN --json`](reference.md#logs---json) prints it: one event\n"
        "per line, with `seq`, `at`, `run`, `type` and the fields below. An event of one of several phases\n"
        "at once has `lane` too.\n\n"
    )
    assert recorded  # it imports every module with events
    kinds = sorted(list_kinds(Event), key=lambda kind: kind.__name__)
    remarks = field_remarks({sys.modules[base.__module__] for kind in kinds for base in list_bases(kind)})
    for kind in kinds:
        text += f"## {kind.__name__}\n\n"
        if doc := vars(kind).get("__doc__"):
            text += textwrap.fill(inspect.cleandoc(doc), 100) + "\n\n"
        body = [(f"`{field.encode_name}`", find_remark(kind, field.name, remarks)) for field in fields(kind)]
        own = [cells for cells in body if cells[0] != "`lane`"]
        text += table(("field", "meaning"), own) if own else "It has no further fields.\n\n"
    return text.rstrip() + "\n"


def list_kinds(kind: type[Event]) -> Iterator[type[Event]]:
    """The classes of events that are recorded: those that no other one extends."""
    for subclass in kind.__subclasses__():
        yield from list_kinds(subclass) if subclass.__subclasses__() else (subclass,)


def list_bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if issubclass(base, Struct) and base is not Struct]


def find_remark(kind: type, field: str, remarks: dict[tuple[str, str], str]) -> str:
    return next(
        (escape(remarks[base.__name__, field]) for base in kind.__mro__ if (base.__name__, field) in remarks), ""
    )


def field_remarks(modules: set[ModuleType]) -> dict[tuple[str, str], str]:
    """The comments `#:` behind the fields, by class and field."""
    remarks = {}
    for module in modules:
        source = inspect.getsource(module)
        lines = source.splitlines()
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        remarks[node.name, field.target.id] = lines[(field.end_lineno or 1) - 1].partition("#: ")[2]
    return remarks


#: The views that `--json` prints, by command.
VIEWS: dict[str, tuple[Any, ...]] = {
    "status": (list[PlanView],),
    "status PLAN": (PlanView,),
    "next": (list[NextView],),
    "check PLAN": (CheckedPlan,),
    "diff PLAN": (ChangeView, ProposalView),
    "plan GOAL": (ProposalView,),
    "inbox": (Inbox,),
    "queue": (QueueView,),
    "explain PLAN": ({"run": str, "plan": str, "now": str, "steps": list[ExplainedStep]},),
    "report PLAN": ({"plan": str, "report": str, "title": str, "phases": list[PhaseRecord]},),
    "report --since WHEN": ({"since": str, "summary": str, "repositories": list[RepositoryNews]},),
    "memory": (list[Lesson],),
    "doctor": (list[SetupCheck],),
    "gc": (list[Removed | Kept],),
    "uninstall": (list[Removed | Kept],),
    "service status": (ServiceState,),
    "fleet status": (FleetState,),
    "config": (list[Setting],),
}
#: Fields that a command adds to each entry of its list.
ADDED = {"doctor": "`ok`", **dict.fromkeys(("gc", "uninstall"), "`answer`: `removed` or `kept`")}


def json_page() -> str:
    text = "# JSON\n\n" + MADE.format(source="the views in `runplan/app`")
    text += (
        "The types of what `--json` prints. [The reference](reference.md#json) has examples, and what the\n"
        "values of a run mean. [Events](events.md) has the lines of `logs --json`.\n\n"
    )
    kinds: list[type] = []
    body = []
    for command, roots in VIEWS.items():
        added = f", each with {ADDED[command]}" if command in ADDED else ""
        body.append((f"`runplan {command} --json`", " or ".join(map(describe_view, roots)) + added))
        for root in roots:
            for kind in root.values() if isinstance(root, dict) else [root]:
                collect_structs(kind, kinds)
    text += table(("command", "prints"), body)
    remarks = field_remarks({sys.modules[base.__module__] for kind in kinds for base in list_bases(kind)})
    for kind in kinds:
        hints = get_type_hints(kind)
        rows_ = [
            (f"`{field.encode_name}`", describe_type(hints[field.name]), find_remark(kind, field.name, remarks))
            for field in fields(kind)
        ]
        text += f"## {kind.__name__}\n\n" + table(("field", "type", "meaning"), rows_)
    return text.rstrip() + "\n"


def describe_view(root: Any) -> str:
    """A type; or an object with these fields."""
    if not isinstance(root, dict):
        return describe_type(root)
    return ", ".join(f"`{field}`: {describe_type(kind)}" for field, kind in root.items())


def collect_structs(kind: Any, kinds: list[type]) -> None:
    """Add the classes with fields that a value of this type can hold."""
    if isinstance(kind, type) and issubclass(kind, Struct) and kind not in kinds:
        kinds.append(kind)
        for hint in get_type_hints(kind).values():
            collect_structs(hint, kinds)
    for argument in get_args(kind):
        collect_structs(argument, kinds)


WORDS = {str: "text", int: "number", float: "number", bool: "true or false", NoneType: "null", UnsetType: "absent"}


def describe_type(kind: Any) -> str:
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return " or ".join(describe_type(argument) for argument in arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return f"list of {', '.join(describe_type(argument) for argument in arguments)}"
    if origin in (tuple, list, frozenset, Sequence):
        return f"list of {describe_type(arguments[0])}"
    if origin in (dict, Mapping):
        return f"object of {describe_type(arguments[1])}"
    if isinstance(kind, type) and issubclass(kind, Struct):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    return WORDS.get(kind, "any value")


def agent_page(name: str) -> str:
    """What the tables of docs/agents.md say of one agent, with the lines to install and to choose it."""
    page = read("docs/agents.md")
    version = expected(name)["install"].split()[2]
    text = f"# {TITLES[name]}\n\n" + MADE.format(source="`docs/agents.md`")
    text += f'```sh\n{agent_of(name).install}\n```\n\n```toml\n[agents]\nimplementer = "{name}"\n```\n\n'
    text += f"The tests read streams of version {version}.\n\n"
    facts = []
    for heading, names in (
        ("## Known agents", ("output", "writes with", "reads with")),
        ("### Keys and configuration", ("keys", "configuration moved by", "has a login or provider with")),
        ("### What an agent gets of the project", ("gets, besides its usual instructions", "does not get")),
    ):
        cells = next((cells[1:] for cells in rows(page, heading) if cells[0] == f"`{name}`"), [])
        facts += [(fact, cell) for fact, cell in zip(names, cells, strict=False) if cell]
    text += table(("", ""), facts)
    return text + "[Agents](../agents.md) has models, budgets, keys and what each agent may do.\n"


def pages() -> dict[str, str]:
    """The text of each page, by its path."""
    made = {"docs/settings.md": settings_page(), "docs/events.md": events_page(), "docs/json.md": json_page()}
    return made | {f"docs/agents/{name}.md": agent_page(name) for name in TITLES}


def main() -> None:
    for path, text in pages().items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
