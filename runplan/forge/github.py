"""GitHub on PyGithub."""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runplan.errors import NotFound, RefusedEarly
from runplan.forge import model as m
from runplan.forge.address import APP_KEY, Access, find_token, parse_remote
from runplan.forge.retry import Calls, describe, repeatable
from runplan.git.command import ANY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from github import Auth
    from github.BranchProtection import BranchProtection
    from github.Issue import Issue
    from github.IssueComment import IssueComment
    from github.NamedUser import NamedUser
    from github.PullRequest import PullRequest

    from runplan.forge.address import Address
    from runplan.git.command import Git
    from runplan.gitfacts import Oid

TIMEOUT_S = 15
#: Of every client. A phase makes a handful of calls, so none waits for another.
CLIENT: dict[str, Any] = {
    "timeout": TIMEOUT_S,
    "per_page": 100,
    "lazy": True,
    "retry": None,
    "seconds_between_requests": 0,
    "seconds_between_writes": 0,
}
GOOD = ("success", "neutral", "skipped")  #: conclusions of a check run that do not block
LOG_CHARACTERS = 6000  #: of the logs of failed jobs
MOST_OPEN = 50  #: open pull requests whose files are read, with one call each
FAILED_JOBS = 3  #: whose logs are read
#: The beginning of GitHub's refusal to merge, with its cause; the status is 405 for all of them.
HINDRANCES: tuple[tuple[str, m.MergeHindrance], ...] = (
    ("merges are not allowed", "method"),
    ("head branch was modified", "head-moved"),
    ("base branch was modified", "base-moved"),
    ("merge queue", "queue"),
    ("required status check", "checks"),
    ("review", "review"),
    ("not mergeable", "conflict"),
    ("merge conflict", "conflict"),
)


class GitHub:
    """One repository on GitHub or GitHub Enterprise.

    Every write may be repeated after a lost answer: it reads first what has happened.
    """

    def __init__(self, address: Address, auth: Auth.Auth, *, api: str, calls: Calls | None = None) -> None:
        from github import Github

        logging.getLogger("github").setLevel(logging.CRITICAL)  # else it writes to standard error
        self.calls = calls or Calls()
        self._client = Github(auth=auth, base_url=api, **CLIENT)
        self._address = address
        self._numbers: dict[str, int] = {}  #: of the pull requests that were seen, by branch
        self._repo = self._client.get_repo(address.full_name)

    # --- the repository -----------------------------------------------------------------------------------

    @repeatable("read the repository")
    def repository(self) -> m.Repository:
        repo = self._repo
        repo.update() if repo.completed else repo.complete()
        allowed = {
            "merge": repo.allow_merge_commit,
            "squash": repo.allow_squash_merge,
            "rebase": repo.allow_rebase_merge,
        }
        return m.Repository(
            name=repo.full_name,
            can_push=bool(repo.permissions and repo.permissions.push),
            methods=tuple(name for name, is_allowed in allowed.items() if is_allowed),
            auto_merge=bool(repo.allow_auto_merge),
            scopes=tuple(filter(None, self._client.oauth_scopes or ())),
        )

    def rules(self, branch: str) -> m.Rules:
        """The rules of rulesets and of classic protection; the latter only an administrator may read."""
        found = self._rulesets(branch)
        try:
            classic = self._protection(branch)
        except m.ForgeDenied:
            return found
        required, reviews = classic.required_status_checks, classic.required_pull_request_reviews
        return m.Rules(
            checks=tuple(dict.fromkeys([*found.checks, *(required.contexts if required else ())])),
            strict=found.strict or bool(required and required.strict),
            reviews=max(found.reviews, reviews.required_approving_review_count if reviews else 0),
            queue=found.queue,
        )

    @repeatable("read the protection of {0}")
    def _protection(self, branch: str) -> BranchProtection:
        return self._repo.get_branch(branch).get_protection()

    @repeatable("read the rules of {0}")
    def _rulesets(self, branch: str) -> m.Rules:
        _, rules = self._repo.requester.requestJsonAndCheck("GET", f"{self._repo.url}/rules/branches/{branch}")
        by_type: dict[str, dict[str, Any]] = {rule["type"]: rule.get("parameters") or {} for rule in rules}
        checks = by_type.get("required_status_checks", {})
        return m.Rules(
            checks=tuple(one["context"] for one in checks.get("required_status_checks", ())),
            strict=bool(checks.get("strict_required_status_checks_policy")),
            reviews=int(by_type.get("pull_request", {}).get("required_approving_review_count", 0)),
            queue="merge_queue" in by_type,
        )

    # --- pull requests --------------------------------------------------------------------------------------

    @repeatable("look for the pull request of {branch}")
    def find(self, *, branch: str, base: str) -> m.PullRequest | None:
        """The newest pull request of this branch, open or not, wherever it leads."""
        if (number := self._numbers.get(branch)) is not None:  # saves a call while it is open
            known = self._get(number)
            if known.state == "open" and known.base.ref == base:
                return _pull_request(known)
        # Without the owner GitHub ignores the filter and lists every pull request.
        head = f"{self._address.owner}:{branch}"
        found = self._repo.get_pulls(state="all", head=head, sort="created", direction="desc")
        # A person may have changed where it leads. Of several the newest open one for this target counts.
        one = max(islice(found, 10), key=lambda one: (one.state == "open", one.base.ref == base), default=None)
        if one is None:
            return None
        self._numbers[branch] = one.number
        return _pull_request(one)

    def create(self, *, branch: str, base: str, title: str, body: str) -> m.PullRequest:
        from github import GithubException

        def happened() -> m.PullRequest | None:
            found = self.find(branch=branch, base=base)
            return found if found is not None and found.is_open else None

        def call() -> m.PullRequest:
            try:
                made = self._repo.create_pull(base=base, head=branch, title=title, body=body)
                self._numbers[branch] = made.number
                return _pull_request(made)
            except GithubException as error:
                if error.status == 422 and "already exists" in describe(error) and (found := happened()) is not None:
                    return found
                raise

        return self.calls.attempt("open a pull request", call, happened)

    @repeatable("read pull request {0}")
    def read(self, number: int) -> m.PullRequest:
        return _pull_request(self._get(number))

    def _get(self, number: int) -> PullRequest:
        pull = self._repo.get_pull(number)
        pull.complete()
        return pull

    @repeatable("edit pull request {0}")
    def edit(self, number: int, *, body: str) -> None:
        self._repo.get_pull(number).edit(body=body)

    def merge(self, number: int, how: m.Merge) -> Oid | m.NotMerged:
        """The merge commit, or why there is none."""
        from github import GithubException

        def happened() -> Oid | None:
            now = self.read(number)
            return now.merge_commit if now.is_merged else None

        def call() -> Oid | m.NotMerged:
            try:
                return self._repo.get_pull(number).merge(how.message, how.title, how.method, sha=how.head).sha
            except GithubException as error:
                if error.status not in (405, 409, 422):
                    raise
                said = describe(error)
                found = (hindrance for words, hindrance in HINDRANCES if words in said.lower())
                return happened() or m.NotMerged(hindrance=next(found, "refused"), said=said)

        return self.calls.attempt(f"merge pull request {number}", call, happened)

    @repeatable("ask for a later merge of pull request {0}")
    def merge_later(self, number: int, how: m.Merge, *, queue: bool) -> m.NotMerged | None:
        """Ask the forge to merge as soon as its rules allow: auto-merge, or its merge queue."""
        from github import GithubException

        pull = self._get(number)
        if pull.merged or pull.raw_data.get("auto_merge"):
            return None
        try:
            if queue:
                wanted = {"pullRequestId": pull.node_id, "expectedHeadOid": how.head}
                pull.requester.graphql_named_mutation("enqueuePullRequest", wanted, "mergeQueueEntry { position }")
            else:
                texts = {"commit_headline": how.title, "commit_body": how.message}
                pull.enable_automerge(how.method.upper(), expected_head_oid=how.head, **texts)
        except GithubException as error:  # an error of GraphQL has status 400
            if error.status != 400:
                raise
            said = describe(error)
            return None if "already" in said else m.NotMerged(hindrance="refused", said=said)  # in the queue
        return None

    @repeatable("cancel the merge of pull request {0}")
    def cancel_merge(self, number: int) -> None:
        """Take back the request for auto-merge."""
        self._get(number).disable_automerge()

    @repeatable("read the open pull requests")
    def open_files(self, base: str) -> dict[int, tuple[str, ...]]:
        """The files that each open pull request changes; of the newest ones, where there are very many."""
        pulls = islice(self._repo.get_pulls(state="open", base=base), MOST_OPEN)
        return {pull.number: tuple(file.filename for file in pull.get_files()) for pull in pulls}

    @repeatable("read the review of pull request {0}")
    def review_comments(self, number: int) -> tuple[m.ReviewComment, ...]:
        pull = self._repo.get_pull(number)
        reviews = [
            m.ReviewComment(id=f"review {one.id}", author=_login(one.user), text=one.body)
            for one in pull.get_reviews()
            if one.body
        ]
        lines = [  # a line that has changed since has no number
            m.ReviewComment(
                id=f"line {one.id}",
                author=_login(one.user),
                text=one.body,
                place=f"{one.path}:{one.line}" if one.line else one.path,
            )
            for one in pull.get_review_comments()
        ]
        return (*reviews, *lines)

    # --- checks -----------------------------------------------------------------------------------------------

    @repeatable("read the checks")
    def checks(self, head: Oid) -> tuple[m.Check, ...]:
        """Check runs and commit statuses; a repository may use either."""
        commit, found = self._repo.get_commit(head), []
        for run in commit.get_check_runs():
            conclusion = "success" if run.conclusion in GOOD else "failure"
            state = conclusion if run.status == "completed" else "pending"
            found.append((run.name, state, run.html_url, run.output.summary))
        combined = commit.get_combined_status()
        found += [(one.context, one.state, one.target_url, one.description) for one in combined.statuses]
        if combined.total_count > len(combined.statuses):  # it lists a page of them, and sums up all
            found.append(("all statuses", combined.state, "", ""))
        states: Mapping[str, m.CheckState] = {"success": "passed", "pending": "pending"}
        return tuple(
            m.Check(name=name, state=states.get(state, "failed"), url=url or "", summary=summary or "")
            for name, state, url, summary in found
        )

    def failure_log(self, head: Oid) -> str:
        """The end of the logs of failed checks, bounded."""
        try:
            text = self._job_logs(head)
        except m.ForgeDenied:  # the token may not read workflow runs
            text = ""
        failed = [check for check in self.checks(head) if check.state == "failed"]
        return text or "\n".join(f"{check.name}: {check.summary or check.url}" for check in failed)

    @repeatable("read the logs of failed jobs")
    def _job_logs(self, head: Oid) -> str:
        import requests

        runs = self._repo.get_workflow_runs(head_sha=head)
        jobs = (job for run in runs if run.conclusion not in (*GOOD, None) for job in run.jobs())
        parts = []
        for job in islice((job for job in jobs if job.conclusion not in (*GOOD, None)), FAILED_JOBS):
            answer = requests.get(job.logs_url(), timeout=TIMEOUT_S)  # a signed address, without the token
            if answer.ok:
                parts.append(f"## {job.name}\n{answer.text[-LOG_CHARACTERS // FAILED_JOBS :]}")
        return "\n".join(parts)

    # --- issues -----------------------------------------------------------------------------------------------

    @repeatable("read issue {0}")
    def issue(self, number: int) -> m.Issue:
        from github import GithubException

        found = self._repo.get_issue(number)
        try:
            found.complete()
        except GithubException as error:
            if error.status not in (404, 410):  # never made, deleted
                raise
            raise NotFound(f"{self._address.full_name} has no issue {number}, or the token may not read it") from None
        if found.pull_request is not None:
            raise RefusedEarly(f"#{number} is a pull request, no issue: {found.html_url}")
        return _issue(found)

    @repeatable("list the issues with the label {0}")
    def issues(self, label: str) -> tuple[m.Issue, ...]:
        """The open issues with this label, oldest first."""
        found = self._repo.get_issues(state="open", labels=[label], sort="created", direction="asc")
        return tuple(_issue(one) for one in found if one.pull_request is None)

    @repeatable("close issue {0}")
    def close_issue(self, number: int) -> None:
        self._repo.get_issue(number).edit(state="closed", state_reason="completed")

    @repeatable("label issue {0}")
    def label(self, number: int, *, add: str = "", remove: str = "") -> None:
        from github import GithubException

        issue = self._repo.get_issue(number)
        if add:
            issue.add_to_labels(add)
        try:
            if remove:
                issue.remove_from_labels(remove)
        except GithubException as error:
            if error.status != 404:  # else it does not have the label
                raise

    @repeatable("assign issue {0}")
    def assign(self, number: int, *, is_assigned: bool) -> None:
        """Assign the issue to the owner of the token, or take it back."""
        issue, me = self._repo.get_issue(number), self._client.get_user().login
        issue.add_to_assignees(me) if is_assigned else issue.remove_from_assignees(me)

    @repeatable("read the comments of #{0}")
    def _comments(self, number: int) -> list[IssueComment]:
        return list(self._repo.get_issue(number).get_comments())

    def comments(self, number: int) -> tuple[str, ...]:
        return tuple(one.body or "" for one in self._comments(number))

    def comment(self, number: int, *, marker: str, text: str) -> None:
        """Comment on a pull request or issue, once per marker; a later text replaces it."""
        issue, mark, what = self._repo.get_issue(number), f"<!-- {marker} -->", f"comment on #{number}"
        body = f"{text}\n\n{mark}"

        def happened() -> IssueComment | None:
            return next((one for one in self._comments(number) if mark in (one.body or "")), None)

        found = happened()
        if found is None:
            self.calls.attempt(what, lambda: issue.create_comment(body), happened)
        elif found.body != body:
            self.calls.attempt(what, lambda: found.edit(body))


def _pull_request(pull: PullRequest) -> m.PullRequest:
    return m.PullRequest(
        number=pull.number,
        url=pull.html_url,
        is_open=pull.state == "open",
        is_merged=pull.merged if "merged" in pull.raw_data else pull.merged_at is not None,
        head=pull.head.sha,
        base=pull.base.ref,
        title=pull.title,
        body=pull.body or "",
        draft=pull.draft,
        mergeable=pull.raw_data.get("mergeable"),
        state=pull.raw_data.get("mergeable_state") or "unknown",
        merge_commit=(pull.merge_commit_sha or "") if pull.merged_at else "",
        auto_merge=pull.raw_data.get("auto_merge") is not None,
        merge_message=(pull.raw_data.get("auto_merge") or {}).get("commit_message") or "",
    )


def _login(user: NamedUser | None) -> str:
    return user.login if user else "ghost"  # as GitHub shows an account that was deleted


def _issue(issue: Issue) -> m.Issue:
    return m.Issue(
        number=issue.number,
        title=issue.title,
        body=issue.body or "",
        is_open=issue.state == "open",
        url=issue.html_url,
        author=_login(issue.user),
    )


def find_access(git: Git, *, remote: str, env: Mapping[str, str]) -> Access:
    """The repository of a remote, with the token of this environment; refused when there is none."""
    from github import Auth

    found = git.run("remote", "get-url", "--push", "--", remote, ok=ANY)
    if found.code:
        raise RefusedEarly(f"there is no remote {remote} here to push to; run: git remote add {remote} URL")
    url = found.text
    address = parse_remote(url, resolve=lambda host: _ssh_host(host, env))
    if address is None:
        public = re.sub(r"//[^/@]*@", "//", url)
        raise RefusedEarly(f"landing by pr needs a repository on GitHub, and {remote} is {public}; use direct instead")

    def ask(argv: Sequence[str], stdin: str) -> str:
        if argv[0] == "git":
            return git.run(*argv[1:], stdin=stdin.encode(), env={"GIT_TERMINAL_PROMPT": "0"}, ok=ANY).text
        return _output(argv, env)

    token = find_token(address, env, ask)
    if token is None:
        name = "GH_TOKEN" if address.is_cloud else "GH_ENTERPRISE_TOKEN"
        raise RefusedEarly(f"there is no token for {address.host}; set {name}, or run: gh auth login")
    auth = _installation(address, token.app, token.value, _api(address, env)) if token.app else Auth.Token(token.value)
    return Access(address=address, auth=auth, source=token.source, is_gits=token.is_gits)


@cache  # each signature with the key takes 0.2 s
def _installation(address: Address, app: str, file: str, api: str) -> Auth.AppInstallationAuth:
    """The installation of a GitHub App on this repository; PyGithub renews its token, which lives for an hour."""
    from github import Auth, GithubIntegration
    from jwt import PyJWTError

    try:
        signed = Auth.AppAuth(app, Path(file).read_text(encoding="ascii") or "-")
        apps = GithubIntegration(auth=signed, base_url=api, **CLIENT)
        found = Calls().attempt("find the app", lambda: apps.get_repo_installation(address.owner, address.repository))
    except m.ForgeDenied as error:
        raise RefusedEarly(f"the GitHub App {app} is not installed on {address.full_name}: {error}") from None
    except (OSError, ValueError, PyJWTError) as error:
        raise RefusedEarly(f"{APP_KEY}: {file or 'the file'} is no private key that can be read: {error}") from None
    return Auth.AppInstallationAuth(signed, found.id, requester=apps.requester)


def git_settings(access: Access) -> tuple[str, ...]:
    """Settings with which git signs in to this host alone; for its environment, never for its arguments."""
    if access.is_gits or not access.address.web:
        return ()
    token = Calls().attempt("renew the token", lambda: access.auth.token)
    basic = b64encode(f"x-access-token:{token}".encode()).decode()
    key = f"http.{access.address.web}/.extraHeader"
    return f"{key}=", f"{key}=Authorization: Basic {basic}"  # the first drops headers of the user's configuration


def open_forge(access: Access, env: Mapping[str, str]) -> GitHub:
    return GitHub(access.address, access.auth, api=_api(access.address, env))


def _api(address: Address, env: Mapping[str, str]) -> str:
    return env.get("GITHUB_API_URL", "") or address.api


def _ssh_host(alias: str, env: Mapping[str, str]) -> str:
    """The host name that ssh would use for a name of its configuration."""
    if "." in alias:
        return alias
    found = re.search(r"^hostname (\S+)$", _output(("ssh", "-G", alias), env), re.MULTILINE)
    return found[1] if found else alias


def _output(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The output of a program; "" when it is missing, fails or hangs."""
    import subprocess

    try:
        return subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
