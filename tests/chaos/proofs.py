"""Checks of a repository after the last start; each returns the violations."""

import fcntl
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from runplan.adapters.clock import until
from runplan.adapters.git.objects import KEEPER
from runplan.adapters.sandbox.container import find_engine
from runplan.adapters.sandbox.engines import CONTAINER
from runplan.domain.settings.schema import ContainerSettings
from tests.chaos.scenes import ANSWERS, EDITED, ISSUE, MAIN, NOTES, WORDS, Scene, Way, pull_requests
from tests.container.image import list_containers
from tests.support.cli import Project, processes_of
from tests.support.repos import Repo

LANDING = "%(trailers:key=Runplan-Landing,valueonly,separator=%x20)"
PARKED = "refs/runplan/parked/"
GONE_S = 5.0  #: what a process gets to end after the one that is waited for
#: Commits without work, by author and subject: the base of a merge in memory (git/objects.py), and a branch as one
#: commit, made to be compared with the target (git/removal.py).
THROW_AWAY = ((KEEPER.author.email, "temporary"), (KEEPER.author.email, "-"))


@dataclass(frozen=True)
class Evidence:
    """A project after its last start."""

    project: Project
    scene: Scene
    way: Way
    stops: bool = False  #: whether a person has stopped the run, and started another
    repeats: int = 0  #: how many steps of planning may be repeated: one for each kill
    parks: bool = False  #: whether something may be parked here: an agent was killed, or a run was stopped
    lags: bool = False  #: whether the local branch may have stayed behind a remote: a git that moves it was killed

    @property
    def target(self) -> Repo:
        return Repo(path=self.way.target(self.project.home.parent), env=self.project.repo.env)


@dataclass
class Found:
    """Violations; `lost` and `doubled` count phases."""

    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    stuck: int = 0  #: runs that do not come to their end


def examine(evidence: Evidence) -> Found:
    """Every proof, one after the other."""
    found = Found()
    for phase in evidence.scene.phases:
        count = _times(evidence, phase)
        found.lost += count == 0
        found.doubled += count > 1
    for proof in PROOFS:
        found.wrong += [f"{proof.__name__}: {one}" for one in proof(evidence)]
    return found


def _times(evidence: Evidence, phase: str) -> int:
    """How often a phase's change is on the target: the most that trailers, content or the tracker show."""
    form = f"--format={LANDING}%x00%s%x00%(trailers:key=Runplan-Phase,valueonly,separator=%x20)"
    rows = [line.split("\0") for line in evidence.target.git("log", form, MAIN).splitlines()]
    landings = {landing for landing, _, of in rows if of == phase}
    # A merge has the title of its pull request, and its number at the end.
    undone = sum(subject.startswith(f"Undo phase {phase}:") and not subject.endswith(")") for _, subject, _ in rows)
    writes = len(landings) - 2 * undone
    lines = 1 if evidence.scene.apart else _show(evidence, "all.txt").splitlines().count(f"phase {phase}")
    log = evidence.target.git("log", "--format=%h", "--full-history", "--no-merges", MAIN, "--", f"{phase}.txt")
    touching = len(log.split()) - 2 * undone
    counts = (writes, lines, touching, 1 + undone - evidence.scene.undoes)
    return 0 if min(counts) < 1 or _show(evidence, f"{phase}.txt") != phase else max(counts)


def _landed(evidence: Evidence) -> list[tuple[str, str]]:
    """(subject, phase by its trailer) of the target's commits, oldest first."""
    form = "--format=%s%x00%(trailers:key=Runplan-Phase,valueonly,separator=%x20)"
    rows = (
        line.split("\0") for line in evidence.target.git("log", "--reverse", "--topo-order", form, MAIN).splitlines()
    )
    return [(subject, phase) for subject, phase in rows if phase]


def landed_phases(evidence: Evidence) -> list[str]:
    """The phase of each commit that landed, oldest first."""
    return [phase for _, phase in _landed(evidence)]


def _show(evidence: Evidence, path: str) -> str:
    return evidence.target.git("show", f"{MAIN}:{path}", ok=False)


@dataclass(frozen=True)
class Shape:
    """The result of a run without times, ids and failed attempts, equal for two runs of the same plans."""

    files: str  #: every file but plans and reports, with its content
    landed: tuple[str, ...]  #: the phases by their trailers, in order; of several at a time, sorted
    tracker: tuple[str, ...]
    report: tuple[str, ...]  #: the phases that it lists


def shape(evidence: Evidence) -> Shape:
    entries = evidence.target.git("ls-tree", "-r", MAIN).splitlines()
    landed = landed_phases(evidence)
    plans = "".join(_show(evidence, f"plans/{name}.md") for name in evidence.scene.plans)
    sections = re.findall(r"^## Phase — (?!.*failed)(.*)", reports(evidence), re.MULTILINE)
    return Shape(
        files="\n".join(entry for entry in entries if not re.search(r"\t(plans|reports)/", entry)),
        landed=tuple(sorted(landed) if evidence.scene.apart else landed),
        tracker=tuple(re.findall(r"^\| (\S+ — .*?\|.*?)\|", plans, re.MULTILINE)),
        report=tuple(sorted(sections) if evidence.scene.apart else sections),
    )


# --- the proofs ---------------------------------------------------------------------------------------


def each_phase_is_on_the_target_once(evidence: Evidence) -> Iterator[str]:
    """By the trailers of the commits, by how many commits touch its file, and by what stands in the files."""
    for phase in evidence.scene.phases:
        if (count := _times(evidence, phase)) != 1:
            yield f"phase {phase} is there {count} times: {evidence.target.git('log', '--oneline', MAIN)}"
    records = sum(": record phase" in subject for subject, _ in _landed(evidence))
    landings = evidence.target.git("log", f"--format={LANDING}", "--grep=: record phase", MAIN).split()
    yield from (f"{one} has landed twice" for one, count in Counter(landings).items() if count > 1)
    expected = len(evidence.scene.phases) * (1 + evidence.scene.undoes) + bool(evidence.scene.subplan)
    if evidence.scene.name == "squashed" and evidence.way.name == "pr":
        expected = 1
    if records != expected:
        yield f"{records} landings are recorded, not {expected}"


def tracker_and_report_agree_with_it(evidence: Evidence) -> Iterator[str]:
    """The row names the last code commit of the phase; the report has one section for each; the plan is complete."""
    report = reports(evidence)
    plan = "".join(_show(evidence, f"plans/{name}.md") for name in evidence.scene.plans)
    log = evidence.target.git("log", "--format=%H %s%x00%(trailers:key=Runplan-Phase,valueonly,separator=%x20)", MAIN)
    for phase in evidence.scene.phases:
        last = next(
            (line[:7] for line in log.splitlines() if line.endswith(f"\0{phase}") and ": record phase" not in line), ""
        )
        if not re.search(rf"^\| {phase} — .* ✅ Done \| `{last}` \|", plan, re.MULTILINE):
            yield f"the row of phase {phase} is not done by {last}: {plan}"
        if (
            count := len(re.findall(rf"^## Phase — {phase} (?!.*failed)", report, re.MULTILINE))
        ) != 1 + evidence.scene.undoes:
            yield f"the report has {count} sections for phase {phase}: {report}"
    if plan.count("status: complete") != len(evidence.scene.plans):
        yield "a plan is not complete"


def reports(evidence: Evidence) -> str:
    names = evidence.target.git("ls-tree", "--name-only", f"{MAIN}:reports", ok=False).split()
    return "".join(_show(evidence, f"reports/{name}") for name in names)


def no_work_is_unreachable(evidence: Evidence) -> Iterator[str]:
    """A commit that no ref reaches has its patch on the target or parked, unless it is a candidate or a mere base.

    A candidate is a copy: it carries the id of its landing. What it was copied from is looked at by itself.
    """
    worked = evidence.project.worked
    tool = worked.path / ".git/runplan/tool.git"
    for words in ((), (f"--git-dir={tool}",)) if (tool / "HEAD").exists() else ((),):
        yield from _unreachable(evidence, partial(worked.git, *words))


def _is_squashed(evidence: Evidence, git: Callable[..., str], oid: str) -> bool:
    """Whether every file that the commit changed is on the target as the commit left it."""
    changed = git("diff-tree", "-r", "--no-commit-id", "--root", oid).splitlines()
    landed = evidence.target.git("ls-tree", "-r", MAIN).splitlines()
    blobs = {line.partition("\t")[2]: line.split()[2] for line in landed}
    return bool(changed) and all(blobs.get(line.partition("\t")[2]) == line.split()[3] for line in changed)


def _unreachable(evidence: Evidence, git: Callable[..., str]) -> Iterator[str]:
    """Unreachable commits; `tool.git` sees the user's commits as well, which the user's refs reach."""
    output = git("fsck", "--unreachable", "--no-reflogs", ok=False)
    gone = {line.split()[2] for line in output.splitlines() if line.startswith("unreachable commit ")}
    worked = evidence.project.worked
    gone -= set(worked.git("rev-list", "--all").split())
    # Work that is being taken from an agent is still on its branch there.
    for lane in (worked.path / ".git/runplan/lanes").glob("*.git"):
        gone -= set(worked.git(f"--git-dir={lane}", "rev-list", "--all", ok=False).split())
    form = f"--format=%H%x00%ae%x00{LANDING}%x00%s"
    rows = git("log", "--no-walk", "--stdin", form, stdin="\n".join(gone)).splitlines() if gone else []
    work = {}
    for row in rows:
        oid, author, landing, subject = row.split("\0")
        if not landing and (author, subject) not in THROW_AWAY:
            work[oid] = subject
    if not work:
        return
    kept = worked.git("for-each-ref", "--format=%(objectname)", PARKED, "refs/heads/runplan/").split()
    kept += git("for-each-ref", "--format=%(objectname)", "refs/heads/runplan/").split()
    landed = evidence.target.git("for-each-ref", "--format=%(objectname)", MAIN, "refs/heads/runplan/*/pr").split()
    safe = set(_patches(evidence.target.git, landed)) | set(_patches(git, kept))
    for patch, oid in _patches(git, list(work), walk=False).items():
        if patch not in safe and not _is_squashed(evidence, git, oid) and not _is_in_worktree(evidence, git, oid):
            yield f"{oid} ({work.get(oid, '')}) is reachable from nothing and its change is nowhere"


def _is_in_worktree(evidence: Evidence, git: Callable[..., str], commit: str) -> bool:
    """Whether a worktree has the files of a commit: it was about to stand on that commit."""
    paths = git("diff-tree", "--no-commit-id", "--name-only", "-r", "--diff-filter=d", commit).splitlines()
    committed = {path: git("rev-parse", f"{commit}:{path}") for path in paths}
    for tree in evidence.project.worktrees.glob("*/"):
        if all((tree / path).is_file() for path in paths):
            found = git("hash-object", "--stdin-paths", stdin="\n".join(str(tree / path) for path in paths)).split()
            if paths and found == list(committed.values()):
                return True
    return False


def _patches(git: Callable[..., str], tips: list[str], *, walk: bool = True) -> dict[str, str]:
    """Patch id -> commit."""
    if not tips:
        return {}
    how = [] if walk else ["--no-walk"]
    log = git("log", "-p", "--format=%H", "--diff-merges=first-parent", *how, "--stdin", stdin="\n".join(tips))
    lines = git("patch-id", "--stable", stdin=log + "\n").splitlines()
    return dict(line.split() for line in lines)


def nothing_is_left(evidence: Evidence) -> Iterator[str]:
    """No worktree, lane, branch, candidate, claim, lock or process; parked refs only where expected."""
    for left in evidence.project.leftovers():
        if not ((evidence.parks or evidence.scene.parks) and left.startswith(PARKED)):
            yield f"{left} is left"
    if evidence.target.path != evidence.project.path:
        for ref in evidence.target.git("for-each-ref", "--format=%(refname)").split():
            if ref != MAIN and not ref.startswith("refs/pull/"):  # GitHub keeps the head of each pull request
                yield f"{ref} is left at the remote"
    for claim in evidence.project.rows("SELECT kind, key, owner FROM claims"):
        yield f"the claim {claim} is left"
    common = evidence.project.worked.path / ".git"
    state = common / "runplan"
    yield from (f"{lock} is held" for lock in _held([*state.glob("locks/*"), *state.glob("dispatch/*/lock")]))
    tool = state / "tool.git"
    locks = [lock for place in (common, tool) for lock in (*place.glob("*.lock"), *place.glob("refs/**/*.lock"))]
    for path in [*locks, *common.glob("runplan.*"), *state.glob("*.new")]:
        yield f"{path.relative_to(common)} is left in the git directory"
    if running := _running(evidence.project.home):
        yield f"processes are left: {running}"
    if evidence.project.env["RUNPLAN_AGENTS_SANDBOX"] == CONTAINER:
        engine = find_engine(ContainerSettings(), evidence.project.env).program
        if not until(lambda: not list_containers(engine, state / "homes"), within_s=GONE_S):
            yield f"containers are left: {list_containers(engine, state / 'homes')}"


def _held(locks: Iterable[Path]) -> Iterator[str]:
    for lock in locks:
        descriptor = os.open(lock, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield lock.name
        finally:
            os.close(descriptor)


def _running(home: Path) -> list[int]:
    end = time.monotonic() + GONE_S
    while (running := processes_of(home)) and time.monotonic() < end:
        time.sleep(0.01)
    return running


def the_checkout_is_as_it_was(evidence: Evidence) -> Iterator[str]:
    """The user's edit, the user's file, the branch; nothing staged, nothing missing, nothing half-written."""
    repo = evidence.project.repo
    if (status := repo.git("status", "--porcelain", "--untracked-files=all")) != " M README.md\n?? notes.txt":
        yield f"git status: {status!r}"
    for name, text in (("README.md", EDITED), ("notes.txt", NOTES)):
        path = repo.path / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield f"{name} is not as the user left it"
    if (head := repo.git("symbolic-ref", "HEAD")) != MAIN:
        yield f"HEAD is {head}"
    behind = evidence.lags and evidence.target.git("log", "--format=%H", MAIN).split().count(repo.head(MAIN)) == 1
    if repo.head(MAIN) != evidence.target.head(MAIN) and not behind:
        yield f"the local main ({repo.head(MAIN)[:8]}) does not follow the target ({evidence.target.head(MAIN)[:8]})"


def one_pull_request_was_merged_once(evidence: Evidence) -> Iterator[str]:
    """One pull request and merge of each plan or group, one more after an undo; at most one comment; no branch left."""
    hub = pull_requests(evidence.project.home.parent)
    if hub is None:
        return
    plans = len(evidence.scene.plans) if evidence.scene.queued else 1
    pulls = plans + evidence.scene.undoes + bool(evidence.scene.subplan) + bool(evidence.scene.group)
    if (merged := [pull.merged for pull in hub.pulls.values()]) != [True] * pulls or hub.merges != pulls:
        yield f"pull requests merged: {merged}, {hub.merges} merges"
    issue = hub.issues[ISSUE]
    if issue.state != "closed" or len(issue.comments) > 1:
        yield f"the issue is {issue.state} with {len(issue.comments)} comments"
    if left := [branch for branch in hub.branches() if branch != "main"]:
        yield f"branches left on the remote: {left}"


def a_plan_is_written_and_asked_about_once(evidence: Evidence) -> Iterator[str]:
    """One landing of the plan; in each run one proposal, one question, and each step once for each kill."""
    if not evidence.scene.planned and not evidence.scene.large:
        return
    if (count := sum(phase == "plan" for _, phase in _landed(evidence))) != 1:
        yield f"the plan has landed {count} times"
    if evidence.scene.large:
        return
    of_planning = "SELECT run FROM events WHERE type='PlanningChosen'"
    rows = evidence.project.rows(f"SELECT type FROM events WHERE run IN ({of_planning})")
    counts = Counter(kind for (kind,) in rows)
    runs = counts["PlanningChosen"]
    for kind in ("ProposalMade", "ApprovalAsked", "Answered"):
        if counts[kind] > runs:
            yield f"{kind} {counts[kind]} times in {runs} runs"
    merges = "explorers" in evidence.scene.settings
    if counts["DispatchStarted"] > (len(ANSWERS) + merges) * runs + evidence.repeats:
        yield f"{counts['DispatchStarted']} agents in {runs} runs, with {evidence.repeats} kills"
    if runs > 1 and not evidence.stops:
        yield f"{runs} runs for one goal"


def words_of_a_person_are_told_once(evidence: Evidence) -> Iterator[str]:
    """Acknowledged words are recorded once, and the next agent of that run has them first in its prompt."""
    if not evidence.scene.tells:
        return
    told = evidence.project.rows("SELECT run, seq FROM events WHERE type='Told'")
    if len(told) != 1:
        yield f"{len(told)} records of what a person told"
    for run, seq in told:
        query = "SELECT body FROM events WHERE run=? AND seq>? AND type='DispatchStarted'"
        dispatches = (json.loads(body) for (body,) in evidence.project.rows(query, run, seq))
        for id_ in (started["id"] for started in dispatches if started["role"] in ("implement", "fix")):
            prompt = evidence.project.path / ".git/runplan/dispatch" / id_ / "prompt.md"
            if prompt.exists() and prompt.read_text(encoding="utf-8").count(WORDS) != 1:
                yield f"the agent {id_} was not told once"
    if (count := reports(evidence).count(WORDS)) != 1 and not evidence.stops:
        yield f"the report has the words {count} times"


def no_phase_had_two_live_dispatches(evidence: Evidence) -> Iterator[str]:
    """An agent that writes holds a lock of its phase, and notes when another one has it."""
    yield from (f"two agents had {note.name}" for note in evidence.project.home.glob("at/doubled.*"))


PROOFS: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    *(each_phase_is_on_the_target_once, tracker_and_report_agree_with_it, no_work_is_unreachable, nothing_is_left),
    *(the_checkout_is_as_it_was, one_pull_request_was_merged_once),
    *(a_plan_is_written_and_asked_about_once, words_of_a_person_are_told_once, no_phase_had_two_live_dispatches),
)
