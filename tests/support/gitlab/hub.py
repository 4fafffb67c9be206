"""GitLab's state and rules for one project. The repository, checks and issues are those of the stand-in GitHub."""

import itertools
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.github.hub import Answer, Hub, Issue, Pull

#: Accounts by name; `octocat` is the owner of the token.
USERS = {"octocat": 7, "reporter": 11, "reviewer": 12, "bob": 13, "stranger": 14}
LEVELS = {"admin": 40, "write": 30, "read": 20}
JOBS = {None: "running", "success": "success", "failure": "failed", "neutral": "success"}
DRAFT = re.compile(r"(?i)\s*(?:draft:|\[draft\]|\(draft\))\s*")
ACTION = re.compile(r"(?m)^/(\w+)(.*)$")


class Refused(Answer):
    """An error as GitLab writes it: a message that is a text, a list or lists by field, or an OAuth error."""

    def __init__(self, status: int, message: Any) -> None:
        super().__init__(status, str(message))
        self.body = message if isinstance(message, dict) and "error" in message else {"message": message}


class GitLabHub(Hub):
    """One project. Merge requests and issues are counted apart, as GitLab does it."""

    def __init__(self, bare: Path, *, owner: str = "acme", name: str = "app") -> None:
        super().__init__(bare, owner=owner, name=name)
        self.merge_method = "merge"  #: merge, rebase_merge or ff
        self.squash_option = "default_off"  #: never, always, default_on or default_off
        self.is_premium = True  #: rules for approvals and merge trains are for sale
        self.must_resolve = False
        self.merge_trains = False
        self.train: list[int] = []
        self.forked = set[int]()  #: merge requests from a fork
        self.can_merge = True  #: whether the owner of the token may merge into the protected target
        self.people_limit = 100  #: assignees or reviewers of a merge request; 1 without a subscription
        self.token_scopes: list[str] | None = ["api", "write_repository"]  #: None for a token of OAuth
        self.external: dict[str, list[dict[str, Any]]] = {}  #: statuses that were set through the API
        self.results: dict[int, str] = {}  #: commit of the pipeline for the result of a merge, by merge request
        self.allowed_failures = set[str]()  #: names of jobs that may fail
        self.notes: dict[tuple[str, int], list[dict[str, Any]]] = {}
        self.reviewers: dict[int, dict[str, str]] = {}  #: states by name
        self.merge_users: dict[int, str] = {}
        self.squashed: dict[int, str] = {}
        self.ran: list[str] = []  #: quick actions that a text has run
        self._iids = itertools.count(1)
        self._ids = itertools.count(501)

    @property
    def not_found(self) -> Answer:
        return Refused(404, "404 Not found")

    # --- settings in the words of GitHub's stand-in -----------------------------------------------------------

    @property
    def methods(self) -> set[str]:
        plain = set() if self.squash_option == "always" else {"rebase" if self.merge_method == "ff" else "merge"}
        return plain if self.squash_option == "never" else {*plain, "squash"}

    @methods.setter
    def methods(self, wanted: set[str]) -> None:
        self.merge_method = "ff" if "rebase" in wanted and "merge" not in wanted else "merge"
        self.squash_option = "never" if "squash" not in wanted else "default_off" if len(wanted) > 1 else "always"

    @property
    def statuses(self) -> dict[str, list[dict[str, Any]]]:
        def translated(made: dict[str, Any]) -> dict[str, Any]:
            return made | {"context": made["name"], "state": made["status"].replace("failed", "failure")}

        return {sha: [translated(made) for made in listed] for sha, listed in self.external.items()}

    @statuses.setter
    def statuses(self, wanted: dict[str, list[dict[str, Any]]]) -> None:
        assert not wanted

    # --- merge requests -----------------------------------------------------------------------------------------

    def create(self, head: str, base: str, title: str, body: str, *, draft: bool = False) -> Pull:
        if head == base:
            raise Refused(422, ["You can't use same project/branch for source and target"])
        for pull in self.pulls.values():
            if pull.state == "open" and (pull.head, pull.base) == (head, base):
                raise Refused(
                    409, [f"Another open merge request already exists for this source branch: !{pull.number}"]
                )
        if not (sha := self.tip(head)):
            raise Refused(400, {"source_branch": ["does not exist"]})
        number = next(self._iids)
        made = Pull(number=number, head=head, base=base, title=title, body=body, sha=sha, unknown=self.nulls)
        self.pulls[number] = made
        self.set_title(made, f"Draft: {title}" if draft else title)
        self.keep(made)
        made.body = self.act(body)
        return made

    def keep(self, pull: Pull) -> None:
        self.git("update-ref", f"refs/merge-requests/{pull.number}/head", pull.sha)

    def set_title(self, pull: Pull, title: str) -> None:
        pull.title = title
        pull.draft = DRAFT.match(title) is not None

    def set_draft(self, *, is_draft: bool) -> None:
        for pull in self.pulls.values():
            title = DRAFT.sub("", pull.title, count=1)
            self.set_title(pull, f"Draft: {title}" if is_draft else title)

    def act(self, text: str) -> str:
        """Run the quick actions of a text; the rest of it."""
        self.ran += [f"/{name}{rest}" for name, rest in ACTION.findall(text)]
        return ACTION.sub("", text)

    def add_note(self, kind: str, number: int, text: str, *, by: str, **more: Any) -> dict[str, Any]:
        note_id, now = next(self._ids), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        made = {"id": note_id, "type": None, "body": text, "author": user(by), "created_at": now, "updated_at": now}
        made |= {"system": False, "discussion": f"{note_id:040x}", "resolvable": False, "resolved": False, **more}
        self.notes.setdefault((kind, number), []).append(made)
        return made

    def review(
        self,
        number: int,
        text: str,
        *,
        path: str = "",
        line: int = 0,
        first: int = 0,
        by: str = "reviewer",
        state: str = "COMMENTED",
        thread: int = 0,
    ) -> int:
        """A note, on a line or not; and the state of a reviewer."""
        assert not thread
        if path:
            position = {"new_path": path, "old_path": path, "new_line": line, "old_line": None}
            # docs.gitlab.com/api/discussions/#create-a-new-thread-in-the-merge-request-diff: of several lines
            position |= {"line_range": {"start": {"new_line": first}, "end": {"new_line": line}}} if first else {}
            more = {"type": "DiffNote", "position": position, "resolvable": True}
            self.add_note("merge_requests", number, text, by=by, **more)
        elif text:
            self.add_note("merge_requests", number, text, by=by)
        states = {"CHANGES_REQUESTED": "requested_changes", "APPROVED": "approved"}
        if state in states:
            self.reviewers.setdefault(number, {})[by] = states[state]
            said = "requested changes" if state == "CHANGES_REQUESTED" else "approved this merge request"
            self.add_note("merge_requests", number, said, by=by, system=True)
            self.auto_merge_all()
        return next(self._ids)

    def dismiss(self, number: int) -> None:
        states = self.reviewers.get(number, {})
        states |= {name: "unreviewed" for name, state in states.items() if state == "requested_changes"}

    def resolve(self, number: int) -> None:
        for note in self.notes[("merge_requests", number)]:
            note["resolved"] = note["resolvable"]

    def comment(self, number: int, text: str, *, by: str = "bob", at: str = "") -> int:
        """A comment of another person on an issue."""
        return int(self.add_note("issues", number, text, by=by, **({"updated_at": at} if at else {}))["id"])

    # --- rules ----------------------------------------------------------------------------------------------------

    def jobs(self, sha: str) -> list[dict[str, Any]]:
        """The jobs and external statuses of a commit, as the API lists them."""
        made = [
            {
                "id": 9000 + place,
                "sha": sha,
                "name": run["name"],
                "status": JOBS.get(run["conclusion"], run["conclusion"]),
                "allow_failure": run["name"] in self.allowed_failures,
                "description": run["summary"] or None,
                "target_url": f"https://gitlab.test/jobs/{9000 + place}",
                "started_at": run["at"],
                "finished_at": run["at"] if run["conclusion"] else None,
            }
            for place, run in enumerate(self.runs.get(sha, []))
        ]
        return [*made, *self.external.get(sha, [])]

    def pipeline(self, pull: Pull) -> str:
        """The state of the pipeline that counts; "" for none. A job that is required and missing is not created yet."""
        jobs = self.jobs(self.results.get(pull.number, pull.sha))
        states = {job["status"] for job in jobs if not (job["allow_failure"] and job["status"] == "failed")}
        if not states:
            return "success" if jobs else ""
        if states & {"failed", "canceled"}:
            return "failed"
        missing = {*self.required} - {job["name"] for job in jobs}
        return "success" if states <= {"success", "skipped"} and not missing else "running"

    def detailed(self, pull: Pull) -> str:
        """Why the merge request cannot be merged now, as `detailed_merge_status`."""
        states = self.reviewers.get(pull.number, {})
        approvals = sum(state == "approved" and self.may_write(name) for name, state in states.items())
        objections = [name for name, state in states.items() if state == "requested_changes" and self.may_write(name)]
        notes = self.notes.get(("merge_requests", pull.number), [])
        pipeline = self.pipeline(pull)
        hindrances = {
            "not_open": pull.state != "open",
            "conflict": pull.state == "open" and self.conflicts(pull),
            "draft_status": pull.draft,
            "need_rebase": self.merge_method != "merge" and pull.state == "open" and self.behind(pull),
            "ci_still_running": bool(self.required) and pipeline == "running",
            "ci_must_pass": bool(self.required) and pipeline in ("", "failed"),
            "not_approved": approvals < self.reviews,
            "requested_changes": self.is_premium and bool(objections),
            "discussions_not_resolved": self.must_resolve and any(n["resolvable"] and not n["resolved"] for n in notes),
        }
        return next((name for name, is_met in hindrances.items() if is_met), "mergeable")

    def hindrance(self, pull: Pull) -> str:
        state = self.detailed(pull)
        return "" if state == "mergeable" else state

    def shown_state(self, pull: Pull) -> str:
        """The state that a read shows; it is computed after each push."""
        if pull.state == "open" and pull.unknown > 0:
            pull.unknown -= 1
            return "checking"
        return self.detailed(pull)

    def accept(self, pull: Pull, wanted: dict[str, Any]) -> None:
        """Merge, or note that it be merged later."""
        if not self.can_merge:
            raise Refused(401, "401 Unauthorized")
        state = self.detailed(pull)
        later = bool(wanted.get("auto_merge") or wanted.get("merge_when_pipeline_succeeds"))
        if pull.state != "open" or (state != "mergeable" and not later) or state in ("conflict", "draft_status"):
            rebase = state in ("conflict", "need_rebase") and pull.state == "open"
            raise Refused(422, "Branch cannot be merged") if rebase else Refused(405, "405 Method Not Allowed")
        if wanted.get("sha") and wanted["sha"] != pull.sha:
            raise Refused(409, f"SHA does not match HEAD of source branch: {pull.sha}")
        squash = self.squash_option == "always" or (bool(wanted.get("squash")) and self.squash_option != "never")
        message = wanted["squash_commit_message"] if squash else wanted["merge_commit_message"]
        if later:
            if state == "mergeable" and self.pipeline(pull) != "success":
                raise Refused(405, "405 Method Not Allowed")
            if state != "mergeable":
                pull.auto_merge, pull.later = "squash" if squash else "merge", message
                self.merge_users[pull.number] = "octocat"
                return
        self.do_merge(pull, "squash" if squash else "merge", message)

    def do_merge(self, pull: Pull, method: str, message: str = "") -> str:
        """By the method of the project: a squash is one commit more before it."""
        base, source = self.tip(pull.base), pull.sha
        tree = self.git("merge-tree", "--write-tree", base, source).splitlines()[0]
        if method == "squash":
            source = self.squashed[pull.number] = self.git("commit-tree", tree, "-p", base, "-m", message or pull.title)
        if self.merge_method == "ff":
            new = source
        else:
            new = self.git("commit-tree", tree, "-p", base, "-p", source, "-m", message or f"Merge branch {pull.head}")
            pull.merge_commit = new
        self.git("update-ref", f"refs/heads/{pull.base}", new, base)
        pull.state, pull.merged, pull.auto_merge, pull.closed_at = "closed", True, "", self.now()
        self.merge_users[pull.number] = "octocat"
        self.merges += 1
        for number, issue in self.issues.items():
            closing = re.compile(
                rf"(?i)\b(?:clos(?:e|es|ed|ing)|fix(?:es|ed|ing)?|implement(?:s|ed|ing)?)\s+#{number}\b"
            )
            if pull.base == self.default_branch and closing.search(pull.body):
                issue.state = "closed"
        if self.delete_branch_on_merge:
            self.git("update-ref", "-d", f"refs/heads/{pull.head}")
        return new

    def pushed(self, before: dict[str, str]) -> None:
        """A push ends the wait for an automatic merge."""
        heads = {number: pull.sha for number, pull in self.pulls.items()}
        super().pushed(before)
        for number, pull in self.pulls.items():
            if pull.sha != heads[number]:
                pull.auto_merge = ""

    def set_status(self, sha: str, wanted: dict[str, Any]) -> dict[str, Any]:
        """A status is changed while it is open, and made anew after its end; to change it to itself is an error."""
        if not self.statuses_allowed:
            raise Refused(403, "403 Forbidden")
        if self.git("cat-file", "-t", sha, ok=(0, 128)) != "commit":
            raise Refused(404, "404 Commit Not Found")
        name, state = wanted.get("name") or wanted.get("context") or "default", wanted["state"]
        if len(wanted.get("description") or "") > 255:
            raise Refused(400, {"description": ["is too long (maximum is 255 characters)"]})
        open_states = {"pending": "enqueue", "running": "run"}
        statuses = self.external.setdefault(sha, [])
        last = next((status for status in statuses if status["name"] == name), None)
        if last is not None and last["status"] == state and state in open_states:
            raise Refused(400, f"Cannot transition status via :{open_states[state]} from :{state}")
        now = self.now()
        made = {"id": next(self._ids), "sha": sha, "name": name, "status": state, "allow_failure": False}
        made |= {"description": wanted.get("description"), "target_url": wanted.get("target_url")}
        made |= {"created_at": now, "started_at": None, "finished_at": None if state in open_states else now}
        self.external[sha] = [*(status for status in statuses if status["name"] != name), made]
        self.auto_merge_all()
        return made

    def edit_issue(self, issue: Issue, wanted: dict[str, Any]) -> None:
        for label in filter(None, wanted.get("add_labels", "").split(",")):
            if label not in issue.labels:
                issue.labels.append(label)
        gone = wanted.get("remove_labels", "").split(",")
        issue.labels = [label for label in issue.labels if label not in gone]
        if "assignee_ids" in wanted:
            names = {number: name for name, number in USERS.items()}
            issue.assignees = [names[number] for number in wanted["assignee_ids"] if number in names]
        if wanted.get("state_event") == "close":
            issue.state = "closed"


def user(name: str) -> dict[str, Any]:
    return {"id": USERS.get(name, 99), "username": name, "name": name.title(), "state": "active"}
