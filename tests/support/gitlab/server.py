"""Serves a GitLabHub by HTTP: the REST API under /api/v4, GraphQL, and git as the stand-in GitHub does."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote

from tests.support.cli import Project
from tests.support.github.hub import Issue, Pull
from tests.support.github.server import Call, Routes, StandIn, connect, serve_clone
from tests.support.gitlab.hub import LEVELS, USERS, GitLabHub, Refused, user

API = "/api/v4"


Request: TypeAlias = Call[GitLabHub]


# --- answers as GitLab writes them -------------------------------------------------------------------------


def project(r: Request) -> tuple[int, Any]:
    hub = r.hub
    level = LEVELS["write"] if hub.can_push else LEVELS["read"]
    return 200, {
        "id": 42,
        "path_with_namespace": f"{hub.owner}/{hub.name}",
        "web_url": f"https://gitlab.test/{hub.owner}/{hub.name}",
        "default_branch": hub.default_branch,
        "archived": hub.archived,
        "merge_method": hub.merge_method,
        "squash_option": hub.squash_option,
        "only_allow_merge_if_pipeline_succeeds": bool(hub.required),
        "only_allow_merge_if_all_discussions_are_resolved": hub.must_resolve,
        "permissions": {"project_access": None, "group_access": {"access_level": level, "notification_level": 3}},
        **({"merge_trains_enabled": hub.merge_trains} if hub.is_premium else {}),
    }


def _pull(r: Request, pull: Pull, *, is_single: bool) -> dict[str, Any]:
    hub = r.hub
    state = hub.shown_state(pull) if is_single else "unchecked" if pull.unknown else hub.detailed(pull)
    shown: dict[str, Any] = {
        "id": 7000 + pull.number,
        "iid": pull.number,
        "project_id": 42,
        "source_project_id": 43 if pull.number in hub.forked else 42,
        "target_project_id": 42,
        "title": pull.title,
        "description": pull.body,
        "state": _state(pull),
        "source_branch": pull.head,
        "target_branch": pull.base,
        "draft": pull.draft,
        "sha": pull.sha,
        "merged_at": pull.closed_at if pull.merged else None,
        "closed_at": None if pull.merged or pull.state == "open" else pull.closed_at or "2026-01-01T00:00:00.000Z",
        "merge_commit_sha": pull.merge_commit or None,
        "squash_commit_sha": hub.squashed.get(pull.number),
        "merge_when_pipeline_succeeds": bool(pull.auto_merge),
        "merge_user": user(name) if (name := hub.merge_users.get(pull.number)) else None,
        "detailed_merge_status": state,
        "has_conflicts": state == "conflict",
        "labels": pull.labels,
        "assignees": [user(name) for name in pull.assignees],
        "reviewers": [user(name) for name in hub.reviewers.get(pull.number, {})],
        "web_url": f"https://gitlab.test/{hub.owner}/{hub.name}/-/merge_requests/{pull.number}",
    }
    if is_single:
        sha = hub.results.get(pull.number, pull.sha)
        status = hub.pipeline(pull)
        shown["head_pipeline"] = {"id": 300 + pull.number, "sha": sha, "status": status} if status else None
    return shown


def _state(pull: Pull) -> str:
    return "merged" if pull.merged else "opened" if pull.state == "open" else "closed"


def _issue(r: Request, issue: Issue) -> dict[str, Any]:
    return {
        "id": 8000 + issue.number,
        "iid": issue.number,
        "title": issue.title,
        "description": issue.body,
        "state": "opened" if issue.state == "open" else "closed",
        "author": user(issue.author),
        "closed_by": user(issue.closed_by) if issue.closed_by else None,
        "labels": issue.labels,
        "assignees": [user(name) for name in issue.assignees],
        "web_url": f"https://gitlab.test/{r.hub.owner}/{r.hub.name}/-/issues/{issue.number}",
    }


def list_pulls(r: Request) -> tuple[int, Any]:
    state = r.query.get("state", "all")
    fields = {"source_branch": "head", "target_branch": "base"}
    listed = [
        pull
        for pull in r.hub.pulls.values()
        if state in ("all", _state(pull))
        and all(getattr(pull, fields[key]) == r.query[key] for key in fields if key in r.query)
    ]
    if r.query.get("sort", "desc") == "desc":
        listed.reverse()
    return 200, [_pull(r, pull, is_single=False) for pull in listed]


def create_pull(r: Request) -> tuple[int, Any]:
    for field in ("source_branch", "target_branch", "title"):
        if not r.body.get(field):
            raise Refused(400, {"error": f"{field} is missing"})
    made = r.hub.create(
        r.body["source_branch"], r.body["target_branch"], r.body["title"], r.body.get("description", "")
    )
    return 201, _pull(r, made, is_single=False)


def edit_pull(r: Request) -> tuple[int, Any]:
    hub, pull = r.hub, r.pull
    names = {number: name for name, number in USERS.items()}
    if "title" in r.body:
        hub.set_title(pull, r.body["title"])
    if (base := r.body.get("target_branch", pull.base)) != pull.base:
        hub.retarget(pull, base)
    if "description" in r.body:
        pull.body = hub.act(r.body["description"])
    if "assignee_ids" in r.body:
        pull.assignees = [names[number] for number in r.body["assignee_ids"]][: hub.people_limit]
    if "reviewer_ids" in r.body:
        before = hub.reviewers.get(pull.number, {})
        wanted = [names[number] for number in r.body["reviewer_ids"]][: hub.people_limit]
        hub.reviewers[pull.number] = {name: before.get(name, "unreviewed") for name in wanted}
    if labels := r.body.get("add_labels"):
        pull.labels += [label for label in labels.split(",") if label not in pull.labels]
    return 200, _pull(r, pull, is_single=True)


def merge_pull(r: Request) -> tuple[int, Any]:
    r.hub.accept(r.pull, r.body)
    return 200, _pull(r, r.pull, is_single=True)


def cancel_merge(r: Request) -> tuple[int, Any]:
    if not r.pull.auto_merge:
        raise Refused(406, "406 Not Acceptable")
    r.pull.auto_merge = ""
    r.hub.merge_users.pop(r.number, None)
    return 201, _pull(r, r.pull, is_single=True)


def diffs(r: Request) -> tuple[int, Any]:
    names = r.hub.git("diff", "--name-only", f"refs/heads/{r.pull.base}...{r.pull.sha}").splitlines()
    return 200, [{"old_path": name, "new_path": name, "diff": ""} for name in names]


def approvals(r: Request) -> tuple[int, Any]:
    states = r.hub.reviewers.get(r.pull.number, {})
    notes = r.hub.notes.get(("merge_requests", r.pull.number), [])
    times = {note["author"]["username"]: note["created_at"] for note in notes if note["body"].startswith("approved")}
    names = [name for name, state in states.items() if state == "approved"]
    given = [{"user": user(name), "approved_at": times[name]} for name in names]
    required = {"approvals_required": r.hub.reviews} if r.hub.is_premium else {}
    return 200, {"approved_by": given, **required}


def approval_rules(r: Request) -> tuple[int, Any]:
    if not r.hub.is_premium:
        raise Refused(403, "403 Forbidden")
    rule = {"id": 1, "name": "All", "approvals_required": r.hub.reviews, "protected_branches": []}
    other = {"id": 2, "name": "Stable", "approvals_required": 5, "protected_branches": [{"name": "stable"}]}
    return 200, [rule, other]


def reviewers(r: Request) -> tuple[int, Any]:
    states = r.hub.reviewers.get(r.pull.number, {})
    return 200, [{"user": user(name), "state": state, "created_at": r.hub.now()} for name, state in states.items()]


def discussions(r: Request) -> tuple[int, Any]:
    threads: dict[str, list[dict[str, Any]]] = {}
    for note in r.hub.notes.get(("merge_requests", r.pull.number), []):
        threads.setdefault(note["discussion"], []).append(note)
    return 200, [{"id": name, "individual_note": len(notes) == 1, "notes": notes} for name, notes in threads.items()]


def reply(r: Request) -> tuple[int, Any]:
    notes = r.hub.notes.get(("merge_requests", r.pull.number), [])
    first = next((note for note in notes if note["discussion"] == r.words[1]), None)
    if first is None:
        raise Refused(404, "404 Discussion Not Found")
    more = {"type": first["type"] or "DiscussionNote", "discussion": r.words[1]}
    more |= {"position": first["position"]} if "position" in first else {}
    text = r.hub.act(r.body["body"])
    return 201, r.hub.add_note("merge_requests", r.number, text, by="octocat", **more)


def _notes(kind: str) -> Callable[[Request], tuple[int, Any]]:
    def listed(r: Request) -> tuple[int, Any]:
        assert r.pull if kind == "merge_requests" else r.issue
        notes = list(r.hub.notes.get((kind, r.number), []))
        return 200, notes if r.query.get("sort") == "asc" else notes[::-1]

    return listed


def _add_note(kind: str) -> Callable[[Request], tuple[int, Any]]:
    def added(r: Request) -> tuple[int, Any]:
        assert r.pull if kind == "merge_requests" else r.issue
        text = r.hub.act(r.body["body"]).strip()
        if not text:  # quick actions alone
            for name in re.findall(r"@(\w+)", r.body["body"]):
                r.hub.reviewers.setdefault(r.number, {})[name] = "unreviewed"
            return 202, {"commands_changes": {}, "summary": ["Done."]}
        return 201, r.hub.add_note(kind, r.number, text, by="octocat")

    return added


def react(r: Request) -> tuple[int, Any]:
    note = int(r.words[1])
    reaction = (note, r.body["name"])
    notes = r.hub.notes.get(("merge_requests", r.number), [])
    if all(one["id"] != note for one in notes) or reaction in r.hub.reactions:
        raise Refused(404, "404 Award Emoji Name has already been taken Not Found")
    r.hub.reactions.append(reaction)
    return 201, {"id": 1, "name": reaction[1], "user": user("octocat"), "awardable_id": note, "awardable_type": "Note"}


def _edit_note(kind: str) -> Callable[[Request], tuple[int, Any]]:
    def edited(r: Request) -> tuple[int, Any]:
        notes = r.hub.notes.get((kind, r.number), [])
        note = next((note for note in notes if note["id"] == int(r.words[1])), None)
        if note is None:
            raise Refused(404, "404 Note Not Found")
        note["body"] = r.hub.act(r.body["body"])
        return 200, note

    return edited


def statuses(r: Request) -> tuple[int, Any]:
    name = r.query.get("name")
    return 200, [job for job in r.hub.jobs(r.words[0]) if name in (None, job["name"])]


def trace(r: Request) -> tuple[int, Any]:
    logs = [log for sha, log in r.hub.logs.items() if any(job["id"] == r.number for job in r.hub.jobs(sha))]
    if not logs:
        raise Refused(404, "404 Not Found")
    return 200, logs[0].encode()


def pipeline_jobs(r: Request) -> tuple[int, Any]:
    sha = r.hub.results[r.number - 300]
    urls = {"target_url": "web_url"}
    return 200, [{urls.get(key, key): value for key, value in job.items()} for job in r.hub.jobs(sha)]


def members(r: Request) -> tuple[int, Any]:
    query = r.query.get("query", "").lower()
    listed = [(name, LEVELS[level]) for name, level in r.hub.permissions.items() if query in name.lower()]
    return 200, [user(name) | {"access_level": level} for name, level in listed]


def list_issues(r: Request) -> tuple[int, Any]:
    labels = set(filter(None, r.query.get("labels", "").split(",")))
    listed = [issue for issue in r.hub.issues.values() if labels <= set(issue.labels)]
    if r.query.get("state") == "opened":
        listed = [issue for issue in listed if issue.state == "open"]
    return 200, [_issue(r, issue) for issue in (listed if r.query.get("sort") == "asc" else listed[::-1])]


def edit_issue(r: Request) -> tuple[int, Any]:
    r.hub.edit_issue(r.issue, r.body)
    return 200, _issue(r, r.issue)


def label_events(r: Request) -> tuple[int, Any]:
    return 200, [
        {"user": user(event["actor"]), "created_at": event["at"], "action": "add", "label": {"name": event["label"]}}
        for event in r.issue.labelled
    ]


def state_events(r: Request) -> tuple[int, Any]:
    events = [{"user": user(e["actor"]), "created_at": e["at"], "state": "reopened"} for e in r.issue.reopened]
    return 200, [{"user": user("bob"), "created_at": r.hub.now(), "state": "closed"}, *events]


def train(r: Request) -> tuple[int, Any]:
    if r.number not in r.hub.train:
        raise Refused(404, "404 Not Found")
    return 200, {"id": 1, "status": "fresh", "merge_request": {"iid": r.number}}


def join_train(r: Request) -> tuple[int, Any]:
    if not r.hub.merge_trains:
        raise Refused(404, "404 Not Found")
    if r.body.get("sha") != r.pull.sha:
        raise Refused(409, "SHA does not match HEAD of source branch")
    r.hub.train.append(r.number)
    return 201, []


def graphql(r: Request) -> tuple[int, Any]:
    issue = r.hub.issues[int(r.body["variables"]["number"])]
    editor = {"username": issue.editor} if issue.edited else None
    widgets = [{}, {"lastEditedAt": issue.edited or None, "lastEditedBy": editor}]
    return 200, {"data": {"project": {"workItems": {"nodes": [{"widgets": widgets}]}}}}


def own_token(r: Request) -> tuple[int, Any]:
    if r.hub.token_scopes is None:
        raise Refused(400, "400 Bad request")
    return 200, {"id": 1, "name": "runplan", "scopes": r.hub.token_scopes, "active": True}


def users(r: Request) -> tuple[int, Any]:
    return 200, [user(name) for name in USERS if name == r.query.get("username")]


#: Method, path below that of the project, handler.
ROUTES: Routes = (
    ("GET", "", project),
    ("GET", "/user", lambda _: (200, user("octocat"))),
    ("GET", "/users", users),
    ("GET", "/personal_access_tokens/self", own_token),
    ("POST", "/graphql", graphql),
    ("GET", "/merge_requests", list_pulls),
    ("POST", "/merge_requests", create_pull),
    ("GET", "/merge_requests/{id}", lambda r: (200, _pull(r, r.pull, is_single=True))),
    ("PUT", "/merge_requests/{id}", edit_pull),
    ("PUT", "/merge_requests/{id}/merge", merge_pull),
    ("POST", "/merge_requests/{id}/cancel_merge_when_pipeline_succeeds", cancel_merge),
    ("GET", "/merge_requests/{id}/diffs", diffs),
    ("GET", "/merge_requests/{id}/approvals", approvals),
    ("GET", "/merge_requests/{id}/reviewers", reviewers),
    ("GET", "/merge_requests/{id}/discussions", discussions),
    ("POST", "/merge_requests/{id}/discussions/{id}/notes", reply),
    ("GET", "/merge_requests/{id}/notes", _notes("merge_requests")),
    ("POST", "/merge_requests/{id}/notes", _add_note("merge_requests")),
    ("PUT", "/merge_requests/{id}/notes/{id}", _edit_note("merge_requests")),
    ("POST", "/merge_requests/{id}/notes/{id}/award_emoji", react),
    ("GET", "/merge_trains/merge_requests/{id}", train),
    ("POST", "/merge_trains/merge_requests/{id}", join_train),
    ("GET", "/approval_rules", approval_rules),
    ("GET", "/repository/commits/{sha}/statuses", statuses),
    ("POST", "/statuses/{sha}", lambda r: (201, r.hub.set_status(r.words[0], r.body))),
    ("GET", "/jobs/{id}/trace", trace),
    ("GET", "/pipelines/{id}/jobs", pipeline_jobs),
    ("GET", "/members/all", members),
    ("GET", "/issues", list_issues),
    ("GET", "/issues/{id}", lambda r: (200, _issue(r, r.issue))),
    ("PUT", "/issues/{id}", edit_issue),
    ("GET", "/issues/{id}/notes", _notes("issues")),
    ("POST", "/issues/{id}/notes", _add_note("issues")),
    ("PUT", "/issues/{id}/notes/{id}", _edit_note("issues")),
    ("GET", "/issues/{id}/resource_label_events", label_events),
    ("GET", "/issues/{id}/resource_state_events", state_events),
)
OUTSIDE = ("/user", "/users", "/personal_access_tokens/self", "/graphql")  #: of the project


class GitLabStandIn(StandIn):
    """A running server; `requests` lists the API calls below the path of the project, as `GET /merge_requests/1`."""

    hub: GitLabHub
    routes = ROUTES

    def __init__(self, hub: GitLabHub) -> None:
        super().__init__(hub)
        self.api = f"{self.address}{API}"

    def __enter__(self) -> "GitLabStandIn":
        super().__enter__()
        return self

    def answer(self, method: str, path: str, query: str, body: bytes, headers: Any) -> tuple[int, Any, dict[str, str]]:
        hub = self.hub
        kind, _, token = headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or token not in hub.tokens:
            return 401, {"message": "401 Unauthorized"}, {}
        full = f"{hub.owner}/{hub.name}"
        roots = [f"{API}/projects/42", f"{API}/projects/{quote(full, safe='')}"]
        root = next((root for root in roots if path == root or path.startswith(f"{root}/")), "")
        short = path[len(root) :] if root else path.removeprefix(API).removeprefix("/api")
        if not root and short not in OUTSIDE:
            return 404, {"message": "404 Project Not Found"}, {}
        refusal = {"message": "403 Forbidden"} if hub.archived else {}
        if token in hub.read_only:
            refusal = {"error": "insufficient_scope", "scope": "api"}
        return self._answer(method, short, query, body, token, refusal)

    def _route(self, method: str, path: str, query: str, body: bytes, token: str) -> tuple[int, Any, dict[str, str]]:
        status, answer, headers = super()._route(method, path, query, body, token)
        if isinstance(answer, list) and method == "GET":
            return self._page(path, {name: texts[0] for name, texts in parse_qs(query).items()}, answer)
        return status, answer, {"Content-Type": "text/plain"} if isinstance(answer, bytes) else headers

    def _page(self, path: str, values: dict[str, str], answer: list[Any]) -> tuple[int, Any, dict[str, str]]:
        """One page of a list; GitLab names the next one in a header."""
        size, page = int(values.get("per_page", "20")), int(values.get("page", "1"))
        rest = "&".join(f"{name}={quote(value)}" for name, value in values.items() if name != "page")
        where = f"{self.api}{'' if path in OUTSIDE else '/projects/42'}{path}?{rest}&page={page + 1}"
        more = len(answer) > page * size
        return 200, answer[(page - 1) * size : page * size], {"Link": f'<{where}>; rel="next"'} if more else {}


@contextmanager
def on_gitlab(project: Project, place: Path, *, owner: str = "acme/tools") -> Iterator[GitLabStandIn]:
    """A server with the project's main as its origin, on which every push of a plan starts a pipeline that passes."""
    with GitLabStandIn(serve_clone(project, GitLabHub(place / "app.git", owner=owner))) as running:
        connect(project, running)
        project.extra |= {
            "GITLAB_API_URL": running.api,
            "GITLAB_TOKEN": "t0ken",
            "RUNPLAN_PULL_REQUEST_POLL": "0.5s",
            "RUNPLAN_PULL_REQUEST_CHECKS_WAIT": "0s",
        }
        yield running
