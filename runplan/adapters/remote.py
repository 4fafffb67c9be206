"""The one place that talks to a remote: fetches one branch, pushes to it, and asks at the door whether that will do.

Nothing here ever waits for a person: no prompt, no editor, and an end to every wait.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.adapters.checkout import HEADS, Checkouts
from runplan.adapters.gitenv import configured
from runplan.adapters.longcalls import LongCalls
from runplan.adapters.remotemarks import marking, sweep
from runplan.core.commands import command
from runplan.core.errors import GitFailed, RefusedEarly, Unreachable
from runplan.core.push import Uncertain, read_push, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runplan.adapters.git import Git, Ran
    from runplan.core.gitfacts import Oid
    from runplan.core.push import PushAnswer

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
