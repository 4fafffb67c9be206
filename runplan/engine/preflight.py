"""Checks before a run. Everything that can be refused is refused before any work."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from runplan import names
from runplan.agents import invocation
from runplan.agents.prompts import PLACEHOLDERS, Template
from runplan.engine.context import RepositoryContext, stored_as
from runplan.errors import NotFound, RefusedEarly, UsageError
from runplan.git import objects as trees
from runplan.git.objects import Candidates
from runplan.git.repository import pull_command
from runplan.landing import modes
from runplan.landing.cherry_pick import CherryPick
from runplan.landing.swap import BOX
from runplan.plan.marks import NoWorkKind
from runplan.plan.model import Phase, Plan, parse
from runplan.plan.tracker import NoPhase, choose, workable
from runplan.processes import marked_inside
from runplan.run.events import CompletionChosen, NoWork, PhaseChosen
from runplan.run.reasons import Reason
from runplan.settings import toolchain
from runplan.settings.places import user_file, worktree_root
from runplan.steps.land import landing_to_undo
from runplan.steps.read_plan import choose_work
from runplan.steps.work import refused
from runplan.store.claims import landing_lock
from runplan.text import command, committing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runplan.run.events import RunStarted
    from runplan.settings.options import Options

PATIENCE_S = 20.0  #: a landing here takes less, a push may take longer


def settle_lost_landings(at: RepositoryContext) -> list[str]:
    """Complete an interrupted landing of any plan; notes for the user."""
    common = at.repository.common_dir
    if not (common / BOX).exists():
        return []
    store = at.store()
    with at.repository.git.at(at.repository.root) as git, contextlib.ExitStack() as closing:
        closing.callback(store.close)
        try:
            closing.enter_context(landing_lock(at.state / "locks").acquire(timeout=PATIENCE_S))
        except TimeoutError:
            return []  # another landing runs, and completes these as well
        known = {row.id for row in store.list_unfinished_runs()}
        lander = CherryPick(git, ref=at.local_target, root=at.repository.root, common_dir=common)
        settled = lander.settle()
    is_known = names.run_of(settled.id.rpartition(".")[0]) in known
    if settled.waits and not is_known:  # else its run says so itself
        raise RefusedEarly(settled.waits)
    note = f"completed the interrupted landing {settled.id} of an unknown run" if settled.id and not is_known else ""
    return ["; ".join(one for one in (note, settled.note) if one)] if note or settled.note else []


# --- the plan -------------------------------------------------------------------------------------------


def committed_plan(at: RepositoryContext, path: str, *, is_compared: bool) -> bytes:
    """The plan's bytes on the target; a plan that is edited in the checkout is refused if `is_compared`."""
    tip, file = at.tip(), at.repository.root / path
    if file.is_dir():
        raise UsageError(f"{path} is a directory; name the plan file in it")
    blob, is_there = at.repository.git.blob(tip, path), file.exists()
    if blob is None and not is_there:
        raise NotFound(f"{path}: no such plan on {at.target_name} ({tip[:12]})")
    _refuse_link(at, tip, path)
    if blob is not None and not (is_compared and is_there and _is_edited(at, path, blob)):
        return blob
    problem = "is not committed on" if blob is None else "in the checkout differs from"
    commit = committing(path, f"Plan {names.slug(path)}")
    raise RefusedEarly(f"{Reason.PLAN_NOT_COMMITTED}: {path} {problem} {at.target_name}; run: {commit}")


def _refuse_link(at: RepositoryContext, tip: str, path: str) -> None:
    """Refuse a plan that is a symbolic link: a landing writes statuses into the file that was named."""
    git = at.repository.git
    tree = git.commit(tip).tree
    place, entry = trees.find(git, tree, path)
    if entry is None or entry.mode != trees.SYMLINK:
        return
    link = (git.blob(tip, place) or b"").decode("utf-8", "replace")
    file = posixpath.normpath(posixpath.join(posixpath.dirname(place), link, posixpath.relpath(path, place)))
    is_here = trees.find(git, tree, file)[1] is not None
    start = command("runplan", "start", file)
    remedy = f"name the file itself: {start}" if is_here else "replace the link by the file"
    raise RefusedEarly(f"{place} on {at.target_name} is a symbolic link to {names.shown(link)}; {remedy}")


def require_active(at: RepositoryContext, path: str) -> None:
    """Refuse a plan on the target whose front matter says that it is not to be worked."""
    blob = at.repository.git.blob(at.tip(), path)
    found = choose(parse(blob, path=path), wanted=None) if blob is not None else None
    if isinstance(found, NoPhase) and found.kind is NoWorkKind.INACTIVE:
        raise RefusedEarly(f"{path}: {found.detail}")


def _is_edited(at: RepositoryContext, path: str, blob: bytes) -> bool:
    content = (at.repository.root / path).read_bytes()
    if content == blob:
        return False
    # The checkout may be behind the remote, or on another branch.
    stored = [at.repository.git.object(f"{ref}:{path}") for ref in (at.target, at.local_target, "HEAD")]
    return stored_as(at, path, content) not in [one.oid for one in stored if one is not None]


def phases_to_work(plan: Plan, text: bytes, *, tip: str, options: Options, resuming: bool) -> list[str] | str:
    """The phases that a start is about, by the same choice that the run will make; a sentence when they are done."""
    if options.phase:
        _phase(plan, options.phase)
    read = choose_work(plan, text, tip=tip, wanted=options.phase)
    if isinstance(read, CompletionChosen) and options.every:
        return f"{plan.path}: every phase is done; a schedule would have nothing to do"
    # An interrupted run may have landed the requested phase; it is completed first.
    if isinstance(read, NoWork) and not resuming:
        if read.kind in (NoWorkKind.COMPLETE, NoWorkKind.PHASE_DONE):
            return f"{plan.path}: {read.detail}; nothing to do"
        raise RefusedEarly(read.detail if read.detail.startswith(plan.path) else f"{plan.path}: {read.detail}")
    if options.mode == "finish":
        return workable(plan)
    return [read.phase] if isinstance(read, PhaseChosen) else []


def _phase(plan: Plan, wanted: str) -> Phase:
    phase = plan.phase(wanted)
    if phase is None:
        raise NotFound(f"{plan.path} has no phase {wanted}; there are: {', '.join(one.id for one in plan.phases)}")
    return phase


def phase_to_undo(at: RepositoryContext, plan: Plan, wanted: str, *, unfinished: RunStarted | None) -> str:
    """The id of the phase to undo, or a refusal; `unfinished` is a run of the plan that has not ended."""
    phase = _phase(plan, wanted)
    if unfinished is not None:
        if (unfinished.mode, unfinished.wanted) == ("undo", phase.id):
            return phase.id
        raise RefusedEarly(
            f"a run of {plan.path} has not ended; end it first: {command('runplan', 'retry', plan.path)}"
        )
    if phase.status != "done":
        raise RefusedEarly(f"phase {phase.id} of {plan.path} is not done; there is nothing to undo")
    upon = [other.id for other in reversed(plan.phases) if other.status == "done" and phase.id in other.depends]
    if upon:
        first = command("runplan", "undo", plan.path, upon[0])
        depend = f"phase {upon[0]} depends" if len(upon) == 1 else f"phases {', '.join(upon)} depend"
        raise RefusedEarly(f"{depend} on phase {phase.id}; undo {upon[0]} first: {first}")
    git, common = at.repository.git, at.repository.common_dir
    candidates = Candidates(git, common_dir=common)
    landing_to_undo(at.tip(), plan, phase, target=at.target_name, objects=git, candidates=candidates)
    return phase.id


# --- the repository -------------------------------------------------------------------------------------


def require_own_branches(at: RepositoryContext, *, plan: str, slug: str, phases: Iterable[str], tip: str) -> None:
    """Refuse branches of the user's own where the phases would be worked on, and a worktree that is in use."""
    git, root = at.repository.git, at.repository.root
    place = worktree_root(root, at.settings, at.env) / names.worktree_name(str(root), slug)
    # The run of such an agent is unknown when the journal was deleted.
    if agents := list(map(str, marked_inside(place.resolve()))) if place.is_dir() else []:
        raise RefusedEarly(
            f"an agent of an unknown run still works in {place}; wait for it, or end it: kill {' '.join(agents)}"
        )
    branches = [f"refs/heads/{names.branch(at.settings.run.branch_prefix, slug, phase)}" for phase in phases]
    store = at.store()
    for branch in (branch for branch in branches if git.tip(branch) is not None):
        known = store.count_leases(plan, branch) > 0
        if refusal := refused(git, branch, tip, known=known):
            raise RefusedEarly(refusal)


def require_same_history(at: RepositoryContext, plan: str) -> None:
    """Refuse a plan whose earlier phases landed on another copy of the target and are missing here."""
    there = at.for_plan(plan)
    git = at.repository.git
    tip = git.tip(there.target)
    # Another branch may lack the landed phases.
    if there.target == at.target or tip is None or there.settings.run.target != at.settings.run.target:
        return
    if git.run("merge-base", "--is-ancestor", tip, at.target, ok=(0, 1)).code:
        run = at.settings.run
        pull = pull_command(git, at.repository.common_dir, run.target, run.remote)
        push = command("git", "push", run.remote, run.target)
        raise RefusedEarly(
            f"{plan} has landed work on {there.target_name} that {at.target_name} lacks; "
            f"first run: {pull if modes.uses_remote(there.settings.run.landing) else push}"
        )


# --- tests and agents -----------------------------------------------------------------------------------


def require_test_command(at: RepositoryContext) -> None:
    """Refuse a repository with tests and no test command: runplan neither guesses one nor skips the tests."""
    if at.settings.tests.command:
        return
    found = toolchain.detect(*project_files(at))
    if found.shown_by:
        hint = f"; for example: command = {json.dumps(found.tests)}" if found.tests else ""
        raise RefusedEarly(
            f"the repository has tests ({found.shown_by}) but tests.command is empty; set it in runplan.toml "
            f"under [tests]{hint}"
        )


def project_files(at: RepositoryContext) -> tuple[list[str], dict[str, str]]:
    """The paths on the target that show its tools, and the texts of its manifests."""
    git, tip = at.repository.git, at.tip()
    top = git.run("ls-tree", "-z", "--name-only", "--full-tree", tip).out
    below = git.run("ls-tree", "-rz", "--name-only", "--full-tree", tip, "--", "tests/", "test/").out
    files = os.fsdecode(top + below).rstrip("\0").split("\0")
    manifests = {name: git.blob(tip, name) or b"" for name in toolchain.manifests(files)}
    return files, {name: content.decode("utf-8", "replace") for name, content in manifests.items()}


def require_agents(at: RepositoryContext) -> None:
    """Refuse agents that cannot run, files that a worktree would lack, and broken prompts."""
    agents, run, git = at.settings.agents, at.settings.run, at.repository.git
    in_dollars = at.settings.limits.in_dollars
    invocation.require_agents(agents, root=at.repository.root, caller=at.env, in_dollars=in_dollars)
    copied, tree = {posixpath.normpath(name) for name in run.copy}, git.commit(at.tip()).tree
    for role, name in agents.dispatched:
        table = agents.agent(name)
        for file in map(posixpath.normpath, invocation.worktree_files(table) if not run.setup else ()):
            on_target = trees.find(git, tree, file)[1] if file not in copied else None
            is_there = on_target is not None and on_target.mode not in (trees.TREE, trees.SUBMODULE)
            if file not in copied and not is_there:
                raise RefusedEarly(
                    f"{Reason.AGENT_MISSING}: agents.{role}: {file} is not on {at.target_name}, so no worktree has it; "
                    f"commit it on {at.target_name}, or add it to run.copy"
                )
    require_prompts(at)


def require_prompts(at: RepositoryContext) -> dict[str, Template]:
    """The prompts in force; one with unknown or missing placeholders is refused."""
    found = {role: _prompt(role, at) for role in PLACEHOLDERS}
    for template in found.values():
        template.check()
    return found


def _prompt(role: str, at: RepositoryContext) -> Template:
    """The prompt of a role: the repository's, as committed on the target, else the user's, else the package's."""
    git, name = at.repository.git, f"config/prompts/{role}.md"
    tip = git.tip(at.target)
    if tip is not None and (committed := git.blob(tip, name)) is not None:
        return Template(role=role, text=committed.decode(errors="replace"), origin=f"{name} on {at.target_name}")
    package = Path(__file__).parent.parent
    # Installed, the templates are inside the package; in a checkout, next to it.
    folders = (user_file(at.env).parent, package / "config", package.parent / "config")
    path = next(path for folder in folders if (path := folder / "prompts" / f"{role}.md").exists())
    return Template(role=role, text=path.read_text(encoding="utf-8", errors="replace"), origin=str(path))


def missing_program(at: RepositoryContext, line: str) -> str:
    """A program that a command of the settings needs and that is not here; "" for none."""
    git, root, run, path = at.repository.git, at.repository.root, at.settings.run, at.env.get("PATH", "")
    for program in toolchain.programs_of(line):
        if "/" not in program:
            if shutil.which(program, path=path) is None:
                return program
        # run.setup may create it, and run.copy brings it.
        elif not (run.setup or run.copy or (program.startswith("/") and (root / program).exists())) and (
            git.object(f"{at.tip()}:{program.removeprefix('./')}") is None
        ):
            return program
    python, module = toolchain.module_of(line)
    if module and not run.setup and not invocation.has_module(python, module, at.env):
        return f"the module {module} of {python}"
    return ""
