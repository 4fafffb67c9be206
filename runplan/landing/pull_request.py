"""Lands on the plan's own branch of a remote, from which one pull request leads to the target.

Each phase is one push with a lease, as in `direct`. The plan is read from the branch, so tracker and report live there
until the pull request is merged. Before the first landing the branch does not exist; the target's tip stands for it.

After the last phase `conclude` is called again and again, with pauses. It keeps no state of its own: what is done is
read from the forge each time, so a restart changes nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import GitFailed, Unreachable
from runplan.forge.model import ForgeDenied, Merge, NotMerged, open_conflicts
from runplan.git import remote as push
from runplan.gitfacts import LANDING, PLAN, RUN, read_trailers
from runplan.landing.lander import (
    Declined,
    Failed,
    Landed,
    Landing,
    NeedsRepair,
    Refused,
    TargetMoved,
    Waiting,
    find,
)
from runplan.names import parked_under
from runplan.plan.marks import Status
from runplan.plan.model import parse
from runplan.run.reasons import Reason
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from runplan.forge.github import GitHub
    from runplan.forge.model import Check, PullRequest
    from runplan.git.command import Git
    from runplan.git.remote import Remote
    from runplan.gitfacts import Oid
    from runplan.landing.direct import Direct
    from runplan.landing.lander import Conclusion, LandingAnswer, Progress
    from runplan.plan.model import Plan
    from runplan.settings.schema import PullRequestSettings

MAX_UPDATES = 5  #: how often the target is merged into the branch because it moved
METHODS = ("merge", "rebase", "squash")  #: in the order of preference: the first two keep the trailers


class PlanPlace(Struct, frozen=True, kw_only=True):
    """The plan that a pull request is for."""

    path: str
    slug: str
    report: str
    issues: tuple[int, ...]


class PullRequestLander:
    """Moves the branch of a plan on a remote, and brings its pull request to the target."""

    def __init__(
        self,
        git: Git,
        *,
        remote: Remote,
        target: Direct,
        tool: Path,
        plan: PlanPlace,
        settings: PullRequestSettings,
        forge: Callable[[], GitHub],
    ) -> None:
        self._git = git
        self._remote = remote
        self._target = target
        self._tool = tool  #: the repository that holds the candidate
        self._plan = plan
        self._settings = settings
        self._forge = forge
        self._number = 0  #: of the pull request, once this process has seen it
        self.closed: Failed | None = None  #: a person closed the pull request or deleted its branch
        self.ref = remote.ref

    # --- phases: the branch -------------------------------------------------------------------------------

    def tip(self) -> Oid | None:
        """The tip of the branch, or of the target while the remote has no such branch; fetched now."""
        return self._branch_tip() or self._target.tip()

    def target_tip(self) -> Oid | None:
        return self._target.tip()

    def _branch_tip(self) -> Oid | None:
        tip = self._remote.fetch()
        if tip is None:
            self._keep_deleted()
        return tip

    def _keep_deleted(self) -> None:
        """Park the commits of a branch that is gone from the remote, unless they were merged."""
        last = self._git.tip(self.ref)
        if last is not None and not self._is_on_target(last):
            pull = self._find()
            if pull is None or not pull.is_merged or pull.head != last:
                gone = f"{self._remote.branch} was deleted on {self._remote.name} before it was merged"
                self.closed = Failed(Reason.PR_CLOSED, f"{gone}; its commits are kept at {self._park(last)}")
        self._forget()

    def _is_on_target(self, oid: Oid) -> bool:
        target = self._target.tip()
        return target is not None and self._git.is_ancestor(oid, target)

    def prepare(self, *, id: str, old: Oid, new: Oid) -> Landing:
        return Landing(id=id, ref=self.ref, old=old, new=new)

    def land(self, landing: Landing, deliver: Callable[[], None]) -> LandingAnswer:
        """Push with a lease; a fetch settles every unclear answer."""
        before = self._branch_tip()
        if (seen := self._seen(landing, before)) is not None:
            return seen
        if before not in (None, landing.old):
            return Refused(reason=TargetMoved(tip=before or ""))
        if self.closed is not None:
            return Refused(reason=Declined(why=self.closed.why, reason=self.closed.reason))
        if before is None and not self._is_on_target(landing.old):  # merged by squash
            return Refused(reason=TargetMoved(tip=self._target.tip() or ""))
        if not self._git.at(self._git.cwd, f"--git-dir={self._tool}").is_ancestor(landing.old, landing.new):
            raise GitFailed(f"{landing.new:.12} is not built on {landing.old:.12}; it is not pushed to {self.ref}")
        answer = self._remote.push(landing.new, old=before or "", source=self._tool)
        if not isinstance(answer, push.Taken):
            return self._not_taken(landing, answer)
        deliver()
        self._git.update_refs(f"update {self.ref} {landing.new}")
        return Landed(tip=landing.new, note=self._publish_anyhow(landing.new, is_new=before is None))

    def _not_taken(self, landing: Landing, answer: push.Declined | push.Uncertain) -> LandingAnswer:
        now = self._branch_tip()
        if (seen := self._seen(landing, now)) is not None:
            return seen
        name, branch = self._remote.name, self._remote.branch
        if isinstance(answer, push.Declined):
            return Refused(reason=Declined(why=f"{name} does not accept a push to {branch}: {answer.said}"))
        if now not in (None, landing.old):
            return Refused(reason=TargetMoved(tip=now or ""))
        raise Unreachable(f"the push to {branch} on {name} failed and changed nothing: {answer.said}")

    def _seen(self, landing: Landing, tip: Oid | None) -> Landed | None:
        return Landed(tip=tip) if tip is not None and find(self._git, landing, tip) else None

    def observe(self, landing: Landing) -> Landed | None:
        """Whether the last fetch showed the landing; reliable after `recover`."""
        return self._seen(landing, self._git.tip(self.ref))

    def recover(self, landing: Landing) -> None:  # noqa: ARG002
        """A fetch shows the result of an interrupted push."""
        self._branch_tip()

    # --- the pull request ---------------------------------------------------------------------------------

    def conclude(self, progress: Progress, *, now: float) -> Conclusion:
        """Bring the pull request one step closer to its merge; what it waits for, or that it is merged."""
        tip = self._branch_tip()
        forge = self._forge()
        if tip is None:
            return self._without_branch(progress)
        pull = self._publish(tip)
        if pull.is_merged:
            return self._close_up(pull, pull.merge_commit)
        if self.closed is not None:
            return self.closed
        if pull.base != self._target.branch:
            why = f"{_name(pull)} leads to {pull.base} instead of {self._target.branch}; change it back: {pull.url}"
            return Waiting(kind="review", why=why)
        if not self._is_ours(pull.head, progress):
            if f"{PLAN}: " in pull.merge_message:  # else a person asked for auto-merge
                forge.cancel_merge(pull.number)
            what = "has commits that runplan did not push, or lacks some that it did"
            why = f"{_name(pull)} {what}; review and merge it: {pull.url}"
            return Waiting(kind="review", why=why)
        step = next_step(pull, self._checks(pull, now), progress)
        if isinstance(step, NeedsRepair) and not step.merge:
            step = NeedsRepair(
                title=step.title, complaint=f"{step.complaint}\n\n{forge.failure_log(pull.head)}".strip()
            )
        return step if step is not None else self._merge(pull, [*dict.fromkeys((self._settings.method, *METHODS))])

    def others(self, touches: Sequence[str]) -> tuple[str, ...]:
        """Remarks on other open pull requests that change paths of a phase."""
        if not touches:
            return ()
        try:
            forge, base = self._forge(), self._target.branch
            own = self._find()
            found = open_conflicts(forge.open_files(base), touches, own=own.number if own else 0)
        except Unreachable as error:
            return (f"other open pull requests were not compared: {error}",)
        return tuple(f"pull request #{number} is open and changes {path} too" for number, path in found.items())

    def _without_branch(self, progress: Progress) -> Conclusion:
        """The branch is gone from the remote: deleted after the merge, or by a person instead of it."""
        if self.closed is not None:
            return self.closed
        pull = self._find()
        if pull is not None and pull.is_merged:
            return self._close_up(pull, pull.merge_commit)
        if not progress.pushed or self._is_complete(self._target.tip() or ""):
            return Landed(tip="")
        gone = f"{self._remote.branch} was deleted on {self._remote.name} before it was merged"
        return Failed(Reason.PR_CLOSED, f"{gone}; its commits are kept at {self._park(progress.pushed[-1])}")

    def _is_complete(self, tip: Oid) -> bool:
        plan = parse(self._git.blob(tip, self._plan.path) or b"", path=self._plan.path)
        return all(phase.status is Status.DONE for phase in plan.phases)

    def _publish_anyhow(self, tip: Oid, *, is_new: bool) -> str:
        """Open the pull request, or show the new phase in it; where it is, or that the forge does not answer."""
        try:
            pull = self._publish(tip, is_new=is_new)
        except Unreachable as error:
            return f"the pull request does not show this phase yet: {error}"
        return f"{_name(pull)}: {pull.url}"

    def _publish(self, tip: Oid, *, is_new: bool = False) -> PullRequest:
        """Open the pull request, or bring its description up to date; a new branch has no open one."""
        forge, branch, base = self._forge(), self._remote.branch, self._target.branch
        plan = parse(self._git.blob(tip, self._plan.path) or b"", path=self._plan.path)
        found = None if is_new else self._find()
        if found is not None and self._is_over(found, tip):
            found = None
        before = found.body if found else ""
        body = body_of(before, plan, report=self._plan.report, fixes=self._plan.issues)
        if found is None:
            found = forge.create(branch=branch, base=base, title=title_of(self._plan.slug, plan), body=body)
        elif found.is_open and body != before:
            forge.edit(found.number, body=body)
        elif not found.is_open and not found.is_merged:
            drop = command("git", "push", self._remote.name, "--delete", branch)
            kept = f"its commits are kept at {self._park(tip)}"
            self.closed = Failed(Reason.PR_CLOSED, f"{_name(found)} was closed; {kept}; to start the plan over: {drop}")
        self._number = found.number
        return found

    def _find(self) -> PullRequest | None:
        if self._number:
            return self._forge().read(self._number)
        return self._forge().find(branch=self._remote.branch, base=self._target.branch)

    def _is_over(self, pull: PullRequest, tip: Oid) -> bool:
        """Whether the pull request was for other commits: phases landed after its merge, or the plan began anew."""
        if pull.is_merged:
            return pull.head != tip
        is_known = self._git.known(pull.head) is not None
        return not pull.is_open and not (is_known and self._git.is_ancestor(pull.head, tip))

    def _is_ours(self, head: Oid, progress: Progress) -> bool:
        """Whether runplan pushed the commit for the whole plan; it does not merge what somebody else has added."""
        if self._git.known(head) is None or not self._is_complete(head):
            return False
        if progress.pushed:
            return head in progress.pushed
        trailers = read_trailers(self._git.commit(head).message)
        return LANDING in trailers and trailers.get(PLAN) == self._plan.path

    def _checks(self, pull: PullRequest, now: float) -> tuple[Check, ...] | None:
        """The checks of the pushed commit; None while the first one is waited for."""
        checks = self._forge().checks(pull.head)
        if checks:
            return checks
        pushed = float(self._git.commit(pull.head).authored.split()[0])
        is_late = now - pushed > self._settings.checks_wait_s
        return () if is_late and not self._forge().rules(pull.base).checks else None

    def _merge(self, pull: PullRequest, methods: Sequence[str]) -> Conclusion:
        """Merge by the first of the methods that the repository allows."""
        forge, trailers = self._forge(), read_trailers(self._git.commit(pull.head).message)
        # No phase: `undo` would take the merge for the landing of one.
        message = "\n".join(f"{key}: {trailers[key]}" for key in (PLAN, RUN) if key in trailers)
        how = Merge(head=pull.head, method=methods[0], title=f"{pull.title} (#{pull.number})", message=message)
        answer = forge.merge(pull.number, how)
        if not isinstance(answer, NotMerged):
            return self._close_up(pull, answer)
        if answer.hindrance == "method" and methods[1:]:
            return self._merge(pull, methods[1:])
        is_queue = answer.hindrance == "queue"
        if is_queue or answer.hindrance in ("checks", "review"):
            later = forge.merge_later(pull.number, how, queue=is_queue)
            if later is None:
                return Waiting(kind="merge", why=f"GitHub merges {_name(pull)} when its rules are met: {answer.said}")
        kinds = {"checks": "checks", "review": "review", "refused": "review"}
        return Waiting(kind=kinds.get(answer.hindrance, "merge"), why=f"{_name(pull)}: {answer.said}")

    def _close_up(self, pull: PullRequest, merged: Oid) -> Landed:
        """After the merge: the local target follows, the issues are closed, the branch is deleted.

        The branch goes last: without it a restart finds nothing left to do.
        """
        notes = [f"{_name(pull)} is merged: {pull.url}", self._follow()]
        notes += [self._close_issue(issue, pull) for issue in self._plan.issues]
        notes.append(self._delete_branch(pull.head))
        self._forget()
        self._git.run("update-ref", "-d", self._parked(pull.head))
        return Landed(tip=merged, note="; ".join(filter(None, notes)))

    def _delete_branch(self, merged: Oid) -> str:
        """Delete the branch, unless somebody pushed to it after the merge; a note when it stays."""
        if self._git.tip(self.ref) is None:
            return ""
        answer = self._remote.push("", old=merged, source=self._tool)
        if isinstance(answer, push.Taken) or (tip := self._remote.fetch()) is None:
            return ""
        if tip == merged and isinstance(answer, push.Uncertain):
            raise Unreachable(f"the branch {self._remote.branch} was not deleted: {answer.said}")
        said = answer.said if tip == merged else f"it has commits that were pushed after the merge, up to {tip:.12}"
        return f"the branch {self._remote.branch} stays on {self._remote.name}: {said}"

    def _close_issue(self, issue: int, pull: PullRequest) -> str:
        """Close the issue with one comment; a note when it is not there, or the token may not."""
        forge, said = self._forge(), f"Done by pull request #{pull.number} (plan `{self._plan.path}`)."
        try:
            forge.comment(issue, marker=f"runplan {self._plan.path} #{pull.number}", text=said)
            forge.close_issue(issue)
        except ForgeDenied as error:
            return f"issue #{issue} is not closed: {error}"
        return ""

    def _follow(self) -> str:
        tip, here = self._target.tip(), self._target.local_tip()
        if tip is None or here in (None, tip):
            return ""
        return self._target.follow(Landing(id="", ref=self._target.ref, old="", new=tip, follows=here or ""))

    def _park(self, tip: Oid) -> str:
        ref = self._parked(tip)
        self._git.update_refs(f"update {ref} {tip}")
        return ref

    def _parked(self, tip: Oid) -> str:
        return f"{parked_under(self._plan.slug, 'pr')}{tip[:12]}"

    def _forget(self) -> None:
        """Delete the tracking refs of a branch that is gone from the remote; a push makes one in its repository."""
        with self._git.at(self._git.cwd, f"--git-dir={self._tool}") as tool:
            for git in (self._git, tool):
                if git.tip(self.ref) is not None:
                    git.run("update-ref", "-d", self.ref)


def _name(pull: PullRequest) -> str:
    return f"pull request #{pull.number}"


def _update(pull: PullRequest) -> NeedsRepair:
    return NeedsRepair(
        title=f"Merge {pull.base} into {_name(pull)}", complaint=f"{_name(pull)} is behind {pull.base}", merge=True
    )


def next_step(pull: PullRequest, checks: tuple[Check, ...] | None, progress: Progress) -> Conclusion | None:
    """What hinders the merge of an open pull request; None when nothing does.

    `checks` is None while the first check is waited for.
    """
    name = _name(pull)
    if pull.state in ("dirty", "behind"):
        if progress.updates < MAX_UPDATES:
            return _update(pull)
        why = f"{name} was brought up to date {progress.updates} times and is behind {pull.base} again"
        return Failed(Reason.CONFLICT if pull.state == "dirty" else Reason.TARGET_MOVING, why)
    failed = [check.name for check in checks or () if check.state == "failed"]
    if failed:
        why = f"checks of {name} failed: {', '.join(failed)}"
        if progress.repairs < progress.max_repairs:
            return NeedsRepair(title=f"Fix {name}", complaint=why)
        return Failed(Reason.CI_FAILED, why)
    if checks is None or any(check.state == "pending" for check in checks):
        return Waiting(kind="checks", why=f"the checks of {name} are not finished")
    if pull.draft:
        return Waiting(kind="review", why=f"{name} is a draft; mark it as ready: {pull.url}")
    if not progress.may_merge:
        return Waiting(kind="review", why=f"{name} passed its checks; review and merge it: {pull.url}")
    if pull.mergeable is None:
        return Waiting(kind="merge", why=f"GitHub computes whether {name} can be merged")
    if pull.auto_merge:
        return Waiting(kind="merge", why=f"GitHub merges {name} when its rules are met")
    return None


# --- title and description --------------------------------------------------------------------------------

BEGIN, END = "<!-- runplan:progress -->", "<!-- /runplan:progress -->"
_BLOCK = re.compile(f"{BEGIN}.*?{END}", re.DOTALL)
LONGEST_TITLE = 120


def title_of(slug: str, plan: Plan) -> str:
    return f"[{slug}] {plan.title}"[:LONGEST_TITLE]


def body_of(before: str, plan: Plan, *, report: str, fixes: Sequence[int]) -> str:
    """The description with the progress of the plan; text outside of the marked block stays as it is."""
    block = f"{BEGIN}\n{_progress(plan, report)}\n{END}"
    if _BLOCK.search(before):
        return _BLOCK.sub(lambda _: block, before, count=1)
    closing = "".join(f"\n\nFixes #{number}" for number in fixes)
    return f"{before.rstrip()}\n\n{block}{closing}".lstrip()


def _progress(plan: Plan, report: str) -> str:
    rows = (f"- [{'x' if phase.status is Status.DONE else ' '}] {phase.id} {phase.title}" for phase in plan.phases)
    done = sum(phase.status is Status.DONE for phase in plan.phases)
    return "\n".join([f"**{done} of {len(plan.phases)} phases** of `{plan.path}` · report: `{report}`", "", *rows])
