"""A clone, the bare repository it pushes to, and a second person who pushes there as well."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runplan.landing.direct import Direct
from tests.support.landings import MAIN
from tests.support.repos import Repo, init_repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runplan.landing.lander import Landing

TRACKED = "refs/remotes/origin/main"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A checkout of main and its origin."""

    here: Repo
    there: Repo

    @property
    def tool(self) -> Repo:
        """The repository beside the checkout that candidates are pushed from; it borrows the checkout's objects."""
        tool = Repo(path=self.here.path / ".git/runplan/tool.git", env=self.here.env)
        if not tool.path.exists():
            init_repo(tool.path, "--bare")
            (tool.path / "objects/info/alternates").write_text(f"{self.here.path}/.git/objects\n")
        return tool

    @contextmanager
    def lander(self, point: Callable[[str], None] = lambda _: None, *, timeout_s: float = 20.0) -> Iterator[Direct]:
        with self.here.adapter() as git:
            yield Direct(
                git,
                remote="origin",
                branch="main",
                root=self.here.path,
                common_dir=self.here.path / ".git",
                tool=self.tool.path,
                caller=self.here.env,
                point=point,
                timeout_s=timeout_s,
            )

    def intent(self, new: str, *, landing: str = "L1") -> Landing:
        with self.lander() as direct:
            return direct.prepare(id=landing, old=self.here.head(TRACKED), new=new)

    def hook(self, name: str, words: str) -> Path:
        """Let the server do this."""
        path = self.there.path / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{words}\n")
        path.chmod(0o755)
        return path

    def elsewhere(self, **files: str) -> str:
        """Somebody else's commit on the remote's main; returns it."""
        other = Repo(path=self.there.path.parent / "other")
        if not other.path.exists():
            self.here.git("clone", "-q", str(self.there.path), str(other.path))
            other.git("config", "user.name", "Otto")
            other.git("config", "user.email", "otto@example.org")
        other.git("pull", "-q", "--ff-only")
        commit = other.commit("Otto's", **files)
        other.git("push", "-q")
        return commit

    def landed(self) -> int:
        """How often the landing L1 is on the remote's main."""
        return self.there.git("log", "--format=%B", MAIN).count("Runplan-Landing: L1")


def make_pair(path: Path, **files: str) -> Pair:
    there = init_repo(path / "there.git", "--bare")
    shutil.rmtree(there.path / "hooks", ignore_errors=True)
    there.git("config", "receive.autogc", "false")
    here = init_repo(path / "here")
    here.commit("Start", **files)
    here.git("remote", "add", "origin", str(there.path))
    here.git("push", "-q", "-u", "origin", "main")
    return Pair(here=here, there=there)
