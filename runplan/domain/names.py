"""Names of plans, branches, refs, worktrees and reports."""

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from runplan.domain.errors import NotFound, UsageError
from runplan.domain.text import name_some, nearest_word, visible

HEADS = "refs/heads/"
PARKED = "refs/runplan/parked/"  #: work that is nowhere else
GIT_CONFIG = "gitconfig"  #: in runplan's own directory, the global configuration of git for agents, checks and scripts
DIFF_FILE = ".runplan.diff"  #: in a verifier's worktree, where git ignores it
REQUIRES = "refs/runplan/requires/"  #: while one exists, its plan is not completed
WATCH = "issues:"  #: before a label: the name of the schedule that takes its issues
QUEUE = "queue:"  #: before a number or `all`: the name of the work on so many ready plans, and of its schedule
WATCHES = (WATCH, QUEUE)  #: begin runs of plans that they choose
WIP = "refs/runplan/wip/"  #: on the remote: work that another host of a fleet can continue
BASES = "refs/runplan/base/"  #: protects the base of a run from the user's `git gc`
SUFFIXES = (".md", ".json")  #: of plan files
PLAN_FILE = "tasks.md"  #: the plan in a spec folder of spec-kit, Kiro or OpenSpec
#: The directories whose folders are specs, and a file that holds for all of them.
SPEC_FOLDERS = {
    "specs": ".specify/memory/constitution.md",
    ".kiro/specs": ".kiro/steering/product.md",
    "openspec/changes": "openspec/project.md",
    "conductor/tracks": "conductor/workflow.md",
}
#: Other places where tools keep a plan.
PLAN_PLACES = (
    *(".taskmaster/tasks/tasks.json", "prd.json", ".planning/ROADMAP.md", "backlog/tasks"),
    *("conductor/tracks/*/plan.md", ".cursor/plans/*.plan.md"),
)
_SPEC_FILES = (
    *("requirements.md", "bugfix.md", "proposal.md", "spec.md", "design.md", "plan.md"),
    *("research.md", "data-model.md", "quickstart.md", "constitution.md"),
)
_NOT_IN_REF = r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//"  # compiled on first use, which most commands do not make
_LONGEST = 128  # bytes; a file name may have 255, and names are put together
_LONGEST_SLUG = 80
_FEW = 10  #: plans that a message names


def slug(path: str) -> str:
    """The plan's name in branches and reports: that of its file, or of its spec folder, in lower case with dashes."""
    name = _folder_name(PurePosixPath(path)) or PurePosixPath(path).name
    stem = name[:-3] if name.lower().endswith(".md") else name
    made = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    if made and len(made) <= _LONGEST_SLUG:
        return made
    # Too short or too long: a hash makes it unique.
    return f"{made[:_LONGEST_SLUG].rstrip('-') or 'plan'}-{_hash(stem)}"


def word_of(plan: str) -> str:
    path = PurePosixPath(plan)
    return _folder_name(path) or path.name.removesuffix(".md")


def _folder_name(path: PurePosixPath) -> str:
    is_track = path.name == "plan.md" and path.parent.parent.as_posix() == "conductor/tracks"
    return path.parent.name if is_track or path.name in (PLAN_FILE, "tasks") else ""


def is_below(path: str, tops: Iterable[str]) -> bool:
    """Whether a path is one of these, or lies below one."""
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def context_files(plan: str) -> tuple[str, ...]:
    path = PurePosixPath(plan)
    if not _folder_name(path):
        return ()
    shared = SPEC_FOLDERS.get(path.parent.parent.as_posix())
    return tuple(str(path.with_name(name)) for name in _SPEC_FILES) + ((shared,) if shared else ())


def is_plain(path: str) -> bool:
    return not any(char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in path)


def shown(path: str) -> str:
    """The path on one line, with control characters and odd bytes escaped: `a\\nb`, `a\\xff`."""
    return path if is_plain(path) else visible(path).replace("\n", "\\n").replace("\t", "\\t")


def as_utf8(text: str) -> str:
    return re.sub("[\ud800-\udfff]", lambda match: visible(match[0]), text)


def require_plain(path: str) -> None:
    if not is_plain(path):
        problem = "the name has control characters or bytes that are not UTF-8"
        raise UsageError(f"{shown(path)}: {problem}; rename the file, commit it, and try again")


def describe_watch(name: str) -> str:
    kind, _, taken = name.partition(":")
    if f"{kind}:" == WATCH:
        return f"Issues with the label {taken}"
    return f"{'All' if taken == 'all' else taken} ready plan{'' if taken == '1' else 's'} of the queue"


def plan_key(path: str, others: Iterable[str]) -> str:
    name = slug(path)
    here = PurePosixPath(path)
    if any(PurePosixPath(other) != here and slug(other) == name for other in others):
        return f"{name}-{_hash(str(here))}"
    return name


def find_plan(word: str, plans: Sequence[str], *, place: str, gone: Sequence[str] = ()) -> str:
    """The plan that `word` names; those that are `gone`, but have runs, come last; `place` says where they are."""
    looks = [[plan for plan in (*plans, *gone) if PurePosixPath(word) == PurePosixPath(plan)]]
    for among in (plans, gone):
        looks.append([plan for plan in among if is_named(word, plan)])
        looks.append([plan for plan in among if word.lower() in plan.lower()])
    if matched := next(filter(None, looks), []):
        if len(matched) == 1:
            return matched[0]
        listed = f"{', '.join(matched[:-1])} or {matched[-1]}"
        raise NotFound(f"{word} may be {listed}; say which" if word else f"say which plan: {listed}")
    raise NotFound(f"{word}: no such plan{place}{hint_at(word, plans)}")


def hint_at(word: str, plans: Sequence[str]) -> str:
    """What to name instead of `word`, which is none of the plans."""
    stems = {PurePosixPath(plan).stem: plan for plan in plans}
    if near := nearest_word(PurePosixPath(word).stem, stems, 0.6):
        return f"; did you mean {stems[near]}?"
    return f"; there are: {name_some(plans, _FEW)}" if plans else "; there is none yet"


def is_named(word: str, plan: str) -> bool:
    path = PurePosixPath(plan)
    return word.lower() in (path.name.lower(), path.stem.lower(), word_of(plan).lower())


def branch(prefix: str, slug: str, phase: str) -> str:
    part = sanitise(phase)
    if part != phase or not valid_ref(part):  # a hash keeps a changed id unique
        part = f"{part.replace('.', '_').strip('-')}-{_hash(phase)}"
    return f"{prefix}{slug}/{part}"


def pull_branch(prefix: str, slug: str, group: str = "") -> str:
    return branch(prefix, slug, f"pr-{group}") if group else f"{prefix}{slug}/pr"


def report_path(reports_dir: str, slug: str) -> str:
    return str(PurePosixPath(reports_dir) / f"plan-{slug}.md")


def repository_id(common_dir: Path) -> str:
    """A short name for this repository on this machine, to distinguish its marks on a forge from those of others."""
    return digest_of(f"{platform.node()}:{common_dir.absolute()}".encode())[:12]


def worktree_name(root: str, slug: str, lane: str = "") -> str:
    project = sanitise(PurePosixPath(root).name or "repository")[:40]
    return mark(f"{project}-{slug}-{_hash(root)}", lane)


def is_worktree_name(name: str, root: str) -> bool:
    return re.search(rf"-{_hash(root)}(_[^_]+)*$", name) is not None


def mark(run: str, lane: str) -> str:
    return f"{run}_{lane}" if lane else run


def parked_under(slug: str, phase: str) -> str:
    words = (re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:_LONGEST].strip("-") or "unnamed" for name in (slug, phase))
    return f"{PARKED}{'/'.join(words)}/"


def base_ref(run: str, lane: str = "") -> str:
    """The ref in the user's repository that protects a base from `git gc`; `run` may be a mark already."""
    return f"{BASES}{mark(run, lane)}"


def wip_ref(branch: str) -> str:
    return WIP + "/".join(branch.split("/")[-2:])


def run_of(mark: str) -> str:
    return mark.partition("_")[0]


def sanitise(text: str) -> str:
    """A safe file name of at most 128 characters; an unusual character becomes an underscore."""
    if not text:
        raise UsageError("a name must not be empty")
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:_LONGEST]


def valid_ref(name: str) -> bool:
    parts = name.split("/")
    return (
        not re.search(_NOT_IN_REF, name)
        and all(part and not part.startswith(".") and not part.endswith(".lock") for part in parts)
        and not name.startswith("-")
        and not name.endswith(".")
        and name not in ("@", "HEAD")
    )


def _hash(text: str) -> str:
    return digest_of(text.encode("utf-8", "surrogatepass"))[:8]


def digest_of(content: bytes) -> str:
    import hashlib  # 5 ms, and `status` needs no hash

    return hashlib.sha256(content).hexdigest()


def join_files(files: Mapping[str, bytes]) -> bytes:
    """The task files of a folder as one text, in the order of the numbers in their names: `task-1.2 - Title.md`.

    Before each file is a line with its path.
    """
    paths = sorted(files, key=lambda path: [*map(int, re.findall("[0-9]+", path.rpartition("/")[2].partition(" ")[0]))])
    return b"\n".join(f"<!-- runplan:file {path} -->\n".encode() + files[path] for path in paths)


def split_files(text: bytes, folder: str) -> dict[str, bytes]:
    """The files of the joined text of a folder; none for the text of a single file."""
    border = rb"(?:\A|\n)<!-- runplan:file (" + re.escape(folder.encode()) + rb"/[^/\n]+) -->\n"
    parts = re.split(border, text)
    return {path.decode(): content for path, content in zip(parts[1::2], parts[2::2], strict=True)}
