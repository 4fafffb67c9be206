"""A service manager for tests, which does nothing but say what it was told: the real one is the developer's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: A file in its home makes it deaf or refuse.
MANAGER = """\
#!/bin/sh
echo "${0##*/} $*" >>"$HOME/told"
case "$*" in
  *show-environment*|"print gui/"[0-9]*) test ! -e "$HOME/deaf" ;;
  *is-active*) test -e "$HOME/active" ;;
  *enable*--now*|bootstrap*)
    test ! -e "$HOME/broken" || { echo "Unit is masked." >&2; exit 1; }
    : >"$HOME/active" ;;
esac
"""


def a_manager(directory: Path, name: str = "systemctl") -> Path:
    """The directory, with a program of that name in it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(MANAGER)
    (directory / name).chmod(0o755)
    return directory
