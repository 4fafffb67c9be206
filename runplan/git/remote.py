"""Talks to a remote: fetch, push and its answer, and the checks before a direct landing."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from runplan.errors import GitFailed, RefusedEarly, Unreachable
from runplan.git.command import ANY, LongCalls, configured
from runplan.git.repository import Checkouts, remove_stale_lock
from runplan.names import HEADS
from runplan.store.files import lock_descriptor
from runplan.text import bounded, command, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from runplan.git.command import Git, Ran
    from runplan.gitfacts import Oid

NETWORK_S = 120.0  #: for one command
PATIENCE_S = 30.0  #: for a command of another process, or one that outlived its process
LOCK = "runplan/remote.flock"  #: inherited by each git that talks to a remote; not empty while one runs
CALLS = LongCalls()  #: the commands of this process that talk to a remote
#: How the caller's own git reaches the remote; none of them selects a repository.
PASSED = ("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_PROXY_COMMAND")
#: A connection that has died is noticed, also by an ssh whose git was killed.
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=30"
_SETTINGS = (
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=60",
    "credential.interactive=false",
    "core.filesRefLockTimeout=500",
)
_ADDRESS = re.compile(r"(?:\w+://(?:[^/@]*@)?(?P<host>[^/:]+)(?::\d+)?/|(?:[^/@:]*@)?(?P<short>[^/:]+):)(?P<path>.+)")
_NO_SUCH_BRANCH = "couldn't find remote ref"
_PASSWORD = re.compile(
    r"terminal prompts disabled|could not read (?:Username|Password)|Authentication failed|Permission denied \("
    r"|Host key verification failed"
)


class Taken(Struct, frozen=True, kw_only=True):
    """The remote has it."""


class Declined(Struct, frozen=True, kw_only=True):
    """The server refuses the push; nothing was changed."""

    said: str


class Uncertain(Struct, frozen=True, kw_only=True):
    """Outrun, interrupted, or broken: only a fetch shows the result."""

    said: str


PushAnswer: TypeAlias = Taken | Declined | Uncertain
#: Settings with which git signs in to the remote, where it has no credentials of its own.
SignIn: TypeAlias = Callable[[], tuple[str, ...]]


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
        sign_in: SignIn | None = None,
        timeout_s: float = NETWORK_S,
    ) -> None:
        self.git = git
        self.name = name
        self.branch = branch
        self.ref = f"refs/remotes/{name}/{branch}"  #: the tracking ref
        self.common_dir = common_dir
        self._caller = caller
        self._sign_in = sign_in
        self._timeout_s = timeout_s

    def fetch(self) -> Oid | None:
        """Fetch the branch; its tip, or None when the remote has no such branch."""
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-prune")
        refspec = f"+{HEADS}{self.branch}:{self.ref}"
        ran = self._run("fetch", *options, "--no-recurse-submodules", "--refmap=", "--", self.name, refspec)
        if ran.code == 0:
            return self.git.tip(self.ref)
        if _NO_SUCH_BRANCH in ran.err:
            return None
        said = words(ran.err) or f"git ended with code {ran.code}"
        if _PASSWORD.search(ran.err):
            said += f"; runplan cannot type a password: make {command('git', 'fetch', self.name)} work without one"
        raise Unreachable(f"cannot fetch {self.branch} from {self.name}: {said}")

    def branches(self, pattern: str) -> dict[str, Oid]:
        """The branches of the remote that match, with their tips."""
        ran = self._run("ls-remote", "--quiet", "--", self.name, f"{HEADS}{pattern}")
        if ran.code:
            raise Unreachable(f"cannot list the branches of {self.name}: {words(ran.err)}")
        rows = (line.split("\t") for line in ran.text.splitlines())
        return {ref.removeprefix(HEADS): oid for oid, ref in rows}

    def push(self, new: Oid, *, old: Oid, source: Path) -> PushAnswer:
        """Move the branch from `old` to its descendant `new`, or delete it for ""; rejected when it stands elsewhere.

        The repository `source` holds `new`. The user's own configuration says how the remote is reached.
        """
        ref = f"{HEADS}{self.branch}"
        options = ("--porcelain", "--no-follow-tags", "--recurse-submodules=no", f"--force-with-lease={ref}:{old}")
        try:
            ran = self._run("push", *options, "--", self.name, f"{new}:{ref}", source=source)
        except GitFailed as error:  # it took too long, and may have worked all the same
            return Uncertain(said=str(error))
        return read_push(ref=ref, code=ran.code, out=ran.text, err=ran.err)

    @cached_property
    def known(self) -> dict[str, str]:
        """The URLs of all remotes, and core.sshcommand, by their keys."""
        asked = r"^(core\.sshcommand|remote\..*\.url)$"
        ran = self.git.run("config", "-z", "--get-regexp", asked, ok=(0, 1))
        pairs = (entry.partition("\n") for entry in os.fsdecode(ran.out).split("\0") if entry)
        return {key: value for key, _, value in pairs}

    def _run(self, *args: str, source: Path | None = None) -> Ran:
        git, included = self.git, list[Path]()
        if source is not None:
            git = git.at(git.cwd, f"--git-dir={source}")
            included = [self.common_dir / name for name in ("config", "config.worktree")]
        with self._locked() as fd:
            env = self._env(included)
            ran = git.run(*args, env=env, ok=ANY, timeout_s=self._timeout_s, fds=(fd,), among=CALLS)
            if ran.code >= 0:  # else it was killed, and may have left lock files and children
                os.truncate(fd, 0)
                fcntl.flock(fd, fcntl.LOCK_UN)  # a credential daemon that it started may keep the file open
        return ran

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Hold the lock; the command before has ended, and lock files that it left when it was killed are removed."""
        path = self.common_dir / LOCK
        path.parent.mkdir(exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if not lock_descriptor(fd, within_s=PATIENCE_S):
                raise Unreachable(
                    f"another git command that talks to a remote has not ended in {PATIENCE_S:.0f} s; "
                    f"wait for it, or end it: {command('fuser', '-k', str(path))}"
                )
            if os.fstat(fd).st_size:
                for lock in (f"{self.ref}.lock", "shallow.lock"):
                    remove_stale_lock(self.common_dir / lock, since_ns=os.fstat(fd).st_mtime_ns)
            os.pwrite(fd, b"running\n", 0)
            yield fd
        finally:
            os.close(fd)

    def _env(self, included: Iterable[Path]) -> dict[str, str]:
        env = {name: self._caller[name] for name in PASSED if name in self._caller}
        if "GIT_SSH_COMMAND" not in env and "GIT_SSH" not in env and "core.sshcommand" not in self.known:
            env["GIT_SSH_COMMAND"] = SSH
        files = (f"include.path={file}" for file in included)
        # With mirror on, git would push every ref by force.
        sign_in = self._sign_in() if self._sign_in else ()
        return env | configured(*files, *_SETTINGS, f"remote.{self.name}.mirror=false", *sign_in)


# --- the answer to a push -------------------------------------------------------------------------------

_REMOTE_REJECTED = "[remote rejected]"
#: Rejections that are no refusal: another push was faster, or the server has a fault.
_NO_REFUSAL = re.compile(
    r"cannot lock ref|failed to (?:update|lock|read) ref|incorrect old value provided|reference already exists"
    r"|unpack|missing necessary objects|unable to migrate|out of memory|internal (?:server )?error",
    re.IGNORECASE,
)
#: Errors of forges before a push begins: this account may not write.
_MAY_NOT = re.compile(
    r"returned error: 403\b|\bdenied to \S|marked as read only|read-only (?:repository|access|mode)"
    r"|not allowed to (?:push|upload)|repository .{0,80}\barchived",
    re.IGNORECASE,
)
#: Lines of decoration and advice.
_NOISE = re.compile(r"hint: |failed to push some refs|\W*$|Please make sure you have|and the repository exists\.")
_LONGEST = 400


def read_push(*, ref: str, code: int, out: str, err: str) -> PushAnswer:
    """The result of a push to `ref`; with several push addresses, the answer on which all of them agree."""
    fields = (line.split("\t") for line in out.splitlines())
    statuses = [(one[0], one[2]) for one in fields if len(one) == 3 and one[1].rpartition(":")[2] == ref]
    if code == 0 and statuses and all(flag in " *=-" for flag, _ in statuses):
        return Taken()
    said = words(err)
    reasons = dict.fromkeys(_reason(summary) for flag, summary in statuses if flag == "!")
    new = [reason for reason in reasons if reason and reason not in said]
    said = " ".join([said, *(f"({reason})" for reason in new)]) if said else "; ".join(new)
    refused = all(one.startswith(_REMOTE_REJECTED) and not _NO_REFUSAL.search(_reason(one)) for _, one in statuses)
    if (statuses and refused) or (not statuses and _MAY_NOT.search(err)):
        return Declined(said=said or "the server gave no reason")
    return Uncertain(said=said or f"git push ended with code {code}")


def _reason(summary: str) -> str:
    return summary.partition(" (")[2].removesuffix(")")


def words(err: str) -> str:
    """The output of git and the server on one line, without decoration and advice."""
    lines = (line.strip().removeprefix("remote:").lstrip().removeprefix("error:") for line in plain(err).split("\n"))
    said = dict.fromkeys(line.strip() for line in lines)
    return bounded(" / ".join(line for line in said if line and not _NOISE.match(line)), _LONGEST)


# --- before a direct landing ----------------------------------------------------------------------------


def require(there: Remote) -> Oid:
    """Refuse, before any work, a remote on which a direct landing could not succeed; else the tip of its branch."""
    _require_configured(there)
    _require_one_address(there)
    tip = there.fetch()
    if tip is None:
        push = command("git", "push", there.name, there.branch)
        raise RefusedEarly(f"{there.name} has no branch {there.branch}; create it: {push}")
    _require_pushed(there, tip)
    _require_no_lfs(there, tip)
    return tip


def _require_configured(there: Remote) -> None:
    names = sorted(key[len("remote.") : -len(".url")] for key in there.known if key.startswith("remote."))
    if there.name in names:
        return
    add = command("git", "remote", "add", there.name, "URL")
    others = f"set run.remote to one of {', '.join(names)}, or run: " if names else "run: "
    raise RefusedEarly(f"there is no remote {there.name} here; {others}{add}")


def _require_one_address(there: Remote) -> None:
    """Refuse different addresses for fetch and push: a fetch could not show the result of a push."""
    fetched = there.git.text("remote", "get-url", "--", there.name)
    for pushed in there.git.text("remote", "get-url", "--push", "--all", "--", there.name).splitlines():
        if _place(pushed) != _place(fetched):
            raise RefusedEarly(
                f"{there.name} is fetched from {fetched} and pushed to {pushed}, so the result of a push cannot be "
                "seen; set run.remote to a remote with one address, or land by cherry-pick"
            )


def _place(address: str) -> str:
    """The same text for all addresses of one repository: https://host/a/b.git and git@host:a/b."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return address
    return f"{(found['host'] or found['short']).lower()}/{found['path'].strip('/').removesuffix('.git')}"


def _require_pushed(there: Remote, tip: Oid) -> None:
    git = there.git
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


def _require_no_lfs(there: Remote, tip: Oid) -> None:
    """git-lfs uploads in a hook, and runplan's git runs no hooks."""
    pattern = ("-e", "^[^#].*filter=lfs", tip, "--", ":(glob)**/.gitattributes")
    found = there.git.run("grep", "-l", "-z", "-E", *pattern, ok=(0, 1))
    if found.code == 0:
        file = found.text.split("\0")[0].partition(":")[2]
        raise RefusedEarly(
            f"{file} keeps files in git LFS, which a direct landing would not upload; "
            f"land by cherry-pick, then: {command('git', 'push', there.name, there.branch)}"
        )
