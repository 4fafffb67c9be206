"""Talks to a remote: fetch, push and its answer, and the checks before a direct landing."""

import fcntl
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from runplan.adapters.git.command import ANY, CALLS, Git, Ran, configured
from runplan.adapters.git.repository import pull_command, remove_stale_lock
from runplan.adapters.store.files import lock_descriptor, make_below
from runplan.domain.errors import GitFailed, RefusedEarly, TokenRefused, Unreachable
from runplan.domain.gitfacts import Oid
from runplan.domain.names import HEADS
from runplan.domain.text import bounded, command, plain

NETWORK_S = 120.0  #: for one command
PATIENCE_S = 30.0  #: for a command of another process, or one that outlived its process
LOCK = "runplan/remote.flock"  #: inherited by each git that talks to a remote; not empty while one runs
#: How the caller's own git reaches the remote; none of them selects a repository.
PASSED = (
    *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_PROXY_COMMAND"),
    "GIT_SSL_CAINFO",
)
#: A connection that has died is noticed, also by an ssh whose git was killed.
SSH = "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=30"
_SPEED = ("http.lowSpeedLimit=1", "http.lowSpeedTime=60")
_SETTINGS = (*_SPEED, "credential.interactive=false", "core.filesRefLockTimeout=500")
_CREDENTIALS = (
    r"terminal prompts disabled|could not read (?:Username|Password)|Authentication failed|Permission denied \("
    r"|Host key verification failed"
)
#: Rejections that are no refusal: another push was faster, or the server has a fault.
_NO_REFUSAL = (
    r"(?i)cannot lock ref|failed to (?:update|lock|read) ref|incorrect old value provided|reference already exists"
    r"|unpack|missing necessary objects|unable to migrate|out of memory|internal (?:server )?error"
)
#: Errors of forges before a push begins: this account may not write.
_MAY_NOT = (
    r"(?i)returned error: 403\b|\bdenied to \S|marked as read only|read-only (?:repository|access|mode)"
    r"|not allowed to (?:push|upload)|repository .{0,80}\barchived"
)
#: Lines of decoration and advice.
_NOISE = r"hint: |failed to push some refs|\W*$|Please make sure you have|and the repository exists\."
_LONGEST = 400


class Taken(Struct, frozen=True, kw_only=True):
    """The remote has it."""


class PushDeclined(Struct, frozen=True, kw_only=True):
    said: str


class Uncertain(Struct, frozen=True, kw_only=True):
    """Outrun, interrupted, or broken: only a fetch shows the result."""

    said: str


PushAnswer: TypeAlias = Taken | PushDeclined | Uncertain


class Remote(Struct, frozen=True, eq=False):
    git: Git
    name: str
    branch: str
    common_dir: Path
    caller: Mapping[str, str]
    sign_in: Callable[[], tuple[str, ...]] | None = None  #: settings to sign in with where git has no credentials
    timeout_s: float = NETWORK_S

    @property
    def ref(self) -> str:
        return f"refs/remotes/{self.name}/{self.branch}"

    def fetch(self) -> Oid | None:
        return self.git.tip(self.ref) if self.fetch_ref(f"+{HEADS}{self.branch}:{self.ref}") else None

    def fetch_ref(self, *refspecs: str, into: Path | None = None, prune: bool = False) -> bool:
        """Whether the remote has these refs; then their commits are here, or in the repository `into`."""
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")
        kept = "--prune" if prune else "--no-prune"
        words_of_fetch = ("fetch", *options, kept, "--refmap=", "--", self.name, *refspecs)
        ran = self._run(*words_of_fetch, source=into)
        if "cannot lock ref" in ran.err:  # a landing of another run has just moved it
            ran = self._run(*words_of_fetch, source=into)
        if ran.code == 0 or "couldn't find remote ref" in ran.err:
            return ran.code == 0
        said = words(ran.err) or f"git ended with code {ran.code}"
        if re.search(_CREDENTIALS, ran.err):
            said += f"; runplan cannot type a password: make {command('git', 'fetch', self.name)} work without one"
        raise Unreachable(f"cannot fetch {self.branch} from {self.name}: {said}")

    def branches(self, pattern: str) -> dict[str, Oid]:
        return {ref.removeprefix(HEADS): oid for ref, oid in self.list_refs(f"{HEADS}{pattern}").items()}

    def list_refs(self, pattern: str) -> dict[str, Oid]:
        ran = self._run("ls-remote", "--quiet", "--", self.name, pattern)
        if ran.code:
            raise Unreachable(f"cannot list the refs of {self.name}: {words(ran.err)}")
        return {ref: oid for oid, ref in (line.split("\t") for line in ran.text.splitlines())}

    def find_default(self) -> str:
        ran = self._run("ls-remote", "--quiet", "--symref", "--", self.name, "HEAD")
        if ran.code:
            raise Unreachable(f"cannot reach {self.name}: {words(ran.err)}")
        named = (line.removeprefix("ref: ").partition("\t")[0] for line in ran.text.splitlines() if "ref: " in line)
        return next(named, "").removeprefix(HEADS)

    def may_push(self, tip: Oid) -> PushAnswer:
        """Whether the server accepts a push of this account; nothing is sent."""
        ref = f"{HEADS}{self.branch}"
        ran = self._run("push", "--dry-run", "--porcelain", "--no-follow-tags", "--", self.name, f"{tip}:{ref}")
        if re.search(r"\[rejected\]", ran.text):  # by git here: the branch has moved since the fetch
            return Taken()
        return read_push(ref=ref, code=ran.code, out=ran.text, err=ran.err)

    def push(self, new: Oid, *, old: Oid, source: Path, ref: str = "") -> PushAnswer:
        """Move the branch, or `ref`, from `old` to `new`, which `source` holds; "" deletes it."""
        ref = ref or f"{HEADS}{self.branch}"
        options = ("--porcelain", "--no-follow-tags", "--recurse-submodules=no", f"--force-with-lease={ref}:{old}")
        try:
            ran = self._run("push", *options, "--", self.name, f"{new}:{ref}", source=source)
        except GitFailed as error:  # it took too long, and may have worked all the same
            return Uncertain(said=str(error))
        return read_push(ref=ref, code=ran.code, out=ran.text, err=ran.err)

    def _run(self, *args: str, source: Path | None = None) -> Ran:
        git, settings = self.git, [*_SETTINGS, f"remote.{self.name}.mirror=false"]  # else it would push every ref
        if source is not None:
            git = git.at(git.cwd, f"--git-dir={source}")
            files = ((self.git.common_dir or self.common_dir) / "config", self.common_dir / "config.worktree")
            settings[:0] = (f"include.path={file}" for file in files)
        path = self.common_dir / LOCK
        is_first = not path.parent.exists()
        make_below(self.common_dir, path.parent)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not lock_descriptor(fd, within_s=PATIENCE_S):
                why = f"another git command that talks to a remote has not ended in {PATIENCE_S:.0f} s"
                raise Unreachable(f"{why}; wait for it, or end it: {command('fuser', '-k', str(path))}")
            if os.fstat(fd).st_size:  # the command before was killed
                for lock in (f"{self.ref}.lock", "shallow.lock"):
                    remove_stale_lock(self.common_dir / lock, since_ns=os.fstat(fd).st_mtime_ns)
            os.pwrite(fd, b"running\n", 0)
            sign_in = self.sign_in() if self.sign_in else ()
            env = {name: self.caller[name] for name in PASSED if name in self.caller}
            env |= configured(*settings, *sign_in)
            has_own_ssh = env.keys() & {"GIT_SSH_COMMAND", "GIT_SSH"}
            if not has_own_ssh and self.git.run("config", "core.sshCommand", ok=(0, 1)).code:
                env["GIT_SSH_COMMAND"] = SSH
            ran = git.run(*args, env=env, ok=ANY, timeout_s=self.timeout_s, fds=(fd,), among=CALLS)
            if ran.code >= 0:  # else it was killed, and may have left lock files and children
                os.truncate(fd, 0)
                fcntl.flock(fd, fcntl.LOCK_UN)  # a credential daemon that it started may keep the file open
        finally:
            os.close(fd)
            if is_first:  # a repository that is only looked at, as by `doctor`, keeps no directory
                path.unlink(missing_ok=True)
                with suppress(OSError):
                    path.parent.rmdir()
        if ran.code and sign_in and re.search(_CREDENTIALS, ran.err):
            raise TokenRefused(f"cannot run git {args[0]} on {self.name}: the token has expired or was revoked (401)")
        return ran


def read_push(*, ref: str, code: int, out: str, err: str) -> PushAnswer:
    fields = (line.split("\t") for line in out.splitlines())
    statuses = ((row[0], row[2]) for row in fields if len(row) == 3 and row[1].rpartition(":")[2] == ref)
    flag, summary = next(statuses, ("", ""))
    if code == 0 and flag and flag in " *=-+":
        return Taken()
    said, reason = words(err), summary.partition(" (")[2].removesuffix(")") if flag == "!" else ""
    if reason and reason not in said:
        said = f"{said} ({reason})" if said else reason
    rejected = summary.startswith("[remote rejected]") and not re.search(_NO_REFUSAL, reason)
    if rejected or (not flag and re.search(_MAY_NOT, err)):
        return PushDeclined(said=said or "the server gave no reason")
    return Uncertain(said=said or f"git push ended with code {code}")


def words(err: str) -> str:
    """The output of git and the server on one line, without decoration and advice."""
    lines = (line.strip().removeprefix("remote:").lstrip().removeprefix("error:") for line in plain(err).split("\n"))
    said = dict.fromkeys(line.strip() for line in lines)
    return bounded(" / ".join(line for line in said if line and not re.match(_NOISE, line)), _LONGEST)


def require(there: Remote) -> Oid:
    """Refuse, before any work, a remote on which a direct landing could not succeed; else the tip of its branch."""
    git, name, branch = there.git, there.name, there.branch
    push = command("git", "push", name, branch)
    remotes = git.text("remote").splitlines()
    if name not in remotes:
        others = f"set run.remote to one of {', '.join(remotes)}, or run: " if remotes else "run: "
        raise RefusedEarly(f"there is no remote {name} here; {others}{command('git', 'remote', 'add', name, 'URL')}")
    fetched = git.text("remote", "get-url", "--", name)
    for pushed in git.text("remote", "get-url", "--push", "--all", "--", name).splitlines():
        if _repository(pushed) != _repository(fetched):
            why = f"{name} is fetched from {fetched} and pushed to {pushed}, so the result of a push cannot be seen"
            raise RefusedEarly(f"{why}; set run.remote to a remote with one address, or land by cherry-pick")
    tip = there.fetch()
    if tip is None:
        raise RefusedEarly(f"{name} has no branch {branch}; create it: {push}")
    answer = there.may_push(tip)
    if isinstance(answer, PushDeclined):
        raise RefusedEarly(f"{name} does not accept pushes of this account: {answer.said}")
    if isinstance(answer, Uncertain):
        raise Unreachable(f"cannot push to {name}: {answer.said}")
    here = git.tip(f"{HEADS}{branch}")
    if here is not None and not git.is_ancestor(here, tip):
        first = "" if git.is_ancestor(tip, here) else f"{pull_command(git, there.common_dir, branch, name)} && "
        why = f"{branch} has commits that {name}/{branch} lacks"
        raise RefusedEarly(f"{why}; push first, or keep them on another branch: {first}{push}")
    # git-lfs uploads in a hook, and runplan's git runs no hooks.
    pattern = ("-e", "^[^#].*filter=lfs", tip, "--", ":(glob)**/.gitattributes")
    listed = git.run("grep", "-l", "-z", "-E", *pattern, ok=(0, 1))
    if listed.code == 0:
        file = listed.text.split("\0")[0].partition(":")[2]
        why = f"{file} keeps files in git LFS, which a direct landing would not upload"
        raise RefusedEarly(f"{why}; land by cherry-pick, then: {push}")
    return tip


def _repository(address: str) -> list[str]:
    """The last two parts of an address: those of https://host/a/b.git and git@host:a/b are the same."""
    return re.split(r"[/:]", address.rstrip("/").removesuffix(".git"))[-2:]
