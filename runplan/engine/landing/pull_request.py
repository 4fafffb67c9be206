"""Lands on the plan's own branch of a remote, from which one pull request leads to the target.

Each phase is one push with a lease, as in `direct`. The plan is read from the branch, so tracker and report live there
until the pull request is merged. Before the first landing the branch does not exist; the target's tip stands for it.

After the last phase `conclude` is called again and again, with pauses. It keeps no state of its own: what is done is
read from the forge each time, so a restart changes nothing.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from runplan.adapters.forge import model as m
from runplan.adapters.forge.protocol import Forge
from runplan.adapters.git import remote as push
from runplan.adapters.git.command import Git
from runplan.adapters.git.objects import read_plan
from runplan.adapters.git.remote import Remote
from runplan.domain.errors import NotAllowed, TokenRefused, Unreachable
from runplan.domain.gitfacts import LANDING, PLAN, RUN, TAKEN_BY, UNDOES, Oid, read_trailers
from runplan.domain.names import parked_under
from runplan.domain.plan.marks import Status
from runplan.domain.plan.model import Plan, parse_plan
from runplan.domain.run.events import IssueRead
from runplan.domain.run.kinds import Reason, WaitKind
from runplan.domain.settings.schema import PullRequestSettings
from runplan.domain.text import command, inert
from runplan.engine.landing import description, merging
from runplan.engine.landing.conversation import (
    answer_handled,
    find_due,
    handle_requests,
    replace_failure,
    result_marker,
    tell_limit,
)
from runplan.engine.landing.direct import Direct, RemoteLander
from runplan.engine.landing.lander import (
    Commanded,
    Conclusion,
    DueMessages,
    Failed,
    Landed,
    Landing,
    NeedsRepair,
    NotAccepted,
    Progress,
    Refused,
    Sighting,
    TargetMoved,
    Waiting,
    find_landing,
)

FIRST_CHECK_S = 600.0  #: for which the first pull request of a repository waits for the checks of its workflows
MAX_REFUSALS = 2  #: of a method for one head on one tip of the target; then another allowed one is tried
WORKFLOWS = (".github/workflows/", ".gitlab-ci.yml")
_STARTS = re.compile(rb"\b(push|pull_request|script)\b")  #: events of GitHub, and what every job of GitLab has
DESCRIBED_EVERY_S = 1800.0  #: the description shows new phases at most so often, and the last one at once


class PlanPlace(Struct, frozen=True, kw_only=True):
    path: str
    slug: str
    report: str
    issues: tuple[int, ...]
    describe: Callable[[Plan, bytes], description.PlanProgress]
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
        forge: Callable[[], Forge],
    ) -> None:
        super().__init__(git, remote, tool, self._look_for_landing, self._show_landing)
        self.target = target
        self._plan = plan
        self._settings = settings
        self._forge = forge
        self._seen = plan.seen
        self._is_first_look = True
        self._merged_tip: Oid = ""  #: of the branch, when the target has all of its changes in other commits
        self.closed: Failed | None = None  #: a person closed the pull request or deleted its branch

    def tip(self) -> Oid | None:
        """The tip of the branch; or of the target, while the remote has no branch with changes of its own."""
        tip = self._branch_tip()
        if tip and self._is_first_look and self._is_merged(tip):
            self._merged_tip = tip
        self._is_first_look = False
        return tip if tip and tip != self._merged_tip else self.target.tip()

    def target_tip(self) -> Oid:
        tip = self.target.tip()
        if tip is None:
            raise Unreachable(f"{self._remote.name} has no branch {self.target.branch} any more; create it again")
        return tip

    def _branch_tip(self) -> Oid | None:
        """The tip on the remote. Commits of a branch that is gone from there are parked, unless they were merged."""
        tip = self._remote.fetch()
        last = self._git.tip(self.ref)
        if tip is None and last is not None:
            if not self._is_on_target(last):
                pull = self._find_landing()
                if pull is None or not pull.is_merged or pull.head != last:
                    self.closed = self._fail_for_deleted(last)
            self._drop_tracking_refs()
        return tip

    def _fail_for_deleted(self, last: Oid) -> Failed:
        gone = f"{self.branch} was deleted on {self._remote.name} before it was merged"
        return Failed(Reason.PR_CLOSED, f"{gone}; its commits are kept at {self._park_tip(last)}")

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
        with self._git.at(self._git.cwd, f"--git-dir={self._tool}") as tool:
            merged = tool.run("merge-tree", "--write-tree", "--no-messages", target, tip, ok=(0, 1))
        if merged.code == 0 and merged.text == self._git.commit(target).tree:
            return True
        pull = self._find_landing()
        return pull is not None and pull.is_merged and pull.head == tip

    def _look_for_landing(self, landing: Landing) -> Landed | Refused | Oid:
        tip = self._branch_tip()
        if tip is not None and find_landing(self._git, landing, tip):
            return Landed(tip=tip)
        if self.closed is not None:
            return Refused(reason=NotAccepted(why=self.closed.why, reason=self.closed.reason))
        if tip is not None and tip != self._merged_tip and self._is_merged(tip):
            self._merged_tip = tip
        if self._is_on_target(landing.old) if tip in (None, self._merged_tip) else tip == landing.old:
            return tip or ""
        return Refused(reason=TargetMoved(tip=tip or self.target.tip() or ""))  # without a tip: merged by squash

    def _show_landing(self, landing: Landing, is_new: bool) -> str:
        """Open the pull request, or show the new phase in it; where it is, or that the forge does not answer."""
        try:
            known = None if is_new or self._is_description_due(landing.new) else self._seen.pull
            pull = known or self._publish_pull_request(landing.new, is_new=is_new)
            self.pull = f"{pull.sign}{pull.number} {pull.url}"
            undo = self._undo_of(landing.new)
            done = (m.CheckState.PASSED, undo) if undo else description.status_of(self._read_plan(landing.new))
            self._set_status(landing.new, *done)
        except Unreachable as error:
            if isinstance(error, TokenRefused):
                self.forget()
            return f"the pull request does not show this phase yet: {error}"
        return "; ".join([f"{pull.name}: {pull.url}", *self._take_remarks()])

    def conclude(self, progress: Progress, *, now: float) -> Conclusion:
        """Bring the pull request one step closer to its merge; what it waits for, or that it is merged."""
        tip = self._branch_tip()
        if tip is None:
            if self.closed is not None:
                return self.closed
            pull = self._find_landing()
            if pull is not None and pull.is_merged:
                return self._finish_merge(pull, pull.merge_commit)
            if not progress.pushed or self._is_complete(self.target.tip() or ""):
                return Landed(tip="")
            return self._fail_for_deleted(progress.pushed[-1])
        forge = self._forge()
        pull = self._publish_pull_request(tip)
        if pull.is_merged:
            return self._finish_merge(pull, pull.merge_commit)
        if self.closed is not None:
            return self.closed
        activity = forge.read_activity(pull.number, pull.head)
        replace_failure(forge, pull.number, activity.messages, self._plan.path)
        due = self._converse(pull.number, activity.messages, progress)
        if due.commands:
            return due.commands[0]
        if pull.base != self.target.branch:
            why = f"{pull.name} leads to {pull.base} instead of {self.target.branch}; change it back: {pull.url}"
            return Waiting(kind=WaitKind.REVIEW, why=why)
        if not self._is_ours(pull.head, progress):
            self._cancel_own_merge(pull)
            foreign = "has commits that runplan did not push, or lacks some that it did"
            return Waiting(kind=WaitKind.REVIEW, why=f"{pull.name} {foreign}; review and merge it: {pull.url}")
        self._set_status(pull.head, *description.status_of(self._read_plan(pull.head)))
        checks = activity.checks
        asked = handle_requests(due, progress, plan=self._plan.path, name=pull.name)
        if asked is not None and progress.may_merge:
            self._cancel_own_merge(pull)
            if isinstance(asked, Waiting):
                tell_limit(forge, pull.number, due, activity.messages, progress, plan=self._plan.path)
        red = self._look_at_target(pull, checks)
        step = asked if isinstance(asked, NeedsRepair) else merging.next_step(pull, checks, progress, red)
        if asked is not None and (step is None or isinstance(step, Waiting)):
            step = asked
        if isinstance(step, NeedsRepair) and not step.merge and not step.comments:
            step = replace(step, complaint=f"{step.complaint}\n\n{forge.read_failure_log(pull.head)}".strip())
        if step is not None:
            return step
        committed_at = self._committed_at(pull.head)
        quiet_s = now - max(progress.pushed_at, committed_at, *(check.changed for check in checks))
        quiet = (quiet_s >= self._settings.checks_wait_s, quiet_s >= FIRST_CHECK_S)
        seen = (pull, activity, quiet)
        if self._seen.held is None or self._seen.held[0] != seen:
            answer = self._try_merge(pull, checks, quiet, progress)
            again = () if pull.auto_merge else (WaitKind.ISSUE, WaitKind.MERGE)
            is_held = isinstance(answer, Waiting) and answer.kind not in again
            self._seen.held = (seen, answer) if is_held else None
            return answer
        return (pull.auto_merge and self._find_changed_issues(pull, progress)) or self._seen.held[1]

    def _try_merge(
        self, pull: m.PullRequest, checks: Sequence[m.PullCheck], quiet: tuple[bool, bool], progress: Progress
    ) -> Conclusion:
        """Merge by an allowed method, or have the forge merge it when the rules of the target are met."""
        forge = self._forge()
        target = forge.read_target(pull.base, number=pull.number)
        is_stable, is_late = quiet
        workflows = self._list_workflows() if target.is_first and not checks and not is_late else []
        waiting = merging.before_merge(pull, checks, target, is_stable=is_stable, workflows=workflows)
        if self._seen.status is None and m.STATUS in target.checks and pull.state is m.MergeState.BLOCKED:
            self._seen.status = ("", "")  # the next look tries again
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
        tried = (pull.head, self.target_tip()) if self._seen.refused else None
        refused = [method for place, method in self._seen.refused if place == tried]
        refused += [] if pull.can_rebase else ["rebase"] * MAX_REFUSALS
        open_methods = tuple(method for method in target.methods if refused.count(method) < MAX_REFUSALS)
        method = replace(target, methods=open_methods or target.methods).choose_method(wanted)
        trailers = self._read_trailers(pull.head)
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
            self._seen.refused.append((tried or (pull.head, self.target_tip()), method))
        # The queue of a classic rule shows only in a refused merge.
        if forge.merge_later(pull.number, how, queue=target.queue or answer is not None) is None:
            return Waiting(kind=WaitKind.MERGE, why=f"{pull.name} is merged when the rules of {pull.base} are met")
        if answer is not None:
            return Waiting(kind=WaitKind.MERGE, why=f"{pull.name} was not merged: {answer.said}")
        rules = f"{pull.base} requires {target.requirements or 'more than its rules show'}"
        return Waiting(kind=WaitKind.CHECKS if missing else WaitKind.REVIEW, why=f"{pull.name}: {rules}: {pull.url}")

    def _find_changed_issues(self, pull: m.PullRequest, progress: Progress) -> Waiting | None:
        """Whether the merge waits for a person, who has not seen what became of the plan's issues."""
        issues = tuple(self.read_issues(self._plan.issues))
        changes = [merging.describe_change(progress.issues.get(issue.number), issue) for issue in issues]
        if not any(changes):
            return None
        self._cancel_own_merge(pull)
        why = "; ".join(filter(None, [*changes, f"{pull.name} is merged when you retry: {pull.url}"]))
        return Waiting(kind=WaitKind.ISSUE, why=why, issues=issues)

    def read_issues(self, numbers: Sequence[int]) -> Iterator[IssueRead]:
        return merging.read_issues(self._forge(), numbers)

    def look_at_messages(self, progress: Progress) -> Commanded | NeedsRepair | None:
        """What people ask for on the pull request while phases are worked, by one call; None for nothing to do now."""
        tip = self._git.tip(self.ref)
        if tip is None or not self._seen.number:
            return None
        activity = self._forge().read_activity(self._seen.number, tip)
        if not activity.is_open and not self._publish_pull_request(tip).is_open:
            return None
        due = self._converse(self._seen.number, activity.messages, progress)
        if due.commands:
            return due.commands[0]
        asked = handle_requests(due, progress, plan=self._plan.path, name="")
        return asked if isinstance(asked, NeedsRepair) else None

    def _converse(self, number: int, messages: Sequence[m.PullMessage], progress: Progress) -> DueMessages:
        """Answer the messages that were handled, after asking for a new review; those that are due."""
        if not messages:
            return DueMessages()
        forge = self._forge()
        login = forge.own_login
        answer_handled(forge, number, messages, progress.answers)
        asked = (messages, progress.answers, progress.began)
        if self._seen.due is None or self._seen.due[0] != asked:
            due = find_due(
                messages, handled=progress.answers, login=login, may_write=forge.may_write, since=progress.began
            )
            self._seen.due = (asked, due)
            with suppress(NotAllowed):
                for command_ in due.commands:
                    forge.react_to(number, command_.id)
        return self._seen.due[1]

    def answer_messages(self, answers: Mapping[str, str]) -> None:
        pull = self._find_landing()
        if pull is not None and pull.is_open:
            forge = self._forge()
            answer_handled(forge, pull.number, forge.read_activity(pull.number, pull.head).messages, answers)

    def forget(self) -> None:
        self._seen.forge = None

    def comment(self, text: str) -> None:
        pull = self._find_landing()
        if pull is not None and pull.is_open:
            self._forge().put_comment(pull.number, marker=result_marker(self._plan.path), text=text, is_pull=True)

    def _cancel_own_merge(self, pull: m.PullRequest) -> None:
        words = pull.merge_message  # those of a person's auto-merge are others, or the messages of all commits
        if pull.auto_merge and f"{PLAN}: " in words and f"{LANDING}: " not in words:
            self._forge().cancel_merge(pull.number)

    def list_overlaps(self, touches: Sequence[str]) -> tuple[str, ...]:
        if not touches:
            return ()
        try:
            pull = self._find_landing()
            files = self._forge().list_open_files(self.target.branch)
            conflicts = m.open_conflicts(files, touches, our_number=pull.number if pull else 0)
        except Unreachable as error:
            return (f"other open pull requests were not compared: {error}",)
        name = f"{pull.noun} {pull.sign}" if pull else "pull request #"
        return tuple(f"{name}{number} is open and changes {path} too" for number, path in conflicts.items())

    def _is_complete(self, tip: Oid) -> bool:
        return all(phase.status is Status.DONE for phase in self._read_plan(tip).phases)

    def _read_plan(self, tip: Oid) -> Plan:
        return parse_plan(self._read_text(tip), path=self._plan.path)

    def _read_text(self, tip: Oid) -> bytes:
        return read_plan(self._git, f"{tip}:{self._plan.path}", self._plan.path) or b""

    def _look_at_target(self, pull: m.PullRequest, checks: Sequence[m.PullCheck]) -> merging.RedTarget:
        """The checks that fail on the target too, and those that failed there before: at the base or when last seen."""
        failed = merging.failed_checks(checks)
        tip = self.target_tip()
        base = self._git.run("merge-base", pull.head, tip, ok=(0, 1)).text if failed else tip
        there = self._forge().read_activity(pull.number, tip).checks if failed else ()
        before = self._forge().read_activity(pull.number, base).checks if base not in ("", tip) else ()
        red = self._seen.red | merging.failed_checks(before)
        still = {m.CheckState.PENDING: red, m.CheckState.FAILED: failed}  # one that runs again is not yet mended
        names = frozenset(check.name for check in there if check.name in still.get(check.state, ()))
        mended, self._seen.red = (red & failed) - names, names & failed
        return merging.RedTarget(names=names, mended=mended, is_ignored=self._settings.ignore_red_on_target)

    def show_failure(self, why: str) -> None:
        tip = self._git.tip(self.ref)
        if tip is not None and self.closed is None:
            if self._seen.number:
                self._seen.shown_at = 0.0
                self._publish_pull_request(tip)
            self._set_status(tip, m.CheckState.FAILED, why)

    def _set_status(self, head: Oid, state: m.CheckState, text: str) -> None:
        if state is m.CheckState.PENDING or self._seen.status is None or self._seen.status == (head, text):
            return
        forge = self._forge()
        try:
            forge.set_status(head, state=state, text=text, url=forge.file_url(self._plan.report, head))
            self._seen.status = (head, text)
        except NotAllowed as error:
            self._seen.status = None
            self._seen.remarks[f"the commit status {m.STATUS} is not shown: {error}"] = None

    def _take_remarks(self) -> list[str]:
        taken, self._seen.remarks = list(self._seen.remarks), {}
        return taken

    def _publish_pull_request(self, tip: Oid, *, is_new: bool = False) -> m.PullRequest:
        """Open the pull request, or bring its description up to date; a new branch has no open one."""
        forge = self._forge()
        plan = self._plan.describe(self._read_plan(tip), self._read_text(tip))
        pull = None if is_new else self._find_landing()
        if pull is not None and self._is_over(pull, tip):
            pull = None
        marks = description.marks_of(pull.body) if pull else description.PEOPLE
        is_draft = pull.draft and description.DRAFT in marks if pull else self._settings.draft
        is_draft = is_draft and not (pull is None and self._undo_of(tip))
        if pull and pull.is_open and is_draft and plan.is_complete:
            try:
                forge.mark_ready(pull.number)
                pull = replace(pull, draft=False)
            except NotAllowed as error:  # it counts as the draft of a person
                self._seen.remarks[f"{pull.name} stays a draft: {error}"] = None
        is_draft = is_draft and not plan.is_complete
        marks = (description.DRAFT if is_draft else "") + (
            description.PEOPLE if description.PEOPLE in marks and not self._add_people(pull) else ""
        )
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
        )
        if pull is None:
            title = inert(self._undo_of(tip) or plan.title)[: description.LONGEST_TITLE]
            pull = forge.create_pull_request(
                branch=self.branch, base=self.target.branch, title=title, body=body, draft=is_draft
            )
            self._add_people(pull)
            self._seen.shown_at = self._committed_at(tip)
        elif pull.is_open and body != before:
            if self._is_description_due(tip):
                forge.edit_pull_request(pull.number, body=body)
                self._seen.shown_at = self._committed_at(tip)
        elif not pull.is_open and not pull.is_merged:
            drop = command("git", "push", self._remote.name, "--delete", self.branch)
            kept = f"its commits are kept at {self._park_tip(tip)}"
            self.closed = Failed(Reason.PR_CLOSED, f"{pull.name} was closed; {kept}; to start the plan over: {drop}")
        self._seen.number = pull.number
        self._seen.pull = pull if pull.is_open else None
        return pull

    def _is_description_due(self, tip: Oid) -> bool:
        shown_s = self._committed_at(tip) - self._seen.shown_at
        return self._is_complete(tip) or not 0 <= shown_s < DESCRIBED_EVERY_S

    def _committed_at(self, oid: Oid) -> float:
        return float(self._git.commit(oid).authored.split()[0])

    def _undo_of(self, tip: Oid) -> str:
        """The subject of the revert of a phase, where the branch has nothing else: a person may merge it; else ""."""
        listed = self._git.text("rev-list", "--first-parent", tip, f"^{self.target_tip()}", "--").split()
        messages = [self._git.commit(oid).message for oid in listed]
        is_undo = all(UNDOES in read_trailers(text) for text in messages)
        return messages[-1].partition("\n")[0] if messages and is_undo else ""

    def _read_template(self) -> str:
        tip = self.target_tip()
        folders = (
            ".github/",
            description.TEMPLATE_FOLDER,
            description.TEMPLATE_FOLDER.upper().replace("GITHUB", "github"),
            "docs/",
        )
        listed = self._git.text("ls-tree", "-z", "--name-only", tip, "--", *folders).split("\0")
        path = description.choose_template([*self._git.text("ls-tree", "-z", "--name-only", tip).split("\0"), *listed])
        return (self._git.blob(tip, path) or b"").decode("utf-8", "replace") if path else ""

    def _list_workflows(self) -> list[str]:
        """The files of the target that start checks for a pull request; plainly those that name such an event."""
        tip = self.target_tip()
        listed = self._git.text("ls-tree", "-z", "--name-only", tip, "--", *WORKFLOWS).split("\0")
        return [path for path in listed if path and _STARTS.search(self._git.blob(tip, path) or b"")]

    def _add_people(self, pull: m.PullRequest | None) -> bool:
        """Whether the pull request has its labels, assignees and reviewers by now; each is added once."""
        wanted = {name: getattr(self._settings, name) for name in ("labels", "assignees", "reviewers")}
        if not any(wanted.values()):
            return True
        if pull is not None and pull.is_open and self._seen.people != pull.number:
            try:
                self._seen.remarks |= dict.fromkeys(self._forge().add_people(pull.number, **wanted))
                self._seen.people = pull.number
            except Unreachable as error:
                self._seen.remarks[f"labels, assignees or reviewers are missing: {error}"] = None
        return pull is not None and self._seen.people == pull.number

    def _find_landing(self) -> m.PullRequest | None:
        if self._seen.number:
            return self._forge().read_pull_request(self._seen.number)
        return self._forge().find_pull_request(branch=self.branch, base=self.target.branch)

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

    def _is_ours(self, head: Oid, progress: Progress) -> bool:
        """Whether runplan made every commit, for the whole plan; it does not merge what somebody else has changed."""
        if self._git.known(head) is None or not self._is_complete(head):
            return False
        if progress.pushed and head not in progress.pushed:
            return False
        known = [oid for oid in progress.pushed if self._git.known(oid) is not None]
        pushed_landings = {self._read_trailers(oid).get(LANDING) for oid in known}
        seen = set[str]()
        # Commits of the target that were merged into the branch are no first parents.
        for oid in self._git.text("rev-list", "--first-parent", head, f"^{self.target_tip()}", "--").split():
            trailers = self._read_trailers(oid)
            landing = trailers.get(LANDING, "")
            if trailers.get(PLAN) != self._plan.path or not landing:
                if TAKEN_BY not in trailers:
                    return False
            elif landing not in seen and landing in pushed_landings and oid not in progress.pushed:
                return False  # the newest commit of a landing was amended
            seen.add(landing)
        return True

    def _read_trailers(self, oid: Oid) -> dict[str, str]:
        return read_trailers(self._git.commit(oid).message)

    def _finish_merge(self, pull: m.PullRequest, merged: Oid, remarks: Sequence[str] = ()) -> Landed:
        """The local target follows, issues are closed, and last the branch goes: without it nothing is left to do."""
        forge = self._forge()
        notes = [f"{pull.name} is merged: {pull.url}", *remarks, *self._take_remarks()]
        if tip := self.target.tip():
            notes.append(self.target.follow_remote(self.target.prepare(id="", old="", new=tip)))
        said = f"Done by {pull.name} (plan `{self._plan.path}`)."
        marker = result_marker(self._plan.path)
        is_default = bool(self._plan.issues) and pull.base == forge.read_repository().default_branch
        for issue in self._plan.issues:
            try:  # the forge itself says so in the issue, but a comment on a failure would stay
                is_shown = is_default and f"Fixes #{issue}" in pull.body.splitlines()
                if not is_shown or any(m.has_marker(comment.text, marker) for comment in forge.list_comments(issue)):
                    forge.put_comment(issue, marker=marker, text=said)
                forge.close_issue(issue)
            except NotAllowed as error:
                notes.append(f"issue #{issue} is not closed: {error}")
        notes.append(self._delete_branch(pull.head))
        self._git.run("update-ref", "-d", self._parked_ref(pull.head))
        return Landed(tip=merged, note="; ".join(filter(None, notes)))

    def _delete_branch(self, merged: Oid) -> str:
        """Delete the branch, unless somebody pushed to it after the merge; a note when it stays."""
        if self._git.tip(self.ref) is None:
            return ""
        self._drop_tracking_refs()  # before the push: a run that is killed after it may never look at the branch again
        answer = self._remote.push("", old=merged, source=self._tool)
        if isinstance(answer, push.Taken) or (tip := self._remote.fetch()) is None:
            return ""
        stays = f"the branch {self.branch} stays on {self._remote.name}"
        drop = command("git", "push", self._remote.name, "--delete", self.branch)
        if tip != merged:
            later = f"commits were pushed to it after the merge, up to {tip:.12}"
            return f"{stays}: {later}; open a pull request for them, or drop them: {drop}"
        if isinstance(answer, push.Uncertain):
            raise Unreachable(f"the branch {self.branch} was not deleted: {answer.said}")
        return f"{stays}: {answer.said}"

    def _park_tip(self, tip: Oid) -> str:
        ref = self._parked_ref(tip)
        self._git.update_refs(f"update {ref} {tip}")
        return ref

    def _parked_ref(self, tip: Oid) -> str:
        return f"{parked_under(self._plan.slug, 'pr')}{tip[:12]}"

    def _drop_tracking_refs(self) -> None:
        """Delete the tracking refs of a branch that is gone from the remote; a push makes one in its repository."""
        with self._git.at(self._git.cwd, f"--git-dir={self._tool}") as tool:
            for git in (self._git, tool):
                if git.tip(self.ref) is not None:
                    git.run("update-ref", "-d", self.ref)
