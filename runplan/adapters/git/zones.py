"""The places of agents and of proof, and the streams between them and `tool.git`.

An agent's zone is a repository, `lanes/<name>.git`, and the worktree `<root>/<name>`. The proof worktree,
`<root>/<name>-proof`, is for set-up, gates and verifiers; no implementer or fixer gets it. Both are filled by a fixed
script in the sandbox. When the processes of an agent are dead, a second script hands its work over as a stream: a
header and a pack. runplan opens, lists and deletes nothing by a path below these directories; it renames the whole
directory away. No process of an agent may live during these calls.
"""

import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.git.command import (
    ANY,
    CALLS,
    CONFIGURING,
    SETTINGS,
    STREAMING,
    Env,
    Git,
    borrowing,
    configured,
    is_readable,
    one_line,
    scrubbed,
    wait_for,
)
from runplan.adapters.git.objects import TREE, changes, find
from runplan.adapters.git.workspace import Workspace
from runplan.adapters.store.files import (
    is_directory,
    make_below,
    move_directory,
    publish,
    read_file,
    read_script,
    read_text,
    remove_directory,
)
from runplan.domain.errors import GitFailed, HandOverRefused, RefusedEarly, SettingsError
from runplan.domain.gitfacts import Oid
from runplan.domain.names import DIFF_FILE
from runplan.domain.settings.schema import LimitSettings

#: A command in the sandbox of agents: argv, working directory, and the directories that it may write.
Confine: TypeAlias = Callable[[Sequence[str], Path, Sequence[Path]], Sequence[str]]
STANDARD_TOOLS = "/usr/bin:/bin"  #: of the scripts; the caller's PATH may lack them
STOPPED_S = 5.0  #: for a hand-over of a run that is stopped
FILL_S = 600.0  #: for the files of one commit
SAID = 2000  #: bytes kept of what a script prints as an error
LARGEST_STATUS = 64 * 1024
LARGEST_NOTE = 64 * 1024 * 1024  #: bytes of the inputs of run.setup
PATHS = "paths"  #: the file with the paths that a fill has to change
MOST_PATHS = 100  #: in it; for more, git looks at all files
_FIELDS = {"1": 8, "u": 10, "?": 1}  #: before the path, by the kind of a record of `git status --porcelain=v2`
SCRIPT_KIB = 2 * 1024 * 1024  #: address space of a script's processes
#: An edit that keeps the size and the time of a file is seen by its ctime.
_SETTINGS = ("core.trustctime=true", "core.checkStat=default", "pack.threads=1", *STREAMING)
_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
#: The first line of each script: its process group ends when runplan has closed the standard input, or is dead.
_LIFELINE = "exec 9<&0 </dev/null; { read -r _ <&9; kill -KILL 0; } >/dev/null 2>&1 & exec 9<&-\n"
FUNCTIONS = read_script(__file__, "functions.sh")
_FILL = FUNCTIONS + read_script(__file__, "fill.sh", SCRIPT_KIB=SCRIPT_KIB, PATHS=PATHS, DIFF_FILE=DIFF_FILE)
#: Copies a worktree. Arguments: from, to.
_COPY = 'mkdir -p "$2" && cp -a "$1/." "$2"'


class KnownFiles(Struct, frozen=True):
    commit: Oid  #: which has them, or their tree
    is_all: bool = False  #: no further files are there, not even ignored ones


class Extra(Struct, frozen=True, kw_only=True):
    copies: Sequence[str] = ()  #: names of run.copy
    root: Path = Path()  #: the checkout that has them
    diff: Path | None = None  #: the change that a fixer continues or a verifier judges


NOTHING = Extra()


class Zones:
    """The worktrees of one project; `confine` is the sandbox of its agents."""

    def __init__(
        self,
        workspace: Workspace,
        confine: Confine | None = None,
        limits: LimitSettings | None = None,
        env: Env | None = None,
    ) -> None:
        self.workspace = workspace
        #: Scripts may run filters that an agent wrote, so they get the variables of agents.
        self.env = scrubbed(workspace.env if env is None else env)
        self.confine = confine or (lambda argv, _cwd, _writable: argv)
        self.limits = limits or LimitSettings()
        self.is_hurried = False
        #: By worktree, from when its files were written or compared until a process may write there. The next fill
        #: changes what differs, and looks at no other file.
        self.known_files: dict[Path, KnownFiles] = {}

    @contextmanager
    def start(
        self, script: str, arguments: Sequence[str], *, cwd: Path, writable: Sequence[Path], env: Env | None = None
    ) -> Iterator["SandboxScript"]:
        """A fixed script in the sandbox; its process tree is dead at the end of the block."""
        words = " ".join(f"-c {setting}" for setting in (*SETTINGS, *_SETTINGS))
        git = f'git() {{ command "{self.workspace.git.program}" {words} "$@"; }}\n'
        argv = self.confine(["/bin/sh", "-c", _LIFELINE + git + script, "sh", *arguments], cwd, writable)
        path = {"PATH": f"{self.env.get('PATH', '')}:{STANDARD_TOOLS}"}
        process = subprocess.Popen(
            argv,
            cwd=self.workspace.state,
            env={**self.env, **self.workspace.agent_config, **path, **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        with process, CALLS.bounded(process, state=self.workspace.state):
            yield SandboxScript(process)

    def converting(self, cwd: Path, box: Path, *, git_dir: Path | None = None) -> Git:
        """Git for a checkout of the user's, or for a worktree and one filter; `box` is for temporary files."""
        # A filter may be a script that an agent has edited, so it runs in the sandbox. For a checkout, whose files,
        # index and refs git has to write, each filter has a sandbox of its own and can write none of them.
        user, filters = self.workspace.user, self.workspace.filters
        if not filters:
            return user.at(cwd)
        if git_dir:
            return Git(
                user.cwd,  # beside which no git is taken
                env={**self.env, **self.workspace.agent_config},
                options=(f"--git-dir={git_dir}", f"--work-tree={cwd}"),
                confine=lambda argv: self._confine_filter(argv, cwd, box),
            )
        options = list[str]()
        for number, (key, line) in enumerate(self.workspace.filter_commands):
            script = box / f"filter-{number}.sh"
            file = "" if key.endswith(".process") else " %f"
            if file:  # git replaces %f by a quoted path
                line = line.replace("%%", "\0").replace("%f", '"$1"').replace("\0", "%")
            words = self._confine_filter(("/bin/sh", "-c", line, "sh"), cwd, script.with_suffix(""))
            script.write_text(f'exec {shlex.join(words)} "$@"\n', encoding="utf-8", errors="surrogateescape")
            named = shlex.quote(str(script))
            options += ("-c", f"{key}=/bin/sh {named.replace('%', '%%') if file else named}{file}")
        selected = {name: user.env[name] for name in CONFIGURING if name in user.env}
        return Git(cwd, env={**self.env, **selected}, options=options, common_dir=user.common_dir)

    def _confine_filter(self, argv: Sequence[str], cwd: Path, box: Path) -> Sequence[str]:
        lender = box / "lender/objects"  # git-lfs reads the user's large files through an alternate
        if not lender.exists():
            lender.mkdir(parents=True)
            if (store := self.workspace.lfs_store) is not None:
                lender.with_name("lfs").symlink_to(store.parent)
        env = borrowing(lender) | configured(f"lfs.storage={box / 'lfs'}", "lfs.skipdownloaderrors=true")
        words = ("/usr/bin/env", *(f"{name}={value}" for name, value in env.items()), *argv)
        return self.confine(words, cwd, (box,))

    def hurry(self) -> None:
        """Let no hand-over delay the end of a run that is stopped; the files stay in the worktree."""
        if self.limits.handover_s > STOPPED_S:
            self.limits = replace(self.limits, handover_s=STOPPED_S)
            self.is_hurried = True


class SandboxScript:
    """A running script. A thread reads its errors, so that it never waits for a reader."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.output = process.stdout
        self._said = b""
        # The thread has a descriptor of its own: the number of a closed one is given to the next pipe.
        errors = os.fdopen(os.dup(process.stderr.fileno()), "rb", buffering=0)
        self._reader = threading.Thread(target=self._read, args=(errors,), daemon=True)
        self._reader.start()

    def _read(self, errors: IO[bytes]) -> None:
        with errors:
            while piece := errors.read(65536):
                self._said = (self._said + piece)[-SAID:]

    def said(self) -> str:
        self._reader.join(1.0)
        return one_line(self._said.decode("utf-8", "replace"))

    def read_exactly(self, count: int, deadline: float) -> bytes:
        """So many bytes of its output; fewer when it ends."""
        content = b""
        while len(content) < count and is_readable(self.output.fileno(), deadline - time.monotonic()):
            piece = os.read(self.output.fileno(), count - len(content))
            if not piece:
                break
            content += piece
        return content

    def finish(self, deadline: float) -> str:
        """Wait for its end; what went wrong, or ""."""
        try:
            code = wait_for(self.process, deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            return "it did not end in time"
        return "" if code == 0 else self.said() or f"it ended with code {code}"


class Worktree:
    def __init__(self, zones: Zones, name: str, repository: Path, path: Path) -> None:
        if not re.fullmatch(_NAME, name):
            raise RefusedEarly(f"{name!r} cannot be the name of a worktree; use letters, digits, dot, dash, underscore")
        self.name = name
        self.path = path
        self._zones = zones
        self._workspace = zones.workspace
        self._tool = zones.workspace.git
        self._repository = repository
        self._git_dir = repository  #: of the worktree
        self._seen = zones.workspace.state / "seen" / path.name
        #: The inputs of the run.setup whose products are here, or why it has to run again; and a copy of what it left.
        self._products = zones.workspace.state / "products" / path.name
        self._home = zones.workspace.homes / path.name  #: of its processes in a sandbox

    @property
    def writable(self) -> tuple[Path, ...]:
        return (self.path, self._repository)

    @property
    def is_made(self) -> bool:
        return is_directory(self.path) and is_directory(self._repository)

    def _remove_files(self) -> None:
        self._zones.known_files.pop(self.path, None)
        for place in (self.path, self._repository, self._seen, self._products):
            remove_directory(place)

    def remove(self) -> None:
        self._remove_files()
        remove_directory(self._home)

    @contextmanager
    def _new_repository(self, *, keeps_modules: bool = True) -> Iterator[Path]:
        """A directory to write a repository to; it takes the place of the old one, whose submodules may move over."""
        draft = self._repository.with_name(f".{self._repository.name}")
        remove_directory(draft)
        yield draft
        if keeps_modules:
            move_directory("modules", self._repository, draft)
        remove_directory(self._repository)
        draft.rename(self._repository)

    def _fill(self, *words: str, extra: Extra, run: Callable[[Sequence[str]], str] | None = None) -> bool:
        """Fill the files by `run`; once more in an empty worktree when that fails. Whether that was so."""
        places = (str(self._git_dir), str(self.path), str(self._seen))
        more = (str(extra.diff or ""), str(extra.root), str(self._workspace.common_dir / "modules"))
        arguments = (*places, *words, *more, *extra.copies)
        error = ""
        for is_new in (False, True):
            known = self._zones.known_files.pop(self.path, None)
            if not is_directory(self.path):
                known = None
                remove_directory(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            self.path.chmod(0o755)
            make_below(self._workspace.common_dir, self._seen)
            (self._seen / PATHS).unlink(missing_ok=True)
            oids = (known.commit, words[0]) if known else ()
            trees = [tree for oid in oids if (tree := self._tool.object(f"{oid}^{{tree}}"))]
            if len(trees) == 2:  # name the paths that differ from the known files to the fill script, if they are few
                with suppress(HandOverRefused):
                    # With a filter git may have to convert other files as well, to compare them.
                    most = 0 if self._workspace.filters else MOST_PATHS
                    differing = changes(self._tool, trees[0].oid, trees[1].oid, most=most)
                    names = b"".join(os.fsencode(change.path) + b"\0" for change in differing)
                    publish(self._seen / PATHS, names, sync=False)
            if not (error := (run or self._run_fill)(arguments)):
                return is_new
            remove_directory(self.path)
            remove_directory(self._seen)
        raise GitFailed(f"the files of {words[0][:12]} could not be written to {self.path}: {error}")

    def _run_fill(self, arguments: Sequence[str], env: Env | None = None) -> str:
        writable = (self.path, self._repository, self._seen)
        with self._zones.start(_FILL, arguments, cwd=self.path, writable=writable, env=env) as script:
            return script.finish(time.monotonic() + FILL_S)

    @property
    def inputs(self) -> str:
        return self.read_note("inputs") if is_directory(self.path) else ""

    def read_note(self, name: str) -> str:
        """`inputs` of the run.setup whose products are here, or why they are `outdated`; "" for neither."""
        return read_text(self._products / name, largest=LARGEST_NOTE) or ""

    def _note_products(self, name: str, text: str) -> None:
        make_below(self._workspace.common_dir, self._products)
        publish(self._products / name, text.encode(), sync=False)

    def forget_products(self, why: str = "") -> None:
        remove_directory(self._products)
        if why:
            self._note_products("outdated", why)

    def keep_products(self, inputs: str) -> None:
        self._note_products("inputs", inputs)

    def _require_copies(self, commit: Oid, extra: Extra) -> None:
        """Refuse names of run.copy that lie outside, or below something that is no directory in the commit."""
        for name in extra.copies:
            parts = Path(name).parts
            if not parts or ".." in parts or parts[0] == ".git" or Path(name).is_absolute():
                raise SettingsError(f"run.copy: {name} is not inside the repository; name files of the checkout")
            if not (extra.root / name).is_file():
                file = extra.root / name
                raise SettingsError(f"run.copy: there is no file {file}; create it, or remove it from run.copy")
            for depth in range(1, len(parts)):
                path = "/".join(parts[:depth])
                where, entry = find(self._tool, self._tool.commit(commit).tree, path)
                if entry is not None and where == path and entry.mode != TREE:
                    why = f"{path} is no directory in {commit[:12]}, so {name} cannot be copied"
                    raise SettingsError(f"run.copy: {why}")


class ProofWorktree(Worktree):
    """For set-up, gates and verifiers. Without a sandbox it is copied from what set-up left before each use."""

    def __init__(self, zones: Zones, name: str) -> None:
        repository = zones.workspace.state / "proof" / f"{name}.git"
        super().__init__(zones, name, repository, zones.workspace.root / f"{name}-proof")
        self._kept = self._products / "worktree"  #: as set-up left it, where no sandbox protects the worktree

    def checkout_exact_tree(self, commit: Oid, *, clean: str, extra: Extra = NOTHING) -> Path:
        """Exactly the files of `commit`; with `clean` "untracked" ignored files stay, with "none" nobody wrote any."""
        self.forget_products()
        if clean == "ignored":  # nothing of an earlier set-up stays
            for place in [*self._home.iterdir()] if is_directory(self._home) else ():
                remove_directory(place)
                make_below(self._workspace.common_dir, place)
        how = {"ignored": "-x", "untracked": "", "none": "same"}[clean]
        self._write(commit, "proof", how, extra=extra)
        return self.path

    def keep_worktree(self, commit: Oid, *, is_protected: bool, extra: Extra = NOTHING) -> None:
        """Put the files of `commit` right after run.setup; without a sandbox keep a copy of them and the products."""
        self._write(commit, "setup", "none", extra=extra)
        if not is_protected:
            self._copy(self.path, self._kept)

    def reuse(self, commit: Oid, *, clean: bool = False, is_protected: bool = False, extra: Extra = NOTHING) -> str:
        """The files of `commit` and the products of run.setup; why that has to run again, or ""."""
        if not self.is_made:
            return "the worktree was removed"
        if is_directory(self._kept):
            self._zones.known_files.pop(self.path, None)
            remove_directory(self.path)
            self._copy(self._kept, self.path)
        how = "" if clean else "same" if is_protected else "none"
        is_new = self._write(commit, "setup", how, extra=extra)
        return "the worktree had to be made anew" if is_new else ""

    def _copy(self, source: Path, goal: Path) -> None:
        make_below(self._workspace.common_dir, self._products)
        writable = (self._products, self._workspace.root)
        with self._zones.start(_COPY, (str(source), str(goal)), cwd=source, writable=writable) as script:
            if error := script.finish(time.monotonic() + FILL_S):
                raise GitFailed(f"{source} cannot be copied to {goal}: {error}")

    def _write(self, commit: Oid, how: str, clean: str, *, extra: Extra) -> bool:
        self._require_copies(commit, extra)
        if not self.is_made:
            self._remove_files()
        with self._new_repository(keeps_modules=how == "setup") as draft:
            self._workspace.write_repository(draft, head=commit)
        is_protected = clean == "same"  # only the fill script can write there
        if is_protected:
            clean = "none" if how == "setup" or self.path in self._zones.known_files else "-x"
        is_new = self._fill(commit, commit, how, clean, extra=extra, run=self._run_with_filters)
        if is_protected:
            self._zones.known_files[self.path] = KnownFiles(commit)
        return is_new

    def _run_with_filters(self, arguments: Sequence[str]) -> str:
        """Fill the files; a filter, which an agent may have edited, converts its own ones apart."""
        # At first git only lists its files, then it takes what was made.
        env = self._workspace.replace_filters("printf '%%s\\0' %f >>\"$seen/list.{}\"")
        if error := self._run_fill(arguments, env):
            return error
        made = self._seen / "made"
        remove_directory(made)
        for number in range(len(self._workspace.filters)):
            if names := read_file(self._seen / f"list.{number}"):
                box = made / str(number)
                git = self._zones.converting(self.path, box, git_dir=self._repository)
                write = ("checkout-index", "-q", "-z", "--stdin", f"--prefix={box}/files/")
                on_index = {"GIT_INDEX_FILE": str(self._seen / "index")}
                ran = git.run(*write, stdin=names, env=on_index, ok=ANY, timeout_s=FILL_S, among=CALLS)
                if ran.code:
                    return one_line(ran.err) or f"git checkout-index ended with code {ran.code}"
        if is_directory(made):
            error = self._run_fill(arguments, self._workspace.replace_filters('cat "$seen/made/{}/files/"%f'))
            remove_directory(made)
        return error

    def changed(self, commit: Oid, copies: Sequence[str] = ()) -> list[str]:
        """Paths that differ from the commit shown, without ignored files; HEAD when it is at another commit."""
        status = "status --porcelain=v2 --branch -z -uall --no-renames --ignore-submodules=dirty"
        script, deadline = f'git --git-dir="$1" --work-tree="$2" {status}', time.monotonic() + FILL_S
        arguments = (str(self._repository), str(self.path))
        with self._zones.start(script, arguments, cwd=self.path, writable=()) as running:
            output = running.read_exactly(LARGEST_STATUS, deadline)
            if error := running.finish(deadline) if len(output) < LARGEST_STATUS else "":
                raise GitFailed(f"the state of {self.path} cannot be read: {error}")
        records = os.fsdecode(output).split("\0")
        head = [] if f"# branch.oid {commit}" in records else ["HEAD"]
        fields = ((record, _FIELDS.get(record[:1], 0)) for record in records)
        paths = (record.split(" ", count)[-1] for record, count in fields if count)
        differing = head + [path for path in paths if path not in (*copies, DIFF_FILE)]
        if not differing:
            self._zones.known_files[self.path] = KnownFiles(commit)
        return differing
