"""A PATH with git, make, Python, a shell and the standard tools alone: a machine without optional programs.

`python3 -m tests.support.tools DIRECTORY` makes the directory; `.ci/run` runs `make test` with it as PATH.
"""

import os
import shutil
import sys
from pathlib import Path

TOOLS = """
    git make bash sh
    awk basename cat chgrp chmod chown cmp cp cut date dd df diff dirname du echo env expr false find grep head
    hostname id install kill ln ls md5sum mkdir mkfifo mktemp mount mv nice nohup nsenter od paste printf ps pwd
    readlink realpath rm rmdir sed seq setsid sha256sum sleep sort stat stty sync tail tar tee test timeout touch tr
    true umount uname uniq unshare wc xargs yes
"""


def link_tools(directory: Path) -> Path:
    """The directory, made anew with a link to each of the tools that this machine has."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for tool in TOOLS.split():
        if program := shutil.which(tool):
            (directory / tool).symlink_to(program)
    (directory / "python3").symlink_to(os.path.realpath(sys.executable))
    return directory


def write_script(path: Path, words: str) -> Path:
    """A shell script that can be executed; its directory is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


if __name__ == "__main__":
    link_tools(Path(sys.argv[1]).absolute())
