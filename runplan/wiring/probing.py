"""Looks at the target's tree for signs of tests, for what they need, and for the files of agents."""

from __future__ import annotations

import posixpath
import shutil
from typing import TYPE_CHECKING

from runplan.adapters import calling, trees
from runplan.core import testinfra
from runplan.core.errors import RefusedEarly
from runplan.core.facts import SENT, Bench
from runplan.core.reasons import Reason

if TYPE_CHECKING:
    from runplan.adapters.git import Git
    from runplan.wiring.here import Here


def infrastructure(git: Git, tip: str) -> testinfra.Infrastructure:
    """What stands at the top and under tests/, and what package.json and the Makefile say."""
    top = trees.entries(git, git.commit(tip).tree)
    files = [name for name, entry in top.items() if entry.mode != trees.TREE]
    below = top.get("tests")
    if below is not None and below.mode == trees.TREE:
        files += [f"tests/{name}" for name in trees.entries(git, below.oid)]

    def text(path: str) -> str:
        return (git.blob(tip, path) or b"").decode("utf-8", "replace") if path in files else ""

    return testinfra.find(files, package_json=text("package.json"), makefile=text("Makefile"))


def require_agents(at: Here) -> str:
    """Refuse agents that could not be dispatched, also those whose files no worktree of the target would have.

    Answers with what the user is to be warned of, or nothing.
    """
    agents, run = at.settings.agents, at.settings.run
    in_dollars = at.settings.limits.in_dollars
    warning = calling.require_agents(agents, root=at.repository.root, caller=at.env, in_dollars=in_dollars)
    copied = {posixpath.normpath(name) for name in run.copy}
    for role in SENT:
        table = agents.agent(name) if (name := getattr(agents, role)) else None
        for file in map(posixpath.normpath, calling.worktree_files(table) if table and not run.setup else ()):
            if file not in copied and not _is_on(at, file):
                raise RefusedEarly(
                    f"{Reason.AGENT_MISSING}: agents.{role}: {file} is not on {at.target_name}, so no worktree has it; "
                    f"commit it on {at.target_name}, or add it to run.copy"
                )
    return warning


def _is_on(at: Here, path: str) -> bool:
    """Whether the target has the file; where a link leads is not known."""
    git = at.repository.git
    _, entry = trees.find(git, git.commit(at.tip()).tree, path)
    return entry is not None and entry.mode not in (trees.TREE, trees.SUBMODULE)


def bench(at: Here) -> Bench:
    """What the test command lacks in a fresh worktree of the target."""
    git, tip, command = at.repository.git, at.tip(), at.settings.tests.command
    files = trees.entries(git, git.commit(tip).tree)
    texts = {name: (git.blob(tip, name) or b"").decode("utf-8", "replace") for name in ("package.json", "Makefile")}
    root, copied = at.repository.root, at.settings.run.copy
    present = [name for name in ("node_modules",) if (root / name).is_dir()]
    program = testinfra.program_of(command)
    if "/" in program:
        # run.setup may make it, and run.copy brings it.
        made = bool(at.settings.run.setup or copied) or (program.startswith("/") and (root / program).exists())
        found = made or git.object(f"{tip}:{program.removeprefix('./')}") is not None
    else:
        found = not program or shutil.which(program, path=at.env.get("PATH", "")) is not None
    needs = testinfra.needed_setup(files, texts, command=command, present=present)
    return Bench(
        missing=testinfra.missing_file(command, files),
        program="" if found or needs else program,
        needs=needs if needs is None or needs[0] not in copied else None,
    )
