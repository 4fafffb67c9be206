"""A forge in memory: the second implementation of the protocol, for its contract.

Its other methods and attributes are called as those of the stand-in GitHub (`Hub`), so that a test arranges both alike.
"""

from collections.abc import Sequence
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.forge import protocol as m
from runplan.domain.errors import NotAllowed, NotFound, NotThere, TokenRefused

STATES = {"success": m.CheckState.PASSED, None: m.CheckState.PENDING}


class Account(Struct):
    """An issue with its labels, and who set them."""

    issue: m.Issue
    labels: dict[str, str]
    reopened: float = 0.0


class MemoryForge:
    """One repository; each branch is one commit ahead of main, with one file."""

    def __init__(self, **branches: str) -> None:
        self._files = branches
        self._numbers = count(1)
        self._pulls: dict[int, m.PullRequest] = {}
        self._branches: dict[int, str] = {}
        self._messages: dict[int, list[m.PullMessage]] = {}
        self.asked: list[tuple[int, str]] = []  #: accounts that were asked for a review
        self.reactions: list[tuple[int, str]] = []  #: numbers of messages, and the name of the emoji
        self._opinions: dict[int, dict[str, str]] = {}
        self._issues: dict[int, Account] = {}
        self._comments: dict[int, list[m.Comment]] = {}
        self._checks: dict[str, list[m.PullCheck]] = {}
        self.assigned: set[int] = set()
        self.address = m.Address(host="forge.example", owner="acme", repository="app")
        self.token_source = "$TOKEN"
        self.own_login = "octocat"
        self.tokens = {"t0ken"}
        self.permissions = {"octocat": "admin", "reporter": "write", "reviewer": "write", "bob": "write"}
        self.methods = {"merge", "squash", "rebase"}
        self.required: list[str] = []
        self.reviews = 0
        self.drafts_allowed = True
        self.statuses_allowed = True
        self.teams = {"core"}
        self.statuses: dict[str, list[dict[str, str]]] = {}
        self.own_login = "octocat"

    # --- arranged by tests ----------------------------------------------------------------------------------

    def tip(self, branch: str) -> str:
        return f"{branch:0<40}"

    def check(self, head: str, name: str, conclusion: str | None = "success", summary: str = "") -> None:
        check = m.PullCheck(name=name, state=STATES.get(conclusion, m.CheckState.FAILED), summary=summary)
        self._checks[head] = [*(old for old in self._checks.get(head, ()) if old.name != name), check]
        for number, pull in self._pulls.items():
            if pull.auto_merge and pull.is_open and not self._missing(pull):
                self._merge(number)

    def review(
        self, number: int, text: str, *, path: str = "", line: int = 0, by: str = "reviewer", state: str = "COMMENTED"
    ) -> None:
        id_ = next(self._numbers)
        message = m.PullMessage(
            id=f"{'line' if path else 'review'} {id_}",
            author=by,
            text=text,
            changed=float(id_),
            place=f"{path}:{line}" if path else "",
            thread=f"{id_}" if path else "",
            is_approval=state == "APPROVED",
        )
        self._messages.setdefault(number, []).append(message)
        if state != "COMMENTED":
            self._opinions.setdefault(number, {})[by] = state

    def add_issue(self, title: str, body: str = "", *labels: str, by: str = "reporter", labeller: str = "") -> m.Issue:
        number = next(self._numbers)
        issue = m.Issue(number=number, title=title, body=body, is_open=True, url=f"/{number}", author=by)
        self._issues[number] = Account(issue, dict.fromkeys(labels, labeller or by))
        return issue

    def comment(self, number: int, text: str, *, by: str) -> None:
        changed = float(next(self._numbers))
        self._comments.setdefault(number, []).append(m.Comment(author=by, text=text, changed=changed))

    def drop_issue(self, number: int, *, by: str = "bob") -> None:
        account = self._issues[number]
        account.issue = replace(account.issue, is_open=False, closed_as="not_planned", closed_by=by)

    def edit_text(self, number: int, text: str) -> None:
        self._issues[number].issue = replace(self.read_issue(number), body=text)

    def reopen(self, number: int, *, by: str = "bob") -> None:
        account = self._issues[number]
        account.issue = replace(account.issue, is_open=True)
        account.reopened = 2.0 if self.may_write(by) else account.reopened

    # --- the repository -------------------------------------------------------------------------------------

    def _require_token(self) -> None:
        if not self.tokens:
            raise TokenRefused("the token has expired")

    def git_settings(self) -> tuple[str, ...]:
        return ()

    def read_repository(self) -> m.ForgeRepository:
        self._require_token()
        return m.ForgeRepository(name="acme/app", can_push=True, default_branch="main")

    def require_may_open(self, base: str) -> None:
        self._require_token()

    def read_target(self, branch: str, *, number: int = 0) -> m.Target:
        opinions = self._opinions.get(number, {}).items()
        objections = [who for who, state in opinions if state == "CHANGES_REQUESTED" and self.may_write(who)]
        methods = tuple(method for method in m.METHODS if method in self.methods)
        return m.Target(
            methods=methods, checks=tuple(self.required), reviews=self.reviews, objections=tuple(objections)
        )

    def file_url(self, path: str, ref: str) -> str:
        return f"https://forge.example/acme/app/blob/{ref}/{path}"

    def may_write(self, login: str) -> bool:
        return self.permissions.get(login) in ("admin", "write")

    # --- pull requests --------------------------------------------------------------------------------------

    def find_pull_request(self, *, branch: str, base: str) -> m.PullRequest | None:
        numbers = [number for number, name in self._branches.items() if name == branch]
        pulls = [self.read_pull_request(number) for number in sorted(numbers, reverse=True)]
        return max(pulls, key=lambda pull: (pull.is_open, pull.base == base), default=None)

    def list_merged(self, branch: str) -> tuple[m.PullRequest, ...]:
        numbers = [number for number, name in self._branches.items() if name == branch]
        return tuple(pull for number in reversed(numbers) if (pull := self._pulls[number]).is_merged)

    def create_pull_request(
        self, *, branch: str, base: str, title: str, body: str, draft: bool = False
    ) -> m.PullRequest:
        pull = self.find_pull_request(branch=branch, base=base)
        if pull is not None and pull.is_open:
            return pull
        number = next(self._numbers)
        self._branches[number] = branch
        self._pulls[number] = m.PullRequest(
            number=number,
            url=f"/{number}",
            is_open=True,
            is_merged=False,
            head=self.tip(branch),
            base=base,
            title=title,
            body=body,
            draft=draft and self.drafts_allowed,
            state=m.MergeState.UNKNOWN,
            merge_commit="",
            auto_merge=False,
        )
        return self._pulls[number]

    def mark_ready(self, number: int) -> None:
        self._pulls[number] = replace(self.read_pull_request(number), draft=False)

    def add_people(
        self, number: int, *, labels: Sequence[str], assignees: Sequence[str], reviewers: Sequence[str]
    ) -> tuple[str, ...]:
        self.read_pull_request(number)
        strangers = [name for name in assignees if name not in self.permissions]
        known = (self.permissions.keys() | {f"acme/{team}" for team in self.teams}) - {self.own_login}
        refused = [*(label for label in labels if len(label) > 50), *strangers, *(set(reviewers) - known)]
        return tuple(f"{name} was refused" for name in refused)

    def read_pull_request(self, number: int) -> m.PullRequest:
        self._require_token()
        if number not in self._pulls:
            raise NotThere(f"there is no pull request {number}")
        pull = self._pulls[number]
        state = m.MergeState.BLOCKED if self._missing(pull) else m.MergeState.READY
        self._pulls[number] = replace(pull, state=state)
        return pull

    def _missing(self, pull: m.PullRequest) -> list[str]:
        passed = {check.name for check in self.list_checks(pull.head) if check.state is m.CheckState.PASSED}
        return [name for name in self.required if name not in passed]

    def edit_pull_request(self, number: int, *, body: str) -> None:
        self._pulls[number] = replace(self.read_pull_request(number), body=body)

    def retarget(self, number: int, base: str) -> None:
        self._pulls[number] = replace(self.read_pull_request(number), base=base)

    def merge_pull_request(self, number: int, how: m.Merge) -> str | m.NotMerged:
        pull = self.read_pull_request(number)
        if pull.is_merged:
            return pull.merge_commit
        if pull.draft or pull.head != how.head or self._missing(pull):
            return m.NotMerged(said=f"the rules of {pull.base} are not met")
        return self._merge(number)

    def _merge(self, number: int) -> str:
        merged = replace(self._pulls[number], is_open=False, is_merged=True, merge_commit=f"{number:0>40}", ended=1.0)
        self._pulls[number] = merged
        return merged.merge_commit

    def merge_later(self, number: int, how: m.Merge, *, queue: bool) -> m.NotMerged | None:
        pull = self.read_pull_request(number)
        if not self._missing(pull):
            return m.NotMerged(said="it can be merged at once")
        self._pulls[number] = replace(pull, auto_merge=True, merge_message=how.message)
        return None

    def cancel_merge(self, number: int) -> None:
        self._pulls[number] = replace(self.read_pull_request(number), auto_merge=False, merge_message="")

    def list_open_files(self, base: str) -> dict[int, tuple[str, ...]]:
        pulls = [pull for pull in self._pulls.values() if pull.is_open and pull.base == base]
        return {pull.number: (self._files[self._branches[pull.number]],) for pull in pulls}

    def read_activity(self, number: int, head: str) -> m.Activity:
        said = [message for message in self._messages.get(number, ()) if message.text or message.is_approval]
        comments = [
            m.PullMessage(id=f"comment {place}", author=comment.author, text=comment.text, changed=comment.changed)
            for place, comment in enumerate(self._comments.get(number, ()))
        ]
        messages = sorted([*said, *comments], key=lambda message: message.changed)
        is_open = self._pulls[number].is_open
        return m.Activity(checks=self.list_checks(head), messages=tuple(messages), is_open=is_open)

    def answer_message(self, number: int, message: m.PullMessage, *, marker: str, text: str) -> None:
        if not message.thread:
            self.put_comment(number, marker=marker, text=text)
            return
        known = self._messages[number]
        old = next((one for one in known if m.has_marker(one.text, marker) and one.author == self.own_login), None)
        id_ = next(self._numbers) if old is None else 0
        made = old or replace(message, id=f"line {id_}", author=self.own_login, changed=float(id_))
        self._messages[number] = [one for one in known if one is not old] + [
            replace(made, text=f"{text}\n\n<!-- {marker} -->")
        ]

    def react_to(self, number: int, message: str) -> None:
        kind, _, id_ = message.partition(" ")
        reaction = (int(id_), "eyes")
        self.reactions += [reaction] if kind != "review" and reaction not in self.reactions else []

    def request_review(self, number: int, logins: Sequence[str]) -> None:
        self.asked += [(number, login) for login in logins if self.may_write(login) and login != self.own_login]

    # --- checks ---------------------------------------------------------------------------------------------

    def list_checks(self, head: str) -> tuple[m.PullCheck, ...]:
        return tuple(self._checks.get(head, ()))

    def set_status(self, head: str, *, state: m.CheckState, text: str, url: str) -> None:
        if not self.statuses_allowed:
            raise NotAllowed("the token may not set statuses")
        words = {m.CheckState.PASSED: "success", m.CheckState.FAILED: "failure", m.CheckState.PENDING: "pending"}
        status = {"context": m.STATUS, "state": words[state], "description": text[:140], "target_url": url}
        self.statuses[head] = [status]

    def read_failure_log(self, head: str) -> str:
        failed = (check for check in self.list_checks(head) if check.state is m.CheckState.FAILED)
        return "\n".join(f"{check.name}: {check.summary}" for check in failed)

    # --- issues ---------------------------------------------------------------------------------------------

    def read_issue(self, number: int) -> m.Issue:
        if number not in self._issues:
            raise NotFound(f"there is no issue {number}")
        return self._issues[number].issue

    def list_issues(self, label: str) -> tuple[m.Issue, ...]:
        return tuple(one.issue for one in self._issues.values() if one.issue.is_open and label in one.labels)

    def is_issue_trusted(self, number: int, label: str) -> bool:
        labels = {name.lower(): by for name, by in self._issues[number].labels.items()}
        return self.may_write(self.read_issue(number).author) or self.may_write(labels.get(label.lower(), ""))

    def find_reopening(self, number: int) -> float:
        return self._issues[number].reopened

    def close_issue(self, number: int) -> None:
        self._issues[number].issue = replace(self.read_issue(number), is_open=False, closed_as="completed")

    def label_issue(self, number: int, *, add: str = "", remove: str = "") -> None:
        labels = self._issues[number].labels
        labels |= {add: "octocat"} if add else {}
        labels.pop(remove, None)

    def assign_issue(self, number: int, *, is_assigned: bool) -> None:
        (self.assigned.add if is_assigned else self.assigned.discard)(number)

    def list_comments(self, number: int) -> tuple[m.Comment, ...]:
        return tuple(self._comments.get(number, ()))

    def put_comment(self, number: int, *, marker: str, text: str, is_pull: bool = False) -> None:
        comment = m.Comment(author="octocat", text=f"{text}\n\n<!-- {marker} -->", changed=float(next(self._numbers)))
        comments = self._comments.setdefault(number, [])
        for index, old in enumerate(comments):
            if m.has_marker(old.text, marker) and old.author == "octocat":
                comments[index] = comment
                return
        comments.append(comment)
