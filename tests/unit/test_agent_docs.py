"""The page on agents agrees with the code."""

import re
import types
from pathlib import Path
from typing import Any

import pytest

from runplan.adapters.agents.adapter import Task
from runplan.adapters.agents.clis import agent_of
from runplan.app.views.inspection import known_agents
from runplan.domain.run.dispatch import EndingKind, Finished, Message, Started, Unread
from runplan.domain.run.kinds import Role
from runplan.domain.settings.schema import AGENT_KEYS, AgentTable
from tests.support.documents import fences, read, rows
from tests.support.samples import expected, meta, streams

PAGE = read("docs/agents.md")
KNOWN = {cells[0].strip("`"): cells for cells in rows(PAGE, "## Known agents")}
KEYS = {cells[0].strip("`"): cells for cells in rows(PAGE, "### Keys and configuration")}


def task(name: str, role: Role, *, args: tuple[str, ...] = ()) -> Task:
    # mini reads a prompt file; the page serves as one.
    docs = Path(__file__).parents[2] / "docs"
    table = AgentTable(name=name, kind=name, args=args)
    where = {"root": docs, "directory": docs / "none"}
    return Task(table=table, caller={}, role=role, phase="1", cycle=1, **where)  # type: ignore[arg-type]


def argv(name: str, role: Role) -> str:
    return " ".join(agent_of(name).build_argv(task(name, role)))


def test_the_tables_are_of_the_same_agents_in_the_order_they_are_suggested() -> None:
    assert list(KNOWN) == list(KEYS) == [name for name in known_agents() if name in KNOWN]


@pytest.mark.parametrize("name", [name for name in KNOWN if name != "mini"])
def test_the_flags_are_those_of_the_command_line(name: str) -> None:
    def flags(cell: str) -> list[str]:
        return [flag for flag in re.findall(r"`([^`]+)`", cell) if not flag.startswith('"')]

    _, output, writes, reads = KNOWN[name]
    for flag in (*flags(output), *flags(writes)):
        assert flag in argv(name, Role.IMPLEMENT)
    for flag in (*flags(output), *flags(reads)):
        assert flag in argv(name, Role.VERIFY)
    assert all(flag not in argv(name, Role.VERIFY) for flag in flags(writes)) or name == "aider"


@pytest.mark.parametrize("name", KNOWN)
def test_keys_and_folders_are_those_of_the_module(name: str) -> None:
    _, keys, folders, _ = KEYS[name]
    agent = agent_of(name)
    given = agent.list_variables(AgentTable(name=name, kind=name), {})
    assert tuple(re.findall(r"`(\w+)`", keys)) == agent.keys
    assert set(agent.keys) <= set(given)
    assert set(re.findall(r"`([A-Z]\w+)`", folders)) <= {*given, "HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"}


def test_the_endings_are_those_of_the_code() -> None:
    listed = [name for cells in rows(PAGE, "## Endings") for name in re.findall(r"`([a-z-]+)`", cells[0])]
    assert sorted(listed) == sorted(EndingKind)


def test_the_keys_of_a_table_are_those_of_the_code() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.partition("| key of `[agents.<name>]`")[2].partition("\n## ")[0], re.M)
    assert sorted(listed) == sorted(key.name for key in AGENT_KEYS)


def test_the_versions_named_are_those_of_the_samples() -> None:
    sentence = " ".join(PAGE.partition("read streams captured from")[2].partition("\n\n")[0].split())
    listed = dict(re.findall(r"(\w+) (\d[\d.]*\d)", sentence))
    assert listed == {name: expected(name)["install"].split()[2] for name in KNOWN}
    assert all(meta(stream)["argv"][0] == stream.partition("/")[0] for stream in streams())


def example() -> Any:
    (source,) = [fence.text for fence in fences(read("CONTRIBUTING.md")) if fence.language == "py"]
    made = types.ModuleType("acme")
    exec(compile(source, "acme", "exec"), made.__dict__)
    return made


def test_the_example_of_a_new_agent_is_one() -> None:
    acme = example().AGENT
    writing, reading = (task("acme", role, args=("-x",)) for role in (Role.FIX, Role.VERIFY))
    assert acme.build_argv(writing) == ("acme", "run", "--json", "--write", "-x")
    assert acme.build_argv(reading) == ("acme", "run", "--json", "--read-only", "-x")
    assert acme.build_environment(writing) == {}
    assert acme.list_variables(writing.table, {}) == ("ACME_API_KEY", "ACME_HOME")
    assert acme.read_line(b'{"type":"start","model":"m"}') == (Started(model="m"),)
    assert acme.read_line(b'{"type":"say","text":"hi"}') == (Message(text="hi", final=True),)
    assert acme.read_line(b'{"type":"done"}') == (Finished(ok=True),)
    assert acme.read_line(b"what?") == acme.read_line(b'{"type":"x"}') == (Unread(),)
    assert acme.read_line(b'{"type":"failed","error":"no","status":401}')[0].kind is EndingKind.AUTH
