"""Runs git: a list of arguments, a scrubbed environment, and a timeout for each command.

Objects are read and written, and refs are updated, by long-lived git processes, one for each kind of request.
"""

import contextlib
import fcntl
import functools
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO, Any, TypeAlias

from msgspec import Struct

from runplan.adapters.store.files import read_file
from runplan.domain.errors import REMEDIES, CallEnded, GitFailed
from runplan.domain.gitfacts import Commit, Oid

#: Without replacements and grafts git shows the tree that lands. Git prints advice for an empty graft file.
#: A missing object is missing: git asks no remote for it.
AS_STORED = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null/none", "GIT_NO_LAZY_FETCH": "1"}
PARTIAL_CLONE = (
    "this repository is a partial clone, so objects that a phase needs may be missing; fetch them first: "
    "git fetch --refetch --no-filter, then git config --unset remote.origin.promisor"
)
#: Loose objects are synced before they are recorded. Git runs no hook and no configured program, and does no gc.
SETTINGS = (
    *("core.fsync=committed,loose-object", "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.quotePath=false"),
    *("protocol.ext.allow=never", "advice.detachedHead=false", "submodule.recurse=false", "gc.auto=0"),
    *("maintenance.auto=false", "i18n.commitEncoding=UTF-8"),
)
#: Tests and packagers isolate git with these two; they select configuration, never a repository.
CONFIGURING = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
TIMEOUT_S = 600.0
ANSWER_S = 60.0  #: a long-lived process that does not answer in this time is killed
ANY = range(-64, 256)  #: every exit code
MOST_KEPT = 500  #: objects in the cache
LARGEST_KEPT = 16 * 1024
READER = ("cat-file", "--batch")
UPDATER = ("update-ref", "--stdin")
LISTER = ("for-each-ref", "--format=%(objectname) %(refname) %(symref)")
Signature = tuple[int, int, int, int] | None  #: of a file
Env: TypeAlias = Mapping[str, str]
#: For commands that copy objects: git holds neither a large file nor a large pack in memory.
STREAMING = ("core.bigFileThreshold=8m", "core.packedGitWindowSize=8m", "core.packedGitLimit=32m")


def scrubbed(env: Env) -> dict[str, str]:
    """The environment without variables that select a repository, an editor or a language."""
    kept = {name: value for name, value in env.items() if not name.startswith("GIT_")}
    kept |= {name: env[name] for name in CONFIGURING if name in env}
    kept |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_EDITOR": "true"}
    return kept | AS_STORED


def borrowing(*places: Path) -> dict[str, str]:
    """An environment in which git also reads the objects of other repositories."""
    escaped = (str(objects).replace("\\", r"\\").replace('"', r"\"") for objects in places)
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(f'"{objects}"' for objects in escaped)}


def configured(*settings: str) -> dict[str, str]:
    """An environment with further settings for one command, each `key=value`."""
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, setting in enumerate(settings):
        key, _, value = setting.partition("=")
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env


STREAMED = configured(*STREAMING)


@functools.cache
def git_program(path: str, cwd: Path) -> str:
    """The absolute path of git, looked up once; not in the checkout, since a landing can change its files."""
    checkout = next((top.resolve() for top in (cwd, *cwd.parents) if (top / ".git").exists()), Path("/nowhere"))
    for file in (shutil.which("git", path=place) for place in path.split(os.pathsep) if Path(place).is_absolute()):
        if file and not (program := Path(file).resolve()).is_relative_to(checkout):
            return str(program) if Path(file).is_relative_to(checkout) else file
    return "/nowhere/git"


class LongCalls:
    """Processes that another thread can kill. Those that open the files of an agent belong to a repository."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[subprocess.Popen[bytes], tuple[Path | None, float]] = {}  #: state directory, when begun
        self._ended: set[subprocess.Popen[bytes]] = set()
        self._refused: set[Path] = set()  #: repositories whose new calls are killed as well
        self._closed = False

    @contextlib.contextmanager
    def bounded(self, process: subprocess.Popen[bytes], *, state: Path | None = None) -> Iterator[None]:
        """Kill the process and its session at the end; with `state`, raise CallEnded if another thread did so."""
        with self._lock:
            self._running[process] = (state, time.monotonic())
            if self._closed or state in self._refused:
                self._kill(process, state)
        try:
            yield
        finally:
            with self._lock:
                del self._running[process]
            end_session(process)
            if process in self._ended:
                self._ended.discard(process)
                raise CallEnded("a stop, or the end of the daemon, has ended a call of git; the step is repeated")

    def _kill(self, process: subprocess.Popen[bytes], state: Path | None) -> None:
        if process.returncode is None:
            self._ended |= {process} if state else set()
            end_session(process)

    def end(self, *, state: Path | None = None, older_s: float = 0.0) -> None:
        """Kill those of one repository, or all, that have run so long."""
        began = time.monotonic() - older_s
        with self._lock:
            for process, (place, since) in self._running.items():
                if since <= began and state in (None, place):
                    self._kill(process, place)

    def refuse(self, state: Path) -> None:
        """Kill those of the repository, and its new ones until they are allowed again."""
        self._refused.add(state)
        self.end(state=state)

    def allow(self, state: Path) -> None:
        self._refused.discard(state)

    def close(self) -> None:
        """Kill all of them, and each one that is added later."""
        self._closed = True
        self.end()


CALLS = LongCalls()  #: commands of this process that talk to a remote, or that open the files of an agent


def end_session(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # not waited for yet, so the pid is still its own
        with contextlib.suppress(ProcessLookupError, PermissionError):
            leads = os.getpgid(process.pid) == process.pid
            os.killpg(process.pid, signal.SIGKILL) if leads else process.kill()


class Ran(Struct, frozen=True, kw_only=True):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.out).rstrip("\n")


class Stored(Struct, frozen=True):
    oid: Oid
    kind: str
    content: bytes  #: or the beginning of it
    size: int = 0  #: of the whole content


class _Listed(Struct, frozen=True, kw_only=True):
    packed: list[Signature]
    loose: dict[str, Signature]
    refs: dict[str, Oid]


class Git(Struct, eq=False, dict=True):
    """Git in one directory. `common_dir` has the configuration that git reads instead of the repository's."""

    cwd: Path
    env: Env
    options: Sequence[str] = ()
    confine: Callable[[Sequence[str]], Sequence[str]] = list
    common_dir: Path | None = None

    def __post_init__(self) -> None:
        self.variables = scrubbed(self.env) | ({"GIT_COMMON_DIR": str(self.common_dir)} if self.common_dir else {})
        self.program = git_program(self.env.get("PATH") or os.defpath, self.cwd)
        self._base = [self.program, *self.options, *(word for pair in SETTINGS for word in ("-c", pair))]
        self._processes: dict[tuple[str, ...], subprocess.Popen[bytes]] = {}  #: long-lived ones, by their arguments
        self._objects: dict[str, Stored] = {}
        self._listed: _Listed | None = None
        self.symbolic = frozenset[str]()  #: refs that are other names of branches, when they were listed last
        self._heads: dict[Path, tuple[list[Signature], str]] = {}  #: by git directory: its files when read, and HEAD

    def at(self, cwd: Path, *options: str) -> "Git":
        """The same git in another directory, or with other options, which name another git directory."""
        return Git(cwd, env=self.env, options=options, common_dir=None if options else self.common_dir)

    def run(
        self,
        *args: str,
        stdin: bytes | IO[bytes] = b"",
        env: Env | None = None,
        ok: Collection[int] = (0,),
        timeout_s: float = TIMEOUT_S,
        fds: Collection[int] = (),
        among: LongCalls | None = None,
    ) -> Ran:
        """Run one command; an exit code outside `ok` is `GitFailed`. The command inherits `fds`; `stdin` is closed."""
        with _scratch() as out, _scratch() as err:
            with _scratch(stdin) if isinstance(stdin, bytes) else stdin as source:
                session = among is not None
                process = self.start(*args, env=env, fds=fds, stdin=source, output=(out, err), session=session)
            try:
                with (among or LongCalls()).bounded(process):
                    wait_for(process, timeout_s)
            except subprocess.TimeoutExpired as error:
                raise GitFailed(f"git {args[0]} did not finish within {timeout_s:.0f} s in {self.cwd}") from error
            finally:
                process.wait()
            out.seek(0)
            err.seek(0)
            ran = Ran(code=process.returncode, out=out.read(), err=os.fsdecode(err.read()).strip())
        if ran.code not in ok:
            raise GitFailed(failure(args, ran, self.cwd))
        return ran

    def text(self, *args: str) -> str:
        return self.run(*args).text

    def start(
        self,
        *args: str,
        env: Env | None = None,
        fds: Collection[int] = (),
        stdin: IO[bytes] | int | None = subprocess.PIPE,
        output: tuple[IO[bytes] | int, IO[bytes] | int] = (subprocess.PIPE, subprocess.PIPE),
        session: bool = False,
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self.confine([*self._base, *args]),
                cwd=self.cwd,
                env=self.variables | dict(env or {}),
                stdin=stdin,
                stdout=output[0],
                stderr=output[1],
                pass_fds=tuple(fds),
                start_new_session=session,
            )
        except FileNotFoundError as error:
            if error.filename == self.program:
                raise GitFailed("git is not installed or not on PATH; install git 2.38 or newer") from error
            raise GitFailed(f"the directory {self.cwd} is gone") from error

    def request(self, *args: str, words: bytes, end: bytes = b"") -> bytes:
        """Send words to the long-lived process with these arguments; its answer, as of `exchange`."""
        process = self._processes.get(args)
        if process is None or process.poll() is not None:
            process = self._processes[args] = self.start(*args, env=STREAMED)
        if not (answer := exchange(process, words, end)):
            raise self._ended(args)
        return answer

    def _ended(self, args: tuple[str, ...]) -> GitFailed:
        """Forget a process that has ended, or that is out of step; the error that it left."""
        process = self._processes.pop(args)
        said = close_process(process)
        return GitFailed(failure(args, Ran(code=process.returncode, out=b"", err=said), self.cwd))

    def close(self) -> None:
        while self._processes:
            close_process(self._processes.popitem()[1])
        self._objects.clear()

    def __enter__(self) -> "Git":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def object(self, name: str, *, most: int = sys.maxsize) -> Stored | None:
        """The object that `name` stands for now, or None. A file may not fit into memory: `most` bytes are kept."""
        # Outside of a worktree git ends at a path that is relative to it, as an agent may name one.
        if "\n" in name or name.partition(":")[2].startswith(("./", "../")):
            return None
        words = self.request(*READER, words=os.fsencode(name) + b"\n").split()
        if len(words) != 3 or not words[2].isdigit():
            return None
        output = self._processes[READER].stdout
        assert output is not None
        length = int(words[2])
        content = output.read(min(length, most))
        left = length + 1 - len(content)
        while left and (passed := len(output.read(min(left, 64 * 1024)))):
            left -= passed
        if left:
            raise self._ended(READER)
        return Stored(oid=words[0].decode(), kind=words[1].decode(), content=content, size=length)

    def known(self, name: str) -> Stored | None:
        """The object with a full id, or at a path in the commit with that id. It cannot change, so it is cached."""
        if (kept := self._objects.get(name)) is not None:
            return kept
        stored = self.object(name)
        oid = name.partition(":")[0]
        if stored is not None and stored.size <= LARGEST_KEPT and len(oid) in (40, 64) and oid.isalnum():
            if len(self._objects) == MOST_KEPT:
                del self._objects[next(iter(self._objects))]
            self._objects[name] = stored
        return stored

    def tip(self, ref: str) -> Oid | None:
        stored = self.object(ref)
        return stored.oid if stored is not None and stored.kind == "commit" else None

    def blob(self, commit: Oid, path: str) -> bytes | None:
        stored = self.known(f"{commit}:{path}")
        return stored.content if stored is not None and stored.kind == "blob" else None

    def commit(self, oid: Oid) -> Commit:
        stored = self.known(oid)
        if stored is None or stored.kind != "commit":
            raise GitFailed(f"{oid} is not a commit in {self.cwd}")
        return Commit.parse(stored.oid, stored.content)

    def is_ancestor(self, commit: Oid, of: str) -> bool:
        return self.run("merge-base", "--is-ancestor", commit, of, ok=(0, 1)).code == 0

    def write_object(self, kind: str, content: bytes) -> Oid:
        with NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            writer = ("hash-object", "-w", "-t", kind, "--no-filters", "--stdin-paths")
            return self.request(*writer, words=os.fsencode(file.name) + b"\n").decode().strip()

    def update_refs(self, *orders: str) -> None:
        # Without no-deref a symbolic ref that an agent made would redirect the update.
        lines = ("start", *(line for order in orders for line in ("option no-deref", order)), "prepare", "commit")
        self.request(*UPDATER, words="".join(f"{line}\n" for line in lines).encode(), end=b"commit: ok\n")

    def list_refs(self, common_dir: Path) -> Mapping[str, Oid]:
        # A phase asks ten times. Git lists the refs again when packed refs or reftables have changed; else it resolves
        # those whose file has changed. Git replaces these files and never writes to them, so the inode shows each
        # change.
        paths = (os.path.join(place, name) for place, _, names in os.walk(common_dir / "refs") for name in names)
        loose = {os.path.relpath(path, common_dir): _signature(path) for path in paths if not path.endswith(".lock")}
        packed = [_signature(common_dir / name) for name in ("packed-refs", "reftable/tables.list")]
        last = self._listed
        if last is None or last.packed != packed:
            rows = [row.split(" ") for row in self.text(*LISTER).splitlines()]
            self.symbolic = frozenset(ref for _, ref, target in rows if target)
            refs = {ref: oid for oid, ref, _ in rows}
        else:
            refs = dict(last.refs)
            changed = {ref for ref, _ in loose.items() ^ last.loose.items()}
            for ref in changed | self.symbolic if changed else ():
                refs.pop(ref, None)
                if stored := self.object(ref, most=0):
                    refs[ref] = stored.oid
        self._listed = _Listed(packed=packed, loose=loose, refs=refs)
        return refs

    def read_head(self, git_dir: Path) -> str:
        """The branch that the checkout with this git directory has out, as `ref: refs/heads/…`; else its commit."""
        signatures = [_signature(git_dir / name) for name in ("HEAD", "reftable/tables.list")]
        if git_dir not in self._heads or self._heads[git_dir][0] != signatures:
            git = self.at(self.cwd, f"--git-dir={git_dir}")
            branch = git.run("symbolic-ref", "-q", "HEAD", ok=ANY)
            if branch.code == 0:
                head = f"ref: {branch.text}"
            else:
                commit = git.run("rev-parse", "-q", "--verify", "HEAD", ok=ANY) if branch.code == 1 else branch
                head = commit.text if commit.code in (0, 1) else _read_head(git_dir)
            self._heads[git_dir] = (signatures, head)
        return self._heads[git_dir][1]


def _read_head(git_dir: Path) -> str:
    """The content of HEAD where git fails, by an error of the system or in a broken worktree; "" for no branch."""
    head = (read_file(git_dir / "HEAD") or b"").decode(errors="replace").strip()
    if head == "ref: refs/heads/.invalid":
        raise GitFailed(f"git cannot tell which branch {git_dir} has out")  # only it reads reftables
    return head if re.fullmatch("ref: refs/.+|[0-9a-f]{40}|[0-9a-f]{64}", head) else ""


def _scratch(content: bytes = b"") -> IO[bytes]:
    """A file in memory. Unlike a pipe it is never full, and no grandchild keeps its reader waiting."""
    if hasattr(os, "memfd_create"):
        file: IO[bytes] = open(os.memfd_create("git"), "r+b", buffering=0)  # noqa: SIM115
    else:
        file = TemporaryFile(buffering=0)  # noqa: SIM115
    if content:
        file.write(content)
        file.seek(0)
    else:  # a filter may write to /dev/stderr, which opens the file once more
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


def _signature(path: str | Path) -> Signature:
    """Inode, size, and times of a file; None when there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called for each loose ref, and pathlib is slow
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def wait_for(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """`Popen.wait` with a time limit sleeps between polls: a `git rev-parse` of 1.3 ms takes 2.4 ms."""
    if not hasattr(os, "pidfd_open"):
        return process.wait(max(0.0, timeout_s))
    descriptor = os.pidfd_open(process.pid)
    try:
        if not is_readable(descriptor, timeout_s):
            raise subprocess.TimeoutExpired(process.args, timeout_s)
    finally:
        os.close(descriptor)
    return process.wait()


def is_readable(descriptor: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def exchange(process: subprocess.Popen[bytes], words: bytes, end: bytes = b"") -> bytes:
    """Write to a process; the line that it answers, or all lines up to the line `end`. Empty when it ended instead."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(words)
        process.stdin.flush()
    if not is_readable(process.stdout.fileno(), ANSWER_S):
        process.kill()
    lines = [process.stdout.readline()]
    while end and lines[-1] not in (b"", end):
        lines.append(process.stdout.readline())
    return b"".join(lines) if lines[-1] else b""


def close_process(process: subprocess.Popen[bytes]) -> str:
    """Close the pipes of a long-lived process and wait for its end; its error output on one line."""
    if process.stdin is None or process.stdin.closed:
        return ""
    return one_line(os.fsdecode(process.communicate()[1]))


def failure(args: Sequence[str], ran: Ran, cwd: Path) -> str:
    return f"git {args[0]} failed in {cwd}: {one_line(ran.err) or f'exit code {ran.code}'}"


def one_line(err: str) -> str:
    """Git's error output on one line, with a remedy where one is known."""
    name = err.partition("Unable to create '")[2].partition(".lock': File exists")
    if name[1]:
        return f"another git command is running; if there is none, remove {name[0]}.lock"
    if "from promisor remote" in err:
        return PARTIAL_CLONE
    words = " / ".join(line for line in err.splitlines() if line.strip())
    remedy = remedy_for(words)
    return f"{words}; {remedy}" if remedy else words


def remedy_for(words: str) -> str:
    """The remedy for an error of the system in git's output; empty when there is none."""
    remedies = (remedy for code, remedy in REMEDIES.items() if os.strerror(code) in words)
    return next((f"{remedy}, then try again" for remedy in remedies), "")
