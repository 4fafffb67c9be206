"""GitHub on PyGithub."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote

import requests
from github import Auth, Github, GithubException

from runplan.adapters.forge import github_facts as f, protocol as m
from runplan.adapters.forge.access import Token, header_settings
from runplan.adapters.forge.github_calls import (
    CLIENT,
    TIMEOUT_S,
    GitHubCalls,
    describe_error,
    ignore_status,
    is_refusal,
    note_refusal,
)
from runplan.adapters.forge.retry import Calls, OwnComment, repeatable
from runplan.domain.errors import NotAllowed, NotFound, RefusedEarly
from runplan.domain.gitfacts import Oid
from runplan.domain.names import HEADS

if TYPE_CHECKING:
    from github.IssueComment import IssueComment
    from github.PullRequest import PullRequest
    from github.PullRequestComment import PullRequestComment
    from github.WorkflowJob import WorkflowJob
    from github.WorkflowRun import WorkflowRun


STATES = {m.CheckState.PASSED: "success", m.CheckState.FAILED: "failure", m.CheckState.PENDING: "pending"}
LONGEST_STATUS = 140  #: characters of the description of a commit status
INSTALLATION = "ghs_"  #: begins the token of an app, also that of a workflow
IS_PARTIAL = "isPartial"  #: in an answer that lacks fields which the token may not read
STRANGER_S = 3600.0  #: for which a watch does not ask again whether an account may write
_STRANGERS: dict[tuple[str, str], float] = {}  #: repository and account, and when it is asked for again


class GitHub:
    """One repository on GitHub or GitHub Enterprise; the methods of a `Forge` are described there."""

    def __init__(
        self,
        address: m.Address,
        auth: Auth.Auth,
        token: Token,
        *,
        api: str,
        verify: str | bool = True,
        calls: Calls | None = None,
    ) -> None:
        logging.getLogger("github").setLevel(logging.CRITICAL)  # else it writes to standard error
        self.calls = calls or GitHubCalls()
        self.address = address
        self.token_source = token.source
        self._auth = auth  #: its token may be renewed at any time
        self._is_gits = token.is_gits  #: git finds the token by itself
        self._client = Github(auth=auth, base_url=api, verify=verify, **CLIENT)
        self.unread: tuple[str, ...] = ()  #: kinds of checks that the token may not read
        self._pulls: dict[int, PullRequest] = {}  #: as they were read last
        self._repo = self._client.get_repo(address.full_name)

    def git_settings(self) -> tuple[str, ...]:
        if self._is_gits or not self.address.web:
            return ()
        token = self.calls.attempt("renew the token", lambda: self._auth.token)
        return header_settings(self.address, "x-access-token", token)

    # --- the repository -----------------------------------------------------------------------------------

    @repeatable("read the repository")
    def read_repository(self) -> m.ForgeRepository:
        repo = self._repo
        repo.update() if repo.completed else repo.complete()
        return m.ForgeRepository(
            name=repo.full_name,
            # To an installation GitHub says no whatever it may do; the first push shows it.
            can_push=bool(repo.permissions and repo.permissions.push) or self._auth.token.startswith(INSTALLATION),
            default_branch=repo.default_branch,
            is_archived=bool(repo.archived),
            scopes=tuple(filter(None, self._client.oauth_scopes or ())),
        )

    @repeatable("open pull requests with this token")
    def require_may_open(self, base: str) -> None:
        """No field says so of a fine-grained token; one that may ask for the impossible is refused with 422."""
        with ignore_status(422):
            self._repo.create_pull(base=base, head=base, title="runplan", body="")

    def read_target(self, branch: str, *, number: int = 0) -> m.Target:
        wanted = {"branch": branch, "ref": f"{HEADS}{branch}", "number": number, "isOpen": number > 0}
        facts = self._query_repository(f"read the settings of {branch}", f.TARGET, wanted)
        rules: dict[str, list[f.Node]] = {}  # parameters by type; several rulesets may have rules of one type
        with suppress(NotAllowed):  # private repositories of a free plan have none
            path = f"{self._repo.url}/rules/branches/{branch}"
            read = partial(self._repo.requester.requestJsonAndCheck, "GET", path)
            for rule in self.calls.attempt(f"read the rules of {branch}", read)[1]:
                rules.setdefault(rule["type"], []).append(rule.get("parameters") or {})
        classic = (facts.get("ref") or {}).get("refUpdateRule") or {}
        tip = ((facts.get("ref") or {}).get("target") or {}).get("oid")
        if IS_PARTIAL in facts and tip and not number:
            self.list_checks(tip)  # what the token may read instead
        allowed = {"merge": "mergeCommitAllowed", "rebase": "rebaseMergeAllowed", "squash": "squashMergeAllowed"}
        linear = "required_linear_history" in rules or classic.get("requiresLinearHistory")
        if linear:
            del allowed["merge"]
        methods = {name for name, key in allowed.items() if facts.get(key) is not False}
        for rule in rules.get("pull_request", ()):
            methods &= set(rule.get("allowed_merge_methods") or methods)
        checks = rules.get("required_status_checks", [])
        required = [check["context"] for rule in checks for check in rule.get("required_status_checks", ())]
        reviews = [rule.get("required_approving_review_count", 0) for rule in rules.get("pull_request", ())]
        named = {*rules, *(name for name, value in classic.items() if value)}
        named |= {name for rule in rules.get("pull_request", ()) for name, value in rule.items() if value}
        opinions = f.list_nodes(facts.get("pullRequest"), "latestOpinionatedReviews")
        objections = (opinion["author"] for opinion in opinions if opinion["state"] == "CHANGES_REQUESTED")
        pulls = f.list_nodes(facts, "pullRequests")
        commits = (node["commit"] for pull in pulls for node in f.list_nodes(pull, "commits"))
        usual = (check for commit in commits for check in f.list_nodes(commit.get("statusCheckRollup"), "contexts"))
        return m.Target(
            methods=tuple(method for method in m.METHODS if method in methods),
            auto_merge=bool(facts.get("autoMergeAllowed")),
            checks=tuple(dict.fromkeys([*required, *(classic.get("requiredStatusCheckContexts") or ())])),
            usual_checks=tuple(dict.fromkeys(check.get("name") or check.get("context") or "" for check in usual)),
            strict=any(rule.get("strict_required_status_checks_policy") for rule in checks),
            reviews=max([*reviews, classic.get("requiredApprovingReviewCount") or 0]),
            queue="merge_queue" in rules,
            unread=self.unread,
            is_first=not pulls,
            rules=tuple(dict.fromkeys(words for name, words in f.RULES.items() if name in named)),
            objections=tuple(map(f.author_login, objections)),
        )

    def _query_repository(self, action: str, query: str, values: Mapping[str, object]) -> f.Node:
        """The repository's part of the answer; a field that the token may not read is missing in it."""
        names = {"owner": self.address.owner, "name": self.address.repository}

        def call() -> f.Node:
            try:
                _, answer = self._client.requester.graphql_query(query, {**names, **values})
            except GithubException as error:
                if error.status != 400 or not (error.data.get("data") or {}).get("repository"):
                    raise
                answer = error.data
            return {**answer["data"]["repository"], **({IS_PARTIAL: True} if answer.get("errors") else {})}

        return self.calls.attempt(action, call)

    @repeatable("read the permission of {0}")
    def may_write(self, login: str) -> bool:
        try:
            return self._repo.get_collaborator_permission(login) in ("admin", "write")
        except GithubException as error:
            if error.status != 404:
                raise
            return False  # the account was deleted, or is that of an app

    def file_url(self, path: str, ref: str) -> str:
        web = self.address.web or f"https://{self.address.host}"
        return f"{web}/{self.address.full_name}/blob/{quote(ref)}/{quote(path)}"

    # --- pull requests --------------------------------------------------------------------------------------

    @repeatable("look for the pull request of {branch}")
    def find_pull_request(self, *, branch: str, base: str) -> m.PullRequest | None:
        # A person may have changed where it leads. Of several the newest open one for this target counts.
        pulls = self._list_pull_requests(branch)
        newest = max(pulls, key=lambda pull: (pull.state == "open", pull.base.ref == base), default=None)
        return None if newest is None else self._note_pull_request(newest)

    @repeatable("look for merged pull requests of {0}")
    def list_merged(self, branch: str) -> tuple[m.PullRequest, ...]:
        return tuple(f.to_pull_request(pull) for pull in self._list_pull_requests(branch) if pull.merged_at)

    def _list_pull_requests(self, branch: str) -> Iterator[PullRequest]:
        # Without the owner GitHub ignores the filter and lists every pull request.
        head = f"{self._repo.owner.login}:{branch}"  # that of the remote's address may be an earlier one
        return islice(self._repo.get_pulls(state="all", head=head, sort="created", direction="desc"), 10)

    def create_pull_request(
        self, *, branch: str, base: str, title: str, body: str, draft: bool = False
    ) -> m.PullRequest:
        def happened() -> m.PullRequest | None:
            pull = self.find_pull_request(branch=branch, base=base)
            return pull if pull is not None and pull.is_open else None

        def call(draft: bool = draft) -> m.PullRequest:
            try:
                made = self._repo.create_pull(base=base, head=branch, title=title, body=body, draft=draft)
            except GithubException as error:
                if error.status != 422:
                    raise
                if (pull := happened()) is not None:  # another process was faster
                    return pull
                if not draft:
                    raise
                return call(draft=False)
            return self._note_pull_request(made)

        return self.calls.attempt("open a pull request", call, happened)

    @repeatable("mark pull request {0} as ready")
    def mark_ready(self, number: int) -> None:
        try:
            (self._pulls.get(number) or self._get_pull_request(number)).mark_ready_for_review()
        except GithubException as error:
            if not is_refusal(error) or self._get_pull_request(number).draft:
                raise

    def add_people(
        self, number: int, *, labels: Sequence[str], assignees: Sequence[str], reviewers: Sequence[str]
    ) -> tuple[str, ...]:
        issue = self._repo.get_issue(number)

        def assign(names: Sequence[str]) -> list[str]:
            issue.add_to_assignees(*names)  # GitHub leaves out accounts without access
            assigned = {user.login.lower() for user in issue.assignees}
            return [f"{name} cannot be assigned" for name in names if name.lower() not in assigned]

        remarks = self._add_each("label it", labels, lambda names: issue.add_to_labels(*names))
        remarks += self._add_each("assign it to", assignees, assign)
        return (*remarks, *self._ask_for_review(number, reviewers))

    def _add_each(
        self, action: str, names: Sequence[str], call: Callable[[Sequence[str]], list[str] | None]
    ) -> list[str]:
        """Add all names in one call, or each in its own where GitHub refuses them together; remarks on refusals."""
        if not names:
            return []
        try:
            return self.calls.attempt(f"{action} {', '.join(names)}", lambda: call(names) or [])
        except NotAllowed as error:
            if len(names) == 1:
                return [str(error)]
        return [remark for name in names for remark in self._add_each(action, [name], call)]

    @repeatable("read pull request {0}")
    def read_pull_request(self, number: int) -> m.PullRequest:
        pull = self._pulls.setdefault(number, self._repo.get_pull(number))
        pull.update()  # a conditional request: without a change it counts against no rate limit
        return f.to_pull_request(pull)

    def _note_pull_request(self, pull: PullRequest) -> m.PullRequest:
        self._pulls[pull.number] = pull
        return f.to_pull_request(pull)

    def _get_pull_request(self, number: int) -> PullRequest:
        pull = self._repo.get_pull(number)
        pull.complete()
        return pull

    @repeatable("edit pull request {0}")
    def edit_pull_request(self, number: int, *, body: str) -> None:
        self._repo.get_pull(number).edit(body=body)

    @repeatable("retarget pull request {0}")
    def retarget(self, number: int, base: str) -> None:
        self._repo.get_pull(number).edit(base=base)

    def merge_pull_request(self, number: int, how: m.Merge) -> Oid | m.NotMerged:
        def happened() -> Oid | None:
            now = self.read_pull_request(number)
            return now.merge_commit if now.is_merged else None

        def call() -> Oid | m.NotMerged:
            try:
                return self._repo.get_pull(number).merge(how.message, how.title, how.method, sha=how.head).sha
            except GithubException as error:
                if error.status not in (405, 409, 422):
                    raise
                return happened() or m.NotMerged(said=describe_error(error))

        return self.calls.attempt(f"merge pull request {number}", call, happened)

    @repeatable("ask for a later merge of pull request {0}")
    def merge_later(self, number: int, how: m.Merge, *, queue: bool) -> m.NotMerged | None:
        pull = self._get_pull_request(number)
        if pull.merged or pull.raw_data.get("auto_merge"):
            return None
        try:
            if queue:
                wanted = {"pullRequestId": pull.node_id, "expectedHeadOid": how.head}
                pull.requester.graphql_named_mutation("enqueuePullRequest", wanted, "mergeQueueEntry { position }")
            else:
                texts = {"commit_headline": how.title, "commit_body": how.message}
                pull.enable_automerge(how.method.upper(), expected_head_oid=how.head, **texts)
        except GithubException as error:
            if not is_refusal(error):
                raise
            said = describe_error(error)
            return None if "already" in said else m.NotMerged(said=said)  # in the queue
        return None

    @repeatable("cancel the merge of pull request {0}")
    def cancel_merge(self, number: int) -> None:
        self._get_pull_request(number).disable_automerge()

    @repeatable("read the open pull requests")
    def list_open_files(self, base: str) -> dict[int, tuple[str, ...]]:
        pulls = islice(self._repo.get_pulls(state="open", base=base), m.MOST_OPEN)
        return {pull.number: tuple(file.filename for file in pull.get_files()) for pull in pulls}

    def read_activity(self, number: int, head: Oid) -> m.Activity:
        cursors = dict.fromkeys(("contexts", "reviews", "reviewThreads", "comments"), "")
        pages: list[f.Node] = []
        has_next = True
        while has_next:
            wanted = {name: cursor or None for name, cursor in cursors.items()} | {"number": number, "head": head}
            page = self._query_repository(f"read the activity of pull request {number}", f.ACTIVITY, wanted)
            pages.append(page)
            rollup = (page.get("object") or {}).get("statusCheckRollup") or {}
            connections = {**(page.get("pullRequest") or {}), **rollup}
            infos = {name: (connections.get(name) or {}).get("pageInfo") or {} for name in cursors}
            has_next = any(info.get("hasNextPage") for info in infos.values())
            cursors = {name: info.get("endCursor") or cursors[name] for name, info in infos.items()}
        # Some tokens may read checks by REST alone.
        checks = self.list_checks(head) if any(IS_PARTIAL in page for page in pages) else f.to_checks(pages)
        is_open = (pages[0].get("pullRequest") or {}).get("state") == "OPEN"
        return m.Activity(checks=checks, messages=f.to_messages(pages), is_open=is_open)

    def answer_message(self, number: int, message: m.PullMessage, *, marker: str, text: str) -> None:
        if not message.thread:
            return self.put_comment(number, marker=marker, text=text)
        pull = self._repo.get_pull(number)
        reply = partial(pull.create_review_comment_reply, int(message.thread))
        read = partial(self._read_own, pull.get_review_comments)
        return self.calls.put_comment(f"answer {message.id}", marker, text, read, reply)

    @repeatable("react to {1}")
    def react_to(self, number: int, message: str) -> None:  # noqa: ARG002
        kind, _, id_ = message.partition(" ")
        if place := {"comment": "issues", "line": "pulls"}.get(kind):
            url = f"{self._repo.url}/{place}/comments/{id_}/reactions"
            self._repo.requester.requestJsonAndCheck("POST", url, input={"content": "eyes"})

    def request_review(self, number: int, logins: Sequence[str]) -> None:
        self._ask_for_review(number, logins)  # refused are the author of the pull request, and former collaborators

    def _ask_for_review(self, number: int, names: Sequence[str]) -> list[str]:
        def ask(names: Sequence[str]) -> None:
            teams = [name.rpartition("/")[2] for name in names if "/" in name]
            self._repo.get_pull(number).create_review_request([name for name in names if "/" not in name], teams)

        return self._add_each("ask for a review of", names, ask)

    # --- checks -----------------------------------------------------------------------------------------------

    @repeatable("read the checks")
    def list_checks(self, head: Oid) -> tuple[m.PullCheck, ...]:
        """Check runs, for a fine-grained token the jobs of GitHub Actions with their names, and commit statuses."""
        commit = self._repo.get_commit(head)
        facts: list[tuple[str, str, str, str, datetime | None]] = []
        unread: list[str] = []
        with note_refusal(unread, "checks other than jobs of GitHub Actions"):
            for run in commit.get_check_runs():
                changed = run.completed_at or run.started_at
                facts.append((run.name, f.run_state(run), run.html_url, run.output.summary, changed))
        if unread:
            with note_refusal(unread, "jobs of GitHub Actions"):
                for workflow in self._repo.get_workflow_runs(head_sha=head):
                    jobs: list[WorkflowJob | WorkflowRun] = [*workflow.jobs()]
                    for job in jobs or [workflow]:
                        changed = getattr(job, "completed_at", None) or workflow.updated_at
                        facts.append((job.name, f.run_state(job), job.html_url, "", changed))
        with note_refusal(unread, "commit statuses"):
            combined = commit.get_combined_status()
            facts += [
                (status.context, status.state, status.target_url, status.description, status.updated_at)
                for status in combined.statuses
            ]
            if combined.total_count > len(combined.statuses):  # it lists a page of them, and sums up all
                facts.append(("all statuses", combined.state, "", "", None))
        self.unread = tuple(unread)
        if not facts and len(unread) > 2:
            needs = "it needs read access to Actions, and to commit statuses"
            raise NotAllowed(f"the token may not read the checks of a commit; {needs}")
        states = {"success": m.CheckState.PASSED, "pending": m.CheckState.PENDING}
        return tuple(
            m.PullCheck(
                name=name,
                state=states.get(state, m.CheckState.FAILED),
                url=url or "",
                summary=summary or "",
                changed=changed.timestamp() if changed else 0.0,
            )
            for name, state, url, summary, changed in facts
            if name != m.STATUS
        )

    @repeatable("set the status of the commit")
    def set_status(self, head: Oid, *, state: m.CheckState, text: str, url: str) -> None:
        status = {"state": STATES[state], "description": text[:LONGEST_STATUS], "target_url": url, "context": m.STATUS}
        self._repo.requester.requestJsonAndCheck("POST", f"{self._repo.url}/statuses/{head}", input=status)

    def read_failure_log(self, head: Oid) -> str:
        def read_logs() -> str:
            runs = self._repo.get_workflow_runs(head_sha=head)
            jobs = (job for run in runs if run.conclusion not in (*f.GOOD, None) for job in run.jobs())
            parts = []
            for job in islice((job for job in jobs if job.conclusion not in (*f.GOOD, None)), m.FAILED_JOBS):
                try:
                    address = job.logs_url()
                except GithubException as error:
                    if error.status not in (404, 410):  # never written, or expired
                        raise
                    continue
                answer = requests.get(address, timeout=TIMEOUT_S)  # a signed address, without the token
                if answer.ok:
                    parts.append(f"## {job.name}\n{answer.text[-m.LOG_CHARACTERS :]}")
            return "\n".join(parts)

        text = ""
        with suppress(NotAllowed):  # the token may not read workflow runs
            text = self.calls.attempt("read the logs of failed jobs", read_logs)
        failed = [check for check in self.list_checks(head) if check.state is m.CheckState.FAILED]
        return text or "\n".join(f"{check.name}: {check.summary or check.url}" for check in failed)

    # --- issues -----------------------------------------------------------------------------------------------

    @repeatable("read issue {0}")
    def read_issue(self, number: int) -> m.Issue:
        issue = self._repo.get_issue(number)
        try:
            issue.complete()
        except GithubException as error:
            if error.status not in (404, 410):  # never made, deleted
                raise
            raise NotFound(f"{self.address.full_name} has no issue {number}, or the token may not read it") from None
        if issue.pull_request is not None:
            raise RefusedEarly(f"#{number} is a pull request, no issue: {issue.html_url}")
        return f.to_issue(issue)

    def list_issues(self, label: str) -> tuple[m.Issue, ...]:
        nodes: list[f.Node] = []
        info: f.Node = {"hasNextPage": True}
        while info.get("hasNextPage"):
            wanted = {"label": label, "cursor": info.get("endCursor")}
            page = self._query_repository(f"list the issues with the label {label}", f.ISSUES, wanted)["issues"]
            nodes += filter(None, page["nodes"])
            info = page["pageInfo"]
        writers = None
        with suppress(NotAllowed):  # a classic token needs the scope read:org, and its owner has to be a member
            pages = self._repo.get_collaborators()
            users = self.calls.attempt("list the accounts that may push", lambda: [*pages]) if nodes else []
            writers = {user.login.lower() for user in users if user.permissions and user.permissions.push}
        may_write = self._may_still_write if writers is None else (lambda login: login.lower() in writers)
        return tuple(
            m.Issue(
                number=node["number"],
                title=node["title"],
                body=node["body"],
                is_open=True,
                url=node["url"],
                author=f.author_login(node["author"]),
                is_trusted=f.is_trusted(node, label, may_write),
            )
            for node in nodes
        )

    def _may_still_write(self, login: str) -> bool:
        """As `may_write`; that an account may not write is remembered for a while."""
        account = (self._repo.url, login.lower())
        if _STRANGERS.get(account, 0.0) < self.calls.now():
            if self.may_write(login):
                return True
            _STRANGERS[account] = self.calls.now() + STRANGER_S
        return False

    @repeatable("close issue {0}")
    def close_issue(self, number: int) -> None:
        self._repo.get_issue(number).edit(state="closed", state_reason="completed")

    @repeatable("label issue {0}")
    def label_issue(self, number: int, *, add: str = "", remove: str = "") -> None:
        issue = self._repo.get_issue(number)
        if add:
            issue.add_to_labels(add)
        if remove:
            with ignore_status(404):  # it does not have the label
                issue.remove_from_labels(remove)

    @repeatable("assign issue {0}")
    def assign_issue(self, number: int, *, is_assigned: bool) -> None:
        issue = self._repo.get_issue(number)
        issue.add_to_assignees(self.own_login) if is_assigned else issue.remove_from_assignees(self.own_login)

    @repeatable("read the comments of #{0}")
    def list_comments(self, number: int) -> tuple[m.Comment, ...]:
        comments = self._repo.get_issue(number).get_comments()
        return tuple(
            m.Comment(
                author=f.user_login(comment.user), text=comment.body or "", changed=comment.updated_at.timestamp()
            )
            for comment in comments
        )

    def put_comment(self, number: int, *, marker: str, text: str, is_pull: bool = False) -> None:  # noqa: ARG002
        issue = self._repo.get_issue(number)
        read = partial(self._read_own, issue.get_comments)
        self.calls.put_comment(f"comment on #{number}", marker, text, read, issue.create_comment)

    def _read_own(self, read: Callable[[], Iterable[IssueComment | PullRequestComment]]) -> list[OwnComment]:
        ours = (comment for comment in read() if f.user_login(comment.user) == self.own_login)
        return [OwnComment(comment.body or "", comment.edit) for comment in ours]

    @cached_property
    def own_login(self) -> str:
        """The account of the token. REST does not name it to an app."""
        requester = self._client.requester
        query = "query { viewer { login } }"
        _, answer = self.calls.attempt("read the account", lambda: requester.graphql_query(query, {}))
        return str(answer["data"]["viewer"]["login"])

    def _query_issue(self, number: int) -> f.Node:
        facts = self._query_repository(f"read the history of issue {number}", f.ISSUE, {"number": number})
        return facts.get("issue") or {}

    def find_reopening(self, number: int) -> float:
        events = f.list_nodes(self._query_issue(number), "reopened")
        meant = [event["createdAt"] for event in events if self.may_write(f.author_login(event["actor"]))]
        return datetime.fromisoformat(meant[-1]).timestamp() if meant else 0.0

    def is_issue_trusted(self, number: int, label: str) -> bool:
        return f.is_trusted(self._query_issue(number), label, self.may_write)
