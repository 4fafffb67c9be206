"""The codebase keeps its shape: imports point down, git runs in one place, and broad catches are named."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.rest  # `make check` runs it

PACKAGE = Path(__file__).parents[2] / "runplan"
MODULES = {
    "runplan." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
SOURCES = {module: path.read_text(encoding="utf-8") for module, path in MODULES.items()}
#: The floors from top to bottom: each may import those below it.
FLOORS = ("interfaces", "app", "hosts", "engine", "adapters", "domain")
#: Modules of other floors than `domain` whose functions take values and return values.
PURE_MODULES = (
    "runplan.adapters.agents.prompts",
    *("runplan.adapters.agents.endings", "runplan.adapters.agents.budgets"),
    *("runplan.engine.report.text", "runplan.engine.report.html", "runplan.engine.report.sections"),
    *("runplan.adapters.notify.notices", "runplan.interfaces.web.access"),
    "runplan.interfaces.mcp.tools",
)
PURE = {
    *["os", "subprocess", "time", "random", "secrets", "socket", "logging", "sqlite3", "threading", "signal", "shutil"]
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(node: ast.AST, *, types: bool = True) -> Iterator[ast.AST]:
    """The statements below a node, with or without those for the type checker; expressions have none."""
    if isinstance(node, ast.If) and not types and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    for block in ("body", "handlers", "orelse", "finalbody", "cases"):
        for statement in getattr(node, block, ()):
            yield statement
            yield from statements(statement, types=types)


@cache
def imports(path: Path, *, types: bool) -> frozenset[str]:
    """The modules a file imports, with or without those for the type checker only."""
    found: set[str] = set()
    for node in statements(parsed(path), types=types):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return frozenset(found)


def floor(module: str) -> str:
    """The floor of a module; "" for the package itself and `__main__`."""
    name = module.split(".")[1] if "." in module else ""
    return name if name in FLOORS else ""


def test_imports_point_down_the_floors() -> None:
    upward = {
        f"{module} may not import {other}"
        for module, path in MODULES.items()
        if (own := floor(module))
        for other in imports(path, types=True)
        if other in MODULES and floor(other) in FLOORS[: FLOORS.index(own)]
    }
    assert not upward


def test_interfaces_import_the_application_and_values_of_the_domain() -> None:
    below = {
        module
        for module, path in MODULES.items()
        if floor(module) == "interfaces"
        and any(floor(other) in ("hosts", "engine", "adapters") for other in imports(path, types=True))
    }
    assert below == set()


def test_the_package_has_six_floors() -> None:
    assert {path.relative_to(PACKAGE).parts[0] for path in MODULES.values()} == {*FLOORS, "__init__.py", "__main__.py"}


def test_a_package_has_at_most_14_modules() -> None:
    folders = Counter(path.parent for path in MODULES.values() if path.name != "__init__.py" and path.parent != PACKAGE)
    assert {str(folder): count for folder, count in folders.items() if count > 14} == {}


def test_modules_have_no_import_cycle() -> None:
    arrows = {name: imports(path, types=True) & MODULES.keys() - {name} for name, path in MODULES.items()}
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


def test_an_import_inside_a_function_has_its_reason() -> None:
    hidden = {
        f"{module}:{node.lineno}": "#" in SOURCES[module].splitlines()[node.lineno - 1]
        for module, path in MODULES.items()
        for function in statements(parsed(path))
        if isinstance(function, ast.FunctionDef)
        for node in statements(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert [place for place, has_reason in hidden.items() if not has_reason] == []
    assert len(hidden) <= 32


def test_pure_modules_have_no_effects() -> None:
    """No input, output, clock, chance or logging."""
    pure = {name: path for name, path in MODULES.items() if floor(name) == "domain" or name in PURE_MODULES}
    del pure["runplan.domain.decoding"]  # its lock is an effect that no caller can see
    acts = r"\bopen\(|\.read_text\(|datetime\.now\(|\bprint\("
    assert set(PURE_MODULES) <= pure.keys()
    assert {
        module
        for module, path in pure.items()
        if not PURE.isdisjoint(name.split(".")[0] for name in imports(path, types=False))
        or re.search(acts, SOURCES[module])
    } == set()


def test_libraries_stay_behind_their_protocol() -> None:
    """SQLite is known to the store alone, bubblewrap to the sandbox, GitPython to commands for people."""
    homes = {
        "sqlite3": "runplan.adapters.store.",
        "github": "runplan.adapters.forge.github",
        "runplan.adapters.store.sqlite": "runplan.adapters.store.",
        "runplan.adapters.sandbox.bubblewrap": "runplan.adapters.sandbox.",
    }
    homes |= {"git": "runplan.app.views.inspection", "gitlab": "runplan.adapters.forge.gitlab"}
    assert {
        f"{module} imports {library}"
        for module, path in MODULES.items()
        for library, home in homes.items()
        if library in {name for full in imports(path, types=True) for name in (full, full.split(".")[0])}
        and not module.startswith(home)
    } == set()


def test_only_one_place_runs_git() -> None:
    spawns = {module for module, text in SOURCES.items() if re.search(r"""\[\s*["']git["']\s*,""", text)}
    assert spawns <= {
        "runplan.adapters.git.command",
        "runplan.interfaces.cli.setup.demo",  # plays a person
        "runplan.adapters.sandbox.forward",  # its own, for the command that it becomes
    }


def test_only_the_zones_make_a_path_from_an_agents_directory() -> None:
    """Others get it for the directory and the mounts of a process, and for messages."""
    owners = {"runplan.adapters.git.zones", "runplan.adapters.git.handover"}
    code = {
        module: ast.unparse(parsed(path))
        for module, path in MODULES.items()
        if module not in owners and re.search("[zZ]one|workspace", SOURCES[module])
    }
    made = r"\b(zone|AgentZone\(.*?\))\.path( /|\.)|workspace\.(lanes|root) /"
    assert {module for module, text in code.items() if re.search(made, text)} == set()
    given = {module for module, text in code.items() if re.search(r"\b(zone|AgentZone\(.*?\))\.path\b", text)}
    assert given == {"runplan.engine.steps.process", "runplan.adapters.git.removal"}


def test_the_environment_is_read_in_one_place() -> None:
    readers = {module for module, text in SOURCES.items() if re.search(r"os\.environ\b", text)}
    assert readers <= {
        "runplan.adapters.configuration.load",
        "runplan.interfaces.cli.setup.demo",  # plays a person
        "runplan.adapters.sandbox.forward",  # its own, for the command that it becomes
        "runplan.adapters.sandbox.serve",  # its own, for the server and the agent
    }


def test_broad_catches_stand_only_at_named_boundaries() -> None:
    broad = {module for module, text in SOURCES.items() if re.search(r"except (Base)?Exception|except:", text)}
    undo_and_raise = {"runplan.adapters.store.sql", "runplan.engine.landing.swap", "runplan.engine.loop.advance"}
    # The edges of a command line, of a run, of a worker's thread, of a request to the daemon, and of a task of its
    # main thread.
    assert broad - undo_and_raise <= {
        *("runplan.interfaces.cli.main", "runplan.hosts.owner", "runplan.hosts.commands", "runplan.hosts.background"),
        *("runplan.hosts.daemon.process", "runplan.hosts.fleet.worker"),
    }


def test_a_module_says_what_it_is_and_is_not_too_long() -> None:
    silent = {module for module, path in MODULES.items() if not ast.get_docstring(parsed(path))}
    long = {module for module, text in SOURCES.items() if len(text.splitlines()) > 600}
    assert not silent, "they have no docstring"
    assert not long, "split them"
