"""Decides what an open pull request needs before it can be merged, also for the issues of its plan."""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from runplan.adapters.forge.protocol import STATUS, CheckState, Forge, MergeState, PullCheck, PullRequest, Target
from runplan.adapters.git.command import Git
from runplan.domain.errors import NotAllowed, NotFound, RefusedEarly
from runplan.domain.gitfacts import LANDING, PLAN, TAKEN_BY, Oid, read_trailers
from runplan.domain.names import digest_of
from runplan.domain.run.events import IssueRead
from runplan.domain.run.kinds import Reason, WaitKind
from runplan.engine.landing.lander import Conclusion, Failed, NeedsRepair, Progress, Waiting

_STARTS = re.compile(rb"\b(push|pull_request|script)\b")  #: events of GitHub, and what every job of GitLab has
MAX_UPDATES = 5  #: how often the target is merged into the branch because it moved


def failed_checks(checks: Iterable[PullCheck]) -> frozenset[str]:
    return frozenset(check.name for check in checks if check.state is CheckState.FAILED)


class RedTarget(Struct, frozen=True, kw_only=True):
    """The checks that have failed on the target's tip too."""

    names: frozenset[str] = frozenset()
    mended: frozenset[str] = frozenset()  #: checks of the pull request that failed there too, and do so no more
    is_ignored: bool = False  #: they do not hinder the merge


def next_step(pull: PullRequest, checks: Sequence[PullCheck], progress: Progress, red: RedTarget) -> Conclusion | None:
    """What hinders the merge of an open pull request by itself; None when nothing does."""
    name = pull.name
    if pull.state in (MergeState.CONFLICT, MergeState.BEHIND) or red.mended:
        if progress.updates < MAX_UPDATES:
            title = f"Merge {pull.base} into {name}"
            return NeedsRepair(title=title, complaint=f"{name} is behind {pull.base}", merge=True)
        why = f"{name} was brought up to date {progress.updates} times and is behind {pull.base} again"
        return Failed(Reason.CONFLICT if pull.state is MergeState.CONFLICT else Reason.TARGET_MOVING, why)
    failed = [check.name for check in checks if check.state is CheckState.FAILED]
    shared = [check for check in failed if check in red.names]
    elsewhere = f"{', '.join(shared)} failed on {pull.base} too" if shared else ""
    if of_pull := [check for check in failed if check not in red.names]:
        why = f"checks of {name} failed: {', '.join(of_pull)}"
        why += f"; {elsewhere}, and is not to be fixed here" if shared else ""
        if progress.repairs < progress.max_repairs:
            return NeedsRepair(title=f"Fix {name}", complaint=why)
        return Failed(Reason.CI_FAILED, why)
    if shared and not red.is_ignored:
        fix = "fix it there, or set pull_request.ignore_red_on_target"
        return Waiting(kind=WaitKind.CHECKS, why=f"{name}: {elsewhere}; {fix}")
    if pending := [check.name for check in checks if check.state is CheckState.PENDING]:
        return Waiting(kind=WaitKind.CHECKS, why=f"checks of {name} are not finished: {', '.join(pending)}")
    if pull.draft:
        return Waiting(kind=WaitKind.REVIEW, why=f"{name} is a draft; mark it as ready: {pull.url}")
    if not progress.may_merge:
        return Waiting(kind=WaitKind.REVIEW, why=f"{name} passed its checks; review and merge it: {pull.url}")
    if pull.state is MergeState.UNKNOWN:
        return Waiting(kind=WaitKind.MERGE, why=f"{name}: the forge computes whether it can be merged")
    return None


def before_merge(
    pull: PullRequest, checks: Sequence[PullCheck], target: Target, *, is_stable: bool, workflows: Sequence[str] = ()
) -> Waiting | None:
    """What it waits for after its checks have passed; `is_stable`: none is new, `workflows` start the first ones."""
    name = pull.name
    if target.objections:
        who = ", ".join(target.objections)
        why = f"{who} asked for changes on {name}; a new review or its dismissal frees the merge: {pull.url}"
        return Waiting(kind=WaitKind.REVIEW, why=why)
    usual = [check for check in (*target.checks, *target.usual_checks) if check != STATUS]
    missing = missing_checks(checks, usual)
    if workflows:
        return Waiting(kind=WaitKind.CHECKS, why=f"{name} waits for the checks of {', '.join(workflows)}")
    if not is_stable and (missing or not usual):
        awaited = f"{', '.join(missing)}, which ran on earlier pull requests" if missing else "further checks"
        return Waiting(kind=WaitKind.CHECKS, why=f"{name} waits for {awaited}")
    if pull.auto_merge:
        return Waiting(kind=WaitKind.MERGE, why=f"{name} is merged when the rules of {pull.base} are met")
    return None


def is_ours(git: Git, head: Oid, target: Oid, progress: Progress, plan: str) -> bool:
    """Whether runplan made every commit of the branch; it does not merge what somebody else has changed."""
    if progress.pushed and head not in progress.pushed:
        return False
    known = [oid for oid in progress.pushed if git.known(oid) is not None]
    pushed_landings = {read_trailers(git.commit(oid).message).get(LANDING) for oid in known}
    seen = set[str]()
    # Commits of the target that were merged into the branch are no first parents.
    for oid in git.text("rev-list", "--first-parent", head, f"^{target}", "--").split():
        trailers = read_trailers(git.commit(oid).message)
        landing = trailers.get(LANDING, "")
        if trailers.get(PLAN) != plan or not landing:
            if TAKEN_BY not in trailers:
                return False
        elif landing not in seen and landing in pushed_landings and oid not in progress.pushed:
            return False  # the newest commit of a landing was amended
        seen.add(landing)
    return True


def list_workflows(git: Git, tip: Oid) -> list[str]:
    """The files of a commit that start checks for a pull request; plainly those that name such an event."""
    listed = git.text("ls-tree", "-z", "--name-only", tip, "--", ".github/workflows/", ".gitlab-ci.yml").split("\0")
    return [path for path in listed if path and _STARTS.search(git.blob(tip, path) or b"")]


def missing_checks(checks: Sequence[PullCheck], names: Iterable[str]) -> list[str]:
    seen = {STATUS, *(check.name for check in checks)}  # runplan sets its own status before it merges
    return [name for name in dict.fromkeys(names) if name not in seen]


def read_issues(tracker: Forge, numbers: Iterable[int]) -> Iterator[IssueRead]:
    for number in numbers:
        try:
            issue = tracker.read_issue(number)
        except (NotAllowed, NotFound, RefusedEarly):
            yield IssueRead(number=number, closed="deleted or hidden")
            continue
        title, text = (digest_of(" ".join(words.split()).encode()) for words in (issue.title, issue.body))
        reason = f"closed as {issue.closed_as.replace('_', ' ')}" if issue.closed_as else "closed"
        closed = f"{reason} by {issue.closed_by}" if issue.closed_by else reason
        is_wanted = issue.is_open or issue.closed_as == "completed"
        yield IssueRead(number=number, title=title, text=text, closed="" if is_wanted else closed)


def describe_change(before: IssueRead | None, now: IssueRead) -> str:
    """What a person has to know of an issue before the merge; "" for nothing."""
    known = before or IssueRead(number=now.number, closed="" if now.title else now.closed)
    changes = [f"was {now.closed}"] if now.closed not in ("", known.closed) else []
    if known.title and now.title:
        parts = {"title": known.title != now.title, "text": known.text != now.text}
        edited = " and ".join(f"its {part}" for part, is_new in parts.items() if is_new)
        changes += [f"was edited: {edited} changed"] if edited else []
    return f"issue #{now.number} {' and '.join(changes)}" if changes else ""
