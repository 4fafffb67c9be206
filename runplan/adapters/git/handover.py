"""The zone of an agent: lending a repository and a worktree, and handing the work over as a stream.

When the processes of an agent are dead, a fixed script in the sandbox stages what they left and writes a header and a
pack. `index-pack --strict` takes the pack into `tool.git`; the header is checked against its objects.
"""

import hashlib
import os
import re
import resource
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.git.command import CALLS, STREAMED, borrowing, one_line, remedy_for
from runplan.adapters.git.objects import KEEPER, SUBMODULE, TOO_MANY, Candidates, changes
from runplan.adapters.git.workspace import NO_BRANCH, move_pack
from runplan.adapters.git.zones import (
    FILL_S,
    FUNCTIONS,
    NOTHING,
    SCRIPT_KIB,
    Extra,
    KnownFiles,
    ProofWorktree,
    SandboxScript,
    Worktree,
    Zones,
)
from runplan.adapters.store.files import (
    first_line,
    is_directory,
    make_below,
    publish,
    read_file,
    read_script,
    remove_directory,
)
from runplan.domain.errors import GitFailed, HandOverRefused, ObjectsRefused, RefusedEarly
from runplan.domain.gitfacts import Oid
from runplan.domain.names import HEADS, base_ref

CLEAN = "clean"  #: in a header: the files are those of the agent's HEAD
NOTHING_ELSE = "nothing-else"  #: in a header: there are no other files either, but perhaps empty directories
LENT = "lent"  #: an agent has the files, or had them and did not hand them over
NO_REFS = 4  #: exit code of the script when the agent has damaged or deleted its repository
BOMB = 7  #: exit code for a commit with too many paths
HEADER = 16  #: bytes of the first line of a stream
INDEX_BYTES = 1 << 30  #: address space of index-pack: a small pack may expand to gigabytes
DIFF_KIB = 128 * 1024  #: data of the git that compares two commits
CHUNK = 1 << 20
LONGEST_NAME = 255  #: bytes of a name in a path; file systems refuse longer ones
DEEPEST = 200  #: folders above a file; Python's own functions recurse into them
LARGEST_POINTER = 1024  #: bytes
#: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
_POINTER = (
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d{1,15})\n"
)
_OID = r"[0-9a-f]{40}|[0-9a-f]{64}"
_SPECIAL, _ESCAPED = re.compile(r"([*?\[# !\\])"), r"\\\1"  #: characters with a meaning in info/exclude
_HAND_OVER = FUNCTIONS + read_script(
    __file__,
    "hand_over.sh",
    SCRIPT_KIB=SCRIPT_KIB,
    DIFF_KIB=DIFF_KIB,
    NO_REFS=NO_REFS,
    BOMB=BOMB,
    CLEAN=CLEAN,
    NOTHING_ELSE=NOTHING_ELSE,
)
_LARGE_FILES = read_script(__file__, "large_files.sh")
#: Succeeds if run.setup has changed neither configuration nor hooks. Argument: the git directory of the worktree, whose
#: newest file was `locked`.
_IS_UNCHANGED = 'cd "$1" && [ -z "$(find ../../config ../../hooks config.worktree -newer locked 2>/dev/null)" ]'


class Received(Struct, frozen=True, kw_only=True):
    """The content of one stream. Its objects are in `tool.git`."""

    tip: Oid  #: the newest commit of the agent's work
    head: Oid  #: the commit that the agent had checked out
    left: Oid = ""  #: the tree of its files; "" when the worktree is gone
    others: tuple[tuple[Oid, str], ...] = ()  #: further refs: commit and name
    new: frozenset[Oid] = frozenset()  #: commits that were not in `tool.git` before
    said: str = ""  #: why some files could not be staged
    nested: str = ""  #: a git repository in the worktree; no tree has its files


class _Unreadable(HandOverRefused):
    """The agent has damaged or deleted its repository."""


class AgentZone(Worktree):
    def __init__(self, zones: Zones, name: str) -> None:
        super().__init__(zones, name, zones.workspace.lanes / f"{name}.git", zones.workspace.root / name)
        self._git_dir = self._repository / "worktrees" / name
        self._left = f"refs/runplan/left/{name}"  #: in tool.git: the tip with the files that were not committed
        #: LENT, or the tree of the files that were handed over; then why the hand-over was refused, if it was.
        self._lent = self._workspace.state / "lent" / name

    def keep_products(self, inputs: str) -> None:
        super().keep_products(inputs)
        clean = 'git --git-dir="$1" --work-tree="$2" clean -ffdq'  # else its files would count as the agent's
        arguments = (str(self._git_dir), str(self.path))
        with self._zones.start(clean, arguments, cwd=self.path, writable=(self.path,)) as script:
            if error := script.finish(time.monotonic() + FILL_S):
                raise GitFailed(f"{self.path} cannot be cleaned after run.setup: {error}")
        with self._zones.start(_IS_UNCHANGED, (str(self._git_dir),), cwd=self.path, writable=()) as script:
            if script.finish(time.monotonic() + FILL_S):
                self.forget_products("it writes to the agents' repository, which is new in each phase")

    def lease(self, *, branch: str, base: Oid, pin: str, onto: Oid = "", left: Oid = "") -> None:
        """Begin `branch` at `base`; earlier work that was not handed over is parked."""
        # `pin` names the ref that protects `base` from the user's `git gc`. Where `base` is a commit of ours, `onto` is
        # the user's commit below it. `left` has uncommitted files on top of `base`.
        self._workspace.user.update_refs(f"update {base_ref(pin)} {onto or base}")
        with self._workspace.lock():
            if self.may_hold_work or (is_directory(self.path) and not is_directory(self._repository)):
                try:
                    self.rescue(under=branch, base=base)
                except RefusedEarly:  # work that no commit can have is kept in a zone of its own, which `gc` lists
                    zones = (AgentZone(self._zones, f"{self.name}_kept{number}") for number in count(1))
                    free = next(zone for zone in zones if not any(map(os.path.lexists, zone.writable)))
                    goals = (*free.writable, self._lent.with_name(free.name))
                    for old, new in zip((*self.writable, self._lent), goals, strict=True):
                        if os.path.lexists(old):
                            old.rename(new)
            remove_directory(self._repository)
        self._tool.update_refs(f"update {branch} {base}", *([f"update {self._left} {left}"] if left else []))

    def lend(
        self, *, branch: str, clean: str = "ignored", extra: Extra = NOTHING, keeps_repository: bool = False
    ) -> Path:
        """The worktree on `branch` with its files, and the uncommitted files of an interrupted agent."""
        # The repository is made anew, unless only run.setup has had it.
        tip = self._tool.tip(branch)
        if tip is None:
            raise RefusedEarly(f"the branch {branch.removeprefix(HEADS)} is gone; start the phase again")
        left = self._tool.tip(self._left)
        files = left if left and self._tool.commit(left).parents == (tip,) else tip
        self._require_copies(files, extra)
        if not keeps_repository or not self.is_made:
            with self._workspace.lock(), self._new_repository() as draft:
                self._workspace.write_repository(draft, head=NO_BRANCH, bare=True)
                (draft / branch).parent.mkdir(parents=True, exist_ok=True)
                (draft / branch).write_text(f"{tip}\n")
                admin = draft / "worktrees" / self.name
                admin.mkdir(parents=True)
                (admin / "HEAD").write_text(f"ref: {branch}\n")
                (admin / "commondir").write_text("../..\n")
                (admin / "gitdir").write_bytes(os.fsencode(self.path / ".git") + b"\n")
                (admin / "locked").touch()
        known = self._zones.known_files.get(self.path)
        how = "none" if known and known.is_all else "-x" if clean == "ignored" else ""
        self._fill(files, tip, "agent", how, extra=extra)
        self._note(LENT)
        return self.path

    def _note(self, text: str, refused: str = "") -> None:
        make_below(self._workspace.common_dir, self._lent.parent)
        publish(self._lent, os.fsencode(f"{text}\n{refused}"), sync=False)

    @property
    def _refused(self) -> str:
        """Why the last hand-over was refused; it would take as long again, and fail again."""
        return os.fsdecode(read_file(self._lent) or b"").partition("\n")[2]

    def hand_over(self, *, branch: str, base: Oid, copies: Sequence[str] = ()) -> Oid:
        """Bring the agent's commits and files into `tool.git`; the newest commit. It may be repeated."""
        # Where the given branch has not moved, the agent's HEAD counts: it may have made a branch of its own. Files
        # that it left uncommitted are kept as `leftovers`.
        self._workspace.require_whole()
        known = self._tool.tip(branch)
        before = known or base
        if self._refused:
            raise HandOverRefused(self._refused)
        if known and first_line(self._lent) != LENT:
            return before
        try:
            try:
                received = self._receive(branch, before, "all", copies)
            except _Unreadable:
                self._workspace.require_whole()
                received = self._receive(branch, before, "files", copies)
        except ObjectsRefused as error:
            self._workspace.require_whole()  # else the agent is not to blame
            self._keep_files(branch, before, copies)
            if isinstance(error, HandOverRefused) and not self._zones.is_hurried:
                self._note(first_line(self._lent) or LENT, str(error))
            raise
        left = self._keep_left(received, under=branch)
        self._park_others(received, under=branch)
        orders = [f"update {branch} {received.tip}"] if received.tip != before else []
        if left:
            orders.append(f"update {self._left} {left}")
        elif self._tool.tip(self._left):
            orders.append(f"delete {self._left}")
        if orders:
            self._tool.update_refs(*orders)
        if received.said:
            raise HandOverRefused(f"a file cannot be committed: {received.said}")
        if not received.left and received.tip == before:
            raise HandOverRefused(f"the worktree {self.path} was removed during the work, and nothing was committed")
        self._note(LENT if received.nested else received.left)
        self._workspace.merge_packs()
        return received.tip

    @property
    def leftovers(self) -> Oid | None:
        """A commit on the newest one of the branch with the files that the agent left uncommitted."""
        return self._tool.tip(self._left)

    def forget_leftovers(self, *orders: str) -> None:
        """Forget them; in one transaction with further orders, such as the update of a branch that has them now."""
        left = self._tool.tip(self._left)
        if left or orders:
            self._tool.update_refs(*orders, *([f"delete {self._left} {left}"] if left else []))

    def _keep_left(self, received: Received, *, under: str) -> Oid:
        """A commit with the files that differ from the agent's HEAD; parked when that is not the newest work."""
        if not received.left or received.left == self._tool.commit(received.head).tree:
            return ""
        message = f"Uncommitted work found in {under}\n"
        kept = Candidates(self._tool).commit(received.left, onto=received.head, message=message, by=KEEPER)
        if received.head == received.tip:
            return kept
        self._workspace.park(kept, under=under)
        return ""

    def _park_others(self, received: Received, *, under: str) -> None:
        for oid, name in received.others:
            is_new = oid in received.new and oid not in (received.tip, received.head)
            if is_new and not self._tool.is_ancestor(oid, received.tip):
                self._workspace.park(oid, under=f"{under}-{name.rpartition('/')[2]}")

    def _keep_files(self, branch: str, before: Oid, copies: Sequence[str]) -> None:
        with suppress(ObjectsRefused):
            received = self._receive(branch, before, "raw", copies)
            if left := self._keep_left(received, under=branch):
                self._workspace.park(left, under=branch)
            self._note(received.left)

    def _receive(self, branch: str, before: Oid, how: str, copies: Sequence[str]) -> Received:
        fresh = self._workspace.state / "handover" / f"{self.name}.{os.getpid()}"
        remove_directory(fresh)
        lenders = [self._repository / "objects"] if how == "all" else []
        excluded = "".join(f"/{_SPECIAL.sub(_ESCAPED, name)}\n" for name in copies)
        self._workspace.write_repository(fresh, head=before, lenders=lenders, excluded=excluded)
        if how == "raw":
            (fresh / "info/attributes").write_text("* -text -filter -ident -working-tree-encoding\n")
        (fresh / "lane").mkdir()
        (fresh / "lane/config").symlink_to(fresh / "config")
        for name in ("objects", "refs", "packed-refs"):
            (fresh / "lane" / name).symlink_to(self._repository / name)
        heads = (oid for name, oid in self._workspace.mirrored().items() if name.startswith(HEADS))
        places = (str(self._git_dir), str(self.path), str(fresh), str(self._seen))
        limits = self._zones.limits
        arguments = (*places, branch, before, how, str(limits.handover_entries), *(f"^{oid}" for oid in heads))
        deadline = time.monotonic() + limits.handover_s
        try:
            trees = (self.path,) if how != "all" and is_directory(self.path) else ()
            with self._zones.start(_HAND_OVER, arguments, cwd=fresh, writable=(fresh, *trees)) as script:
                header = self._read_header(script, deadline)
                named = {rest.partition(" ")[0] for kind, rest in header if kind in ("own", "head", "ref")}
                new = frozenset(oid for oid in named if re.fullmatch(_OID, oid) and self._tool.object(oid) is None)
                received = self._accept(header, self._index(script, deadline), before)
                said = script.said() if dict(header).get("add") != "0" else ""
            if how == "all" and received.left and not said and not self._workspace.filters:
                # No process of the agent lives, so the next fill changes only what differs.
                make_below(self._workspace.common_dir, self._seen)
                (fresh / "index").replace(self._seen / "index")
                publish(self._seen / "commit", f"{received.head}\n".encode(), sync=False)
                self._zones.known_files[self.path] = KnownFiles(received.left, is_all=(NOTHING_ELSE, "") in header)
            self._share_lfs(received, before, fresh)
            return replace(received, new=new, said=said)
        finally:
            remove_directory(fresh)

    def _read_header(self, script: SandboxScript, deadline: float) -> list[tuple[str, str]]:
        first = script.read_exactly(HEADER, deadline)
        if not re.fullmatch(rb"runplan1 [0-9]{6}\n", first):
            if time.monotonic() >= deadline:
                raise self._too_slow()
            why = f"the agent's repository cannot be read: {script.finish(deadline) or 'no reason given'}"
            if script.process.returncode == BOMB:
                why = TOO_MANY.format(self._zones.limits.handover_entries)
            raise _Unreadable(why) if script.process.returncode == NO_REFS else HandOverRefused(why)
        lines = script.read_exactly(int(first[9:15]), deadline).decode("utf-8", "surrogateescape").splitlines()
        return [(kind, rest) for kind, _, rest in (line.partition(" ") for line in lines)]

    def _too_slow(self) -> HandOverRefused:
        cause = "the run is stopped" if self._zones.is_hurried else "limits.handover"
        return HandOverRefused(f"handing over took longer than {self._zones.limits.handover_s:.0f} s ({cause})")

    def _index(self, script: SandboxScript, deadline: float) -> list[Path]:
        """Take the pack into a quarantine with git's own fsck, then into `tool.git`; its files."""
        quarantine = self._workspace.path / f"incoming-{self.name}"
        remove_directory(quarantine)
        (quarantine / "pack").mkdir(parents=True)
        places = (self._workspace.path / "objects", self._workspace.common_dir / "objects")
        env = STREAMED | borrowing(*places) | {"GIT_OBJECT_DIRECTORY": str(quarantine)}
        most = self._zones.limits.handover_size
        words = ("index-pack", "--stdin", "--fix-thin", "--strict", f"--max-input-size={most}")
        indexer = self._tool.start(*words, env=env, stdin=script.output, session=True)
        with indexer, CALLS.bounded(indexer, state=self._workspace.state):
            if hasattr(resource, "prlimit"):
                _, allowed = resource.getrlimit(resource.RLIMIT_AS)  # of the caller; only root may raise it
                space = INDEX_BYTES if allowed == resource.RLIM_INFINITY else min(allowed, INDEX_BYTES)
                with suppress(ProcessLookupError):
                    resource.prlimit(indexer.pid, resource.RLIMIT_AS, (space, space))
            script.output.close()
            try:
                _, said = indexer.communicate(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise self._too_slow() from None
        why = one_line(os.fsdecode(said))
        if indexer.returncode < 0 or remedy_for(why):  # killed, or a full disk: not the fault of the work
            raise GitFailed(f"the agent's work could not be stored: {why or 'git was killed'}")
        if indexer.returncode:
            taken = (file.stat().st_size for file in quarantine.glob("pack/tmp_pack_*"))
            if sum(taken) + CHUNK > most:
                raise HandOverRefused(f"the work is a pack of more than {most} bytes (limits.handover_size)")
            raise ObjectsRefused(f"git refuses the objects: {why}")
        if error := script.finish(deadline):
            raise HandOverRefused(f"the agent's repository cannot be read: {error}")
        moved = move_pack(quarantine / "pack", self._workspace.path / "objects/pack")
        remove_directory(quarantine)
        return moved

    def _accept(self, header: Sequence[tuple[str, str]], pack: Sequence[Path], before: Oid) -> Received:
        """The facts of the header, each checked against the objects; refused objects are deleted again."""
        facts = dict(header)
        branch_tip, head, left = facts.get("own", ""), facts.get("head", ""), facts.get("left", "")
        tip = branch_tip if branch_tip != before else head
        try:
            kept = [left] if left not in ("", CLEAN) else []
            if not all(re.fullmatch(_OID, oid) for oid in (branch_tip, head, *kept)):
                raise ObjectsRefused("the header of the agent's work is damaged")
            for commit in {branch_tip, head}:
                if (stored := self._tool.object(commit)) is None or stored.kind != "commit":
                    raise ObjectsRefused(f"{commit[:12]} is no commit of the agent's")
            trees = [self._tool.commit(commit).tree for commit in (before, tip, head)]
            left = trees[2] if left == CLEAN else left
            nested = ""
            for old, new in ((trees[0], trees[1]), (trees[2], left or trees[2])):
                for change in changes(self._tool, old, new, most=self._zones.limits.handover_entries):
                    if change.new_mode == SUBMODULE and is_directory(self.path / change.path / ".git"):
                        nested = change.path
                    if change.path.count("/") > DEEPEST:
                        raise HandOverRefused(f"{change.path[:40]}… lies in more than {DEEPEST} folders")
                    name = max(os.fsencode(change.path).split(b"/"), key=len)
                    if len(name) > LONGEST_NAME:
                        raise HandOverRefused(f"{os.fsdecode(name)[:40]}… is a name of more than {LONGEST_NAME} bytes")
        except GitFailed as error:
            for file in reversed(pack):
                file.unlink(missing_ok=True)
            raise error if isinstance(error, ObjectsRefused) else ObjectsRefused(str(error)) from None
        others = tuple((oid, name) for kind, rest in header if kind == "ref" for oid, _, name in [rest.partition(" ")])
        known = tuple((oid, name) for oid, name in others if re.fullmatch(_OID, oid) and self._tool.tip(oid))
        return Received(tip=tip, head=head, left=left, others=known, nested=nested)

    def _share_lfs(self, received: Received, before: Oid, fresh: Path) -> None:
        """Bring the large files that new pointers name into the user's store; size and hash must be those named."""
        store = self._workspace.lfs_store
        if store is None:
            return
        trees = [self._tool.commit(commit).tree for commit in (before, received.tip, received.head)]
        pairs = ((trees[0], trees[1]), (trees[2], received.left or trees[2]))
        blobs = {change.new for old, new in pairs for change in changes(self._tool, old, new) if change.kind != "D"}
        texts = (self._tool.object(oid, most=LARGEST_POINTER) for oid in sorted(blobs))
        pointers = {m[1].decode(): int(m[2]) for text in texts if text and (m := re.fullmatch(_POINTER, text.content))}
        wanted = {oid: size for oid, size in pointers.items() if not (store / oid[:2] / oid[2:4] / oid).exists()}
        limits = self._zones.limits
        if sum(wanted.values()) > limits.handover_size:
            raise HandOverRefused(f"large files of more than {limits.handover_size} bytes (limits.handover_size)")
        names = [f"lfs/objects/{oid[:2]}/{oid[2:4]}/{oid} {size}" for oid, size in wanted.items()]
        if not names:
            return
        deadline = time.monotonic() + limits.handover_s
        arguments = (str(self._repository), str(fresh), *(word for name in names for word in name.split()))
        with self._zones.start(_LARGE_FILES, arguments, cwd=fresh, writable=()) as script:
            for oid, size in wanted.items():
                if script.read_exactly(2, deadline) != b"1\n":
                    continue
                goal, draft = store / oid[:2] / oid[2:4] / oid, self._workspace.state / f"lfs-{oid}"
                digest, left = hashlib.sha256(), size
                with draft.open("wb") as file:
                    while left and (piece := script.read_exactly(min(left, CHUNK), deadline)):
                        digest.update(piece)
                        file.write(piece)
                        left -= len(piece)
                if left == 0 and digest.hexdigest() == oid:
                    goal.parent.mkdir(parents=True, exist_ok=True)
                    draft.replace(goal)
                draft.unlink(missing_ok=True)

    def rescue(self, *, under: str, base: Oid | None) -> str:
        """Park work that only this zone holds; the last ref made. Files without a repository count from `base`."""
        parked = ""
        if left := self.leftovers:
            parked = self._workspace.park(left, under=under)
            self.forget_leftovers()
        is_orphan = not is_directory(self._repository)
        if base is None or not is_directory(self.path):
            return parked
        if self._refused and first_line(self._lent) == LENT:  # neither its commits nor its files
            raise self._unreadable(self._refused)
        received = self._receive_leniently(base, "files" if is_orphan else "raw" if self._refused else "all")
        trees = self._tool.text("log", "--format=%T", base).split() if is_orphan else []
        known = [first_line(self._lent), *trees]
        self._park_others(received, under=under)
        if received.tip in received.new:
            parked = self._workspace.park(received.tip, under=under)
        if received.left and received.left not in (*known, self._tool.commit(received.head).tree):
            kept = self._keep_left(received, under=under)
            parked = self._workspace.park(kept, under=under) if kept else parked
        if received.nested:
            place = self.path / received.nested
            raise RefusedEarly(f"{place} is a git repository of its own, and only it has its files; move it elsewhere")
        self._note(received.left)
        return parked

    def _receive_leniently(self, base: Oid, how: str) -> Received:
        """The work in the zone; only its files, as they are, where git cannot read or convert it."""
        try:
            received = self._receive("refs/heads/none", base, how, ())
            if received.said:
                raise HandOverRefused(received.said)
        except ObjectsRefused as error:
            if how != "raw":
                return self._receive_leniently(base, "raw")
            raise self._unreadable(str(error)) from error
        return received

    def _unreadable(self, why: str) -> RefusedEarly:
        return RefusedEarly(f"the work in {self.path} cannot be read ({why}); move it somewhere else")

    @property
    def may_hold_work(self) -> bool:
        """Whether an agent has had the files since the last hand-over, or left some that are not committed."""
        return first_line(self._lent) == LENT or self.leftovers is not None

    def remove(self) -> None:
        super().remove()
        self._lent.unlink(missing_ok=True)
        ProofWorktree(self._zones, self.name).remove()
