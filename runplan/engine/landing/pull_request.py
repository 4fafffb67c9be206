"""Lands on the plan's own branch of a remote, from which one pull request leads to the target.

Each phase is one push with a lease, as in `direct`. The plan is read from the branch, so tracker and report live there
until the pull request is merged. Before the first landing the branch does not exist; the target's tip stands for it.

After the last phase `conclude` is called again and again, with pauses. It keeps no state of its own: what is done is
read from the forge each time, so a restart changes nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from runplan.adapters.forge import protocol as m
from runplan.adapters.git.command import Git
from runplan.adapters.git.objects import read_plan
from runplan.adapters.git.remote import Remote
from runplan.domain.errors import NotAllowed, PlanUnreadable, TokenRefused, Unreachable
from runplan.domain.gitfacts import LANDING, PLAN, RUN, UNDOES, Commit, Oid, read_trailers
from runplan.domain.names import parked_under
from runplan.domain.plan.marks import Status
from runplan.domain.plan.model import Plan, parse_plan
from runplan.domain.run.events import LandingStarted
from runplan.domain.run.kinds import Reason, WaitKind
from runplan.domain.settings.schema import PullRequestSettings
from runplan.domain.text import command, counted, inert
from runplan.engine.landing import conversation as talk, description, merging
from runplan.engine.landing.direct import Direct, RemoteLander
from runplan.engine.landing.lander import (
    Commanded,
    Conclusion,
    DueMessages,
    Failed,
    Landed,
    NeedsRepair,
    Progress,
    Refused,
    Sighting,
    TargetMoved,
    Waiting,
    find_landing,
)
from runplan.engine.landing.stack import TOP, Stack, narrow_plan

FIRST_CHECK_S = 600.0  #: for which the first pull request of a repository waits for the checks of its workflows
MAX_REFUSALS = 2  #: of a method for one head on one tip of the target; then another allowed one is tried
DESCRIBED_EVERY_S = 1800.0  #: the description shows new phases at most so often, and the last one at once


class PlanPlace(Struct, frozen=True, kw_only=True):
    path: str
    slug: str
    report: str
    issues: tuple[int, ...]
    describe: Callable[[Plan, bytes, str], description.PlanProgress]  #: of a group, with the text of the whole plan
    seen: Sighting = field(default_factory=Sighting)


class PullRequestLander(RemoteLander):
    def __init__(
        self,
        git: Git,
        remote: Remote,
        *,
        target: Direct,
        tool: Path,
        plan: PlanPlace,
        settings: PullRequestSettings,
        forge: Callable[[], m.Forge],
        group: str = TOP,
        stack: "Stack[PullRequestLander] | None" = None,
    ) -> None:
        super().__init__(git, remote, tool, self._look_for_landing, self._show_landing)
        self.target = target
        self._plan = plan
        self._settings = settings
        self.forge = forge
        self.seen = plan.seen
        self._is_first_look = True
        self._merged_tip: Oid = ""  #: of the branch, when the target has all of its changes in other commits
        self.closed: Failed | None = None  #: a person closed the pull request or deleted its branch
        self.group = group
        self.stack = stack
        self.may_be_ready = stack is None  #: in a stack only the lowest pull request

    def tip(self) -> Oid | None:
        """The tip of the branch; or of the target, while the remote has no branch with changes of its own."""
        tip = self.branch_tip()
        if tip and self._is_first_look and self._is_merged(tip):
            self._merged_tip = tip
        self._is_first_look = False
        return tip if tip and tip != self._merged_tip else self.target.tip()

    def of_group(self, group: str) -> "PullRequestLander":
        return self.stack.of(group) if self.stack else self

    def target_tip(self) -> Oid:
        tip = self.target.tip()
        if tip is None:
            raise Unreachable(f"{self._remote.name} has no branch {self.target.branch} any more; create it again")
        return tip

    def branch_tip(self) -> Oid | None:
        """The tip on the remote. Commits of a branch that is gone from there are parked, unless they were merged."""
        tip = self._remote.fetch()
        last = self._git.tip(self.ref)
        if tip is None and last is not None:
            if not self._is_on_target(last):
                pull = self.find_pull()
                if pull is None or not pull.is_merged or pull.head != last:
                    self.closed = self._fail_for_deleted(last)
                elif not self._has_reached_target(pull):
                    self.closed = self._fail_for_closed(pull, last)
            self.drop_tracking_refs()
        return tip

    def _fail_for_deleted(self, last: Oid) -> Failed:
        gone = f"{self.branch} was deleted on {self._remote.name} before it was merged"
        return Failed(Reason.PR_CLOSED, f"{gone}; its commits are kept at {self._park_tip(last)}")

    def _fail_for_closed(self, pull: m.PullRequest, tip: Oid, over: str = "") -> Failed:
        lacks = f"was merged into {pull.base}, which {self.target.branch} lacks; merge it there"
        why = f"{pull.name} {lacks if pull.is_merged else 'was closed'}"
        return Failed(Reason.PR_CLOSED, f"{why}; its commits are kept at {self._park_tip(tip)}{over}")

    def _has_reached_target(self, pull: m.PullRequest) -> bool:
        """Whether a merged pull request has brought its commits to the target; a person may have led it elsewhere."""
        if pull.base == self.target.branch or self._git.known(pull.head) is None:
            return True
        return self._is_on_target(pull.head) or self._adds_nothing(pull.head, self.target_tip())

    def _is_on_target(self, oid: Oid) -> bool:
        target = self.target.tip()
        return target is not None and self._git.is_ancestor(oid, target)

    def _is_merged(self, tip: Oid) -> bool:
        """Whether a person brought the branch to the target by other commits, such as a squash, and left it there."""
        # Either a merge of it would change nothing, or the forge merged its pull request. The next phase begins on the
        # target then: on the branch, its changes would conflict with those of the other commits.
        target = self.target.tip()
        if target is None or self._git.is_ancestor(target, tip):
            return False
        if self._adds_nothing(tip, target):
            return True
        pull = self.find_pull()
        return pull is not None and pull.is_merged and pull.head == tip and self._has_reached_target(pull)

    def _adds_nothing(self, tip: Oid, target: Oid) -> bool:
        """Whether the target has all changes of this commit, in others."""
        with self._git.at(self._git.cwd, f"--git-dir={self._tool}") as tool:
            merged = tool.run("merge-tree", "--write-tree", "--no-messages", target, tip, ok=(0, 1))
        return merged.code == 0 and merged.text == self._git.commit(target).tree

    def _look_for_landing(self, landing: LandingStarted) -> Landed | Refused | Oid:
        tip = self.branch_tip()
        if tip is not None and find_landing(self._git, landing, tip):
            return Landed(tip=tip)
        if self.closed is not None:
            return self.closed
        if tip is not None and tip != self._merged_tip and self._is_merged(tip):
            self._merged_tip = tip
        if self._is_on_target(landing.old) if tip in (None, self._merged_tip) else tip == landing.old:
            return tip or ""
        return TargetMoved(tip=tip or self.target.tip() or "")  # without a tip: merged by squash

    def _show_landing(self, landing: LandingStarted, is_new: bool) -> str:
        """Open the pull request, or show the new phase in it; where it is, or that the forge does not answer."""
        try:
            undo = self._undo_of(landing.new)
            is_lower = self.stack is not None and self.group == TOP and not undo
            owner = self.stack.choose_owner(landing.new) if self.stack and is_lower else self
            known = None if is_new or owner.is_description_due(landing.new) else owner.seen.pull
            pull = known or owner.publish(landing.new, is_new=is_new and owner is self and not self.stack)
            self.pull = pull.place
            done = (m.CheckState.PASSED, undo) if undo else description.status_of(owner.read_plan(landing.new))
            owner.set_status(landing.new, *done)
        except Unreachable as error:
            if isinstance(error, TokenRefused):
                self.forget()
            return f"the pull request does not show this phase yet: {error}"
        return "; ".join([f"{pull.name}: {pull.url}", *self._take_remarks()])

    def conclude(self, progress: Progress, *, now: float) -> Conclusion:
        """Bring the pull request one step closer to its merge; what it waits for, or that it is merged."""
        tip = self.stack.bring_up(self) if self.stack else self.branch_tip()
        if tip is None:
            if self.closed is not None:
                return self.closed
            pull = self.find_pull()
            if pull is not None and pull.is_merged:
                if not self._has_reached_target(pull):
                    return self._fail_for_closed(pull, pull.head)
                return self._end_after_merge(pull, progress)
            if self.group or not progress.pushed or self._is_complete(self.target.tip() or ""):
                return Landed(tip="")
            return self._fail_for_deleted(progress.pushed[-1])
        forge = self.forge()
        pull = self.publish(tip)
        if self.closed is not None:
            return self.closed
        if pull.is_merged:
            return self._end_after_merge(pull, progress)
        activity = forge.read_activity(pull.number, pull.head)
        # The comment on a failure of an earlier run changes, now that every phase has landed.
        marker = talk.result_marker(self._plan.path)
        landed = (
            f"runplan failed here before, and has continued its work (plan `{self._plan.path}`): all phases landed."
        )
        if any(landed not in message.text for message in talk.find_own(forge, activity.messages, marker)):
            with suppress(NotAllowed):
                forge.put_comment(pull.number, marker=marker, text=landed, is_pull=True)
        due = talk.converse(forge, pull.number, activity.messages, progress, self.seen)
        if due.commands:
            return due.commands[0]
        if held := self._hold_merge(pull, progress):
            return held
        self.set_status(pull.head, *description.status_of(self.read_plan(pull.head)))
        checks = activity.checks
        asked = self._handle_requests(due, pull, activity, progress)
        red = self._look_at_target(pull, checks)
        step = asked if isinstance(asked, NeedsRepair) else merging.next_step(pull, checks, progress, red)
        if asked is not None and (step is None or isinstance(step, Waiting)):
            step = asked
        if isinstance(step, NeedsRepair) and not step.merge and not step.comments:
            step = replace(step, complaint=f"{step.complaint}\n\n{forge.read_failure_log(pull.head)}".strip())
        if step is not None:
            return step
        quiet_s = now - max(progress.pushed_at, self._committed_at(pull.head), *(check.changed for check in checks))
        quiet = (quiet_s >= self._settings.checks_wait_s, quiet_s >= FIRST_CHECK_S)
        seen = (pull, activity, quiet)
        if self.seen.held is None or self.seen.held[0] != seen:
            answer = self._try_merge(pull, checks, quiet, progress)
            again = () if pull.auto_merge else (WaitKind.ISSUE, WaitKind.MERGE)
            is_held = isinstance(answer, Waiting) and answer.kind not in again
            self.seen.held = (seen, answer) if is_held else None
            return answer
        return (pull.auto_merge and self._find_changed_issues(pull, progress)) or self.seen.held[1]

    def _hold_merge(self, pull: m.PullRequest, progress: Progress) -> Waiting | NeedsRepair | None:
        """Why its checks do not matter yet: a person has changed it, or in a stack the target is to be merged first."""
        if pull.base != self.target.branch:
            why = f"{pull.name} leads to {pull.base} instead of {self.target.branch}; change it back: {pull.url}"
            return Waiting(kind=WaitKind.REVIEW, why=why)
        is_whole = self._git.known(pull.head) is not None and self._is_complete(pull.head)
        if not is_whole or not merging.is_ours(self._git, pull.head, self.target_tip(), progress, self._plan.path):
            self._cancel_own_merge(pull)
            foreign = "has commits that runplan did not push, or lacks some that it did"
            return Waiting(kind=WaitKind.REVIEW, why=f"{pull.name} {foreign}; review and merge it: {pull.url}")
        below, merged = [("", ""), *progress.merged.values()][-1] if self.stack else ("", "")
        tip = self.target_tip()
        if not below or self._git.known(below) is None or self._git.is_ancestor(below, tip):
            return None
        is_on_target = self._git.known(merged) is not None and self._git.is_ancestor(merged, tip)
        is_done = not is_on_target or self._git.is_ancestor(merged, pull.head)
        if is_done or not (since := self.merge_base(pull.head, below)):
            return None
        title = f"Merge {pull.base} into {pull.name}"  # it has the one below in other commits
        return NeedsRepair(title=title, complaint=f"{pull.base} has the one below", merge=True, since=since)

    def _try_merge(
        self, pull: m.PullRequest, checks: Sequence[m.PullCheck], quiet: tuple[bool, bool], progress: Progress
    ) -> Conclusion:
        """Merge by an allowed method, or have the forge merge it when the rules of the target are met."""
        forge = self.forge()
        target = forge.read_target(pull.base, number=pull.number)
        is_stable, is_late = quiet
        has_begun = checks or is_late or not target.is_first
        workflows = [] if has_begun else merging.list_workflows(self._git, self.target_tip())
        waiting = merging.before_merge(pull, checks, target, is_stable=is_stable, workflows=workflows)
        if self.seen.status is None and m.STATUS in target.checks and pull.state is m.MergeState.BLOCKED:
            self.seen.status = ("", "")  # the next look tries again
            why = f"{pull.base} requires the commit status {m.STATUS}, which the token may not set"
            merge = f"allow it to, or merge {pull.name} yourself: {pull.url}"
            return Waiting(kind=WaitKind.MERGE, why=f"{why}; {merge}")
        if waiting is not None:
            if target.objections:
                self._cancel_own_merge(pull)
            return waiting
        if changed := self._find_changed_issues(pull, progress):
            return changed
        wanted = self._settings.method
        tried = (pull.head, self.target_tip()) if self.seen.refused else None
        refused = [method for place, method in self.seen.refused if place == tried]
        refused += [] if pull.can_rebase else ["rebase"] * MAX_REFUSALS
        open_methods = tuple(method for method in target.methods if refused.count(method) < MAX_REFUSALS)
        method = replace(target, methods=open_methods or target.methods).choose_method(wanted)
        trailers = read_trailers(self._git.commit(pull.head).message)
        if not method and not target.queue:
            why = f"{pull.base} allows no merge method; allow one in its settings: {pull.url}"
            return Waiting(kind=WaitKind.MERGE, why=why)
        # No phase: `undo` would take the merge for the landing of one.
        message = "\n".join(f"{key}: {trailers[key]}" for key in (PLAN, RUN) if key in trailers)
        how = m.Merge(head=pull.head, method=method, title=f"{pull.title} ({pull.sign}{pull.number})", message=message)
        missing = merging.missing_checks(checks, target.checks)
        red = [check.name for check in checks if check.state is m.CheckState.FAILED]
        # An administrator's merge would bypass the rules.
        is_blocked = pull.state is m.MergeState.BLOCKED or bool(missing) or any(name in target.checks for name in red)
        answer = None if is_blocked or target.queue else forge.merge_pull_request(pull.number, how)
        if isinstance(answer, str):
            why = f"does not allow {wanted}" if wanted not in target.methods else f"refused {wanted} for this branch"
            notes = [f"it was merged by {method}: {pull.base} {why}"] if method != wanted else []
            if unseen := merging.missing_checks(checks, target.usual_checks):
                notes.append(f"no result of {', '.join(unseen)}, which ran on earlier pull requests, was waited for")
            if red:
                notes.append(f"{', '.join(red)} failed, on {pull.base} too")
            return self._finish_merge(pull, answer, notes)
        if answer is not None:
            self.seen.refused.append((tried or (pull.head, self.target_tip()), method))
        # The queue of a classic rule shows only in a refused merge.
        if forge.merge_later(pull.number, how, queue=target.queue or answer is not None) is None:
            return Waiting(kind=WaitKind.MERGE, why=f"{pull.name} is merged when the rules of {pull.base} are met")
        if answer is not None:
            return Waiting(kind=WaitKind.MERGE, why=f"{pull.name} was not merged: {answer.said}")
        rules = f"{pull.base} requires {target.requirements or 'more than its rules show'}"
        return Waiting(kind=WaitKind.CHECKS if missing else WaitKind.REVIEW, why=f"{pull.name}: {rules}: {pull.url}")

    def _find_changed_issues(self, pull: m.PullRequest, progress: Progress) -> Waiting | None:
        """Whether the merge waits for a person, who has not seen what became of the plan's issues."""
        issues = tuple(merging.read_issues(self.forge(), self._plan.issues))
        changes = [merging.describe_change(progress.issues.get(issue.number), issue) for issue in issues]
        if not any(changes):
            return None
        self._cancel_own_merge(pull)
        why = "; ".join(filter(None, [*changes, f"{pull.name} is merged when you retry: {pull.url}"]))
        return Waiting(kind=WaitKind.ISSUE, why=why, issues=issues)

    def look_at_messages(self, progress: Progress) -> Commanded | NeedsRepair | None:
        """What people ask for on the open pull request, by one call; None for nothing to do now."""
        tip = self._git.tip(self.ref)
        pull = self.last_pull() if tip is not None else None
        if tip is None or pull is None or not pull.is_open:
            return None
        forge = self.forge()
        activity = forge.read_activity(pull.number, tip)
        if not activity.is_open and not self.publish(tip).is_open:
            return None
        due = talk.converse(forge, pull.number, activity.messages, progress, self.seen)
        asked = due.commands[0] if due.commands else self._handle_requests(due, pull, activity, progress)
        return None if isinstance(asked, Waiting) else asked

    def _handle_requests(
        self, due: DueMessages, pull: m.PullRequest, activity: m.Activity, progress: Progress
    ) -> NeedsRepair | Waiting | None:
        asked = talk.handle_requests(due, progress, plan=self._plan.path, name=pull.name, group=self.group)
        if asked is None or not progress.may_merge:
            return asked
        self._cancel_own_merge(pull)
        forge = self.forge()
        marker = f"runplan-limit {due.requests[0].id}"
        is_known = progress.max_reviews == 0 or talk.find_own(forge, activity.messages, marker)
        if isinstance(asked, Waiting) and not is_known:
            limit = f"runplan handles {counted(progress.max_reviews, 'review')} by itself (`pull_request.max_reviews`)"
            retry = f"comment `/runplan retry`, or run `{command('runplan', 'retry', self._plan.path, '--review')}`"
            with suppress(NotAllowed):
                for message in due.requests:
                    forge.react_to(pull.number, message.id)
                forge.put_comment(pull.number, marker=marker, text=f"{limit}. For the next one {retry}.", is_pull=True)
        return asked

    def find_open_pull(self) -> m.PullRequest | None:
        """The open pull request that is worked on."""
        pull = (self.stack.focus if self.stack else self).find_pull()
        return pull if pull is not None and pull.is_open else None

    def forget(self) -> None:
        self.of_group(TOP).seen.forge = None

    def _cancel_own_merge(self, pull: m.PullRequest) -> None:
        words = pull.merge_message  # those of a person's auto-merge are others, or the messages of all commits
        if pull.auto_merge and f"{PLAN}: " in words and f"{LANDING}: " not in words:
            self.forge().cancel_merge(pull.number)

    def _is_complete(self, tip: Oid) -> bool:
        return all(phase.status is Status.DONE for phase in self.read_plan(tip).phases)

    def read_plan(self, tip: Oid) -> Plan:
        """The plan at a commit; in a stack the part of it that the pull request is for."""
        plan = self.read_whole_plan(tip)
        return narrow_plan(plan, self.group) if self.stack else plan

    def read_whole_plan(self, tip: Oid) -> Plan:
        return parse_plan(self._read_text(tip), path=self._plan.path)

    def _read_text(self, tip: Oid) -> bytes:
        return read_plan(self._git, f"{tip}:{self._plan.path}", self._plan.path) or b""

    def _look_at_target(self, pull: m.PullRequest, checks: Sequence[m.PullCheck]) -> merging.RedTarget:
        """The checks that fail on the target too, and those that failed there before: at the base or when last seen."""
        failed = merging.failed_checks(checks)
        tip = self.target_tip()
        base = self.merge_base(pull.head, tip) if failed else tip
        there = self.forge().read_activity(pull.number, tip).checks if failed else ()
        before = self.forge().read_activity(pull.number, base).checks if base not in ("", tip) else ()
        red = self.seen.red | merging.failed_checks(before)
        still = {m.CheckState.PENDING: red, m.CheckState.FAILED: failed}  # one that runs again is not yet mended
        names = frozenset(check.name for check in there if check.name in still.get(check.state, ()))
        mended, self.seen.red = (red & failed) - names, names & failed
        return merging.RedTarget(names=names, mended=mended, is_ignored=self._settings.ignore_red_on_target)

    def show_failure(self, why: str) -> None:
        lander = self.stack.focus if self.stack else self
        tip = self._git.tip(lander.ref)
        if tip is not None and lander.closed is None:
            if lander.seen.number:
                lander.seen.shown_at = 0.0
                lander.publish(tip)
            lander.set_status(tip, m.CheckState.FAILED, why)

    def set_status(self, head: Oid, state: m.CheckState, text: str) -> None:
        if state is m.CheckState.PENDING or self.seen.status is None or self.seen.status == (head, text):
            return
        forge = self.forge()
        try:
            forge.set_status(head, state=state, text=text, url=forge.file_url(self._plan.report, head))
            self.seen.status = (head, text)
        except NotAllowed as error:
            self.seen.status = None
            self.seen.remarks[f"the commit status {m.STATUS} is not shown: {error}"] = None

    def _take_remarks(self) -> list[str]:
        taken, self.seen.remarks = list(self.seen.remarks), {}
        return taken

    def publish(self, tip: Oid, *, is_new: bool = False) -> m.PullRequest:
        """Open the pull request, or bring its description up to date; a new branch has no open one."""
        forge = self.forge()
        plan = self._plan.describe(self.read_plan(tip), self._read_text(tip), self.group)
        pull = None if is_new else self.find_pull()
        if pull is not None and self._is_over(pull, tip):
            pull = None
        marks = description.marks_of(pull.body) if pull else description.PEOPLE
        is_draft = pull.draft and description.DRAFT in marks if pull else self._settings.draft or bool(self.stack)
        is_draft = is_draft and not (pull is None and self._undo_of(tip))
        is_ready = plan.is_complete and self.may_be_ready
        if pull and pull.is_open and is_draft and is_ready:
            try:
                forge.mark_ready(pull.number)
                pull = replace(pull, draft=False)
            except NotAllowed as error:  # it counts as the draft of a person
                self.seen.remarks[f"{pull.name} stays a draft: {error}"] = None
        is_draft = is_draft and not is_ready
        lacks_people = description.PEOPLE in marks and not self._add_people(pull)
        marks = (description.DRAFT if is_draft else "") + (description.PEOPLE if lacks_people else "")
        before = pull.body if pull else ""

        def link(path: str, line: int) -> str:
            return f"{forge.file_url(path, tip)}#L{line}" if self._git.known(f"{tip}:{path}") is not None else ""

        body = description.body_of(
            before,
            plan,
            report=forge.file_url(self._plan.report, tip),
            fixes=self._plan.issues,
            marks=marks,
            template="" if pull else self._read_template(),
            link=link,
            stack=self.stack.list_rows(self) if self.stack else (),
        )
        if pull is None:
            title = inert(self._undo_of(tip) or plan.title)[: description.LONGEST_TITLE]
            base = self.stack.base_of(self) if self.stack else self.target.branch
            pull = forge.create_pull_request(branch=self.branch, base=base, title=title, body=body, draft=is_draft)
            self._add_people(pull)
            self.seen.shown_at = self._committed_at(tip)
        elif pull.is_open and body != before:
            if self.is_description_due(tip):
                forge.edit_pull_request(pull.number, body=body)
                self.seen.shown_at = self._committed_at(tip)
        elif not pull.is_open and not (pull.is_merged and self._has_reached_target(pull)):
            drop = command("git", "push", self._remote.name, "--delete", self.branch)
            self.closed = self._fail_for_closed(pull, tip, f"; to start the plan over: {drop}")
        is_known = self.seen.number == pull.number
        self.seen.number = pull.number
        self.seen.last = pull
        self.seen.pull = pull if pull.is_open else None
        if self.stack and not is_known:
            self.stack.refresh_below(self)
        return pull

    def is_description_due(self, tip: Oid) -> bool:
        shown_s = self._committed_at(tip) - self.seen.shown_at
        return self._is_complete(tip) or not 0 <= shown_s < DESCRIBED_EVERY_S

    def _committed_at(self, oid: Oid) -> float:
        return float(self._git.commit(oid).authored.split()[0])

    def _undo_of(self, tip: Oid) -> str:
        """The subject of the revert of a phase, where the branch has nothing else: a person may merge it; else ""."""
        messages = [commit.message for commit in self.list_own_commits(tip)]
        is_undo = all(UNDOES in read_trailers(text) for text in messages)
        return messages[0].partition("\n")[0] if messages and is_undo else ""

    def _read_template(self) -> str:
        tip = self.target_tip()
        listed = self._git.text("ls-tree", "-z", "--name-only", tip, "--", *description.TEMPLATE_FOLDERS).split("\0")
        path = description.choose_template([*self._git.text("ls-tree", "-z", "--name-only", tip).split("\0"), *listed])
        return (self._git.blob(tip, path) or b"").decode("utf-8", "replace") if path else ""

    def _add_people(self, pull: m.PullRequest | None) -> bool:
        """Whether the pull request has its labels, assignees and reviewers by now; each is added once."""
        wanted = {name: getattr(self._settings, name) for name in ("labels", "assignees", "reviewers")}
        if not any(wanted.values()):
            return True
        if pull is not None and pull.is_open and self.seen.people != pull.number:
            try:
                self.seen.remarks |= dict.fromkeys(self.forge().add_people(pull.number, **wanted))
                self.seen.people = pull.number
            except Unreachable as error:
                self.seen.remarks[f"labels, assignees or reviewers are missing: {error}"] = None
        return pull is not None and self.seen.people == pull.number

    def find_pull(self) -> m.PullRequest | None:
        if self.seen.number:
            self.seen.last = self.forge().read_pull_request(self.seen.number)
        else:
            self.seen.last = self.forge().find_pull_request(branch=self.branch, base=self.target.branch)
        return self.seen.last

    def last_pull(self) -> m.PullRequest | None:
        return self.seen.last or self.find_pull()

    def known_tip(self) -> Oid | None:
        """The tip of the branch as it was seen last; fetched when it was not seen yet."""
        return self._git.tip(self.ref) or self.branch_tip()

    def list_own_commits(self, tip: Oid) -> list[Commit]:
        """The commits of the branch that the target lacks, oldest first."""
        line = self._git.text("rev-list", "--first-parent", "--reverse", tip, f"^{self.target_tip()}", "--")
        return [self._git.commit(oid) for oid in line.split()]

    def refresh(self) -> None:
        if (tip := self.stack.bring_up(self) if self.stack else self.known_tip()) is not None:
            self.publish(tip)

    def _is_over(self, pull: m.PullRequest, tip: Oid) -> bool:
        """Whether the pull request was for other commits: phases landed after its merge, or the plan began anew."""
        if pull.is_open or pull.head == tip:
            return False
        if self._git.known(pull.head) is None:
            return True
        if pull.is_merged:  # commits that a person pushed since need no pull request of runplan's
            later = f"{pull.head}..{tip}"
            return self._git.text("log", f"--format=%(trailers:key={LANDING},valueonly)", later, "--").strip() != ""
        return not self._git.is_ancestor(pull.head, tip)

    def _end_after_merge(self, pull: m.PullRequest, progress: Progress) -> Conclusion:
        """A person has merged it, and may have taken phases out of the branch before."""
        pushed = next((oid for oid in reversed(progress.pushed) if self._git.known(oid) is not None), "")
        if pushed:
            with suppress(PlanUnreadable):
                merged = {phase.id: phase.status for phase in self.read_plan(self.target_tip()).phases}
                done = [phase.id for phase in self.read_plan(pushed).phases if phase.status is Status.DONE]
                if missing := ", ".join(name for name in done if merged.get(name, Status.DONE) is not Status.DONE):
                    kept = f"its commits are kept at {self._park_tip(pushed)}"
                    return Failed(Reason.PR_CLOSED, f"{pull.name} was merged without phase {missing}; {kept}")
        return self._finish_merge(pull, pull.merge_commit)

    def _finish_merge(self, pull: m.PullRequest, merged: Oid, remarks: Sequence[str] = ()) -> Landed:
        """The local target follows, issues are closed, and last the branch goes: without it nothing is left to do."""
        forge = self.forge()
        notes = [f"{pull.name} is merged: {pull.url}", *remarks, *self._take_remarks()]
        if tip := self.target.tip():
            notes.append(self.target.follow_remote(self.target.prepare(id="", old="", new=tip)))
        said = f"Done by {pull.name} (plan `{self._plan.path}`)."
        marker = talk.result_marker(self._plan.path)
        is_default = bool(self._plan.issues) and pull.base == forge.read_repository().default_branch
        for issue in self._plan.issues:
            try:  # the forge itself says so in the issue, but a comment on a failure would stay
                is_shown = is_default and f"Fixes #{issue}" in pull.body.splitlines()
                if not is_shown or any(m.has_marker(comment.text, marker) for comment in forge.list_comments(issue)):
                    forge.put_comment(issue, marker=marker, text=said)
                forge.close_issue(issue)
            except NotAllowed as error:
                notes.append(f"issue #{issue} is not closed: {error}")
        self.seen.last = replace(pull, is_open=False, is_merged=True)
        landers = self.stack.landers if self.stack else [self]
        for above in landers[landers.index(self) + 1 :]:  # before the branch goes: a forge would close them
            upper = above.find_pull()
            if upper is not None and upper.is_open and upper.base == self.branch:
                forge.retarget(upper.number, self.target.branch)
        notes.append(self.delete_branch(pull.head))
        self._git.run("update-ref", "-d", self._parked_ref(pull.head))
        note = "; ".join(filter(None, notes))
        if pull.base != self.target.branch:  # a person merged it into the one below, which is on the target
            merged = self.target_tip()
        return Landed(tip=merged or self.target_tip(), note=note, head=pull.head, pull=pull.place)

    def _park_tip(self, tip: Oid) -> str:
        ref = self._parked_ref(tip)
        self._git.update_refs(f"update {ref} {tip}")
        return ref

    def _parked_ref(self, tip: Oid) -> str:
        return f"{parked_under(self._plan.slug, 'pr')}{tip[:12]}"
