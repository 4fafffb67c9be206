"""runplan's own repositories for one project: `tool.git` for its own git work, and one repository per lane.

Both borrow the user's objects (`objects/info/alternates`) and have neither remotes nor credentials. No agent gets
`tool.git`, so git never obeys an agent there. Facts and measurements: docs/adr/0005-a-repository-for-agents.md.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from runplan.adapters.git.command import PARTIAL_CLONE, STREAMING, Git, borrowing, configured
from runplan.adapters.git.config import (
    Pairs,
    config_text,
    filter_allowed,
    hide_secrets,
    is_partial_clone,
    list_includes,
    read_listing,
)
from runplan.adapters.git.repository import COPY, Checkouts, global_files
from runplan.adapters.store.files import DRAFT, file_lock, first_line, make_below, publish, read_file, sweep_leftovers
from runplan.domain.errors import GitFailed, RefusedEarly
from runplan.domain.gitfacts import Oid
from runplan.domain.names import DIFF_FILE, GIT_CONFIG, HEADS, parked_under

MOST_PACKS = 25  #: in `tool.git`; each pack makes every git command a little slower
MOST_LANDED = 10  #: packs of landings in the user's repository
LARGEST_LANDED = 1024 * 1024  #: bytes of a pack that is merged with others
KEEP = "runplan"  #: the content of our `.keep` files begins so
LANDING_KEEP = f"{KEEP} landing"
MOST_NAMES = 1000
NO_BRANCH = "ref: refs/heads/none"  #: the HEAD of a bare repository
#: Files of configuration in the common directory: of the repository, its worktrees and submodules, and our copy.
_CONFIGS = (
    *("config", "config.worktree", "worktrees/*/config.worktree", f"runplan/{COPY}/[cg]*"),
    *("modules/*/config", "modules/*/*/config", "modules/*/*/*/config"),
)
#: No maintenance removes objects, and every ref change is logged. A file that git-lfs has not downloaded stays a
#: pointer.
OWN = (
    ("core.logallrefupdates", "true"), ("gc.auto", "0"), ("maintenance.auto", "false"),
    ("lfs.skipdownloaderrors", "true"),
)  # fmt: skip


class Workspace:
    """`tool.git` of one project, and the parts of its lanes."""

    def __init__(self, user: Git, *, common_dir: Path, state: Path, root: Path, mirror: Sequence[str]) -> None:
        self.user = user
        self.common_dir = common_dir
        self.state = state
        self.lanes = state / "lanes"
        self.homes = state / "homes"  #: private homes of processes in a sandbox, by the name of their worktree
        self.root = (user.cwd / root.expanduser()).resolve()  #: where worktrees are made
        self.path = state / "tool.git"
        self._locks = state / "locks"
        self._mirror = mirror  #: full names of the user's refs that agents see besides tags
        self._landed = state / "landed-packs"  #: names of the packs that landings have made
        #: For processes that may run an agent's code: the user's values without credentials and remotes.
        self.agent_config = {"GIT_CONFIG_GLOBAL": str(state / GIT_CONFIG), "GIT_CONFIG_NOSYSTEM": "1"}
        # The user's values were copied already; an agent can write the user's files.
        self.env = {**user.env, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        self.git = Git(state, env=self.env, options=(f"--git-dir={self.path}",))
        self._config: Pairs = ()
        self._branch: Pairs = ()  #: the name of the first branch of a new repository

    def prepare(self) -> None:
        self.read_config()
        self.make_tool()

    def read_config(self) -> Pairs:
        """Read the user's configuration; refuse a repository whose objects cannot be borrowed."""
        pairs = read_listing(os.fsdecode(self.user.run("config", "--list", "-z").out))
        if is_partial_clone(pairs):
            raise RefusedEarly(PARTIAL_CLONE)
        self._config = filter_allowed(pairs)
        self._branch = tuple(pair for pair in pairs if pair[0] == "init.defaultbranch")[-1:]
        self._lfs = dict(pairs).get("lfs.storage")
        self._sha256 = dict(pairs).get("extensions.objectformat") == "sha256"
        return pairs

    def make_tool(self) -> None:
        with self.lock():
            self.write_repository(self.path, head="" if self.is_whole else NO_BRANCH, bare=True)
        self.merge_packs()
        places = (self.root, self.state, *(self.path / name for name in ("", "info", "objects", "objects/info")))
        for place in (*places, *(self.state / name for name in ("lanes", "homes", "proof", "seen", "handover"))):
            sweep_leftovers(place)
        sweep_leftovers(self.common_dir / "objects")

    @property
    def is_whole(self) -> bool:
        """Whether git would accept `tool.git` as a repository."""
        head = first_line(self.path / "HEAD") or ""
        return head.startswith("ref: refs/") and all((self.path / name).is_dir() for name in ("objects", "refs"))

    def require_whole(self) -> None:
        if not self.is_whole:
            raise GitFailed(f"runplan's own repository {self.path} is gone or damaged")

    def restore(self) -> None:
        """Make `tool.git` again where it was lost; what is left of it stays."""
        if not self.is_whole:
            self.close()
            self.prepare()

    def lock(self) -> FileLock:
        """Repositories and worktrees are made and removed by one process at a time."""
        make_below(self.common_dir, self._locks)
        return file_lock(self._locks / "workspace.lock")

    def merge_packs(self) -> None:
        """Merge many packs of `tool.git`, and loose objects. Objects without a ref stay as well."""
        if sum(1 for _ in (self.path / "objects/pack").glob("*.pack")) > MOST_PACKS:
            with self.lock():
                self.git.run("repack", "-q", "-d", "--geometric=2")

    def close(self) -> None:
        self.git.close()

    def write_repository(
        self, path: Path, *, head: str, bare: bool = False, lenders: Sequence[Path] = (), excluded: str = ""
    ) -> None:
        """Write a repository, or its configuration and refs anew, without a git process; "" keeps its `head`."""
        # It borrows the objects of `lenders`, of `tool.git` and of the user, and has the user's refs that agents may
        # see. `excluded` has further lines of `info/exclude`.
        make_below(self.common_dir, path)
        for name in ("objects/info", "objects/pack", "refs/heads", "info"):
            (path / name).mkdir(parents=True, exist_ok=True)
        places = [*lenders, *([self.path / "objects"] if path != self.path else []), self.common_dir / "objects"]
        copied = (pair for pair in self._config if bare or not pair[0].startswith("filter."))
        version = "1" if self._sha256 else "0"
        config = [*copied, *OWN, ("core.bare", str(bare).lower()), ("core.repositoryformatversion", version)]
        config += [("extensions.objectformat", "sha256")] if self._sha256 else []
        if path == self.path or self._lfs:  # else a lane has a store of its own, and reads the user's as well
            config += [("lfs.storage", str(self.common_dir / (self._lfs or "lfs")))]
        for file, text in (
            (path / "objects/info/alternates", "".join(f"{place}\n" for place in places)),
            (path / "config", config_text(config)),
            # Without a sandbox the last agent may have changed it (`git config --global`).
            (self.state / GIT_CONFIG, config_text((*self._config, *self._branch))),
        ):
            content = os.fsencode(text)
            if read_file(file) != content:  # else another thread has written it
                publish(file, content, sync=False)
        for name in ("shallow", "info/exclude", "info/attributes"):
            source, goal = self.common_dir / name, path / name
            content = source.read_bytes() if source.is_file() else b""
            if name == "info/exclude":
                content += f"\n/{DIFF_FILE}\n{excluded}".encode("utf-8", "surrogateescape")
            if content:
                publish(goal, content, sync=False)
            else:
                goal.unlink(missing_ok=True)
        if path != self.path:
            rows = "".join(f"{oid} {name}\n" for name, oid in sorted(self.mirrored().items()))
            publish(path / "packed-refs", os.fsencode(f"# pack-refs with: sorted \n{rows}"), sync=False)
        if head:  # last, since with it the repository is whole
            publish(path / "HEAD", f"{head}\n".encode(), sync=False)

    def hide_secrets(self) -> dict[Path, Path]:
        """The files of the user's configuration that may hold a token, with the copies that a sandbox shows instead."""
        home = Path(self.user.env.get("HOME") or "/")
        absent = [Path(file) for file in global_files(self.user.env)]  # but not what they include
        files = [*absent, *(file for pattern in _CONFIGS for file in self.common_dir.glob(pattern))]
        copied = {}
        for file in files:  # which grows
            content = read_file(file) or b""
            text = os.fsdecode(content)
            files += [path for path in list_includes(text, file, home) if path not in files]
            shown = os.fsencode(hide_secrets(text))
            if shown != content and file not in absent:
                copied[file] = self.state / "shown" / sha256(os.fsencode(file)).hexdigest()
                make_below(self.common_dir, copied[file].parent)
                publish(copied[file], shown, sync=False)
        return copied

    @property
    def filters(self) -> list[str]:
        keys = (key.removeprefix("filter.") for key, _ in self._config if key.startswith("filter."))
        return sorted({key.rpartition(".")[0] for key in keys})

    @property
    def filter_commands(self) -> list[tuple[str, str]]:
        pairs = ((key, value) for key, value in self._config if key.startswith("filter.") and value)
        return [(key, value) for key, value in pairs if key.endswith((".clean", ".smudge", ".process"))]

    def replace_filters(self, command: str) -> dict[str, str]:
        """Variables with which git runs `command` instead of them, in a repository that has none; {} is the number."""
        settings = [f"filter.{name}.smudge={command.format(number)}" for number, name in enumerate(self.filters)]
        settings += [f"filter.{name}.required=true" for name in self.filters]
        config = {"GIT_CONFIG_GLOBAL": "/dev/null", "config": self.agent_config["GIT_CONFIG_GLOBAL"]}
        return config | configured(*settings)

    @property
    def lfs_store(self) -> Path | None:
        is_used = any(key.startswith("filter.lfs.") for key, _ in self._config)
        return self.common_dir / (self._lfs or "lfs") / "objects" if is_used else None

    def mirrored(self) -> dict[str, Oid]:
        refs = self.user.list_refs(self.common_dir)
        return {name: oid for name, oid in refs.items() if name in self._mirror or name.startswith("refs/tags/")}

    def fetch(self, tip: Oid, *, without: Sequence[Oid]) -> None:
        """Copy commits of the user's repository into `tool.git`: the user may delete their branch at any time."""
        copy_commits(self.git, (self.common_dir / "objects", self.path / "objects"), tip, without=without)

    def deliver(self, tip: Oid, *, without: Sequence[Oid], keep: str = LANDING_KEEP) -> Path | None:
        """Copy commits into the user's repository; the `.keep` file that protects them until a ref names them."""
        if self.user.object(tip) is not None:
            return None
        # The base of a repair is a merge that only `tool.git` has.
        there = [oid for oid in without if self.user.object(oid) is not None]
        places = (self.path / "objects", self.common_dir / "objects")
        return copy_commits(self.user, places, tip, without=there, keep=keep).with_suffix(".keep")

    def release_landed(self) -> None:
        """Remove the `.keep` files of landed packs, since a ref names their commits; merge many packs of ours."""
        packs = self.common_dir / "objects" / "pack"
        kept = [file for file in packs.glob("*.keep") if first_line(file) == LANDING_KEEP]
        listed = dict.fromkeys([*(read_file(self._landed) or b"").decode().split(), *(file.stem for file in kept)])
        names = list[str]()
        for name in listed:
            with suppress(FileNotFoundError):  # a `git gc` of the user's may have removed it
                names += [name] if (packs / f"{name}.pack").stat().st_size < LARGEST_LANDED else []
        for file in kept:
            file.unlink(missing_ok=True)
        # A multi-pack index is a sign of `git maintenance`, which merges packs itself, and may name these.
        if len(names) > MOST_LANDED and not (packs / "multi-pack-index").exists():
            with suppress(GitFailed):  # a `git gc` of the user's was faster
                names = [merge_packs(self.user, packs, names)]
        publish(self._landed, "\n".join(names).encode(), sync=False)

    def publish(self, branch: str, *, base: Oid = "", newer_than: tuple[str, Oid] | None = None) -> str:
        """Copy a branch with work into the user's repository; its full name there, or empty when it has no work."""
        # A name that is taken by other commits gets a number. Published work keeps its name. `newer_than` is a ref of
        # the user's and the commit on which the work began; the ref follows unless it was moved or checked out
        # meanwhile.
        tip = self.git.tip(branch)
        if tip is None or tip == base:
            return ""
        if newer_than is not None and self._follow(*newer_than, tip):
            return newer_than[0]
        names = [branch, *(f"{branch}-{number}" for number in range(2, MOST_NAMES))]
        return self._keep_at(names, tip, without=[base] if base else [])

    def _follow(self, ref: str, old: Oid, new: Oid) -> bool:
        """Move a branch that runplan made to newer work; commits that this lacks are parked."""
        if not ref.startswith(HEADS) or self.user.tip(ref) != old:
            return False
        if Checkouts(self.user, self.common_dir).using(ref):
            return False
        if not self.git.is_ancestor(old, new):
            self.park(old, under=ref)
        keep = self.deliver(new, without=[old], keep=KEEP)
        self.user.update_refs(f"update {ref} {new} {old}")
        if keep:
            keep.unlink(missing_ok=True)
        return True

    def give_to_user(self, branch: str, *, base: Oid = "") -> None:
        self.publish(branch, base=base)
        if tip := self.git.tip(branch):
            self.git.update_refs(f"delete {branch} {tip}")

    def park(self, oid: Oid, *, under: str) -> str:
        """Keep a commit below `refs/runplan/parked/<plan>/<phase>/`; the same commit gets the same ref."""
        home = parked_under(*under.split("/")[-2:])
        return self._keep_at([f"{home}{number}" for number in range(1, MOST_NAMES)], oid)

    def _keep_at(self, names: Sequence[str], oid: Oid, *, without: Sequence[Oid] = ()) -> str:
        """Make the first free of these refs in the user's repository, unless one of them has the commit already."""
        keep = self.deliver(oid, without=without, keep=KEEP)
        refs = self.user.list_refs(self.common_dir)
        ref = next((name for name in names if refs.get(name) == oid), "")
        if not ref:
            ref = next(name for name in names if name not in refs)
            self.user.update_refs(f"create {ref} {oid}")
        if keep:
            keep.unlink(missing_ok=True)
        return ref


def merge_packs(git: Git, packs: Path, names: Sequence[str]) -> str:
    """Put all objects of these packs into one; its name."""
    listed = "".join(f"{name}.pack\n" for name in names).encode()
    made = f"pack-{git.run('pack-objects', '-q', '--stdin-packs', str(packs / 'pack'), stdin=listed).text}"
    # The index goes first: without it git does not look for the pack.
    for file in (packs / f"{name}{end}" for name in names if name != made for end in (".idx", ".rev", ".pack")):
        file.unlink(missing_ok=True)
    return made


def copy_commits(goal: Git, places: tuple[Path, Path], tip: Oid, *, without: Sequence[Oid], keep: str = "") -> Path:
    """Pack the objects of `tip` that `without` lacks; the path of the pack, without a suffix."""
    # `places` are the directories of objects from which and to which they are copied. A concurrent `gc --prune=now`
    # breaks `fetch` and `unpack-objects`; it does not break this (measured).
    wanted = "".join([f"{tip}\n", *(f"^{oid}\n" for oid in without)]).encode()
    how = ("pack-objects", "--revs", "-q", "--threads=1", "--delta-base-offset")
    env = borrowing(places[0]) | configured(*STREAMING, "pack.packSizeLimit=0")
    with TemporaryDirectory(dir=places[1], prefix=DRAFT) as box:
        pack = places[1] / f"pack/pack-{goal.run(*how, f'{box}/pack', stdin=wanted, env=env).text}"
        if keep:
            publish(pack.with_suffix(".keep"), keep.encode(), sync=False)
        move_pack(Path(box), pack.parent)
    return pack


def move_pack(source: Path, goal: Path) -> list[Path]:
    """Move a pack; the index last: without it git does not see the pack."""
    files = [file for suffix in (".pack", ".rev", ".idx") for file in source.glob(f"*{suffix}")]
    return [file.replace(goal / file.name) for file in files]
