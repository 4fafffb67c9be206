"""The user's repository: how it is opened and refused early, its checkouts, and its fingerprint."""

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from runplan.adapters.git.command import ANY, Git, failure
from runplan.adapters.git.config import config_text, resolve_includes
from runplan.adapters.store.files import make_below, publish, read_file
from runplan.domain import names
from runplan.domain.errors import GitFailed, RefusedEarly
from runplan.domain.gitfacts import Identity, Oid, is_agent, read_person
from runplan.domain.names import HEADS
from runplan.domain.text import command

OLDEST_GIT = (2, 38)
NO_IDENTITY = (
    'git does not know who you are; run: git config user.name "Your Name" && git config user.email you@example.org'
)
PROBE_S = 20.0  #: a signature that takes longer waits for a passphrase
ODD_PATH = "runplan cannot work in a path with control characters or with bytes that are not UTF-8"
_ASKED = ("rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-common-dir", "--git-dir")
_MOST_NAMED = 8  #: branches in one message
COPY = "git-config"  #: the copy of the user's configuration, below our state
_SURE_S = 0.05  #: a git that is alive holds the lock of a ref for less
#: Files in the git directory of a checkout that name the branch which an operation will move or return to.
_NAMED_IN = {
    **dict.fromkeys(("rebase-merge/head-name", "rebase-apply/head-name", "rebase-merge/update-refs"), "rebase"),
    "BISECT_START": "bisect",
}
MOST_LINES = 8
_FILES = ("config", "config.worktree", "info/attributes", "info/exclude", "objects/info/alternates", "shallow")
_MOST_LOGS = 100  #: reflogs that are read, a process each


class Repository(Struct, frozen=True, kw_only=True):
    root: Path  #: the main checkout; the checkout at hand when the repository behind it is bare
    common_dir: Path  #: shared by all worktrees; refs, objects and our journal are there
    git: Git
    left_out: tuple[str, ...] = ()  #: a sentence for each included file of configuration that git does not read


def open_repository(start: Path, *, env: Mapping[str, str]) -> Repository:
    """The repository around `start`, from any directory of any of its worktrees; costs one process."""
    here = start if start.is_dir() else start.parent
    if not here.is_dir():
        raise RefusedEarly(f"{start} does not exist")
    if not names.is_plain(str(here.absolute())):
        raise RefusedEarly(f"{ODD_PATH}: {names.shown(str(here))}; move the repository to a path of plain text")
    git = Git(here, env=env)
    # --show-toplevel comes last: outside of a checkout git answers the others and then fails.
    ran = git.run(*_ASKED, "--show-toplevel", ok=(0, 128))
    answers = [os.fsdecode(line) for line in ran.out.splitlines()]
    if len(answers) < 3:
        if "not a git repository" in ran.err:
            begin = "run git init, or go to one; in a fleet: --repository URL"
            raise RefusedEarly(f"{here} is not in a git repository; {begin}")
        raise GitFailed(failure(_ASKED, ran, here))
    common, git_dir, top = (Path(answer) for answer in (*answers[1:], answers[1])[:3])
    if answers[0] == "true":
        raise RefusedEarly(f"{common} is a bare repository, without a checkout; go to a clone or to a worktree of it")
    root = top
    if git_dir != common or top == common:  # a linked worktree, or a directory inside of .git
        # A submodule or a separate git directory names its checkout; a bare one behind worktrees has none.
        named = git.run("config", "--file", str(common / "config"), "core.worktree", ok=(0, 1)).text
        if common.name == ".git" or named:
            root = Path(os.path.normpath(common / (named or "..")))
    git, left_out = fix_configuration(git.at(root if root.is_dir() else common), common)
    return Repository(root=root, common_dir=common, git=git, left_out=left_out)


def fix_configuration(git: Git, common_dir: Path) -> tuple[Git, tuple[str, ...]]:
    """Git that reads a copy of the configuration, if this includes files that a landing can change; words for them."""
    files = (str(common_dir / "config"), *global_files(git.env))
    if not any(b"include" in (read_file(file) or b"").lower() for file in files):
        return git, ()
    roots = [checkout.root.resolve() for checkout in Checkouts(git, common_dir).all()]

    def is_changeable(file: Path) -> bool:
        """Whether it is tracked, or may be: an untracked file would be in the way of a landing."""
        root = next((root for root in roots if root in file.parents and common_dir.resolve() not in file.parents), None)
        return root is not None and (not file.exists() or git.at(root).text("ls-files", str(file)) != "")

    listed = os.fsdecode(git.run("config", "--list", "--show-scope", "--show-origin", "-z").out)
    home = Path(git.env.get("HOME") or "/")
    pairs, left = resolve_includes(listed, cwd=git.cwd, home=home, is_changeable=is_changeable)
    if not left:
        return git, ()
    copy = common_dir / "runplan" / COPY
    make_below(common_dir, copy)
    for name in {"packed-refs", "shallow", *_list_names(str(common_dir))} - {"config", "runplan"}:
        with suppress(FileExistsError):
            (copy / name).symlink_to(common_dir / name)
    for scope, file in (("local", copy / "config"), ("global", copy / "global")):
        content = os.fsencode(config_text(pairs.get(scope, ())))
        if read_file(file) != content:
            publish(file, content, sync=False)
    fixed = Git(git.cwd, env={**git.env, "GIT_CONFIG_GLOBAL": str(copy / "global")}, common_dir=copy)
    words = "git's configuration includes {} ({}), which a landing can change; runplan's git leaves it out"
    return fixed, tuple(words.format(file, ", ".join(dict.fromkeys(keys)) or "no keys") for file, keys in left.items())


def global_files(env: Mapping[str, str]) -> tuple[str, str]:
    home = env.get("HOME") or "/"
    user_file = env.get("GIT_CONFIG_GLOBAL") or f"{home}/.gitconfig"
    return user_file, f"{env.get('XDG_CONFIG_HOME') or f'{home}/.config'}/git/config"


def require_workable(repository: Repository, *, target: str, prefix: str) -> Identity:
    """Refuse a repository that cannot be worked in, with the remedy; else the identity of landed commits."""
    require_git(repository.git.text("version"))
    refs = require_target(repository, target)
    parts = prefix.split("/")[:-1]
    needed = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    if blocking := next((name for name in needed if f"{HEADS}{name}" in refs), ""):
        rename = command("git", "branch", "-m", blocking, f"{blocking}-old")
        why = f"the branch {blocking} blocks branches under {prefix}"
        raise RefusedEarly(f"{why}; set run.branch_prefix to another prefix, or rename it: {rename}")
    return identity(repository.git)


def require_target(repository: Repository, target: str) -> list[str]:
    """Refuse a repository without a commit or without the target, a full ref name; else every ref."""
    refs = sorted(repository.git.list_refs(repository.common_dir))
    name = target.removeprefix(HEADS).removeprefix("refs/remotes/")
    if target.startswith(HEADS) and target in repository.git.symbolic:  # no checkout would say that it has it out
        branch = repository.git.text("symbolic-ref", target).removeprefix(HEADS)
        raise RefusedEarly(f"the target branch {name} is a symbolic ref to {branch}; set run.target to {branch}")
    if target in refs:
        return refs
    branches = [ref.removeprefix(HEADS) for ref in refs if ref.startswith(HEADS)]
    if not branches:
        raise RefusedEarly(f"{repository.root} has no commit yet; make one: git commit --allow-empty -m Start")
    if target.startswith("refs/remotes/"):
        fetch = f"git fetch {name.partition('/')[0]}; or set run.landing to cherry-pick"
        raise RefusedEarly(f"this landing pushes to {name}, which is unknown here; fetch it: {fetch}")
    some = ", ".join(branches[:_MOST_NAMED])
    raise RefusedEarly(f"the target branch {name} does not exist; set run.target to one of: {some}")


def require_git(version: str) -> None:
    numbers = re.search(r"(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST_GIT:
        raise RefusedEarly(f"{version} is too old; install git {'.'.join(map(str, OLDEST_GIT))} or newer")


def identity(git: Git) -> Identity:
    """The configured identity of the user; git's guess from the host name does not count."""
    ran = git.run("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT", ok=(0, 1, 128))
    person, when = read_person(ran.text)
    if ran.code or not when:
        raise RefusedEarly(NO_IDENTITY)
    return person


def signing(git: Git) -> bool:
    """Whether landed commits are signed; tried now, because later no person can type a passphrase."""
    if git.run("config", "--type=bool", "commit.gpgsign", ok=(0, 1)).text != "true":
        return False
    try:
        git.run("commit-tree", "-S", "HEAD^{tree}", "-m", "Can commits be signed?", timeout_s=PROBE_S)
    except GitFailed as error:
        why = f"commit.gpgsign is on, but signing does not work without a person ({error})"
        off = "git config commit.gpgsign false"
        raise RefusedEarly(f"{why}; unlock the key first, or turn it off here: {off}") from None
    return True


class TargetCheckout(Struct, frozen=True, kw_only=True):
    root: Path
    git_dir: Path  #: where its HEAD and index lie; the common directory for the main checkout

    @property
    def lock(self) -> Path:
        return self.git_dir / "index.lock"

    def operation_on(self, ref: str) -> str:
        """The operation of git that will move `ref` or return to it, wherever HEAD is meanwhile; empty for none."""
        names = {ref, ref.removeprefix(HEADS)}
        words = ((operation, read_line(self.git_dir / file).split()) for file, operation in _NAMED_IN.items())
        return next((operation for operation, named in words if names & set(named)), "")


class Checkouts(Struct, frozen=True):
    git: Git  #: in the main checkout
    common_dir: Path

    def branch_of(self, checkout: TargetCheckout) -> str:
        """The full name of the branch that is out; empty for a detached HEAD."""
        head = self.git.read_head(checkout.git_dir)
        return head.removeprefix("ref: ") if head.startswith("ref: ") else ""

    def all(self) -> Iterator[TargetCheckout]:
        """The main checkout first; also those whose directory is gone."""
        root = self.git.cwd
        dot_git = root / ".git"
        if dot_git.is_file():
            dot_git = root / read_line(dot_git).removeprefix("gitdir: ")
        if dot_git.is_dir() and dot_git.samefile(self.common_dir):  # else a bare repository lies behind worktrees
            yield TargetCheckout(root=root, git_dir=self.common_dir)
        for link in sorted(self.common_dir.glob("worktrees/*/gitdir")):
            named = read_line(link)
            if named:  # absolute, or since git 2.48 relative to where it is written
                yield TargetCheckout(root=Path(os.path.normpath(link.parent / named)).parent, git_dir=link.parent)

    def with_branch(self, ref: str) -> list[TargetCheckout]:
        """Those that have `ref` out; one whose directory is gone counts only while it is locked."""
        having = (checkout for checkout in self.all() if self.branch_of(checkout) == ref)
        return [checkout for checkout in having if checkout.root.is_dir() or (checkout.git_dir / "locked").exists()]

    def using(self, ref: str) -> list[TargetCheckout]:
        """Those that have `ref` out, or are in the middle of an operation on it."""
        busy = (checkout for checkout in self.all() if checkout.root.is_dir() and checkout.operation_on(ref))
        return [*self.with_branch(ref), *busy]


def pull_command(git: Git, common_dir: Path, branch: str, remote: str) -> str:
    pull = ("pull", "--rebase", remote, branch)
    having = Checkouts(git, common_dir).with_branch(f"{HEADS}{branch}")
    place = next((str(checkout.root) for checkout in having if checkout.root.is_dir()), "")
    if place:
        return command("git", "-C", place, *pull)
    return f"{command('git', 'switch', branch)} && {command('git', *pull)}"


def read_line(path: Path) -> str:
    return os.fsdecode(read_file(path) or b"").strip()


def remove_stale_lock(
    lock: Path, *, since_ns: int = 0, content: Collection[str] | None = None, sure_s: float = _SURE_S
) -> None:
    """Remove a lock file that a killed git of ours left: made since then, with such content, and not changing."""
    with suppress(FileNotFoundError, NotADirectoryError):
        status = lock.lstat()
        if status.st_mtime_ns >= since_ns and (content is None or read_line(lock) in content):
            time.sleep(sure_s)
            if os.path.samestat(status, lock.lstat()):
                lock.unlink()


class Fingerprints(Struct, frozen=True):
    git: Git
    common_dir: Path
    prefix: str  #: of our branches
    is_own: bool = False  #: runplan's own clone, in which it fetches and checks out

    def take_fingerprint(self) -> str:
        return json.dumps(dict(self._list_values()))

    def describe_differences(
        self, before: str, process: str, *, agent: str, list_landed: Callable[[], Collection[Oid]] = tuple
    ) -> tuple[tuple[str, ...], bool]:
        """The differences since, without refs that landings have moved; and whether the agent moved a ref.

        It did where the newest reflog entry has the address with which it commits, `agent`.
        """
        old = json.loads(before)
        new = dict(self._list_values())
        changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
        landed = list_landed() if changed else ()
        names = [name for name in changed if not (name.startswith("refs/") and new.get(name) in landed)]
        refs = [name for name in names[:_MOST_LOGS] if name.startswith("refs/")]
        newest = ("log", "-g", "-1", "--format=%ge")
        moved = {ref for ref in refs if self.git.run(*newest, ref, "--", ok=ANY).text == agent}
        lines = []
        for name in names[:MOST_LINES]:
            was, now = old.get(name, ""), new.get(name, "")
            who = f"{process} changed {name} in your repository"
            said = who if name in moved else f"{name} changed while {process} ran"
            if name.startswith("/"):
                state = "is new" if not was else "is gone" if not now else "has other content"
                lines.append(f"{said}: it {state}")
            else:
                shown = (value if value.startswith("ref: ") else value[:12] for value in (was, now))
                lines.append(f"{said}: {' → '.join(value or 'nothing' for value in shown)}")
        more = [f"and {len(names) - MOST_LINES} more"] if len(names) > MOST_LINES else []
        return (*lines, *more), bool(moved)

    def _list_values(self) -> Iterator[tuple[str, str]]:
        ours = ("refs/runplan/", *([f"{HEADS}{self.prefix}"] if self.prefix else []))
        ours = (*ours, *(["refs/remotes/", "HEAD"] if self.is_own else []))
        refs = self.git.list_refs(self.common_dir)
        yield from ((name, oid) for name, oid in refs.items() if not name.startswith(ours))
        common = str(self.common_dir)
        heads = ("HEAD", *(f"worktrees/{name}/HEAD" for name in _list_names(f"{common}/worktrees")))
        for head in (head for head in heads if not head.startswith(ours)):
            yield head, self.git.read_head((self.common_dir / head).parent)
        files = [
            *(f"{common}/{name}" for name in _FILES),
            *(f"{common}/hooks/{name}" for name in _list_names(f"{common}/hooks") if not name.endswith(".sample")),
            *global_files(self.git.env),
        ]
        for path in files:
            content = read_file(path)
            if content is not None:
                yield path, names.digest_of(content)


def _list_names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - two agents a phase, and pathlib takes as long as the disk
    except FileNotFoundError:
        return []


def is_users_own(git: Git, branch: str, base: Oid) -> bool:
    """Whether a branch has commits that no agent of ours made, or only lacks commits of the base."""
    tip = git.tip(branch)
    if tip in (None, base):
        return False
    behind, ahead = map(int, git.text("rev-list", "--left-right", "--count", f"{base}...{tip}").split())
    made = git.text("log", "--format=%cn%x00%ce", f"{base}..{tip}", "--").splitlines()
    people = (Identity(name=name, email=email) for name, _, email in (line.partition("\0") for line in made))
    return not all(map(is_agent, people)) if ahead else behind > 0
