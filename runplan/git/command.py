"""The one place that runs git: its environment, its processes, and long calls to remotes.

Lists of words, never shell strings; a timeout for every command; long-lived readers for objects and refs.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import select
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import GitFailed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType
    from typing import IO

    from runplan.gitfacts import Commit, Oid


#: Objects are what their ids say: a replacement or a graft would have git show another tree than the one that lands.
AS_STORED = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null/none"}  # an empty one would be advised against


def scrubbed(env: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what would turn git to another repository, editor or language."""
    kept = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    # Tests and packagers isolate git with these two; they choose configuration, never a repository.
    kept |= {name: env[name] for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM") if name in env}
    kept |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_EDITOR": "true"}
    return kept | AS_STORED


def borrowing(objects: Path) -> dict[str, str]:
    """An environment in which git also reads the objects of another repository."""
    quoted = f'"{objects}"' if ":" in str(objects) else str(objects)
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": quoted}


def configured(*settings: str) -> dict[str, str]:
    """Further settings for one command, each `key=value`, as an environment."""
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, setting in enumerate(settings):
        key, _, value = setting.partition("=")
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


class LongCalls:
    """Those that run now; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    @contextlib.contextmanager
    def bounded(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        """One that has not ended with the block is ended with all it started."""
        with self._lock:
            self._running.add(process)
            if self._closed:
                end_session(process)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(process)
            end_session(process)

    def end(self) -> None:
        """End all of them now; whoever waits for one sees that it was killed."""
        with self._lock:
            for process in self._running:
                end_session(process)

    def close(self) -> None:
        """End all of them, and whatever a thread that is left behind may begin later."""
        self._closed = True
        self.end()


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a program that leads a session, with all it started."""
    if process.returncode is None:  # nobody has seen its end, so the number is still its own
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


#: Loose objects reach the disk before anything is recorded as done; no hook, no editor, no prompt, no gc.
#: An agent can configure programs for git to run, also in its worktree: what we ask of git there runs none.
SETTINGS = (
    "core.fsync=committed,loose-object",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "advice.detachedHead=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
TIMEOUT_S = 600.0
ANSWER_S = 60.0  #: a kept process that is silent for so long is ended

#: Objects that were read by their id are kept: so many, and none that is larger.
MOST_KEPT = 500
LARGEST_KEPT = 16 * 1024
_CHUNK = 64 * 1024
_TAKES_A_WORD = ("-c", "-C")  #: options of git itself


class Ran(Struct, frozen=True, kw_only=True):
    """How one git command ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.out).rstrip("\n")


class Stored(Struct, frozen=True):
    """One object as git stores it."""

    oid: Oid
    kind: str
    content: bytes


class Git:
    """Git, in one directory; `options` are words for git itself, such as `--git-dir=…`.

    With `filters`, commands may run the user's filters: a command that has to be ended is ended with all it started.
    """

    def __init__(
        self, cwd: Path, *, env: Mapping[str, str], options: Sequence[str] = (), filters: bool = False
    ) -> None:
        self.cwd = cwd
        self.env = env
        self._filters = filters
        self._base = ["git", *options, *(word for pair in SETTINGS for word in ("-c", pair))]
        self._reader: subprocess.Popen[bytes] | None = None
        self._updater: subprocess.Popen[bytes] | None = None
        self._kept: dict[str, Stored] = {}

    def at(self, cwd: Path, *options: str) -> Git:
        """The same git in another worktree, or with other options."""
        return Git(cwd, env=self.env, options=options)

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        ok: Collection[int] = (0,),
        timeout_s: float = TIMEOUT_S,
        fds: Collection[int] = (),
        among: LongCalls | None = None,
    ) -> Ran:
        """Run one command; a code outside `ok` is `GitFailed`, told in one line; `fds` are left open for it.

        One that is `among` long calls has a session of its own and can be ended from another thread.
        """
        session = self._filters or among is not None
        with _scratch(stdin) as given, _scratch() as out, _scratch() as err:
            try:
                process = self._popen(args, env, fds, (given, out, err), session=session)
                with among.bounded(process) if among is not None else contextlib.nullcontext():
                    _see_through(process, timeout_s, session=session)
            except FileNotFoundError as error:
                raise GitFailed(_missing(error, self.cwd)) from error
            except subprocess.TimeoutExpired as error:
                raise GitFailed(f"git {named(args)} did not finish within {timeout_s:.0f} s in {self.cwd}") from error
            out.seek(0)
            err.seek(0)
            ran = Ran(code=process.returncode, out=out.read(), err=os.fsdecode(err.read()).strip())
        if ran.code not in ok:
            raise GitFailed(failure(args, ran, self.cwd))
        return ran

    def text(self, *args: str) -> str:
        """The output of one command that must succeed."""
        return self.run(*args).text

    def start(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        fds: Collection[int] = (),
        stdin: IO[bytes] | None = None,
    ) -> subprocess.Popen[bytes]:
        """A command that is spoken to while it runs; the caller ends it."""
        return self._popen(args, env, fds, (stdin or subprocess.PIPE, subprocess.PIPE, subprocess.PIPE), session=False)

    def _popen(
        self,
        args: Sequence[str],
        env: Mapping[str, str] | None,
        fds: Collection[int],
        standard: tuple[IO[bytes] | int, IO[bytes] | int, IO[bytes] | int],
        *,
        session: bool,
    ) -> subprocess.Popen[bytes]:
        stdin, stdout, stderr = standard
        return subprocess.Popen(
            [*self._base, *args],
            executable=_program(self.env.get("PATH", os.defpath)),
            cwd=self.cwd,
            env=scrubbed(self.env) | dict(env or {}),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(fds),
            start_new_session=session,
        )

    # --- objects ---------------------------------------------------------------------------------------

    def object(self, name: str) -> Stored | None:
        """The object `name` stands for (`refs/heads/main`, `<commit>:path`, an id), or None; asked of git each time."""
        asked = self._ask(name)
        if asked is None:
            return None
        oid, kind, length = asked
        assert self._reader is not None
        assert self._reader.stdout is not None
        return Stored(oid=oid, kind=kind, content=self._reader.stdout.read(length + 1)[:-1])

    def prepare(self) -> None:
        """Have the process that reads objects ready; who knows that it will be asked need not wait for it then."""
        if self._reader is None or self._reader.poll() is not None:
            self._reader = self.start("cat-file", "--batch")

    def _ask(self, name: str) -> tuple[Oid, str, int] | None:
        """Id, kind and length of an object; its content and a line end are then to be read."""
        if "\n" in name:
            return None
        self.prepare()
        assert self._reader is not None
        assert self._reader.stdin is not None
        assert self._reader.stdout is not None
        self._reader.stdin.write(os.fsencode(name) + b"\n")
        self._reader.stdin.flush()
        head = self._reader.stdout.readline() if _has_said(self._reader) else b""
        if not head:
            _end(self._reader)
            self._reader = None
            raise GitFailed(f"git cat-file ended unexpectedly, or said nothing for {ANSWER_S:.0f} s, in {self.cwd}")
        words = head.split()
        if len(words) != 3 or not words[2].isdigit():
            return None
        return words[0].decode(), words[1].decode(), int(words[2])

    def beginning(self, oid: Oid, size: int) -> bytes:
        """The first bytes of a file's content by its id, however large it is; nothing when there is no such file."""
        asked = self._ask(oid)
        if asked is None:
            return b""
        _, kind, length = asked
        assert self._reader is not None
        assert self._reader.stdout is not None
        content = self._reader.stdout.read(min(size, length))
        rest = length + 1 - len(content)
        while rest:
            passed = len(self._reader.stdout.read(min(rest, _CHUNK)))
            if not passed:
                raise GitFailed(f"git cat-file ended unexpectedly in {self.cwd}")
            rest -= passed
        return content if kind == "blob" else b""

    def known(self, name: str) -> Stored | None:
        """What a full id, or a path in the commit with that id, stands for: it stays what it is, so it is kept."""
        found = self._kept.get(name)
        if found is None:
            found = self.object(name)
            if found is not None and len(found.content) <= LARGEST_KEPT and _is_fixed(name):
                if len(self._kept) == MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[name] = found
        return found

    def tip(self, ref: str) -> Oid | None:
        """The commit a full ref name stands for now."""
        found = self.object(ref)
        return found.oid if found is not None and found.kind == "commit" else None

    def blob(self, commit: Oid, path: str) -> bytes | None:
        """The content of a file in a commit."""
        found = self.known(f"{commit}:{path}")
        return found.content if found is not None and found.kind == "blob" else None

    def commit(self, oid: Oid) -> Commit:
        """One commit, read whole."""
        found = self.known(oid)
        if found is None or found.kind != "commit":
            raise GitFailed(f"{oid} is not a commit in {self.cwd}")
        from runplan.git.trailers import read_commit  # dear, and reading verbs look at no commit

        return read_commit(found.oid, found.content)

    # --- refs ------------------------------------------------------------------------------------------

    def update_refs(self, *orders: str) -> None:
        """Carry out the orders of `update-ref --stdin`, all of them or none; costs no process but the first time."""
        if self._updater is None or self._updater.poll() is not None:
            self._updater = self.start("update-ref", "--stdin")
        # A ref of ours that stands for another one was made so by somebody else: it is never followed.
        asked = ("start", *(line for order in orders for line in ("option no-deref", order)), "prepare", "commit")
        expected = b"start: ok\nprepare: ok\ncommit: ok\n"
        updater, self._updater = self._updater, None  # one that has refused or died is not asked again
        assert updater.stdin is not None
        assert updater.stdout is not None
        try:
            updater.stdin.write(os.fsencode("\n".join(asked) + "\n"))
            updater.stdin.flush()
            done = answer(updater, len(expected)) == expected
        except BrokenPipeError:
            done = False
        if done:
            self._updater = updater
            return
        _, err = updater.communicate()
        ran = Ran(code=updater.returncode, out=b"", err=os.fsdecode(err).strip())
        raise GitFailed(failure(["update-ref"], ran, self.cwd))

    # --- the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the kept processes."""
        for kept in (self._reader, self._updater):
            if kept is not None:
                _end(kept)
        self._reader = self._updater = None

    def __enter__(self) -> Git:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _scratch(content: bytes = b"") -> IO[bytes]:
    """A file without a name: unlike with pipes, nobody has to read and write at the same time."""
    file = _nameless()
    if content:
        file.write(content)
        file.seek(0)
    else:  # a filter may write to /dev/stderr, which opens the file once more
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


def _nameless() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("git"), "r+b", buffering=0)
    from tempfile import TemporaryFile

    return TemporaryFile(buffering=0)


def _see_through(process: subprocess.Popen[bytes], timeout_s: float, *, session: bool) -> None:
    """Wait for the end of a command; it does not outlive an exception, nor does what it started in its session."""
    try:
        _wait(process, timeout_s)
    finally:
        if process.returncode is None:
            if session:
                end_session(process)
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """`Popen.wait` with a time limit naps between looks, which makes a `git rev-parse` of 1.3 ms last 2.4 ms."""
    if not hasattr(os, "pidfd_open"):
        process.wait(timeout_s)
        return
    descriptor = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            raise subprocess.TimeoutExpired(process.args, timeout_s)
    finally:
        os.close(descriptor)
    process.wait()


def answer(process: subprocess.Popen[bytes], length: int) -> bytes:
    """So many bytes of what a kept process says next; fewer when it ends, or is silent for too long."""
    assert process.stdout is not None
    said = b""
    while len(said) < length and _has_said(process):
        piece = os.read(process.stdout.fileno(), length - len(said))
        if not piece:
            break
        said += piece
    return said


def _has_said(process: subprocess.Popen[bytes]) -> bool:
    """Whether a kept process says something, or ends, before long; one that does not is ended."""
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    if poll.poll(ANSWER_S * 1000):
        return True
    process.kill()
    return False


def _end(kept: subprocess.Popen[bytes]) -> None:
    for pipe in (kept.stdin, kept.stdout, kept.stderr):
        if pipe is not None:
            pipe.close()
    kept.wait()


@functools.cache
def _program(path: str) -> str:
    """Where git is, looked up once; its mere name when it is nowhere, so that its absence is told by its name."""
    places = (os.path.join(place, "git") for place in path.split(os.pathsep) if place.startswith("/"))
    return next((place for place in places if os.access(place, os.X_OK)), "git")


def _is_fixed(name: str) -> bool:
    """Whether it begins with a full id, and so means the same for ever."""
    first = name.partition(":")[0]
    return len(first) in (40, 64) and first.isalnum()


def failure(args: Sequence[str], ran: Ran, cwd: Path) -> str:
    """What git said, in one line."""
    return f"git {named(args)} failed in {cwd}: {in_a_line(ran.err) or f'exit code {ran.code}'}"


def named(args: Sequence[str]) -> str:
    """The command among the words, without the options of git itself before it."""
    words = iter(args)
    for word in words:
        if not word.startswith("-"):
            return word
        if word in _TAKES_A_WORD:
            next(words, "")
    return args[0]


def in_a_line(err: str) -> str:
    """Git's words without line ends; of a lock in the way only what it is and what helps."""
    name = err.partition("Unable to create '")[2].partition(".lock': File exists")
    if name[1]:
        return f"another git command is at work; if there is none, remove {name[0]}.lock"
    words = " / ".join(line for line in err.splitlines() if line.strip())
    remedy = remedy_for(words)
    return f"{words}; {remedy}" if remedy else words


def remedy_for(words: str) -> str:
    """What helps against what git said of the system; empty when it said nothing of it."""
    from runplan.resources import REMEDIES  # only a failure needs it

    found = (remedy for code, remedy in REMEDIES.items() if os.strerror(code) in words)
    return next((f"{remedy}, then try again" for remedy in found), "")


def _missing(error: FileNotFoundError, cwd: Path) -> str:
    if error.filename == "git":
        return "git is not installed or not on PATH; install git 2.38 or newer"
    return f"the directory {cwd} is gone"
