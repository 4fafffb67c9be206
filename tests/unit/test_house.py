"""The house keeps its shape: arrows point down, each outside thing has one room, and edges are named."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "runplan"
MODULES = {
    "runplan." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
#: What each floor may look at: itself and what lies below it. App knows of adapters only what landing makes of them.
FLOORS = {
    "core": {"core"},
    "ports": {"core", "ports"},
    "adapters": {"core", "ports", "adapters"},
    "store": {"core", "ports", "adapters", "store"},
    "landing": {"core", "adapters", "landing"},
    "git": {"core", "ports", "adapters", "git"},
    "app": {"core", "ports", "landing", "app"},
    "engine": {"core", "ports", "adapters", "store", "git", "landing", "app", "engine"},
    "daemon": {"core", "ports", "adapters", "store", "git", "landing", "app", "engine", "daemon"},
    "cli": {"core", "ports", "adapters", "store", "git", "landing", "app", "engine", "daemon", "cli"},
}
PURE = {
    "os",
    "subprocess",
    "time",
    "random",
    "secrets",
    "socket",
    "logging",
    "sqlite3",
    "threading",
    "signal",
    "shutil",
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, *, types: bool) -> frozenset[str]:
    """The modules a file imports, with or without those for the type checker only."""
    found: set[str] = set()
    left: list[ast.AST] = [parsed(path)]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and not types and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        left += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return frozenset(found)


def floor(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("storey", FLOORS)
def test_every_arrow_points_down(storey: str) -> None:
    turned = {
        f"{module} may not know {name}"
        for module, path in MODULES.items()
        if floor(module) == storey
        for name in imports(path, types=True)
        if name in MODULES and floor(name) and floor(name) not in FLOORS[storey]
    }
    assert not turned


def test_no_modules_go_round_in_a_circle() -> None:
    arrows = {name: imports(path, types=False) & MODULES.keys() - {name} for name, path in MODULES.items()}
    done: set[str] = set()

    def walk(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for below in sorted(arrows[module]):
                if not below.startswith(module) and not module.startswith(f"{below}."):
                    walk(below, (*trail, module))
            done.add(module)

    for module in sorted(arrows):
        walk(module, ())


def test_core_is_pure() -> None:
    """No input, output, clock, chance or logging: its functions take values and return values."""
    core = {module: path for module, path in MODULES.items() if floor(module) == "core"}
    acts = r"\bopen\(|\.read_text\(|datetime\.now\(|\bprint\("
    assert len(core) > 20
    assert {
        module
        for module, path in core.items()
        if not PURE.isdisjoint(name.split(".")[0] for name in imports(path, types=False))
        or re.search(acts, path.read_text(encoding="utf-8"))
    } == set()


def test_only_one_place_runs_git() -> None:
    spawns = {
        module
        for module, path in MODULES.items()
        if re.search(r"""\[\s*["']git["']\s*,""", path.read_text(encoding="utf-8"))
    }
    assert spawns <= {
        "runplan.git.command",
        "runplan.ops.discovery",  # through GitPython, for init and doctor
        "runplan.agents.kit.script_player",  # a program of its own
        "runplan.cli.setup.demo",  # plays a person
    }


def test_the_environment_is_read_in_one_place() -> None:
    readers = {
        module for module, path in MODULES.items() if re.search(r"os\.environ\b", path.read_text(encoding="utf-8"))
    }
    assert readers <= {
        "runplan.settings.load",
        "runplan.agents.kit.script_player",  # a program of its own
        "runplan.ops.discovery",  # GitPython adds to it, and has to be told what to leave out
        "runplan.cli.setup.demo",  # plays a person
    }


def test_broad_catches_stand_only_at_named_edges() -> None:
    broad = {
        module
        for module, path in MODULES.items()
        if re.search(r"except (Base)?Exception|except:", path.read_text(encoding="utf-8"))
    }
    undo_and_raise = {
        "runplan.store.sqlite",
        "runplan.landing.swap",
    }
    # The edges of a command line, of a run, of a worker's thread, of a request to the daemon, and of a task of its
    # main thread.
    assert broad - undo_and_raise <= {
        "runplan.cli.main",
        "runplan.engine.runs",
        "runplan.engine.commands",
        "runplan.daemon.worker",
        "runplan.daemon.server",
        "runplan.daemon.process",
    }


def test_a_file_is_one_room() -> None:
    """Its first sentence says which, and it can be read alone."""
    silent = {module for module, path in MODULES.items() if not ast.get_docstring(parsed(path))}
    long = {module for module, path in MODULES.items() if len(path.read_text(encoding="utf-8").splitlines()) > 600}
    assert not silent, "they do not say what they are"
    assert not long, "they hold two rooms each"
