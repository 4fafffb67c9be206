"""What a command imports: the part of its time that it spends before it does anything."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.cli import Project

_PROGRAM = (
    "import sys; from runplan.cli.main import main; code = main(sys.argv[1:]);"
    "print(*sys.modules, file=sys.stderr); sys.exit(code)"
)


def imported(project: Project, *words: str) -> set[str]:
    """Every module that the command has imported by its end."""
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words],
        cwd=project.path,
        env=project.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.count("\n")) == (0, 1)
    return set(ran.stderr.split())


def brought_along(project: Project, *modules: str) -> set[str]:
    """These modules of the standard library with all that they import themselves."""
    program = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], env=project.env, capture_output=True, text=True, check=True)
    return {*ran.stdout.split(), *sys.builtin_module_names}
