"""Looks at the target's tree for signs of tests, and for what they need."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from runplan.adapters import trees
from runplan.core import testinfra
from runplan.core.facts import Bench

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
