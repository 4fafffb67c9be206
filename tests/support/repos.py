"""Git repositories, remotes and workspaces in an environment without git settings of the machine."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from runplan.adapters.git.command import Git
from runplan.adapters.git.handover import AgentZone
from runplan.adapters.git.remote import Remote
from runplan.adapters.git.removal import Removal
from runplan.adapters.git.workspace import Workspace
from runplan.adapters.git.zones import ProofWorktree, Zones
from runplan.domain.run.events import LandingStarted
from runplan.engine.landing.direct import Direct
from tests.support.tools import write_script

MAIN = "refs/heads/main"
USER_NAME = "Uma User"
USER_EMAIL = "uma@example.org"

AGENT_ENV = {
    "GIT_AUTHOR_NAME": "runplan agent",
    "GIT_AUTHOR_EMAIL": "agent@runplan.invalid",
    "GIT_COMMITTER_NAME": "runplan agent",
    "GIT_COMMITTER_EMAIL": "agent@runplan.invalid",
}


def isolated_env(**extra: str) -> dict[str, str]:
    """An environment in which git reads no configuration but the repository's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"} | extra


@dataclass(kw_only=True)
class Repo:
    """One checkout, driven as a person would drive it."""

    path: Path
    env: dict[str, str] = field(default_factory=isolated_env)

    def git(self, *args: str, env: Mapping[str, str] | None = None, stdin: str = "", ok: bool = True) -> str:
        """The output of one git command; `env` goes on top, `ok=False` lets it fail."""
        done = subprocess.run(
            ["git", *args],
            cwd=self.path,
            env=self.env | dict(env or {}),
            input=os.fsencode(stdin),
            capture_output=True,
            check=False,
        )
        if ok and done.returncode:
            raise AssertionError(f"git {' '.join(args)}: {os.fsdecode(done.stderr)}")
        return os.fsdecode(done.stdout).rstrip("\n")

    def sh(self, script: str) -> None:
        """Run a shell script there; no command of it may fail."""
        subprocess.run(["sh", "-ec", script], cwd=self.path, env=self.env, check=True, capture_output=True)

    def write(self, name: str, text: str) -> Path:
        """Write one file of the checkout, making its directories."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return path

    def commit(self, message: str, env: Mapping[str, str] | None = None, /, **files: str) -> str:
        """Write `files`, commit everything there is (also nothing), and return the new commit."""
        for name, text in files.items():
            self.write(name, text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message, env=env)
        return self.head()

    def head(self, ref: str = "HEAD") -> str:
        return self.git("rev-parse", "--verify", f"{ref}^{{commit}}")

    def tree(self, ref: str = "HEAD") -> str:
        return self.git("rev-parse", "--verify", f"{ref}^{{tree}}")

    def refs(self) -> dict[str, str]:
        """Every ref and what it points to."""
        lines = self.git("for-each-ref", "--format=%(objectname) %(refname)").splitlines()
        return {name: oid for oid, _, name in (line.partition(" ") for line in lines)}

    def show(self, name: str) -> str:
        return self.git("show", name)

    def status(self) -> str:
        return self.git("status", "--porcelain", "--untracked-files=all")

    def at(self, path: Path) -> "Repo":
        """The same repository, seen from another worktree."""
        return Repo(path=path, env=self.env)

    def adapter(self) -> Git:
        """The product's git in this checkout; close it, or use it in a `with`."""
        return Git(self.path, env=self.env)


def init_repo(path: Path, *args: str) -> Repo:
    """An empty repository on branch main with an identity."""
    path.mkdir(parents=True, exist_ok=True)
    repo = Repo(path=path)
    repo.git("-c", "init.defaultBranch=main", "init", "-q", *args)
    with (path / ("config" if "--bare" in args else ".git/config")).open("a", encoding="utf-8") as config:
        config.write(f"[user]\n\tname = {USER_NAME}\n\temail = {USER_EMAIL}\n")
    return repo


def make_repo(path: Path, **files: str) -> Repo:
    """A repository on branch main with one commit that holds `files` (a README when none are named)."""
    repo = init_repo(path)
    repo.commit("Start", **(files or {"README.md": "hello\n"}))
    return repo


TRACKED = "refs/remotes/origin/main"

#: Moments of a landing by name: the function that begins or has ended.
POINTS = {
    ("Box.write_plan", "return"): "land.staged",
    ("Swap._lock_checkout", "return"): "land.prepared",
    ("ref_transaction.<locals>.commit", "call"): "land.swapped",
    ("ref_transaction.<locals>.commit", "return"): "land.committed",
    ("Remote.push", "call"): "direct.push.before",
    ("Direct.follow_remote", "call"): "direct.follow.before",
}


@contextmanager
def watched(point: Callable[[str], None] | None) -> Iterator[None]:
    """Call `point` with the name of each moment that a landing in this thread passes."""

    def passed(frame: FrameType, event: str, _: object) -> None:
        if point and (name := POINTS.get((frame.f_code.co_qualname, event))):
            point(name)

    if point:
        sys.setprofile(passed)
    try:
        yield
    finally:
        if point:
            sys.setprofile(None)


def direct(git: Git, root: Path, tool: Path, *, env: Mapping[str, str], timeout_s: float = 20.0) -> Direct:
    """The lander of a checkout whose origin has the branch main."""
    there = Remote(git, name="origin", branch="main", common_dir=root / ".git", caller=env, timeout_s=timeout_s)
    return Direct(git, there, tool=tool)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A checkout of main and its origin."""

    here: Repo
    there: Repo

    @property
    def tool(self) -> Repo:
        """The repository of runplan that candidates are pushed from; it borrows the checkout's objects."""
        tool = Repo(path=self.here.path / ".git/runplan/tool.git", env=self.here.env)
        if not tool.path.exists():
            init_repo(tool.path, "--bare")
            (tool.path / "objects/info/alternates").write_text(f"{self.here.path}/.git/objects\n")
        return tool

    @contextmanager
    def lander(self, point: Callable[[str], None] | None = None, *, timeout_s: float = 20.0) -> Iterator[Direct]:
        with self.here.adapter() as git, watched(point):
            yield direct(git, self.here.path, self.tool.path, env=self.here.env, timeout_s=timeout_s)

    def intent(self, new: str, *, landing: str = "L1") -> LandingStarted:
        with self.lander() as direct:
            return direct.prepare(id=landing, old=self.here.head(TRACKED), new=new)

    def hook(self, name: str, words: str) -> Path:
        """Let the server do this."""
        return write_script(self.there.path / "hooks" / name, words)

    def elsewhere(self, **files: str) -> str:
        """Add a foreign commit to the remote's main; returns it."""
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


BRANCH = "refs/heads/runplan/domain/plan/1"
PARKED = "refs/runplan/parked/plan/1/1"
BASE = "refs/runplan/base/r1"


@dataclass(kw_only=True)
class Place:
    """The user's repository is `repo`; `lease` leases a worktree like a run."""

    repo: Repo
    workspace: Workspace
    zones: Zones
    removal: Removal
    base: str

    def lease(self, branch: str = BRANCH, name: str = "run", base: str = "") -> Repo:
        zone = AgentZone(self.zones, name)
        zone.lease(branch=branch, base=base or self.base, pin="r1")
        return Repo(path=zone.lend(branch=branch), env=self.repo.env | AGENT_ENV)

    @property
    def zone(self) -> AgentZone:
        return AgentZone(self.zones, "run")

    @property
    def proof(self) -> ProofWorktree:
        return ProofWorktree(self.zones, "run")

    @property
    def lane(self) -> Path:
        """The agent's repository."""
        return self.workspace.lanes / "run.git"

    def take(self, branch: str = BRANCH, name: str = "run") -> str:
        """The newest commit of the agent's work."""
        return AgentZone(self.zones, name).hand_over(branch=branch, base=self.base)

    def left(self) -> dict[str, str]:
        """The files that the agent left uncommitted, by name, with the kind of the change."""
        left = self.zone.leftovers
        tool = self.repo.at(self.workspace.path)
        rows = tool.git("diff", "--no-renames", "--name-status", f"{left}^", left).splitlines() if left else []
        return {row.split("\t")[1]: row.split("\t")[0] for row in rows}

    def refs(self) -> dict[str, str]:
        """The user's refs without the one that protects the base."""
        return {name: oid for name, oid in self.repo.refs().items() if name != BASE}


@contextmanager
def a_place(path: Path, repo: Repo | None = None) -> Iterator[Place]:
    repo = repo or make_repo(path / "repo", **{"a.txt": "a\n", "b.txt": "b\n", ".gitignore": "*.o\n"})
    common = repo.path / repo.git("rev-parse", "--git-common-dir")
    state = common / "runplan"
    state.mkdir()
    targets = ("refs/heads/main", "refs/remotes/origin/main")
    with repo.adapter() as git:
        workspace = Workspace(git, common_dir=common, state=state, root=path / "trees", mirror=targets)
        workspace.prepare()
        zones = Zones(workspace)
        removal = Removal(zones, targets=targets)
        try:
            yield Place(repo=repo, workspace=workspace, zones=zones, removal=removal, base=repo.head())
        finally:
            workspace.close()


def install_signer(repo: Repo, directory: Path) -> Path:
    """A program with the interface of gpg, with which git signs the commits of the repository."""
    signer = directory / "gpg"
    signer.write_text(
        "#!/bin/sh\ncat >/dev/null\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\n"
        "printf -- '-----BEGIN PGP SIGNATURE-----\\n\\n-----END PGP SIGNATURE-----\\n'\n"
    )
    signer.chmod(0o755)
    repo.git("config", "gpg.program", str(signer))
    return signer
