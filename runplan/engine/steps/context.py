"""The context of a run, which its steps work with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.agents.invocation import Agents
from runplan.adapters.clock import SystemClock
from runplan.adapters.git.command import Git
from runplan.adapters.git.handover import AgentZone
from runplan.adapters.git.objects import Candidates, Signature, read_plan
from runplan.adapters.git.removal import Removal
from runplan.adapters.git.repository import Fingerprints
from runplan.adapters.git.workspace import Workspace
from runplan.adapters.git.zones import ProofWorktree, Zones
from runplan.adapters.store.claims import Claims
from runplan.adapters.store.protocol import Store
from runplan.adapters.supervise.dispatches import Dispatches
from runplan.domain import names
from runplan.domain.errors import PlanUnreadable, Unreachable
from runplan.domain.gitfacts import Identity
from runplan.domain.plan.marks import PhaseSettings
from runplan.domain.plan.model import Plan, parse_plan
from runplan.domain.run import events as e
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.recorded import Recorded
from runplan.domain.run.state import RunState
from runplan.domain.settings.schema import Settings, set_for_phase
from runplan.domain.text import command
from runplan.domain.times import git_date, iso
from runplan.engine.landing.lander import Lander
from runplan.engine.landing.pull_request import PullRequestLander
from runplan.engine.report.lessons import choose_lessons, read_lessons


class OpenRepository(Struct, frozen=True, kw_only=True):
    """The parts of a repository that is open for work in the thread that opened it; its runs share them."""

    user: Identity
    sign: bool  #: whether landed commits are signed
    clock: SystemClock
    store: Store
    claims: Claims
    dispatches: Dispatches
    workspace: Workspace
    labels: tuple[str, ...] | None = None  #: of this host; None without a fleet


class RunContext(OpenRepository, frozen=True, kw_only=True):
    run: str
    plan: str
    slug: str
    root: Path  #: the main checkout
    env: Mapping[str, str]  #: of the caller
    settings: Settings
    prompts: Mapping[str, str]  #: templates by role
    zones: Zones
    removal: Removal
    candidates: Candidates
    lander: Lander
    direct: Lander | None  #: of the phases with `Execution: direct`; None where none may land so
    fingerprints: Fingerprints
    agents: Agents
    lane: str = ""  #: the lane of a phase that is worked in parallel with others
    zone_lane: str = ""  #: the lane whose worktree its agents use
    proof_lane: str = ""  #: the lane whose proof worktree it uses
    reuses_results: bool = True  #: a command whose result is known does not run again

    def for_state(self, state: RunState) -> RunContext:
        """The context of the run or lane, with its worktrees and the lander of its attempt."""
        context = replace(self, lane=state.lane, zone_lane=state.zone, proof_lane=state.proof)
        if state.chosen is not None and state.chosen.own != PhaseSettings():
            is_last = state.chosen.ends or (isinstance(state.attempt, WorkAttempt) and state.attempt.is_last)
            context = replace(context, settings=set_for_phase(self.settings, state.chosen.own, is_last=is_last))
        if state.chosen is not None and state.chosen.group and isinstance(self.lander, PullRequestLander):
            return replace(context, lander=self.lander.of_group(state.chosen.group))
        is_direct = isinstance(state.chosen, e.PhaseChosen) and state.chosen.direct
        return replace(context, lander=self.direct) if is_direct and self.direct is not None else context

    @property
    def objects(self) -> Git:
        """runplan's own repository, which sees the objects of the user's."""
        return self.workspace.git

    @property
    def mark(self) -> str:
        """The run and its lane: the prefix of the ids of dispatches, candidates and landings."""
        return names.mark(self.run, self.lane)

    def worktree(self, lane: str) -> str:
        return names.worktree_name(str(self.root), self.slug, lane)

    @property
    def report(self) -> str:
        return names.report_path(self.settings.paths.reports, self.slug)

    @property
    def index(self) -> str:
        return str(PurePosixPath(self.settings.paths.reports) / "README.md")

    @property
    def bookkeeping(self) -> tuple[str, ...]:
        """The files that runplan writes and agents may not change."""
        return (self.plan, self.report, self.index)

    @property
    def copied(self) -> tuple[str, ...]:
        """The files of the checkout that worktrees get: run.copy, and the agents' personal files that are untracked."""
        copy = self.settings.run.copy
        present = (name for name in self.agents.personal if name not in copy and (self.root / name).is_file())
        return (*copy, *(name for name in present if self.objects.blob(self.tip(), name) is None))

    @property
    def personal(self) -> tuple[str, ...]:
        """The files that are the user's own wherever they are: they never become work."""
        return (*self.settings.run.copy, *self.agents.personal)

    def list_told(self, *, since_landing: bool = False) -> list[e.Told]:
        """What people have told the agents of this run, or since it landed something last."""
        landed = self.store.list_facts(e.Landed, plan=self.plan) if since_landing else ()
        since = max((fact.seq for fact in landed if fact.run == self.run), default=0)
        told = self.store.list_facts(e.Told, plan=self.plan)
        return [fact.event for fact in told if fact.run == self.run and fact.seq > since]

    def choose_lessons(self, options: e.RunStarted) -> list[str]:
        """What the prompts of this run say of earlier ones."""
        is_told = self.settings.plan.memory and options.memory
        return choose_lessons(read_lessons(self.store, without=self.run)) if is_told else []

    def branch(self, phase: str) -> str:
        return f"refs/heads/{names.branch(self.settings.run.branch_prefix, self.slug, phase or 'repair')}"

    def tip(self) -> str:
        """The commit of the target; the branch may have been deleted during the run."""
        if (tip := self.lander.tip()) is not None:
            return tip
        run = self.settings.run
        last = names.base_ref(self.mark)  # the tip on which the phase was begun
        place = ""
        again = command("git", "branch", run.target, last)
        if self.lander.ref.startswith("refs/remotes/"):
            place = f" on {run.remote}"
            again = command("git", "push", run.remote, f"{last}:refs/heads/{run.target}")
        raise Unreachable(f"the branch {run.target} is gone{place}; create it again: {again}")

    def plan_at(self, commit: str) -> tuple[Plan, bytes]:
        """The plan in this commit. Raises PlanUnreadable, also when it is not there."""
        text = read_plan(self.objects, f"{commit}:{self.plan}", self.plan) if commit else None
        if text is None:
            raise PlanUnreadable(f"{self.plan} is no longer on {self.settings.run.target}")
        return parse_plan(text, path=self.plan), text

    def read_file(self, commit: str, path: str) -> str | None:
        content = self.objects.blob(commit, path)
        return None if content is None else content.decode("utf-8", "replace")

    def failures(self, phase: str) -> list[Recorded[e.PhaseFailed]]:
        """The failed attempts at the phase since it last landed; oldest first."""
        failed = [fact for fact in self.store.list_facts(e.PhaseFailed, plan=self.plan) if fact.event.phase == phase]
        if not failed:  # usual; the landings of a long plan are many
            return []
        landings = self.store.list_facts(e.Landed, plan=self.plan)
        landed = max((fact.seq for fact in landings if fact.event.phase == phase), default=0)
        return [fact for fact in failed if fact.seq > landed]

    def find_plan_base(self, attempt: WorkAttempt) -> str:
        """The target before the first phase of the plan landed, as far as the journal knows."""
        facts = self.store.list_facts
        landed = {fact.event.id: fact.event.phase for fact in facts(e.Landed, plan=self.plan)}
        first = next((fact.event for fact in facts(e.LandingStarted, plan=self.plan) if fact.event.id in landed), None)
        # What another plan or a command does lands before the row of its phase.
        chosen = (fact.event for fact in facts(e.SubplanChosen, e.DelegateChosen, plan=self.plan))
        tips = (event.tip for event in chosen if first and event.phase == landed[first.id])
        base = next(tips, first.old if first else "")
        return base if base and self.objects.tip(base) is not None else attempt.onto

    def answers(self, phase: str) -> e.Rows:
        """The questions of the phase's agents that a person answered, with the answers; of all attempts."""
        asked = [fact.event for fact in self.store.list_facts(e.QuestionAsked, plan=self.plan)]
        if not asked:
            return ()
        answers = {fact.event.id: fact.event.text for fact in self.store.list_facts(e.QuestionAnswered, plan=self.plan)}
        of_phase = (question for question in asked if question.phase == phase)
        return tuple((question.text, answers[question.id]) for question in of_phase if question.id in answers)

    @property
    def zone(self) -> AgentZone:
        return AgentZone(self.zones, self.worktree(self.zone_lane))

    @property
    def proof(self) -> ProofWorktree:
        return ProofWorktree(self.zones, self.worktree(self.proof_lane))

    def iso(self) -> str:
        return iso(self.clock.now())

    def signature(self) -> Signature:
        return Signature(author=self.user, committer=self.user, when=self.git_date(), sign=self.sign)

    def git_date(self) -> str:
        return git_date(self.clock.now())
