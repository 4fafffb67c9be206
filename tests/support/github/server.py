"""Serves a Hub by HTTP: the REST API under /api/v3, GraphQL, and git by `git http-backend`."""

import functools
import hashlib
import json
import os
import re
import ssl
import subprocess
import threading
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.support.cli import Project, set_up
from tests.support.github.activity import FORBIDDEN, activity, page
from tests.support.github.hub import LONGEST_BODY, Answer, Hub, Issue, Pull


@dataclass
class Fault:
    """What happens to the nth request (from 1) that matches `call`, such as `POST /pulls`."""

    call: str
    kind: str  #: before: an error without effect; after: the effect happens, its answer is lost; or drop: both
    status: int = 502  #: 0 = the connection is dropped
    nth: int = 1
    times: int = 1
    message: str = "Server Error"
    headers: tuple[tuple[str, str], ...] = ()
    errors: list[dict[str, str]] | None = None  #: of GraphQL, which has status 200

    @property
    def body(self) -> dict[str, Any]:
        return {"data": None, "errors": self.errors} if self.status == 200 else {"message": self.message}


H = TypeVar("H", bound=Hub)


@dataclass
class Call(Generic[H]):
    """A request to the API of a forge."""

    hub: H
    root: str
    words: tuple[str, ...]
    query: dict[str, str]
    body: dict[str, Any]
    token: str

    @property
    def number(self) -> int:
        return int(self.words[0])

    @property
    def pull(self) -> Pull:
        if (found := self.hub.pulls.get(self.number)) is None:
            raise self.hub.not_found
        return found

    @property
    def issue(self) -> Issue:
        if (found := self.hub.issues.get(self.number)) is None:
            raise self.hub.not_found
        return found

    @property
    def issue_or_pull(self) -> Issue | Pull:
        return self.hub.issues.get(self.number) or self.pull


Request: TypeAlias = Call[Hub]
#: Method, path as in GitHub's description, handler. `{x}` is one word of the path, `{x+}` may contain slashes.
Routes: TypeAlias = tuple[tuple[str, str, Callable[[Any], tuple[int, Any]]], ...]


# --- answers as GitHub writes them -----------------------------------------------------------------------


def repository(r: Request) -> tuple[int, Any]:
    hub = r.hub
    may_push = hub.can_push and not r.token.startswith("ghs_")  # to an installation GitHub always says no
    return 200, {
        "id": 1,
        "node_id": "R_1",
        "name": hub.name,
        "full_name": f"{hub.owner}/{hub.name}",
        "private": False,
        "archived": hub.archived,
        "owner": _user(hub.owner),
        "url": f"{r.root}/repos/{hub.owner}/{hub.name}",
        "default_branch": hub.default_branch,
        "permissions": {"admin": False, "maintain": False, "push": may_push, "triage": True, "pull": True},
        "allow_merge_commit": "merge" in hub.methods,
        "allow_squash_merge": "squash" in hub.methods,
        "allow_rebase_merge": "rebase" in hub.methods,
        "allow_auto_merge": hub.allow_auto_merge,
        "delete_branch_on_merge": hub.delete_branch_on_merge,
    }


def _pull(r: Request, pull: Pull, *, full: bool) -> dict[str, Any]:
    hub, url = r.hub, f"{r.root}/repos/{r.hub.owner}/{r.hub.name}"
    head = {"label": f"{hub.owner}:{pull.head}", "ref": pull.head, "sha": pull.sha}
    base = {"label": f"{hub.owner}:{pull.base}", "ref": pull.base, "sha": hub.tip(pull.base)}
    shown: dict[str, Any] = {
        "id": pull.number,
        "node_id": f"PR_{pull.number}",
        "number": pull.number,
        "url": f"{url}/pulls/{pull.number}",
        "issue_url": f"{url}/issues/{pull.number}",
        "html_url": f"https://github.test/{hub.owner}/{hub.name}/pull/{pull.number}",
        "state": pull.state,
        "title": pull.title,
        "body": pull.body,
        "draft": pull.draft,
        "head": head,
        "base": base,
        "merged_at": "2026-01-01T00:00:00Z" if pull.merged else None,
        "closed_at": None if pull.state == "open" else pull.closed_at or "2026-01-01T00:00:00Z",
        "merge_commit_sha": pull.merge_commit or None,
        "auto_merge": None,
    }
    if pull.auto_merge:
        user = _user("octocat")
        method = {"enabled_by": user, "merge_method": pull.auto_merge, "commit_title": "", "commit_message": pull.later}
        shown["auto_merge"] = method
    if full:
        mergeable, state = hub.merge_state(pull)
        rebaseable = mergeable if mergeable is None else "rebase" not in r.hub.refused
        shown |= {"merged": pull.merged, "mergeable": mergeable, "mergeable_state": state, "rebaseable": rebaseable}
    return shown


def _user(login: str) -> dict[str, Any]:
    return {"id": 7, "login": login, "type": "User"}


def _issue(r: Request, issue: Issue | Pull) -> dict[str, Any]:
    url = f"{r.root}/repos/{r.hub.owner}/{r.hub.name}/issues/{issue.number}"
    return {
        "id": issue.number,
        "node_id": f"I_{issue.number}",
        "number": issue.number,
        "url": url,
        "html_url": f"https://github.test/{r.hub.owner}/{r.hub.name}/issues/{issue.number}",
        "title": issue.title,
        "body": issue.body,
        "state": issue.state,
        "state_reason": getattr(issue, "state_reason", "") or None,
        "closed_by": _user(closed_by) if (closed_by := getattr(issue, "closed_by", "")) else None,
        "user": _user(issue.author),
        "labels": [{"name": label, "color": "ededed", "default": False} for label in issue.labels],
        "assignees": [_user(name) for name in issue.assignees],
        **({"pull_request": {"url": url}} if issue.is_pull else {}),
    }


def list_pulls(r: Request) -> tuple[int, Any]:
    found = [one for one in r.hub.pulls.values() if r.query.get("state", "open") in ("all", one.state)]
    if base := r.query.get("base"):
        found = [one for one in found if one.base == base]
    owner, _, branch = r.query.get("head", "").partition(":")
    if branch:  # without an owner GitHub ignores the filter
        found = [one for one in found if (owner.lower(), branch) == (r.hub.owner.lower(), one.head)]
    if r.query.get("direction") == "desc":
        found.reverse()
    return 200, [_pull(r, one, full=False) for one in found]


def create_pull(r: Request) -> tuple[int, Any]:
    text, is_draft = r.body.get("body", ""), bool(r.body.get("draft"))
    made = r.hub.create(r.body["head"], r.body["base"], r.body["title"], text, draft=is_draft)
    shown = _pull(r, made, full=True)
    made.unknown = r.hub.nulls
    return 201, shown


def edit_pull(r: Request) -> tuple[int, Any]:
    pull = r.pull
    if len(r.body.get("body", "")) > LONGEST_BODY:
        raise Answer(422, "Validation Failed", errors=[f"body is too long (maximum is {LONGEST_BODY} characters)"])
    if (base := r.body.get("base", pull.base)) != pull.base:
        r.hub.retarget(pull, base)
    for name in ("title", "body", "state"):
        if name in r.body:
            setattr(pull, name, r.body[name])
    return 200, _pull(r, pull, full=True)


def merge_pull(r: Request) -> tuple[int, Any]:
    message = f"{r.body.get('commit_title', '')}\n\n{r.body.get('commit_message', '')}"
    sha = r.hub.merge(r.pull, r.body.get("merge_method", "merge"), r.body.get("sha", ""), message)
    return 200, {"sha": sha, "merged": True, "message": "Pull Request successfully merged"}


def pull_files(r: Request) -> tuple[int, Any]:
    names = r.hub.git("diff", "--name-only", f"refs/heads/{r.pull.base}...{r.pull.sha}").splitlines()
    files = [
        {"sha": None, "filename": name, "status": "modified", "additions": 1, "deletions": 0, "changes": 1}
        for name in names
    ]
    return 200, files


def pull_comments(r: Request) -> tuple[int, Any]:
    return 200, [one for one in r.pull.comments if "path" in one]


def reply(r: Request) -> tuple[int, Any]:
    root = next((one for one in r.pull.comments if one["id"] == int(r.words[1])), None)
    if root is None or "path" not in root or "in_reply_to_id" in root:  # replies to replies are not supported
        raise r.hub.not_found
    number = r.hub.review(r.number, r.body["body"], by="octocat", thread=root["id"])
    made = next(one for one in r.pull.comments if one["id"] == number)
    made["url"] = f"{r.root}/repos/{r.hub.owner}/{r.hub.name}/pulls/comments/{number}"
    return 201, made


def check_runs(r: Request) -> tuple[int, Any]:
    r.hub.require("checks")
    runs = [
        {
            "id": number,
            "name": run["name"],
            "head_sha": r.words[0],
            "html_url": f"https://github.test/runs/{number}",
            "status": "completed" if run["conclusion"] else "in_progress",
            "started_at": run["at"],
            "completed_at": run["at"] if run["conclusion"] else None,
            "conclusion": run["conclusion"],
            "output": {"title": None, "summary": run["summary"], "text": None},
        }
        for number, run in enumerate(r.hub.runs.get(r.words[0], []), 1)
    ]
    return 200, {"total_count": len(runs), "check_runs": runs}


def combined_status(r: Request) -> tuple[int, Any]:
    r.hub.require("statuses")
    statuses = r.hub.statuses.get(r.words[0], [])
    states = {one["state"] for one in statuses}
    state = "failure" if states & {"failure", "error"} else "success" if states == {"success"} else "pending"
    return 200, {"state": state, "sha": r.words[0], "total_count": len(statuses), "statuses": statuses[:30]}


def workflow_runs(r: Request) -> tuple[int, Any]:
    """The checks of a commit are the jobs of one run of a workflow."""
    r.hub.require("actions")
    sha = r.query.get("head_sha", "")
    number = int(sha[:8], 16)  # its id; the runs of a commit are found by it
    url = f"{r.root}/repos/{r.hub.owner}/{r.hub.name}/actions/runs/{number}"
    checks = r.hub.runs.get(sha, [])
    is_over = sha in r.hub.logs or all(check["conclusion"] for check in checks)
    is_good = sha not in r.hub.logs and all(check["conclusion"] == "success" for check in checks)
    run = {
        "id": number,
        "name": "CI",
        "head_sha": sha,
        "status": "completed" if is_over else "in_progress",
        "conclusion": ("success" if is_good else "failure") if is_over else None,
        "html_url": f"https://github.test/actions/{number}",
        "updated_at": r.hub.now(),
        "url": url,
        "jobs_url": f"{url}/jobs",
    }
    runs = [run] if checks or sha in r.hub.logs else []
    return 200, {"total_count": len(runs), "workflow_runs": runs}


def jobs(r: Request) -> tuple[int, Any]:
    sha = next(sha for sha in (*r.hub.runs, *r.hub.logs) if int(sha[:8], 16) == r.number)
    url = f"{r.root}/repos/{r.hub.owner}/{r.hub.name}/actions/jobs/1"
    failed = {"name": "test", "conclusion": "failure", "at": r.hub.now()}
    checks = r.hub.runs.get(sha, []) + ([failed] if sha in r.hub.logs else [])
    jobs = [
        {
            "id": number,
            "name": check["name"],
            "head_sha": sha,
            "status": "completed" if check["conclusion"] else "in_progress",
            "conclusion": check["conclusion"],
            "html_url": f"https://github.test/jobs/{number}",
            "completed_at": check["at"] if check["conclusion"] else None,
            "url": url,
        }
        for number, check in enumerate(checks, 1)
    ]
    return 200, {"total_count": len(jobs), "jobs": jobs}


def job_logs(r: Request) -> tuple[int, Any]:
    if not r.hub.logs:
        raise Answer(410, "Gone")  # as after 90 days
    raise Answer(302, "", Location=f"{r.root.removesuffix('/api/v3')}/logs/{next(iter(r.hub.logs))}")


def rules(r: Request) -> tuple[int, Any]:
    hub = r.hub
    found = list(hub.rulesets)
    if hub.required:
        checks = [{"context": name} for name in hub.required]
        parameters: dict[str, Any] = {"required_status_checks": checks}
        parameters["strict_required_status_checks_policy"] = hub.strict
        found.append({"type": "required_status_checks", "parameters": parameters})
    if hub.reviews:
        found.append({"type": "pull_request", "parameters": {"required_approving_review_count": hub.reviews}})
    if hub.merge_queue:
        found.append({"type": "merge_queue", "parameters": {}})
    return 200, found


def permission(r: Request) -> tuple[int, Any]:
    if (found := r.hub.permissions.get(r.words[0])) is None:
        raise Answer(404, f"{r.words[0]} is not a user")
    return 200, {"permission": found, "role_name": found, "user": _user(r.words[0])}


def collaborators(r: Request) -> tuple[int, Any]:
    """docs.github.com/en/rest/collaborators/collaborators: the token's owner may push, and is of the organization."""
    if not r.hub.lists_collaborators:
        raise Answer(403, "Must have push access to view repository collaborators.")
    grants = {"pull": ("read", "write", "admin"), "push": ("write", "admin"), "admin": ("admin",)}
    return 200, [
        _user(login)
        | {
            "role_name": role,
            "permissions": {"maintain": False, "triage": False} | {g: role in of for g, of in grants.items()},
        }
        for login, role in r.hub.permissions.items()
    ]


def edit_issue(r: Request) -> tuple[int, Any]:
    r.issue.state = r.body.get("state", r.issue.state)
    r.issue.state_reason, r.issue.closed_by = r.body.get("state_reason", ""), "octocat"
    return 200, _issue(r, r.issue)


def comments(r: Request) -> tuple[int, Any]:
    return 200, [one for one in r.hub.comments_of(r.number) if "path" not in one]


def add_comment(r: Request) -> tuple[int, Any]:
    where = r.hub.comments_of(r.number)
    number = r.hub.new_id()
    url = f"{r.root}/repos/{r.hub.owner}/{r.hub.name}/issues/comments/{number}"
    made = {"id": number, "url": url, "body": r.body["body"], "user": _user("octocat"), "updated_at": r.hub.now()}
    where.append(made)
    return 201, made


def edit_comment(r: Request) -> tuple[int, Any]:
    found = r.hub.find_comment(r.number)
    found["body"] = r.body["body"]
    return 200, found


def react(r: Request) -> tuple[int, Any]:
    """The same reaction of an account counts once, and is no fault."""
    r.hub.find_comment(r.number)  # else there is nothing to react to
    reaction = (r.number, r.body["content"])
    is_new = reaction not in r.hub.reactions
    r.hub.reactions += [reaction] if is_new else []
    made = {"id": r.number, "user": _user("octocat"), "content": reaction[1], "created_at": r.hub.now()}
    return 201 if is_new else 200, made


def assign(r: Request) -> tuple[int, Any]:
    """Accounts without access to the repository are left out, without a word."""
    issue = r.issue_or_pull
    wanted = [name for name in r.body["assignees"] if name in r.hub.permissions]
    issue.assignees += [name for name in wanted if name not in issue.assignees]
    return 201, _issue(r, issue)


def request_reviewers(r: Request) -> tuple[int, Any]:
    r.hub.request_reviews(r.pull, r.body.get("reviewers", []), r.body.get("team_reviewers", []))
    return 201, _pull(r, r.pull, full=False)


def create_status(r: Request) -> tuple[int, Any]:
    made = r.hub.set_status(r.words[0], {"context": "default", **r.body})
    url = f"{r.root}/repos/{r.hub.owner}/{r.hub.name}/statuses/{r.words[0]}"
    return 201, {"id": 1, "node_id": "SC_1", "url": url, "creator": _user("octocat"), **made}


def unassign(r: Request) -> tuple[int, Any]:
    r.issue.assignees = [name for name in r.issue.assignees if name not in r.body["assignees"]]
    return 200, _issue(r, r.issue)


def installation(r: Request) -> tuple[int, Any]:
    return 200, {"id": 5, "app_id": int(r.hub.app[0]) if r.hub.app else 0, "target_type": "Organization"}


def access_token(r: Request) -> tuple[int, Any]:
    token, end = r.hub.issue_token()
    return 201, {"token": token, "expires_at": f"{end:%Y-%m-%dT%H:%M:%SZ}"}


def add_labels(r: Request) -> tuple[int, Any]:
    labels = r.body["labels"] if isinstance(r.body, dict) else r.body
    if any(len(label) > 50 for label in labels):
        raise Answer(422, "Validation Failed", errors=["name is too long (maximum is 50 characters)"])
    issue = r.issue_or_pull
    issue.labels += [label for label in labels if label not in issue.labels]
    return 200, _issue(r, issue)["labels"]


def remove_label(r: Request) -> tuple[int, Any]:
    if unquote(r.words[1]) not in r.issue.labels:
        raise Answer(404, "Label does not exist")
    r.issue.labels.remove(unquote(r.words[1]))
    return 200, _issue(r, r.issue)["labels"]


def graphql(r: Request) -> tuple[int, Any]:
    if r.body["query"].lstrip().startswith("query"):
        return 200, _queried(r.hub, r.body["query"], r.body["variables"])
    wanted = r.body["variables"]["input"]
    pull = r.hub.pulls[int(wanted["pullRequestId"].removeprefix("PR_"))]
    if why := r.hub.refuses_write(r.token):
        return 200, {"data": None, "errors": [{"type": "FORBIDDEN", "path": ["mutation"], "message": why}]}
    try:
        if "disablePullRequestAutoMerge" in r.body["query"]:
            pull.auto_merge = ""
            return 200, {"data": {"disablePullRequestAutoMerge": {"actor": {"login": "octocat"}}}}
        if "markPullRequestReadyForReview" in r.body["query"]:
            r.hub.mark_ready(pull)
            return 200, {"data": {"markPullRequestReadyForReview": {"pullRequest": {"isDraft": pull.draft}}}}
        if "enqueuePullRequest" in r.body["query"]:
            r.hub.enqueue(pull)
            return 200, {"data": {"enqueuePullRequest": {"mergeQueueEntry": {"position": 1}}}}
        message = f"{wanted.get('commitHeadline', '')}\n\n{wanted.get('commitBody', '')}"
        r.hub.enable_auto_merge(pull, wanted.get("mergeMethod", "MERGE"), wanted.get("expectedHeadOid", ""), message)
    except Answer as refused:
        error = {"type": "UNPROCESSABLE", "path": ["mutation"], "message": str(refused)}
        return 200, {"data": None, "errors": [error]}
    actor = {"actor": {"login": "octocat"}, "clientMutationId": None}
    return 200, {"data": {"enablePullRequestAutoMerge": actor}}


def _queried(hub: Hub, query: str, values: dict[str, Any]) -> dict[str, Any]:
    """The answer to a query for the facts of a branch, of an issue, or of the token's owner."""
    if "viewer" in query:
        return {"data": {"viewer": {"login": "octocat"}}}
    if "reviewThreads(" in query:
        return activity(hub, values)
    if "issues(" in query:  # docs.github.com/en/graphql/reference/objects#repository
        listed = [one for one in hub.issues.values() if one.state == "open" and values["label"] in one.labels]
        return {"data": {"repository": {"issues": page([_history(one) for one in listed], values["cursor"])}}}
    if "issue(" in query:
        issue = hub.issues[values["number"]]
        reopened = [{"createdAt": event["at"], "actor": {"login": event["actor"]}} for event in issue.reopened]
        return {"data": {"repository": {"issue": _history(issue) | {"reopened": {"nodes": reopened}}}}}
    merged = [pull for pull in hub.pulls.values() if pull.merged and pull.base == values["branch"]]
    rule = {
        "requiresLinearHistory": hub.linear,
        "requiredStatusCheckContexts": [],
        "requiredApprovingReviewCount": 0,
        "requiresConversationResolution": hub.resolution,
    }
    repository: dict[str, Any] = {
        "mergeCommitAllowed": "merge" in hub.methods,
        "squashMergeAllowed": "squash" in hub.methods,
        "rebaseMergeAllowed": "rebase" in hub.methods,
        "autoMergeAllowed": hub.allow_auto_merge,
        "ref": {
            "target": {"oid": hub.tip(values["branch"]), "statusCheckRollup": None},
            "refUpdateRule": rule if hub.linear or hub.resolution else None,
        },
        "pullRequests": {"nodes": [_rollup(hub, pull.sha) for pull in merged[-5:]]},
    }
    if values["isOpen"]:
        opinions = hub.opinions(hub.pulls[values["number"]])
        nodes = [{"state": state, "author": {"login": login}} for login, state in opinions.items()]
        repository["pullRequest"] = {"latestOpinionatedReviews": {"nodes": nodes}}
    return {"data": {"repository": repository}} | ({"errors": FORBIDDEN} if hub.hides_checks else {})


def _history(issue: Issue) -> dict[str, Any]:
    labelled = [
        {"createdAt": event["at"], "actor": {"login": event["actor"]}, "label": {"name": event["label"]}}
        for event in issue.labelled
    ]
    return {
        "number": issue.number,
        "title": issue.title,
        "body": issue.body,
        "url": f"https://github.test/issues/{issue.number}",
        "author": {"login": issue.author},
        "lastEditedAt": issue.edited or None,
        "editor": {"login": issue.editor} if issue.edited else None,
        "timelineItems": {"nodes": labelled},
    }


def _rollup(hub: Hub, sha: str) -> dict[str, Any]:
    contexts = [{"name": run["name"]} for run in hub.runs.get(sha, [])]
    contexts += [{"context": status["context"]} for status in hub.statuses.get(sha, [])]
    rollup = {"contexts": {"nodes": contexts}} if contexts else None
    return {"commits": {"nodes": [{"commit": {"statusCheckRollup": rollup}}]}}


ROUTES: Routes = (
    ("POST", "/graphql", graphql),
    ("GET", "", repository),
    ("GET", "/pulls", list_pulls),
    ("POST", "/pulls", create_pull),
    ("GET", "/pulls/{pull_number}", lambda r: (200, _pull(r, r.pull, full=True))),
    ("PATCH", "/pulls/{pull_number}", edit_pull),
    ("PUT", "/pulls/{pull_number}/merge", merge_pull),
    ("GET", "/pulls/{pull_number}/files", pull_files),
    ("GET", "/pulls/{pull_number}/comments", pull_comments),
    ("POST", "/pulls/{pull_number}/comments/{comment_id}/replies", reply),
    ("PATCH", "/pulls/comments/{comment_id}", edit_comment),
    ("POST", "/pulls/comments/{comment_id}/reactions", react),
    ("POST", "/pulls/{pull_number}/requested_reviewers", request_reviewers),
    ("POST", "/statuses/{sha}", create_status),
    ("GET", "/commits/{ref}/check-runs", check_runs),
    ("GET", "/commits/{ref}/status", combined_status),
    ("GET", "/actions/runs", workflow_runs),
    ("GET", "/actions/runs/{run_id}/jobs", jobs),
    ("GET", "/actions/jobs/{job_id}/logs", job_logs),
    ("GET", "/rules/branches/{branch+}", rules),
    ("GET", "/collaborators/{username}/permission", permission),
    ("GET", "/collaborators", collaborators),
    ("GET", "/issues/{issue_number}", lambda r: (200, _issue(r, r.issue))),
    ("PATCH", "/issues/{issue_number}", edit_issue),
    ("GET", "/installation", installation),
    ("POST", "/app/installations/{installation_id}/access_tokens", access_token),
    ("PATCH", "/issues/comments/{comment_id}", edit_comment),
    ("POST", "/issues/comments/{comment_id}/reactions", react),
    ("POST", "/issues/{issue_number}/assignees", assign),
    ("DELETE", "/issues/{issue_number}/assignees", unassign),
    ("GET", "/issues/{issue_number}/comments", comments),
    ("POST", "/issues/{issue_number}/comments", add_comment),
    ("POST", "/issues/{issue_number}/labels", add_labels),
    ("DELETE", "/issues/{issue_number}/labels/{name}", remove_label),
)


@functools.cache
def _pattern(path: str) -> re.Pattern[str]:
    greedy = re.sub(r"\{\w+\+\}", "(.+)", path)
    return re.compile(re.sub(r"\{\w+\}", "([^/]+)", greedy))


APPS = ("/installation", "/access_tokens")  #: where an app signs in instead of a user


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65536  # one packet per answer; else each costs 40 ms on loopback
    stand_in: ClassVar["StandIn"]

    def log_message(self, *args: object) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            return b"".join(self._chunks())
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _handle(self) -> None:
        body = self._body()
        url = urlsplit(self.path)
        stand_in = self.stand_in
        if ".git/" in url.path:
            return self._git(url.path, url.query, body)
        if url.path.startswith("/logs/"):
            return self._send(200, stand_in.hub.logs[url.path.removeprefix("/logs/")].encode(), {})
        if stand_in.hub.page:
            return self._send(stand_in.hub.page_status, stand_in.hub.page.encode(), {"Content-Type": "text/html"})
        with stand_in.hub.lock:
            status, answer, headers = stand_in.answer(self.command, url.path, url.query, body, self.headers)
        if status == 0:
            self.close_connection = True
            self.connection.close()
            return None
        payload = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
        if self.command == "GET" and status == 200:
            headers["ETag"] = f'W/"{hashlib.sha256(payload).hexdigest()}"'
            if self.headers.get("If-None-Match") == headers["ETag"]:
                stand_in.unchanged += 1
                return self._send(304, b"", {"ETag": headers["ETag"]})
        return self._send(status, payload, {"Content-Type": "application/json; charset=utf-8", **headers})

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815

    def _send(self, status: int, payload: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def _git(self, path: str, query: str, body: bytes) -> None:
        hub = self.stand_in.hub
        if len(self.headers.get_all("Authorization") or ()) > 1:
            return self._send(400, b"Duplicate header: Authorization", {})
        if not hub.signed_in(self.headers.get("Authorization", "")):
            return self._send(401, b"", {"WWW-Authenticate": 'Basic realm="GitHub"'})
        writes = "git-receive-pack" in (path + query)
        if writes and (why := hub.refuses_write(hub.git_token(self.headers.get("Authorization", "")))):
            return self._send(403, why.encode(), {"Content-Type": "text/plain"})
        if self.headers.get("Content-Encoding") == "gzip":
            body = zlib.decompress(body, 31)
        _, _, rest = path.partition(".git/")
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(hub.bare),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": f"/{rest}",
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "REMOTE_USER": "octocat",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        with hub.lock:
            is_push = rest == "git-receive-pack"
            before = hub.branches() if is_push else {}
            done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False)
            if is_push:
                hub.pushed(before)
        head, _, payload = done.stdout.partition(b"\r\n\r\n")
        lines = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
        headers = dict(lines)
        status = int(headers.pop("Status", "200").split()[0])
        return self._send(status, payload, headers)


class StandIn:
    """A running server; `requests` lists the API calls as `GET /pulls/1`."""

    routes = ROUTES

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.requests: list[str] = []
        self.answers: list[tuple[str, str, int, Any]] = []  #: method, path of the description, status, answer
        self.unchanged = 0  #: answers 304, which count against no rate limit
        self.faults: list[Fault] = []
        self.on_request: Callable[[str], object] = lambda _: None  #: called before each API call
        handler = type("BoundHandler", (Handler,), {"stand_in": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.api = f"{self.address}/api/v3"
        self.remote = f"{self.address}/{hub.owner}/{hub.name}.git"

    def __enter__(self) -> "StandIn":
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def use_tls(self, certificate: str, key: str) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = self.address.replace("http:", "https:")
        self.api = f"{self.address}/api/v3"
        self.remote = f"{self.address}/{self.hub.owner}/{self.hub.name}.git"

    def answer(self, method: str, path: str, query: str, body: bytes, headers: Any) -> tuple[int, Any, dict[str, str]]:
        hub, api = self.hub, "/api/v3"
        root = f"{api}/repos/{hub.owner}/{hub.name}"
        signed, is_apps = headers.get("Authorization", "").split(" ")[-1], path.endswith(APPS)
        if not (hub.is_app(signed) if is_apps else signed in hub.tokens):
            return 401, {"message": "Bad credentials"}, {}
        old, by_id = f"{api}/repos/{hub.owner}/{hub.renamed_from}", f"{api}/repositories/1"
        if hub.renamed_from and path.lower().startswith(old.lower()):
            where = self.address + by_id + path[len(old) :] + (query and f"?{query}")
            moved = {"message": "Moved Permanently", "url": where}
            return 301 if method == "GET" else 307, moved, {"Location": where}
        if path.lower().startswith(root.lower()):
            short = path[len(root) :]
        elif path.startswith(by_id):
            short = path[len(by_id) :]
        elif path in (f"{api}/app/installations/5/access_tokens", "/api/graphql"):
            short = path.removeprefix(api).removeprefix("/api")
        else:
            return 404, {"message": "Not Found"}, {}
        why = "" if is_apps else hub.refuses_write(signed)
        status, answer, more = self._answer(method, short, query, body, signed, {"message": why} if why else {})
        return status, answer, more | {"X-OAuth-Scopes": hub.scopes}

    def _answer(
        self, method: str, path: str, query: str, body: bytes, token: str, refusal: dict[str, str]
    ) -> tuple[int, Any, dict[str, str]]:
        """Note the call, and answer it, unless a fault comes before; `refusal` is the answer to a write."""
        self.requests.append(f"{method} {path}")
        self.on_request(self.requests[-1])
        fault = self._fault(method, path)
        if fault is None or fault.kind != "before":
            if refusal and method != "GET" and path != "/graphql":
                return 403, refusal, {}
            answer = self._route(method, path, query, body, token)
        return answer if fault is None else (fault.status, fault.body, dict(fault.headers))

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and re.fullmatch(fault.call, f"{method} {path}"):
                fault.nth -= 1
                if fault.nth <= 0:
                    fault.times -= 1
                    return fault
        return None

    def _route(self, method: str, path: str, query: str, body: bytes, token: str) -> tuple[int, Any, dict[str, str]]:
        values = {name: found[0] for name, found in parse_qs(query).items()}
        sent = json.loads(body) if body else {}
        for wanted, described, handler in self.routes:
            if wanted == method and (match := _pattern(described).fullmatch(path)):
                words = tuple(unquote(word) for word in match.groups())
                headers: dict[str, str] = {}
                try:
                    status, answer = handler(Call(self.hub, self.api, words, values, sent, token))
                except Answer as refused:
                    status, answer, headers = refused.status, refused.body, refused.headers
                self.answers.append((method, described, status, answer))
                return status, answer, headers
        return 404, {"message": "Not Found"}, {}


@contextmanager
def on_github(project: Project, place: Path) -> Iterator[StandIn]:
    """A server with the project's main as its origin, on which every push of a plan starts a check that passes."""
    with StandIn(serve_clone(project, Hub(place / "app.git"))) as running:
        connect(project, running)
        project.extra |= environment(running)
        yield running


def serve_clone(project: Project, hub: H) -> H:
    """The hub, with a clone of the project; every push of a plan starts a check that passes."""
    project.repo.git("clone", "-q", "--bare", str(project.path), str(hub.bare))
    hub.git("config", "http.receivepack", "true")
    hub.on_push = lambda branch, sha: hub.check(sha) if branch.endswith("/pr") else None
    return hub


def connect(project: Project, running: StandIn) -> None:
    """Have the server be the project's origin."""
    if project.repo.git("remote") == "":
        project.repo.git("remote", "add", "origin", running.remote)
    project.repo.git("remote", "set-url", "origin", running.remote)
    signed_in = f"http.extraHeader=Authorization: Basic {b64encode(b'git:t0ken').decode()}"
    project.repo.git("-c", signed_in, "fetch", "-q", "origin")


def publish(project: Project, hub: Hub, **files: str) -> None:
    """Set up the project, also on the server."""
    set_up(project, **files)
    hub.mirror(project.path)


def environment(server: StandIn) -> dict[str, str]:
    """The variables of a caller who uses this server."""
    return {
        "GITHUB_API_URL": server.api,
        "GH_ENTERPRISE_TOKEN": "t0ken",
        "RUNPLAN_PULL_REQUEST_POLL": "0.5s",
        "RUNPLAN_PULL_REQUEST_CHECKS_WAIT": "0s",
    }


@functools.cache
def _app_key() -> tuple[str, str]:
    """A private key, and its public one."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private.decode(), key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def an_app(hub: Hub) -> tuple[str, str]:
    """Install a GitHub App; its id and private key."""
    private, public = _app_key()
    hub.app = ("77", public)
    return "77", private
