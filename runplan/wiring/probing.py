"""Looks at the target's tree for signs of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.adapters import trees
from runplan.core import testinfra

if TYPE_CHECKING:
    from runplan.adapters.git import Git


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
