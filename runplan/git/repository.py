"""The user's repository: how it is opened and refused early, its checkouts, its refs, and its fingerprint.

Checkouts and refs are read from the files: asking git would cost a process at each landing and each dispatch."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan import names
from runplan.errors import GitFailed, RefusedEarly
from runplan.git.command import Git, failure
from runplan.gitfacts import read_person
from runplan.names import HEADS
from runplan.store.files import first_line, read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from runplan.gitfacts import Identity, Oid

OLDEST_GIT = (2, 38)
PROBE_S = 20.0  #: a signature that takes longer waits for a passphrase
ODD_PATH = "runplan cannot work in a path with control characters or with bytes that are not UTF-8"
_ASKED = ("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-common-dir", "--git-dir")
_MOST_NAMED = 8  #: branches in one message
_SURE_S = 0.05  #: a git that is alive holds the lock of a ref for less
_OID = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"  #: compiled when first needed; reading verbs do not need it


class Repository(Struct, frozen=True, kw_only=True):
    """A repository that has a checkout."""

    root: Path  #: the main checkout; the checkout at hand when the repository behind it is bare
    common_dir: Path  #: shared by all worktrees; refs, objects and our journal are there
    git: Git


def open_repository(start: Path, *, env: Mapping[str, str]) -> Repository:
    """The repository around `start`, from any directory of any of its worktrees; costs one process."""
    here = start if start.is_dir() else start.parent
    if not here.is_dir():
        raise RefusedEarly(f"{start} does not exist")
    _require_plain(here.absolute())
    git = Git(here, env=env)
    # --show-toplevel comes last: outside of a checkout git answers the others and then fails.
    ran = git.run(*_ASKED, "--show-toplevel", ok=(0, 128))
    answers = [os.fsdecode(line) for line in ran.out.splitlines()]
    if len(answers) < 3:
        if "not a git repository" in ran.err:
            raise RefusedEarly(f"{here} is not in a git repository; run git init, or go to one")
        raise GitFailed(failure(_ASKED, ran, here))
    if answers[0] == "true":
        raise RefusedEarly(
            f"{answers[1]} is a bare repository, without a checkout; go to a clone or to a worktree of it"
        )
    if len(answers) > 4:
        raise RefusedEarly(f"{ODD_PATH}: the repository around {here}; move it to a path of plain text")
    common, own = Path(answers[1]), Path(answers[2])
    _require_plain(common)
    top = Path(answers[3]) if len(answers) > 3 else None
    root = top if top is not None and own == common else _main_checkout(git, common, top)
    return Repository(root=root, common_dir=common, git=git.at(root if root.is_dir() else common))


def _require_plain(path: Path) -> None:
    if not names.is_plain(str(path)):
        raise RefusedEarly(f"{ODD_PATH}: {names.shown(str(path))}; move the repository to a path of plain text")


def _main_checkout(git: Git, common: Path, top: Path | None) -> Path:
    if common.name == ".git":
        return common.parent
    # A submodule or a separate git directory names its checkout; a bare one behind worktrees has none.
    named = git.run("config", "--file", str(common / "config"), "core.worktree", ok=(0, 1))
    if named.code == 0:
        return Path(os.path.normpath(common / named.text))
    return top if top is not None else common


# --- refusals before any work -------------------------------------------------------------------------


def require_workable(repository: Repository, *, target: str, prefix: str) -> Identity:
    """Refuse a repository that cannot be worked in, with the remedy; else the identity of landed commits."""
    require_git(repository.git)
    branches = _branches(require_target(repository, target))
    if blocking := blocking_branch(branches, prefix):
        from runplan.text import command  # only a refusal needs it

        rename = command("git", "branch", "-m", blocking, f"{blocking}-old")
        raise RefusedEarly(
            f"the branch {blocking} blocks branches under {prefix}; "
            f"set run.branch_prefix to another prefix, or rename it: {rename}"
        )
    return identity(repository.git)


def require_target(repository: Repository, target: str) -> list[str]:
    """Refuse a repository without a commit or without the target, a full ref name; else every ref."""
    refs = sorted(refs_snapshot(repository.common_dir, repository.git))
    if target in refs:
        return refs
    branches = _branches(refs)
    if not branches:
        raise RefusedEarly(f"{repository.root} has no commit yet; make one: git commit --allow-empty -m Start")
    name = target.removeprefix(HEADS).removeprefix("refs/remotes/")
    if target.startswith("refs/remotes/"):
        remote = name.partition("/")[0]
        raise RefusedEarly(
            f"this landing pushes to {name}, which is unknown here; fetch it: git fetch {remote}; "
            "or set run.landing to cherry-pick"
        )
    some = ", ".join(branches[:_MOST_NAMED])
    raise RefusedEarly(f"the target branch {name} does not exist; set run.target to one of: {some}")


def _branches(refs: Collection[str]) -> list[str]:
    return [ref.removeprefix(HEADS) for ref in refs if ref.startswith(HEADS)]


def require_git(git: Git) -> None:
    """Refuse a git without `merge-tree --write-tree`."""
    version = git.text("--version")
    found = re.search(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_GIT:
        raise RefusedEarly(f"{version} is too old; install git {'.'.join(map(str, OLDEST_GIT))} or newer")


def blocking_branch(branches: Collection[str], prefix: str) -> str | None:
    """The branch that is a file where the prefix needs a directory."""
    parts = prefix.split("/")[:-1]
    needed = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((name for name in needed if name in branches), None)


def identity(git: Git) -> Identity:
    """The configured identity of the user; git's guess from the host name does not count."""
    ran = git.run("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT", ok=(0, 1, 128))
    person, when = read_person(ran.text)
    if ran.code or not when:
        raise RefusedEarly(
            "git does not know who you are; "
            'run: git config user.name "Your Name" && git config user.email you@example.org'
        )
    return person


def signing(git: Git) -> bool:
    """Whether landed commits are signed; tried now, because later no person can type a passphrase."""
    if git.run("config", "--type=bool", "commit.gpgsign", ok=(0, 1)).text != "true":
        return False
    try:
        git.run("commit-tree", "-S", "HEAD^{tree}", "-m", "Can commits be signed?", timeout_s=PROBE_S)
    except GitFailed as error:
        raise RefusedEarly(
            f"commit.gpgsign is on, but signing does not work without a person ({error}); unlock the key first, "
            "or turn it off here: git config commit.gpgsign false"
        ) from None
    return True


# --- checkouts ------------------------------------------------------------------------------------------


class TargetCheckout(Struct, frozen=True, kw_only=True):
    """A working tree with its own HEAD and index."""

    root: Path
    git_dir: Path  #: where its HEAD and index lie; the common directory for the main checkout

    @property
    def lock(self) -> Path:
        return self.git_dir / "index.lock"


class Checkouts:
    """Every checkout of one repository, read from the files: asking git would cost a process each landing."""

    def __init__(self, git: Git, *, root: Path, common_dir: Path) -> None:
        self._git = git
        self._root = root
        self.common_dir = common_dir

    def all(self) -> Iterator[TargetCheckout]:
        """The main checkout first; also those whose directory is gone."""
        if _is_main(self._root, self.common_dir):
            yield TargetCheckout(root=self._root, git_dir=self.common_dir)
        for link in sorted(self.common_dir.glob("worktrees/*/gitdir")):
            named = read_line(link)
            if named:  # absolute, or since git 2.48 relative to where it is written
                yield TargetCheckout(root=Path(os.path.normpath(link.parent / named)).parent, git_dir=link.parent)

    def reachable(self) -> Iterator[TargetCheckout]:
        return (one for one in self.all() if one.root.is_dir())

    def branch(self, checkout: TargetCheckout) -> str | None:
        """The full name of the branch that is out, or None."""
        if (self.common_dir / "reftable").is_dir():
            return self._git.at(checkout.root).run("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text or None
        text = read_line(checkout.git_dir / "HEAD")
        return text.removeprefix("ref: ") if text.startswith("ref: ") else None

    def with_branch(self, ref: str) -> tuple[TargetCheckout, ...]:
        """Those that have `ref` out; one whose directory is gone counts only while it is locked."""
        return tuple(
            one
            for one in self.all()
            if (one.root.is_dir() or (one.git_dir / "locked").exists()) and self.branch(one) == ref
        )


def pull_command(git: Git, common_dir: Path, branch: str, remote: str) -> str:
    """The command that brings a local branch up to date, in the checkout that has it out, if any."""
    from runplan.text import command  # only a message needs it

    pull = ("pull", "--rebase", remote, branch)
    having = Checkouts(git, root=git.cwd, common_dir=common_dir).with_branch(f"{HEADS}{branch}")
    place = next((str(one.root) for one in having if one.root.is_dir()), "")
    return (
        command("git", "-C", place, *pull)
        if place
        else f"{command('git', 'switch', branch)} && {command('git', *pull)}"
    )


def _is_main(root: Path, common: Path) -> bool:
    """Whether `root` is the main checkout; behind linked worktrees a bare repository may lie."""
    dot_git = root / ".git"
    if dot_git.is_file():
        dot_git = root / read_line(dot_git).removeprefix("gitdir: ")
    return dot_git.is_dir() and dot_git.samefile(common)


def read_line(path: Path) -> str:
    return os.fsdecode(read_file(path) or b"").strip()


def remove_stale_lock(
    lock: Path, *, since_ns: int = 0, content: Collection[str] | None = None, sure_s: float = _SURE_S
) -> None:
    """Remove a lock file that a killed git of ours left: made since then, with such content, and not changing."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = lock.lstat()
        if found.st_mtime_ns >= since_ns and (content is None or read_line(lock) in content):
            time.sleep(sure_s)
            if os.path.samestat(found, lock.lstat()):
                lock.unlink()


# --- refs ---------------------------------------------------------------------------------------------


def refs_snapshot(common_dir: Path, git: Git) -> dict[str, Oid]:
    """Every ref and its object, read from the files; git is asked only where refs are no files.

    A symbolic ref has the object of the ref it names; one that leads nowhere is left out.
    """
    if (common_dir / "reftable").is_dir():
        lines = os.fsdecode(git.run("for-each-ref", "--format=%(objectname) %(refname)").out).splitlines()
        return {name: oid for oid, _, name in (line.partition(" ") for line in lines)}
    # Loose first, as git does: a ref that is packed in between is then found in the packed file.
    loose = dict(_loose_refs(os.fspath(common_dir)))
    packed = (line.partition(b" ") for line in (read_file(common_dir / "packed-refs") or b"").splitlines())
    stored = {os.fsdecode(name): oid.decode() for oid, _, name in packed if re.fullmatch(_OID, oid)} | loose
    resolved = ((name, _resolve(stored, name)) for name in sorted(stored))
    return {name: oid for name, oid in resolved if oid is not None}


def _loose_refs(top: str) -> Iterator[tuple[str, str]]:
    for directory, _, files in os.walk(os.path.join(top, "refs")):
        for file in files:
            if file.endswith(".lock"):
                continue
            path = os.path.join(directory, file)
            # None when it is deleted or packed while we look, or no file at all.
            content = (read_file(path) or b"").strip()
            if content.startswith(b"ref: ") or re.fullmatch(_OID, content):
                yield path[len(top) + 1 :], os.fsdecode(content)


def _resolve(stored: Mapping[str, str], name: str) -> Oid | None:
    for _ in range(5):  # git's own limit on chains of symbolic refs
        value = stored.get(name)
        if value is None or not value.startswith("ref: "):
            return value
        name = value.removeprefix("ref: ").strip()
    return None


# --- fingerprints -------------------------------------------------------------------------------------

MOST_LINES = 8
_FILES = ("config", "config.worktree", "info/attributes", "info/exclude", "objects/info/alternates", "shallow")
_TAIL = 4096  #: bytes at the end of a reflog that hold its newest entry


class Difference(Struct, frozen=True, kw_only=True):
    """A ref, a HEAD or a file that changed."""

    name: str  #: of a file its absolute path
    old: str  #: a commit, the content of HEAD, or the hash of a file; empty when it is new
    new: str  #: empty when it is gone
    by_agent: bool = False  #: its newest reflog entry has the agent's identity


class Fingerprints:
    """The user's refs, HEADs, configuration and hooks."""

    def __init__(self, git: Git, *, common_dir: Path, prefix: str) -> None:
        self._git = git
        self._common_dir = common_dir
        home = git.env.get("HOME") or "/"
        self._files = (
            *(f"{common_dir}/{name}" for name in _FILES),
            git.env.get("GIT_CONFIG_GLOBAL") or f"{home}/.gitconfig",
            f"{git.env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config",
        )
        self._own = ("refs/runplan/", *([f"{HEADS}{prefix}"] if prefix else []))

    def take(self) -> str:
        """The fingerprint of now; runs no process where refs are files."""
        return json.dumps(dict(self._values()))

    def compare(self, before: str, *, agent: str, landed: Collection[Oid] = ()) -> tuple[Difference, ...]:
        """The differences since, without refs that landings moved to `landed`; the process commits as `agent`."""
        old, new = json.loads(before), dict(self._values())
        return tuple(
            Difference(name=name, old=old.get(name, ""), new=new.get(name, ""), by_agent=self._moved_by(name, agent))
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name) and not (name.startswith("refs/") and new.get(name) in landed)
        )

    def _moved_by(self, name: str, agent: str) -> bool:
        log = read_file(self._common_dir / "logs" / name) or b"" if name.startswith("refs/") else b""
        newest = log[-_TAIL:].rstrip(b"\n").rpartition(b"\n")[2].partition(b"\t")[0]
        return f"<{agent}>".encode() in newest

    def _values(self) -> Iterator[tuple[str, str]]:
        from hashlib import sha256  # slow to import

        refs = refs_snapshot(self._common_dir, self._git)
        yield from ((name, oid) for name, oid in refs.items() if not name.startswith(self._own))
        common = str(self._common_dir)
        for head in ("HEAD", *(f"worktrees/{name}/HEAD" for name in _names(f"{common}/worktrees"))):
            yield head, first_line(f"{common}/{head}") or ""
        hooks = [f"{common}/hooks/{name}" for name in _names(f"{common}/hooks") if not name.endswith(".sample")]
        for path in (*self._files, *hooks):
            content = read_file(path)
            if content is not None:
                yield path, sha256(content).hexdigest()


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - two agents a phase, and pathlib takes as long as the disk
    except FileNotFoundError:
        return []


def describe_differences(found: Sequence[Difference], process: str) -> tuple[str, ...]:
    """One sentence for the report each, the first few of them."""
    more = [f"and {len(found) - MOST_LINES} more"] if len(found) > MOST_LINES else []
    return (*(_sentence(one, process) for one in found[:MOST_LINES]), *more)


def _sentence(one: Difference, process: str) -> str:
    who = f"{process} changed {one.name} in your repository"
    said = who if one.by_agent else f"{one.name} changed while {process} ran"
    if one.name.startswith("/"):
        return f"{said}: it {'is new' if not one.old else 'is gone' if not one.new else 'has other content'}"
    old, new = (value if value.startswith("ref: ") else value[:12] for value in (one.old, one.new))
    return f"{said}: {old or 'nothing'} → {new or 'nothing'}"
