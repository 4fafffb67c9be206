"""Runs the commands of config/fleet/Dockerfile in a bare Debian root, where there is no Docker (`make check-image`).

It needs root, debootstrap and the package mirrors. FROM becomes debootstrap's smallest Debian of the same name. COPY
and RUN do as they do in an image; the last command is the ENTRYPOINT as the image's user, with --help.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.documents import ROOT

DOCKERFILE = ROOT / "config/fleet/Dockerfile"
#: Settings of this machine without which pip does not reach its mirror.
PIP = [Path("/etc/pip.conf"), Path("/etc/ssl/certs/ca-certificates.crt")]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def instructions(text: str) -> list[tuple[str, str]]:
    """(word, rest) of each instruction; comments are left out, continued lines joined."""
    joined = re.sub(r"\s*\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [(line.split()[0], line.partition(" ")[2]) for line in joined.splitlines() if line.strip()]


def run_in(root: Path, user: str, *argv: str) -> None:
    """Run a command in the root, with /proc and /dev of its own namespaces, and without this machine's environment."""
    enter = f"mount -t proc proc {root}/proc && mount --bind /dev {root}/dev && exec chroot --userspec={user} {root} "
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": "/root" if user == "root" else f"/home/{user}",
    }
    command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", enter + shlex.join(argv)]
    subprocess.run(command, env=env, stdin=subprocess.DEVNULL, check=True)


def make_base(root: Path, image: str) -> None:
    suite = image.removeprefix("debian:").removesuffix("-slim")
    if not shutil.which("debootstrap") or os.getuid() != 0:
        sys.exit("check-image needs root and debootstrap: apt-get install debootstrap")
    subprocess.run(["debootstrap", "--variant=minbase", suite, root], stdout=subprocess.DEVNULL, check=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")


def copy(source: Path, target: Path) -> None:
    """As COPY does it: the content of a directory, or the file."""
    target.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def play(root: Path) -> None:
    user, steps = "root", instructions(DOCKERFILE.read_text(encoding="utf-8"))
    for word, rest in steps:
        say(f"{word} {rest}")
        if word == "FROM":
            make_base(root, rest)
        elif word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, root / target[1:])
        elif word == "RUN":
            for file in PIP if "pip install" in rest else ():
                if file.exists():
                    copy(file, root / str(file.parent)[1:])
            run_in(root, user, "sh", "-c", rest)
        elif word == "USER":
            user = rest
        elif word == "ENTRYPOINT":
            run_in(root, user, *json.loads(rest), "--help")


def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="runplan-image-"))
    try:
        play(place / "root")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    say("Every command of the Dockerfile has run.")


if __name__ == "__main__":
    main()
