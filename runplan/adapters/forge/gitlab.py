"""GitLab on python-gitlab."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

from gitlab import Gitlab
from gitlab.exceptions import GitlabError

from runplan.adapters.forge import gitlab_facts as f, protocol as m
from runplan.adapters.forge.access import Ask, Token, ask_program, find_stored_token, header_settings
from runplan.adapters.forge.gitlab_calls import TIMEOUT_S, CheckedSession, GitLabCalls, describe_error
from runplan.adapters.forge.gitlab_facts import Facts
from runplan.adapters.forge.retry import CERTIFICATES, Calls, OwnComment, repeatable
from runplan.adapters.git.command import Git
from runplan.domain.errors import NotFound, RefusedEarly
from runplan.domain.gitfacts import PLAN, Oid

T = TypeVar("T")
TOKENS = ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN")  #: variables, in the order of the `glab` program
DEVELOPER = 30  #: the lowest access level that may push
DRAFT = "Draft: "
STATUSES = {m.CheckState.PASSED: "success", m.CheckState.FAILED: "failed", m.CheckState.PENDING: "pending"}
#: Who changed title or description of an issue last; REST does not say it.
EDITED = """
query($path: ID!, $number: String!) {
  project(fullPath: $path) { workItems(iid: $number) { nodes { widgets {
    ... on WorkItemWidgetDescription { lastEditedAt lastEditedBy { username } }
  } } } }
}"""


def open_forge(git: Git, address: m.Address, env: Mapping[str, str]) -> "GitLab":
    token = find_token(address, env, partial(ask_program, git, env))
    if token is None:
        job = ": CI_JOB_TOKEN may neither open merge requests nor read members" if env.get("CI_JOB_TOKEN") else ""
        needed = f"set {TOKENS[0]} to one with the scopes api and write_repository"
        raise RefusedEarly(f"there is no token for {address.host}{job}; {needed}")
    api = env.get("GITLAB_API_URL", "").strip().rstrip("/")  # as CI of GitLab gives it
    url = api.removesuffix("/api/v4") or address.web or f"https://{address.host}"
    return GitLab(address, token, url=url, verify=env.get(CERTIFICATES, "") or True)


def find_token(address: m.Address, env: Mapping[str, str], ask: Ask) -> Token | None:
    """The token for this host; never from a file of the repository."""
    for name in TOKENS:
        if value := env.get(name, "").strip():
            return Token(value=value, source=f"${name}")
    if value := ask(("glab", "config", "get", "token", "--host", address.host), "").strip():
        return Token(value=value, source="glab config")
    return find_stored_token(address, ask)


class GitLab:
    """One project on GitLab; the methods of a `Forge` are described there."""

    def __init__(
        self, address: m.Address, token: Token, *, url: str, verify: str | bool = True, calls: Calls | None = None
    ) -> None:
        self.calls = calls or GitLabCalls()
        self.address = address
        self.token_source = token.source
        self._token = token
        self._url = url
        # As a bearer both access tokens and those of OAuth are accepted.
        self._client = Gitlab(
            url,
            oauth_token=token.value,
            ssl_verify=verify,
            timeout=TIMEOUT_S,
            per_page=100,
            session=CheckedSession(),
            keep_base_url=True,
        )
        self._seen: dict[int, Facts] = {}  #: merge requests as they were read last
        self._messages: dict[int, str] = {}  #: of later merges that this process asked for

    def git_settings(self) -> tuple[str, ...]:
        if self._token.is_gits or not self.address.web:
            return ()
        return header_settings(self.address, "oauth2", self._token.value)

    @functools.cached_property
    def _root(self) -> str:
        """The path of the project by its number, which a rename does not change."""
        return f"/projects/{self.calls.attempt('read the project', self._read_project)['id']}"

    def _read_project(self) -> Facts:
        return self._get(f"/projects/{quote(self.address.full_name, safe='')}")

    def _get(self, path: str) -> Facts:
        facts: Any = self._client.http_get(path)
        return dict(facts)

    def _list(self, path: str, **query: object) -> Iterator[Facts]:
        """The entries of all pages, each read when it is needed."""
        return iter(self._client.http_list(path, query_data=query, iterator=True))

    def _write(self, method: str, path: str, **wanted: object) -> Facts:
        send = self._client.http_post if method == "post" else self._client.http_put
        answer: Any = send(path, post_data=wanted)
        return dict(answer) if isinstance(answer, Mapping) else {}

    def _find(self, read: Callable[[], T], *, missing: Sequence[int] = (403, 404)) -> T | None:
        """What is read; None where it does not exist, or this GitLab or token lacks the feature."""
        try:
            return read()
        except GitlabError as error:
            if error.response_code not in missing:
                raise
            return None

    # --- the repository ---------------------------------------------------------------------------------------

    @repeatable("read the repository")
    def read_repository(self) -> m.ForgeRepository:
        project = self._read_project()
        access = (project.get("permissions") or {}).values()
        # A token of OAuth is no access token; with a dead one the project could not be read.
        read_token = partial(self._get, "/personal_access_tokens/self")
        token = self._find(read_token, missing=(400, 401, 403, 404)) or {}
        return m.ForgeRepository(
            name=project["path_with_namespace"],
            can_push=max((level["access_level"] for level in access if level), default=0) >= DEVELOPER,
            default_branch=project.get("default_branch") or "",
            is_archived=bool(project.get("archived")),
            scopes=tuple(token.get("scopes") or ()),
        )

    @repeatable("open merge requests with this token")
    def require_may_open(self, base: str) -> None:
        """A merge request from a branch to itself is refused with 422 for a token that may ask; else with 403."""
        wanted = {"source_branch": base, "target_branch": base, "title": "runplan"}
        path = f"{self._root}/merge_requests"
        self._find(lambda: self._write("post", path, **wanted), missing=(400, 409, 422))

    @repeatable("read the settings of {0}")
    def read_target(self, branch: str, *, number: int = 0) -> m.Target:
        project = self._read_project()
        method = project.get("merge_method") or "merge"
        squash = project.get("squash_option") or "default_off"
        plain = () if squash == "always" else ("rebase",) if method == "ff" else ("merge",)
        rules = {
            "a successful pipeline": project.get("only_allow_merge_if_pipeline_succeeds"),
            "resolved discussions": project.get("only_allow_merge_if_all_discussions_are_resolved"),
        }
        merged = self._list(f"{self._root}/merge_requests", state="merged", target_branch=branch, order_by="updated_at")
        newest = next(merged, None)
        reviews = 0
        objectors: list[str] = []
        if number:
            base_path = f"{self._root}/merge_requests/{number}"
            approvals = self._find(lambda: self._get(f"{base_path}/approvals")) or {}  # not every GitLab has them
            reviews = int(approvals.get("approvals_required") or 0)
            states = (state for state in self._list(f"{base_path}/reviewers") if state.get("state") == f.OBJECTION)
            objectors = [name for name in (f.user_name(state.get("user")) for state in states) if self.may_write(name)]
        else:
            for rule in self._find(lambda: list(self._list(f"{self._root}/approval_rules"))) or []:
                names = [protected["name"] for protected in rule.get("protected_branches") or ()]
                if not names or branch in names:
                    reviews = max(reviews, rule["approvals_required"])
        return m.Target(
            methods=(*plain, *(() if squash == "never" else ("squash",))),
            auto_merge=True,
            usual_checks=tuple(check.name for check in self.list_checks(newest["sha"])) if newest else (),
            is_first=newest is None,
            strict=method != "merge",  # a fast-forward, or a merge that could be one
            reviews=reviews,
            queue=bool(project.get("merge_trains_enabled")),
            objections=tuple(objectors),
            rules=tuple(words for words, is_rule in rules.items() if is_rule),
        )

    @repeatable("read the permission of {0}")
    def may_write(self, login: str) -> bool:
        members = self._list(f"{self._root}/members/all", query=login)
        levels = [member["access_level"] for member in members if f.user_name(member).lower() == login.lower()]
        return max(levels, default=0) >= DEVELOPER

    def file_url(self, path: str, ref: str) -> str:
        return f"{self._url}/{self.address.full_name}/-/blob/{quote(ref)}/{quote(path)}"

    @property
    def own_login(self) -> str:
        return f.user_name(self._own_user)

    @functools.cached_property
    def _own_user(self) -> Facts:
        return self.calls.attempt("read the account", lambda: self._get("/user"))

    # --- merge requests ---------------------------------------------------------------------------------------

    @repeatable("look for the merge request of {branch}")
    def find_pull_request(self, *, branch: str, base: str) -> m.PullRequest | None:
        # Of several the newest open one for this target counts.
        listed = self._list_pull_requests(branch)
        newest = max(listed, key=lambda facts: (f.is_open(facts), facts["target_branch"] == base), default=None)
        return None if newest is None else self._to_pull_request(newest)

    @repeatable("list the merge requests of {0}")
    def list_merged(self, branch: str) -> tuple[m.PullRequest, ...]:
        return tuple(self._to_pull_request(facts) for facts in self._list_pull_requests(branch, state="merged"))

    def _list_pull_requests(self, branch: str, **query: object) -> list[Facts]:
        """The newest merge requests of a branch; a fork may have a branch of this name."""
        wanted = {"source_branch": branch, "order_by": "created_at", "sort": "desc", **query}
        listed = islice(self._list(f"{self._root}/merge_requests", **wanted), 10)
        return [facts for facts in listed if facts["source_project_id"] == facts["target_project_id"]]

    def create_pull_request(
        self, *, branch: str, base: str, title: str, body: str, draft: bool = False
    ) -> m.PullRequest:
        wanted = {"source_branch": branch, "target_branch": base, "description": body}
        wanted["title"] = f"{DRAFT}{title}" if draft else title

        def happened() -> m.PullRequest | None:
            pull = self.find_pull_request(branch=branch, base=base)
            return pull if pull is not None and pull.is_open else None

        def call() -> m.PullRequest:
            try:
                return self._to_pull_request(self._write("post", f"{self._root}/merge_requests", **wanted))
            except GitlabError as error:
                if error.response_code == 409 and (pull := happened()) is not None:  # another process was faster
                    return pull
                raise

        return self.calls.attempt("open a merge request", call, happened)

    @repeatable("read merge request {0}")
    def read_pull_request(self, number: int) -> m.PullRequest:
        return self._to_pull_request(self._get(f"{self._root}/merge_requests/{number}"))

    @repeatable("edit merge request {0}")
    def edit_pull_request(self, number: int, *, body: str) -> None:
        self._edit(number, description=body)

    @repeatable("retarget merge request {0}")
    def retarget(self, number: int, base: str) -> None:
        self._edit(number, target_branch=base)

    @repeatable("mark merge request {0} as ready")
    def mark_ready(self, number: int) -> None:
        pull = self.read_pull_request(number)
        if pull.draft:
            self._edit(number, title=pull.title)

    def _edit(self, number: int, **wanted: object) -> Facts:
        return self._write("put", f"{self._root}/merge_requests/{number}", **wanted)

    @repeatable("add labels and people to merge request {0}")
    def add_people(
        self, number: int, *, labels: Sequence[str], assignees: Sequence[str], reviewers: Sequence[str]
    ) -> tuple[str, ...]:
        before = self._get(f"{self._root}/merge_requests/{number}")
        people = {"assignee": assignees, "reviewer": reviewers}
        wanted: dict[str, object] = {}
        for role, names in people.items():
            if names:
                users = (next(self._list("/users", username=name), None) for name in names)
                ids = [*(user["id"] for user in before[f"{role}s"]), *(user["id"] for user in users if user)]
                wanted[f"{role}_ids"] = list(dict.fromkeys(ids))
        after = self._edit(number, add_labels=",".join(labels), **wanted)
        return tuple(
            f"GitLab did not take {name} as {role}: no such account, or its plan allows one {role}"
            for role, names in people.items()
            for name in names
            if name.lower() not in {f.user_name(user).lower() for user in after[f"{role}s"]}
        )

    @repeatable("ask for a review of merge request {0}")
    def request_review(self, number: int, logins: Sequence[str]) -> None:
        """Only a quick action asks those again who are reviewers."""
        words = " ".join(f"@{login}" for login in logins)
        path = f"{self._root}/merge_requests/{number}/notes"
        self._find(lambda: self._write("post", path, body=f"/request_review {words}"), missing=(400, 403, 404, 422))

    def merge_pull_request(self, number: int, how: m.Merge) -> Oid | m.NotMerged:
        def happened() -> Oid | None:
            now = self.read_pull_request(number)
            return now.merge_commit if now.is_merged else None

        def call() -> Oid | m.NotMerged:
            try:
                merged = self._accept(number, how)
            except GitlabError as error:
                if error.response_code not in (401, 405, 406, 409, 422):  # 401: this account may not merge
                    raise
                return happened() or m.NotMerged(said=describe_error(error))
            pull = self._to_pull_request(merged)
            return pull.merge_commit if pull.is_merged else m.NotMerged(said=str(merged.get("detailed_merge_status")))

        return self.calls.attempt(f"merge merge request {number}", call, happened)

    def _accept(self, number: int, how: m.Merge, **more: object) -> Facts:
        message = f"{how.title}\n\n{how.message}"
        texts = {"merge_commit_message": message, "squash_commit_message": message}
        wanted: dict[str, object] = {"sha": how.head, "squash": how.method == "squash", **texts, **more}
        return self._write("put", f"{self._root}/merge_requests/{number}/merge", **wanted)

    @repeatable("ask for a later merge of merge request {0}")
    def merge_later(self, number: int, how: m.Merge, *, queue: bool) -> m.NotMerged | None:
        has_trains = queue and self._read_project().get("merge_trains_enabled")
        train = f"{self._root}/merge_trains/merge_requests/{number}"
        now = self.read_pull_request(number)
        if now.is_merged or now.auto_merge or (has_trains and self._find(lambda: self._get(train)) is not None):
            return None
        if now.state in (m.MergeState.READY, m.MergeState.UNKNOWN) and not now.draft and not has_trains:
            return m.NotMerged(said="it can be merged at once, or GitLab still computes whether")  # it might do so
        try:
            if has_trains:
                self._write("post", train, sha=how.head, squash=how.method == "squash", auto_merge=True)
            else:  # the second name is that of GitLab before 17.11
                self._accept(number, how, auto_merge=True, merge_when_pipeline_succeeds=True)
                self._messages[number] = how.message
        except GitlabError as error:
            if error.response_code not in (400, 401, 405, 406, 409, 422):
                raise
            return m.NotMerged(said=describe_error(error))
        return None

    @repeatable("cancel the merge of merge request {0}")
    def cancel_merge(self, number: int) -> None:
        path = f"{self._root}/merge_requests/{number}/cancel_merge_when_pipeline_succeeds"
        self._find(lambda: self._write("post", path), missing=(405, 406))  # nothing was asked for

    @repeatable("read the open merge requests")
    def list_open_files(self, base: str) -> dict[int, tuple[str, ...]]:
        root = f"{self._root}/merge_requests"
        numbers = [facts["iid"] for facts in islice(self._list(root, state="opened", target_branch=base), m.MOST_OPEN)]
        diffs = {number: self._list(f"{root}/{number}/diffs") for number in numbers}
        return {number: tuple(change["new_path"] for change in changes) for number, changes in diffs.items()}

    @repeatable("read the activity of merge request {0}")
    def read_activity(self, number: int, head: Oid) -> m.Activity:
        if number not in self._seen:
            self.read_pull_request(number)
        base_path = f"{self._root}/merge_requests/{number}"
        discussions = self._list(f"{base_path}/discussions")
        notes = [(note, discussion["id"]) for discussion in discussions for note in discussion["notes"]]
        states = list(self._list(f"{base_path}/reviewers")) if self._seen[number].get("reviewers") else []
        is_approved = any(state["state"] == f.APPROVED for state in states)
        approvals = self._find(lambda: self._get(f"{base_path}/approvals")) or {} if is_approved else {}
        messages = f.to_messages(notes, states, approvals.get("approved_by") or (), head=head)
        return m.Activity(checks=self.list_checks(head), messages=messages)

    def answer_message(self, number: int, message: m.PullMessage, *, marker: str, text: str) -> None:
        notes = f"{self._root}/merge_requests/{number}/notes"
        target = f"{self._root}/merge_requests/{number}/discussions/{message.thread}/notes" if message.thread else notes
        self._put_note(notes, marker=marker, text=text, target=target)

    @repeatable("react to {1}")
    def react_to(self, number: int, message: str) -> None:
        id_ = message.rpartition(" ")[2]
        if id_.isdecimal():  # a second one is answered with 404
            emoji = f"{self._root}/merge_requests/{number}/notes/{id_}/award_emoji"
            self._find(lambda: self._write("post", emoji, name="eyes"))

    # --- checks -----------------------------------------------------------------------------------------------

    @repeatable("read the checks")
    def list_checks(self, head: Oid) -> tuple[m.PullCheck, ...]:
        """Jobs and external statuses of the commit; and those of a pipeline for the result of the merge."""
        return tuple(f.to_check(status) for status in self._list_jobs(head))

    def _list_jobs(self, head: Oid) -> list[Facts]:
        pipelines = [facts.get("head_pipeline") or {} for facts in self._seen.values() if facts.get("sha") == head]
        results = [pipeline["id"] for pipeline in pipelines if pipeline.get("sha") not in (None, head)]
        jobs = [job for number in results for job in self._list(f"{self._root}/pipelines/{number}/jobs")]
        statuses = self._list(f"{self._root}/repository/commits/{head}/statuses")
        return [facts for facts in (*statuses, *jobs) if facts["name"] != m.STATUS]

    @repeatable("set the commit status")
    def set_status(self, head: Oid, *, state: m.CheckState, text: str, url: str) -> None:
        wanted = {"state": STATUSES[state], "name": m.STATUS, "description": text[:140], "target_url": url}
        try:
            self._write("post", f"{self._root}/statuses/{head}", **wanted)
        except GitlabError as error:  # 400 is also the answer to a state that it has
            statuses = self._list(f"{self._root}/repository/commits/{head}/statuses", name=m.STATUS)
            if error.response_code != 400 or STATUSES[state] not in [status["status"] for status in statuses]:
                raise

    @repeatable("read the logs of failed jobs")
    def read_failure_log(self, head: Oid) -> str:
        failed = [job for job in self._list_jobs(head) if f.to_check(job).state is m.CheckState.FAILED]
        logs = []
        for job in failed[: m.FAILED_JOBS]:  # an external status has no log, and the token may not read some
            trace = partial(self._client.http_get, f"{self._root}/jobs/{job['id']}/trace", raw=True)
            answer: Any = self._find(trace)
            if answer is not None and (text := answer.content.decode(errors="replace")):
                logs.append(f"## {job['name']}\n{text[-m.LOG_CHARACTERS :]}")
        checks = [f.to_check(job) for job in failed]
        return "\n".join(logs) or "\n".join(f"{check.name}: {check.summary or check.url}" for check in checks)

    # --- issues -----------------------------------------------------------------------------------------------

    @repeatable("read issue {0}")
    def read_issue(self, number: int) -> m.Issue:
        try:
            return f.to_issue(self._get(f"{self._root}/issues/{number}"))
        except GitlabError as error:
            if error.response_code != 404:
                raise
            raise NotFound(f"{self.address.full_name} has no issue {number}, or the token may not read it") from None

    @repeatable("list the issues with the label {0}")
    def list_issues(self, label: str) -> tuple[m.Issue, ...]:
        wanted = {"state": "opened", "labels": label, "order_by": "created_at", "sort": "asc"}
        return tuple(f.to_issue(facts) for facts in self._list(f"{self._root}/issues", **wanted))

    @repeatable("close issue {0}")
    def close_issue(self, number: int) -> None:
        self._write("put", f"{self._root}/issues/{number}", state_event="close")

    @repeatable("label issue {0}")
    def label_issue(self, number: int, *, add: str = "", remove: str = "") -> None:
        self._write("put", f"{self._root}/issues/{number}", add_labels=add, remove_labels=remove)

    @repeatable("assign issue {0}")
    def assign_issue(self, number: int, *, is_assigned: bool) -> None:
        path = f"{self._root}/issues/{number}"
        before = {user["id"] for user in self._get(path)["assignees"]}
        wanted = before | {self._own_user["id"]} if is_assigned else before - {self._own_user["id"]}
        if wanted != before:
            self._write("put", path, assignee_ids=sorted(wanted) or [0])  # 0 takes away the last one

    @repeatable("read the comments of #{0}")
    def list_comments(self, number: int) -> tuple[m.Comment, ...]:
        notes = self._list_notes(f"{self._root}/issues/{number}/notes")
        facts = ((f.user_name(note["author"]), note["body"] or "", note["updated_at"]) for note in notes)
        return tuple(m.Comment(author=author, text=text, changed=f.to_seconds(at)) for author, text, at in facts)

    def _list_notes(self, path: str) -> list[Facts]:
        return [note for note in self._list(path, sort="asc", order_by="created_at") if not note["system"]]

    def put_comment(self, number: int, *, marker: str, text: str, is_pull: bool = False) -> None:
        notes = f"{self._root}/{'merge_requests' if is_pull else 'issues'}/{number}/notes"
        self._put_note(notes, marker=marker, text=text, target=notes)

    def _put_note(self, notes: str, *, marker: str, text: str, target: str) -> None:
        """Write a note to the target, once per marker among the notes; a later text replaces it."""

        def write(path: str, method: str, body: str) -> Facts:
            return self._write(method, path, body=body)

        def list_own() -> list[OwnComment]:
            ours = (note for note in self._list_notes(notes) if f.user_name(note["author"]) == self.own_login)
            return [OwnComment(note["body"] or "", partial(write, f"{notes}/{note['id']}", "put")) for note in ours]

        self.calls.put_comment("comment", marker, text, list_own, partial(write, target, "post"))

    @repeatable("read who labelled issue {0}")
    def is_issue_trusted(self, number: int, label: str) -> bool:
        issue = self._get(f"{self._root}/issues/{number}")
        if self.may_write(f.user_name(issue.get("author"))):
            return True
        events = list(self._list(f"{self._root}/issues/{number}/resource_label_events"))
        labelled = [event for event in events if ((event["label"] or {}).get("name") or "").lower() == label.lower()]
        if not labelled or labelled[-1]["action"] != "add":
            return False
        values = {"path": self.address.full_name, "number": str(number)}
        answer = self._write("post", f"{self._url}/api/graphql", query=EDITED, variables=values)
        items = ((answer.get("data") or {}).get("project") or {}).get("workItems") or {}
        edits = [widget for node in items.get("nodes") or () for widget in node["widgets"] if "lastEditedAt" in widget]
        if not edits:  # as if a stranger had changed the text since
            return False
        is_edited = f.to_seconds(edits[0]["lastEditedAt"]) >= f.to_seconds(labelled[-1]["created_at"])
        accounts = [labelled[-1]["user"], *([edits[0]["lastEditedBy"]] if is_edited else [])]
        return all(self.may_write(f.user_name(account)) for account in accounts)

    @repeatable("read who reopened issue {0}")
    def find_reopening(self, number: int) -> float:
        events = self._list(f"{self._root}/issues/{number}/resource_state_events")
        reopened = [event for event in events if event["state"] == "reopened"]
        meant = [event["created_at"] for event in reopened if self.may_write(f.user_name(event["user"]))]
        return f.to_seconds(meant[-1]) if meant else 0.0

    def _to_pull_request(self, facts: Facts) -> m.PullRequest:
        self._seen[facts["iid"]] = facts
        is_merged = facts["state"] == "merged"
        asked = bool(facts.get("merge_when_pipeline_succeeds")) and not is_merged
        # GitLab shows only who asked for a later merge: the account of the token did so for runplan.
        is_own = asked and f.user_name(facts.get("merge_user")) == self.own_login
        state = f.MERGE_STATES.get(facts.get("detailed_merge_status") or "unchecked", m.MergeState.BLOCKED)
        if facts.get("has_conflicts") and state is not m.MergeState.UNKNOWN:
            state = m.MergeState.CONFLICT
        commit = facts.get("merge_commit_sha") or facts.get("squash_commit_sha") or facts["sha"]
        return m.PullRequest(
            number=facts["iid"],
            url=facts["web_url"],
            is_open=f.is_open(facts),
            is_merged=is_merged,
            head=facts["sha"] or "",
            base=facts["target_branch"],
            title=facts["title"].removeprefix(DRAFT),
            body=facts.get("description") or "",
            draft=bool(facts.get("draft")),
            state=state,
            merge_commit=commit if is_merged else "",
            auto_merge=asked,
            merge_message=(self._messages.get(facts["iid"]) or f"{PLAN}: ") if is_own else "",
            ended=f.to_seconds(facts.get("merged_at") or facts.get("closed_at")),
            noun="merge request",
            sign="!",
            refs="refs/merge-requests",
        )
