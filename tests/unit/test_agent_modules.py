"""A module of an agent is whole, or it is refused."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from runplan.agents.clis import module_of
from runplan.agents.kit.about import About
from runplan.agents.kit.module import OPTIONAL, REQUIRED, AgentModule, whole
from runplan.agents.kit.task import Task
from runplan.run.dispatch import Role
from runplan.settings.load import kinds
from runplan.settings.schema import AgentTable

if TYPE_CHECKING:
    from runplan.run.usage import AgentEvent

TABLE = AgentTable(name="acme", kind="acme")
TASK = Task(role=Role.FIX, phase="1", cycle=1, root=Path("/r"), directory=Path("/d"))


def a_module(**more: object) -> ModuleType:
    """A module that has what it must have, and more."""

    def launch(table: AgentTable, task: Task) -> tuple[str, ...]:
        return (table.name, task.phase)

    def read(line: bytes) -> tuple[AgentEvent, ...]:
        return ()

    module = ModuleType("agents.acme")
    vars(module).update({"ABOUT": About(program="acme", keys=("ACME_KEY",)), "launch": launch, "read": read, **more})
    return module


def words(function: object) -> list[str]:
    """What it is called with, by name."""
    assert callable(function)
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.mark.parametrize("kind", kinds())
def test_the_parts_of_every_module_are_called_alike(kind: str) -> None:
    module = inspect.getmodule(module_of(kind).launch)
    for name in ("launch", "read", *OPTIONAL):
        if own := vars(module).get(name):
            assert words(own) == words(getattr(AgentModule, name)), f"{kind}.{name}"


def test_the_parts_are_those_of_the_protocol() -> None:
    assert {name for name in vars(AgentModule) if not name.startswith("_")} == {*REQUIRED, *OPTIONAL}


def test_what_a_module_leaves_out_is_nothing_and_its_keys_are_those_it_tells_of_itself() -> None:
    made = whole(a_module())
    assert made.launch(TABLE, TASK) == ("acme", "1")
    assert made.keys(TABLE) == ("ACME_KEY",)
    assert made.environment(TABLE, TASK, {}) == ({}, ())
    made.prepare(TABLE, TASK, {})
    assert made.finish(Path("/d")) == ()


def test_what_it_has_is_its_own() -> None:
    made = whole(a_module(keys=lambda table: (table.model,), logins=lambda caller: (Path(caller["HOME"]),)))
    assert made.keys(AgentTable(name="acme", kind="acme", model="m")) == ("m",)
    assert made.logins({"HOME": "/h"}) == (Path("/h"),)


@pytest.mark.parametrize("part", ["environment", "prepare"])
def test_an_environment_without_its_files_is_refused_and_so_are_files_without_it(part: str) -> None:
    with pytest.raises(TypeError, match=r"agents\.acme has one of environment and prepare"):
        whole(a_module(**{part: lambda *_: None}))


@pytest.mark.parametrize("part", REQUIRED)
def test_a_module_without_what_every_one_needs_is_refused(part: str) -> None:
    module = a_module()
    delattr(module, part)
    with pytest.raises(TypeError, match=rf"agents\.acme has no {part}; see docs/agents\.md"):
        whole(module)
