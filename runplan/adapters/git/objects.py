"""Compares trees, and builds candidates from objects, without a checkout (docs/adr/0007)."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import TypeAlias

from msgspec import Struct

from runplan.adapters.git.command import Git
from runplan.domain.errors import GitFailed, HandOverRefused, RefusedEarly
from runplan.domain.gitfacts import LANDING, Change, Commit, Identity, Oid, is_agent
from runplan.domain.names import digest_of, join_files

TREE = "040000"
SYMLINK = "120000"
SUBMODULE = "160000"
MOST_FOREIGN = 3  #: commits named in one sentence
_KINDS = {TREE: "tree", SUBMODULE: "commit"}  #: of the objects in a tree; else a blob
TOO_MANY = "more than {} files and directories differ (limits.handover_entries)"
MOST_CHANGED = 1_000_000  #: paths; a tree of a few objects can have more than memory holds
#: A phase has fewer commits; a base that is no ancestor is found out after so many steps.
LONGEST = 10_000
#: Compares two trees as a patch, whatever the user's configuration is. A line that is no id is repeated.
_PLAIN = ("--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
_DIFFER = ("diff-tree", "--stdin", "-r", "-p", "-M", *_PLAIN)
_END = "end\n"
_OF_BASE = (" ", "@@ ", "index ", "similarity ", "dissimilarity ")  #: lines of a patch that depend on the base
_KEEPER = Identity(name="runplan", email="runplan@runplan.invalid")


class Entry(Struct, frozen=True):
    mode: str
    oid: Oid


class Signature(Struct, frozen=True, kw_only=True):
    """Author and committer of a commit. Times are in git's own form, `<seconds> <zone>`."""

    author: Identity
    committer: Identity
    when: str
    authored: str = ""  #: `when`, if empty
    sign: bool = False  #: with the key of the committer, as git is configured


def identity_env(by: Signature) -> dict[str, str]:
    people = (("AUTHOR", by.author, by.authored or by.when), ("COMMITTER", by.committer, by.when))
    return {
        f"GIT_{role}_{field}": value
        for role, person, when in people
        for field, value in (("NAME", person.name), ("EMAIL", person.email), ("DATE", f"@{when}"))  # "@": not a year
    }


def entries(git: Git, tree: Oid) -> dict[str, Entry]:
    """The names of one tree object, not of the trees below it."""
    stored = git.known(tree)
    if stored is None or stored.kind != "tree":
        raise GitFailed(f"the tree {tree} is missing")
    width = len(stored.oid) // 2
    names: dict[str, Entry] = {}
    position = 0
    while position < len(stored.content):
        end = stored.content.index(b"\0", position)
        mode, _, name = stored.content[position:end].partition(b" ")
        position = end + 1 + width
        names[os.fsdecode(name)] = Entry(mode.decode().zfill(6), stored.content[end + 1 : position].hex())
    return names


def find(git: Git, tree: Oid, path: str) -> tuple[str, Entry | None]:
    """The longest part of `path` that is in the tree, and its entry; None when it is missing."""
    here = ""
    entry: Entry | None = Entry(TREE, tree)
    for name in path.split("/"):
        if entry is None or entry.mode != TREE:
            break
        here = f"{here}/{name}" if here else name
        entry = entries(git, entry.oid).get(name)
    return here, entry


def list_files(git: Git, tree: Oid, prefix: str) -> dict[str, Entry]:
    files: dict[str, Entry] = {}
    waiting = [(prefix, tree)]
    while waiting:
        place, oid = waiting.pop()
        for name, entry in entries(git, oid).items():
            if entry.mode == TREE:
                waiting.append((f"{place}{name}/", entry.oid))
            else:
                files[f"{place}{name}"] = entry
    return files


def read_plan(git: Git, name: str, path: str) -> bytes | None:
    """The text of the plan in the object of that name: of a file, or of the task files of a folder in one."""
    stored = git.known(name)
    if stored is None or stored.kind != "tree":
        return stored.content if stored is not None and stored.kind == "blob" else None
    tasks = {file: git.known(entry.oid) for file, entry in entries(git, stored.oid).items() if file.endswith(".md")}
    return join_files({f"{path}/{file}": task.content for file, task in tasks.items() if task and task.kind == "blob"})


def changes(git: Git, old: Oid, new: Oid, *, most: int = MOST_CHANGED) -> tuple[Change, ...]:
    """The differences between two trees, sorted by path, without renames; `ObjectsRefused` for more than `most`."""
    nothing = Entry("000000", "0" * len(old))
    differing = []
    count = 0
    waiting: list[tuple[str, Oid | None, Oid | None]] = [("", old, new)]
    while waiting:
        prefix, *trees = waiting.pop()
        before, after = (entries(git, tree) if tree else {} for tree in trees)
        for name in before.keys() | after.keys():
            both = before.get(name), after.get(name)
            if both[0] == both[1]:
                continue
            count += 1
            if count > most:
                raise HandOverRefused(TOO_MANY.format(most))
            old_tree, new_tree = (entry.oid if entry and entry.mode == TREE else None for entry in both)
            if old_tree or new_tree:
                waiting.append((f"{prefix}{name}/", old_tree, new_tree))
            was, now = (nothing if entry is None or entry.mode == TREE else entry for entry in both)
            if was != now:
                # Regular files share their first three digits, whether executable or not.
                kind = "M" if was.mode[:3] == now.mode[:3] else "T"
                kind = "A" if was == nothing else "D" if now == nothing else kind
                modes = {"old_mode": was.mode, "new_mode": now.mode}
                differing.append(Change(path=f"{prefix}{name}", kind=kind, old=was.oid, new=now.oid, **modes))
    return tuple(sorted(differing, key=lambda change: change.path))


def tree_with(git: Git, tree: Oid | None, files: Mapping[str, Entry | None]) -> Oid | None:
    """The tree with each path of `files` set to its entry, or removed; None when nothing is left."""
    names: dict[str, Entry | None] = dict(entries(git, tree)) if tree else {}
    below: dict[str, dict[str, Entry | None]] = {}
    for path, entry in files.items():
        name, _, rest = path.partition("/")
        if rest:
            below.setdefault(name, {})[rest] = entry
        else:
            names[name] = entry
    for name, inner in below.items():
        there = names.get(name)
        if there is not None and there.mode != TREE and not any(inner.values()):
            continue  # a file stands where the directory was: the paths below are gone already
        made = tree_with(git, there.oid if there is not None and there.mode == TREE else None, inner)
        names[name] = Entry(TREE, made) if made else None
    left = ((name, entry, _KINDS.get(entry.mode, "blob")) for name, entry in names.items() if entry)
    rows = [f"{entry.mode} {kind} {entry.oid}\t{name}\0" for name, entry, kind in left]
    return write_tree(git, rows) if rows else None


def write_tree(git: Git, rows: Iterable[str]) -> Oid:
    words = os.fsencode("".join(rows)) + b"\0"
    return git.request("mktree", "-z", "--batch", "--missing", words=words).decode().strip()


def _person(identity: Identity) -> str:
    """Name and address without the characters that end them, which git's own commands drop as well."""
    clean = str.maketrans("", "", "<>\n\0")
    return f"{identity.name.translate(clean)} <{identity.email.translate(clean)}>"


#: Of commits that only keep files, or none at all; the same content kept twice is the same commit.
KEEPER = Signature(author=_KEEPER, committer=_KEEPER, when="0 +0000")
Rewrite: TypeAlias = Callable[[Commit], tuple[str, Signature]]


class Built(Struct, frozen=True, kw_only=True):
    commits: tuple[Oid, ...]  #: oldest first; the last one's tree is the code tree
    tree: Oid
    patch: str  #: hash of the net diff; equal hashes keep a verdict valid


class Conflicted(Struct, frozen=True, kw_only=True):
    paths: tuple[str, ...]


class NothingLeft(Struct, frozen=True, kw_only=True):
    """Every commit became empty: the target already holds the work."""


Replayed: TypeAlias = Built | Conflicted | NothingLeft


def find_writable(git: Git, tree: Oid, path: str) -> Entry | None:
    """The plain file, or None where there is nothing; anything else that is in the way is refused."""
    where, entry = find(git, tree, path)
    if entry is not None and (where != path or not entry.mode.startswith("100")):
        kinds = {SYMLINK: "a symbolic link", SUBMODULE: "a submodule", TREE: "a directory"}
        why = f"{where} is {kinds.get(entry.mode, 'a file')} on the target, so {path} cannot be written"
        raise RefusedEarly(f"{why}; make it a plain file, or set [paths] to another place")
    return entry


class Candidates:
    """Makes commits out of objects. No ref names a candidate: nothing is ever pruned in `tool.git`."""

    def __init__(self, git: Git, *, user: Git | None = None) -> None:
        self._git = git
        self._user = user or git

    def tree_with(self, tree: Oid, files: Mapping[str, Entry | None]) -> Oid:
        return tree_with(self._git, tree, files) or write_tree(self._git, ())

    def commits(self, base: Oid, head: Oid) -> tuple[Commit, ...] | None:
        """The commits from `base` to `head`, oldest first; None when they are not one line."""
        line: list[Commit] = []
        oid = head
        while oid != base:
            commit = self._git.commit(oid)
            if len(commit.parents) != 1 or len(line) == LONGEST:
                return None
            line.append(commit)
            oid = commit.parents[0]
        return tuple(reversed(line))

    def foreign(self, base: Oid, head: Oid, *, run: str, kept: Oid = "") -> tuple[tuple[Oid, str], ...] | None:
        """The commits that neither the run made nor `kept` has; None if the base is no ancestor."""
        line = self.commits(base, head)
        if line is None and not self._git.is_ancestor(base, head):
            return None
        known = {*self._git.text("rev-list", f"{base}..{kept}").split()} if kept else set()
        every, straight = line or (), {commit.oid for commit in line or ()}
        if line is None:
            every = tuple(map(self._git.commit, self._git.text("rev-list", "--reverse", f"{base}..{head}").split()))
            straight = {*self._git.text("rev-list", "--first-parent", f"{base}..{head}").split()}
        # A commit that the user has, or that a merge brought in, is foreign. An agent may commit under another name.
        foreign = (
            (commit.oid, commit.message.partition("\n")[0])
            for commit in every
            if commit.oid not in known
            and not is_agent(commit.committer, run)
            and (commit.oid not in straight or self._user.object(commit.oid) is not None)
        )
        return tuple(islice(foreign, MOST_FOREIGN))

    def changes(self, base: Oid, head: Oid) -> tuple[Change, ...]:
        return changes(self._git, self._tree(base), self._tree(head))

    def diff(self, old: Oid, new: Oid, *, without: Sequence[str] = ()) -> str:
        """The change between two commits as a patch, without these paths. Git shows a large file as a binary one."""
        trees = " ".join(self.tree_with(self._tree(commit), dict.fromkeys(without)) for commit in (old, new))
        answer = self._git.request(*_DIFFER, words=f"{trees}\n{_END}".encode(), end=_END.encode())
        patch = answer.partition(b"\n")[2].removesuffix(_END.encode())  # after the line with the ids
        return patch.decode("utf-8", "surrogateescape")

    def change_id(self, old: Oid, new: Oid) -> str:
        """A hash of the change between two commits, on any base: as `git patch-id`, but binary files count as well."""
        lines = pairwise([*self.diff(old, new).split("\n"), ""])
        fixed = (line for line, below in lines if below.startswith("Binary ") or not line.startswith(_OF_BASE))
        return digest_of("\n".join(fixed).encode("utf-8", "surrogateescape"))

    def landed_commits(self, *tips: Oid) -> tuple[tuple[Oid, str], ...]:
        """(id, message) of every commit below the tips with a landing trailer, newest first."""
        # The user's settings for patterns, signatures, colours and encodings do not apply here.
        alike = ("--basic-regexp", "--regexp-ignore-case", "--no-show-signature", "--no-color", "--encoding=UTF-8")
        asked = ("log", *alike, "--topo-order", "-z", "--format=%H%n%B", f"--grep=^{LANDING}[ \t]*:")
        records = self._git.run(*asked, *tips, "--").out.decode("utf-8", "surrogateescape").split("\0")
        return tuple((oid, message) for oid, _, message in (record.partition("\n") for record in records) if oid)

    def _tree(self, commit: Oid) -> Oid:
        return self._git.commit(commit).tree

    def replay(self, *, base: Oid, head: Oid, onto: Oid, rewrite: Rewrite, whole: bool = False) -> Replayed:
        """Replay base..head on `onto`; as one commit when `whole`, or when they are not one line."""
        line = None if whole else self.commits(base, head)
        tree, tip = self._tree(onto), onto
        made: list[Oid] = []
        for source in (self._git.commit(head),) if line is None else line:
            parent, picked = (base, "") if line is None else (source.parents[0], source.oid)
            merged = self._merge(parent, source.tree, tree, commit=picked)
            if isinstance(merged, Conflicted):
                return merged
            if merged == tree:
                continue
            message, by = rewrite(source)
            tree, tip = merged, self.commit(merged, onto=tip, message=message, by=by)
            made.append(tip)
        return self._built(made, tree, onto)

    def merge(self, ours: Oid, theirs: Oid, *, since: Oid = "") -> tuple[Oid, tuple[str, ...]]:
        """The tree of a merge, and its paths with conflict markers; `since`, below `ours`, counts as the merge base."""
        if since:
            theirs = self.commit(self._tree(theirs), onto=since, message="temporary", by=KEEPER)
        ran = self._git.run("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs, ok=(0, 1))
        tree, *paths = os.fsdecode(ran.out).rstrip("\0").split("\0")
        return tree, tuple(sorted(set(paths))) if ran.code else ()

    def whole(self, tree: Oid, *, onto: Oid, message: str, by: Signature) -> Replayed:
        return self._built([self.commit(tree, onto=onto, message=message, by=by)], tree, onto)

    def revert(
        self, commits: Sequence[Oid], *, without: Sequence[str], onto: Oid, message: str, by: Signature
    ) -> Replayed:
        """One commit on `onto` that reverts `commits`, newest first, except in the paths `without`."""
        tree = self._tree(onto)
        for oid in commits:
            reverted = self._git.commit(oid)
            kept = {path: self.entry(oid, path) for path in without}
            before = self.tree_with(self._tree(reverted.parents[0]), kept)
            merged = self._merge(oid, before, tree)
            if isinstance(merged, Conflicted):
                return merged
            tree = merged
        made = [] if tree == self._tree(onto) else [self.commit(tree, onto=onto, message=message, by=by)]
        return self._built(made, tree, onto)

    def _built(self, commits: Sequence[Oid], tree: Oid, onto: Oid) -> Replayed:
        differing = changes(self._git, self._tree(onto), tree)
        patch = digest_of(repr(differing).encode())  # unlike git's patch id it changes with moved lines
        return Built(commits=tuple(commits), tree=tree, patch=patch) if differing else NothingLeft()

    def entry(self, commit: Oid, path: str) -> Entry | None:
        where, entry = find(self._git, self._tree(commit), path)
        return entry if where == path else None

    def _merge(self, base: Oid, theirs: Oid, onto: Oid, *, commit: Oid = "") -> Oid | Conflicted:
        """Apply the change from the commit `base` to the tree `theirs`, that of `commit`, on the tree `onto`."""
        before = self._tree(base)
        if before in (onto, theirs):
            return theirs if before == onto else onto
        # Temporary commits make `base` the merge base; `merge-tree --merge-base` came with git 2.40.
        ours = self.commit(onto, onto=base, message="temporary", by=KEEPER)
        other = commit or self.commit(theirs, onto=base, message="temporary", by=KEEPER)
        tree, conflicts = self.merge(ours, other)
        return Conflicted(paths=conflicts) if conflicts else tree

    def commit(self, tree: Oid, *, onto: Oid, message: str, by: Signature, merged: Oid = "") -> Oid:
        if by.sign:
            text = message.encode("utf-8", "surrogateescape")
            parents = ("-p", onto, *(("-p", merged) if merged else ()))
            return self._git.run("commit-tree", tree, *parents, "-S", stdin=text, env=identity_env(by)).text
        lines = [f"tree {tree}", f"parent {onto}", *([f"parent {merged}"] if merged else [])]
        lines.append(f"author {_person(by.author)} {by.authored or by.when}")
        lines.append(f"committer {_person(by.committer)} {by.when}")
        return self._git.write_object("commit", "\n".join([*lines, "", message]).encode("utf-8", "surrogateescape"))

    def bookkeep(self, *, code: Oid, files: Mapping[str, bytes], message: str, by: Signature, merged: Oid = "") -> Oid:
        """One commit on `code` that changes `files` and nothing else; `merged` becomes its second parent."""
        tree = self._tree(code)
        written: dict[str, Entry | None] = {}
        for path, content in files.items():
            entry = find_writable(self._git, tree, path)
            written[path] = Entry(entry.mode if entry else "100644", self._git.write_object("blob", content))
        text = message if message.endswith("\n") else f"{message}\n"
        return self.commit(self.tree_with(tree, written), onto=code, message=text, by=by, merged=merged)
