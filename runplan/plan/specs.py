"""Spec folders of spec-kit, Kiro and OpenSpec: the plan in them, and the files next to it that agents should read."""

from __future__ import annotations

from pathlib import PurePosixPath

PLAN_FILE = "tasks.md"
#: The directories whose folders are specs, and a file that holds for all of them.
FOLDERS = {
    "specs": ".specify/memory/constitution.md",
    ".kiro/specs": ".kiro/steering/product.md",
    "openspec/changes": "openspec/project.md",
}
_BESIDE = (
    *("requirements.md", "bugfix.md", "proposal.md", "spec.md", "design.md", "plan.md"),
    *("research.md", "data-model.md", "quickstart.md", "constitution.md"),
)


def context_files(plan: str) -> tuple[str, ...]:
    """The files that may say more about the plan of a spec folder; some do not exist."""
    path = PurePosixPath(plan)
    if path.name != PLAN_FILE:
        return ()
    shared = FOLDERS.get(path.parent.parent.as_posix())
    return tuple(str(path.with_name(name)) for name in _BESIDE) + ((shared,) if shared else ())
