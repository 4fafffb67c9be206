"""The one place that talks to a remote: fetch, push and its answer, and the marks of commands under way."""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.errors import GitFailed, RefusedEarly, Unreachable
from runplan.git.checkout import HEADS, Checkouts
from runplan.git.command import LongCalls, configured
from runplan.store.files import lock_descriptor
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from runplan.git.command import Git, Ran
    from runplan.gitfacts import Oid


class Taken(Struct, frozen=True, kw_only=True):
    """The remote has it."""


class Declined(Struct, frozen=True, kw_only=True):
    """Nothing was changed: whoever owns the remote does not let us."""

    said: str


class Uncertain(Struct, frozen=True, kw_only=True):
    """Outrun, interrupted, or broken: only a look at the remote tells what has happened."""

    said: str


PushAnswer: TypeAlias = Taken | Declined | Uncertain

_TAKEN = " *="
_REMOTE_REJECTED = "[remote rejected]"
#: Reasons of a server that would have let us: somebody was faster, or it is not well.
_NO_REFUSAL = re.compile(
    r"cannot lock ref|failed to (?:update|lock|read) ref|incorrect old value provided|reference already exists"
    r"|unpack|missing necessary objects|unable to migrate|out of memory|internal (?:server )?error",
    re.IGNORECASE,
)
#: How forges say, before anything is sent, that this account may not write.
_MAY_NOT = re.compile(
    r"returned error: 403\b|\bdenied to \S|marked as read only|read-only (?:repository|access|mode)"
    r"|not allowed to (?:push|upload)|repository .{0,80}\barchived",
    re.IGNORECASE,
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
#: Progress, decoration and advice that stand between the words that matter.
_IDLE = re.compile(
    r"(?:Enumerating|Counting|Compressing|Writing) objects:|Resolving deltas:|Total \d|Everything up-to-date|Done$"
    r"|hint: |error: failed to push some refs|\W*$|Please make sure you have the correct access rights"
    r"|and the repository exists\.",
)
_LONGEST = 400


class _Status(Struct, frozen=True):
    flag: str
    summary: str

    @property
    def reason(self) -> str:
        _, _, rest = self.summary.partition(" (")
        return rest.removesuffix(")")

    @property
    def declined(self) -> bool:
        return self.summary.startswith(_REMOTE_REJECTED) and not _NO_REFUSAL.search(self.reason)


def read_push(*, ref: str, code: int, out: str, err: str) -> PushAnswer:
    """What a push to `ref` came to; with several push addresses, the answer on which all of them agree."""
    statuses = list(_statuses(ref, out))
    if code == 0 and statuses and all(one.flag in _TAKEN for one in statuses):
        return Taken()
    said = _said(err, (one.reason for one in statuses if one.flag == "!"))
    may_not = not statuses and _MAY_NOT.search(err)
    if may_not or (statuses and all(one.declined for one in statuses)):
        return Declined(said=said or "without a word")
    return Uncertain(said=said or f"git push ended with code {code}")


def words(err: str) -> str:
    """What git and the server said, on one line, without progress and advice."""
    lines = [_plain(line) for line in err.splitlines()]
    kept = [line for line in dict.fromkeys(lines) if line and not _IDLE.match(line)]
    return _short(" / ".join(kept))


def _statuses(ref: str, out: str) -> Iterator[_Status]:
    for line in out.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[1].rpartition(":")[2] == ref:
            yield _Status(flag=fields[0], summary=fields[2])


def _said(err: str, reasons: Iterable[str]) -> str:
    said = words(err)
    left = [reason for reason in dict.fromkeys(reasons) if reason and reason not in said]
    return " ".join([said, *(f"({reason})" for reason in left)]).strip() if said else "; ".join(left)


def _plain(line: str) -> str:
    text = _ESCAPES.sub("", line).strip()
    text = text.removeprefix("remote:").strip()
    return text if text.startswith("error: failed to push") else text.removeprefix("error:").strip()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4].rstrip()} ..."


PATIENCE_S = 20.0  #: a push that outlived its lander ends in seconds
DYING_S = 1.0  #: a git that was killed may have left a lock and be just about to go
_SURE_S = 0.05  #: a living git holds the lock of a ref for less
_NAME = "runplan.remote"


class Mark(Struct, frozen=True, kw_only=True):
    """One command that is under way."""

    path: Path
    fd: int  #: for the command to inherit

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


@contextmanager
def marking(common_dir: Path, owner: str) -> Iterator[Mark]:
    """A mark for one command; whoever sees the command end well removes it."""
    path = common_dir / f"{_NAME}.{_short(owner)}.{os.urandom(4).hex()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Mark(path=path, fd=fd)
    finally:
        os.close(fd)


def sweep(common_dir: Path, locks: Sequence[Path], owner: str) -> None:
    """Take away the marks of dead commands and the locks they left.

    One of the same owner that lives is waited for, since what it does decides what is to be done.
    """
    for mark in sorted(common_dir.glob(f"{_NAME}.*")):
        with suppress(FileNotFoundError):  # its command ended well meanwhile
            fd = os.open(mark, os.O_RDWR)
            try:
                ours = mark.name.startswith(f"{_NAME}.{_short(owner)}.")
                others = DYING_S if any(map(_stamp, locks)) else 0
                if lock_descriptor(fd, within_s=PATIENCE_S if ours else others):
                    _remove_since(mark.stat().st_mtime_ns, locks)
                    mark.unlink()
                elif ours:
                    raise Unreachable(_not_ended(mark))
            finally:
                os.close(fd)


def _not_ended(mark: Path) -> str:
    told = f"a git command that an earlier process started for this landing has not ended in {PATIENCE_S:.0f} s"
    if pids := " ".join(_having_open(mark)):
        return f"{told}; wait for it, or end it: kill {pids}"
    return f"{told}; wait for it, or end whoever has {mark} open"


def _having_open(mark: Path) -> Iterator[str]:
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda one: int(one.name)):
        with suppress(OSError):  # ended meanwhile, or not ours
            if int(process.name) != os.getpid() and any(one.readlink() == mark for one in (process / "fd").iterdir()):
                yield process.name


def _short_mark(owner: str) -> str:
    return sha256(owner.encode()).hexdigest()[:16]


def _remove_since(began_ns: int, locks: Sequence[Path]) -> None:
    """Remove the locks made since then, unless they are on the move: then a person's git has them."""
    for lock in locks:
        found = _stamp(lock)
        if found and found[1] >= began_ns:
            time.sleep(_SURE_S)
            if _stamp(lock) == found:
                lock.unlink(missing_ok=True)


def _stamp(lock: Path) -> tuple[int, int] | None:
    try:
        stat = lock.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stat.st_ino, stat.st_mtime_ns


NETWORK_S = 120.0  #: for one command
CALLS = LongCalls()  #: what this process has under way with any remote
#: How the caller's own git reaches the remote; it turns git to no other repository.
PASSED = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_PROXY_COMMAND")
#: A connection that has died is noticed, also by an ssh whose git was killed.
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=30"
_SETTINGS = {
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": "60",
    "credential.interactive": "false",
    "core.filesRefLockTimeout": "500",
}
_ANY = range(-64, 256)
_ADDRESS = re.compile(r"(?:\w+://(?:[^/@]*@)?(?P<host>[^/:]+)(?::\d+)?/|(?:[^/@:]*@)?(?P<short>[^/:]+):)(?P<path>.+)")
_NO_SUCH_BRANCH = "couldn't find remote ref"
_ASKED = (
    "terminal prompts disabled",
    "could not read Username",
    "could not read Password",
    "Authentication failed",
    "Permission denied (",
    "Host key verification failed",
)


class Remote:
    """One branch of one remote."""

    def __init__(
        self,
        git: Git,
        *,
        name: str,
        branch: str,
        common_dir: Path,
        caller: Mapping[str, str],
        timeout_s: float = NETWORK_S,
    ) -> None:
        self._git = git
        self.name = name
        self.branch = branch
        self.ref = f"refs/remotes/{name}/{branch}"  #: where git notes what it saw of the branch
        self.lock = common_dir / f"{self.ref}.lock"
        self.common_dir = common_dir
        self._caller = caller
        self._timeout_s = timeout_s

    def fetch(self, owner: str = "") -> Oid | None:
        """Where the branch stands there now, with all it holds; None when the remote has no such branch.

        `owner` is the landing this is done for, if any.
        """
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-prune")
        ran = self._run(
            owner,
            *("fetch", *options, "--no-recurse-submodules", "--refmap="),
            *("--", self.name, f"+{HEADS}{self.branch}:{self.ref}"),
        )
        if ran.code == 0:
            return self._git.tip(self.ref)
        if _NO_SUCH_BRANCH in ran.err:
            return None
        raise Unreachable(f"{self.name} cannot be asked where {self.branch} stands: {_told(ran, self.name)}")

    def push(self, new: Oid, *, old: Oid, owner: str, source: Path) -> PushAnswer:
        """Move the branch from `old` to `new`; rejected when it stands elsewhere. `new` has to be built on `old`.

        The repository `source` holds `new`. The user's own configuration says how the remote is reached.
        """
        ref = f"{HEADS}{self.branch}"
        try:
            ran = self._run(
                owner,
                *("push", "--porcelain", "--no-follow-tags", "--recurse-submodules=no"),
                f"--force-with-lease={ref}:{old}",
                *("--", self.name, f"{new}:{ref}"),
                source=source,
            )
        except GitFailed as error:  # it took too long, and may have worked all the same
            return Uncertain(said=str(error))
        return read_push(ref=ref, code=ran.code, out=ran.text, err=ran.err)

    @cached_property
    def known(self) -> dict[str, str]:
        """The settings on which talking to a remote depends, by their lower-case names."""
        asked = r"^(core\.sshcommand|remote\..*\.url)$"
        ran = self._git.run("config", "-z", "--get-regexp", asked, ok=(0, 1))
        pairs = (entry.partition("\n") for entry in os.fsdecode(ran.out).split("\0") if entry)
        return {key: value for key, _, value in pairs}

    def _run(self, owner: str, *args: str, source: Path | None = None) -> Ran:
        whose = owner or f"process {os.getpid()}"
        git, env = self._git, self._env(included=())
        if source is not None:
            git = git.at(git.cwd, f"--git-dir={source}")
            env = self._env(included=[self.common_dir / name for name in ("config", "config.worktree")])
        sweep(self.common_dir, (self.lock, self.common_dir / "shallow.lock"), whose)
        with marking(self.common_dir, whose) as mark:
            ran = git.run(*args, env=env, ok=_ANY, timeout_s=self._timeout_s, fds=(mark.fd,), among=CALLS)
            if ran.code >= 0:  # else it was killed, and may have left its locks
                mark.remove()
        return ran

    def _env(self, *, included: Iterable[Path]) -> dict[str, str]:
        env = {name: self._caller[name] for name in PASSED if name in self._caller}
        if "GIT_SSH_COMMAND" not in env and "GIT_SSH" not in env and "core.sshcommand" not in self.known:
            env["GIT_SSH_COMMAND"] = SSH
        # A mirror would be pushed whole, and by force.
        settings = _SETTINGS | {f"remote.{self.name}.mirror": "false"}
        return env | configured(
            *(f"include.path={file}" for file in included), *(f"{key}={value}" for key, value in settings.items())
        )


def _told(ran: Ran, name: str) -> str:
    said = words(ran.err) or f"git ended with code {ran.code}"
    if any(word in ran.err for word in _ASKED):
        return f"{said}; nobody is asked for a password here: see that {command('git', 'fetch', name)} needs none"
    return said


# --- at the door ----------------------------------------------------------------------------------------


def require(git: Git, *, remote: str, branch: str, caller: Mapping[str, str], timeout_s: float = NETWORK_S) -> Oid:
    """Refuse, before any work, what a direct landing could not end well with; else where the branch stands there."""
    common = Path(git.text("rev-parse", "--path-format=absolute", "--git-common-dir"))
    there = Remote(git, name=remote, branch=branch, common_dir=common, caller=caller, timeout_s=timeout_s)
    _require_configured(there)
    _require_one_address(git, remote)
    tip = there.fetch()
    if tip is None:
        raise RefusedEarly(f"{remote} has no branch {branch}; make it: {command('git', 'push', remote, branch)}")
    _require_pushed(git, there, tip)
    _require_no_lfs(git, there, tip)
    return tip


def _require_configured(there: Remote) -> None:
    names = sorted(key[len("remote.") : -len(".url")] for key in there.known if key.startswith("remote."))
    if there.name in names:
        return
    if names:
        raise RefusedEarly(
            f"there is no remote {there.name} here, only {', '.join(names)}; "
            f"set run.remote to one of them, or run: {command('git', 'remote', 'add', there.name, 'URL')}"
        )
    add = command("git", "remote", "add", there.name, "URL")
    raise RefusedEarly(f"there is no remote here to push to; run: {add}")


def _require_one_address(git: Git, name: str) -> None:
    """Refuse to push elsewhere than where is looked: a fetch could never tell what became of a push."""
    fetched = git.text("remote", "get-url", "--", name)
    for pushed in git.text("remote", "get-url", "--push", "--all", "--", name).splitlines():
        if _place(pushed) != _place(fetched):
            raise RefusedEarly(
                f"{name} is fetched from {fetched} and pushed to {pushed}, so that what was pushed cannot be seen; "
                "set run.remote to a remote with one address, or land by cherry-pick"
            )


def _place(address: str) -> str:
    """What two ways to reach one repository have in common: https://host/a/b.git and git@host:a/b."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return address
    return f"{(found['host'] or found['short']).lower()}/{found['path'].strip('/').removesuffix('.git')}"


def _require_pushed(git: Git, there: Remote, tip: Oid) -> None:
    here = git.tip(f"{HEADS}{there.branch}")
    if here is None or here == tip:
        return
    ahead, behind = map(int, git.text("rev-list", "--left-right", "--count", f"{here}...{tip}", "--").split())
    if ahead:
        name, branch = there.name, there.branch
        commits = "a commit" if ahead == 1 else f"{ahead} commits"
        checkouts = Checkouts(git, root=git.cwd, common_dir=there.common_dir)
        first = f"{checkouts.pull(f'{HEADS}{branch}', name, how='--rebase')} && " if behind else ""
        raise RefusedEarly(
            f"{branch} has {commits} that {name}/{branch} lacks; "
            f"push first, or keep them on another branch: {first}{command('git', 'push', name, branch)}"
        )


def _require_no_lfs(git: Git, there: Remote, tip: Oid) -> None:
    """Uploading to LFS is the work of a hook, and ours run none."""
    found = git.run(
        *("grep", "-l", "-z", "-E", "-e", "^[^#].*filter=lfs", tip, "--", ":(glob)**/.gitattributes"), ok=(0, 1)
    )
    if found.code == 0:
        file = found.text.split("\0")[0].partition(":")[2]
        raise RefusedEarly(
            f"{file} keeps files in git LFS, which a direct landing would not upload; "
            f"land by cherry-pick, then: {command('git', 'push', there.name, there.branch)}"
        )
