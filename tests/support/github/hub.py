"""GitHub's state and rules for one repository: pull requests, checks, protection and issues over a bare repository."""

import itertools
import os
import subprocess
import threading
from base64 import b64decode
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt

LONGEST_BODY = 65536  #: characters of the text of an issue or pull request


class Answer(Exception):
    """An HTTP answer that is no success."""

    def __init__(self, status: int, message: str, *, errors: list[str] | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"message": message, "documentation_url": "https://docs.github.com/rest"}
        if errors:
            self.body["errors"] = [{"resource": "PullRequest", "code": "custom", "message": text} for text in errors]
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass
class Pull:
    number: int
    head: str
    base: str
    title: str
    body: str
    state: str = "open"
    draft: bool = False
    sha: str = ""
    merged: bool = False
    closed_at: str = ""  #: set by whatever closes it
    merge_commit: str = ""
    auto_merge: str = ""  #: the method, when auto-merge was requested
    later: str = ""  #: the message of the commit that auto-merge makes
    queued: bool = False
    author: str = "octocat"
    labels: list[str] = field(default_factory=list)
    assignees: list[str] = field(default_factory=list)
    is_pull: bool = True
    unknown: int = 0  #: how many reads say `mergeable: null`
    reviews: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    resolved: set[int] = field(default_factory=set)  #: threads, by their first comment
    requested: set[str] = field(default_factory=set)  #: accounts and teams that were asked for a review
    review_requests: list[str] = field(default_factory=list)  #: each request, for tests


@dataclass
class Issue:
    number: int
    title: str
    body: str
    is_pull: bool = False  #: a pull request is an issue too
    state: str = "open"
    state_reason: str = ""
    closed_by: str = ""
    labels: list[str] = field(default_factory=list)
    author: str = "reporter"
    labelled: list[dict[str, str]] = field(default_factory=list)  #: events: label, actor and time
    edited: str = ""  #: when its text was changed last, by `editor`
    editor: str = ""
    reopened: list[dict[str, str]] = field(default_factory=list)  #: events: actor and time
    assignees: list[str] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)


class Hub:
    """One repository. Tests set the attributes; `server` calls the methods."""

    def __init__(self, bare: Path, *, owner: str = "acme", name: str = "app") -> None:
        self.bare, self.owner, self.name = bare, owner, name
        self.lock = threading.RLock()
        self.renamed_from = ""  #: an earlier name: a read is answered by 301, a write by 307
        self.page = ""  #: a web page that a proxy sends instead of every answer of the API
        self.page_status = 200
        self.archived = False
        self.tokens = {"t0ken"}
        self.read_only = set[str]()  #: tokens that may read and not write, whatever their owner may do
        self.permissions = {"octocat": "admin", "reporter": "write", "reviewer": "write", "bob": "write"}
        self.lists_collaborators = True  #: to the token
        self.app: tuple[str, str] | None = None  #: id and public key of an installed GitHub App
        self.lives_s: list[int] = []  #: of the next tokens of the app; then an hour
        self.hides_checks = False  #: GraphQL shows no checks to the token; REST does
        #: Permissions that a fine-grained token lacks. It never has "checks": there is none to choose in
        #: docs.github.com/en/rest/authentication/permissions-required-for-fine-grained-personal-access-tokens
        self.lacks = set[str]()
        self.scopes = ""  #: of a classic token, as its header lists them
        self.can_push = True
        self.methods = {"merge", "squash", "rebase"}
        self.linear = False  #: the target requires a linear history
        self.rulesets: list[dict[str, Any]] = []  #: further rules of the target
        self.allow_auto_merge = True
        self.drafts_allowed = True
        self.statuses_allowed = True  #: for the token
        self.teams = {"core"}  #: with access to the repository
        self.delete_branch_on_merge = False
        self.required: list[str] = []  #: names of required checks
        self.refused = set[str]()  #: methods that are allowed, and refused for this branch whatever its state
        self.resolution = False  #: classic protection requires resolved conversations
        self.strict = False
        self.reviews = 0
        self.merge_queue = False
        self.default_branch = "main"  #: words such as "Fixes #1" close an issue only after a merge into it
        self.nulls = 1  #: how often a new or pushed pull request is read as `mergeable: null`
        self.pulls: dict[int, Pull] = {}
        self.issues: dict[int, Issue] = {}
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.statuses: dict[str, list[dict[str, Any]]] = {}
        self.logs: dict[str, str] = {}  #: of the failed job of a commit
        self.on_push: Any = None  #: called with (branch, sha) after a push; a test adds checks there
        self._numbers, self._tokens, self.comment_numbers = (itertools.count(1) for _ in range(3))
        self.reactions: list[tuple[int, str]] = []  #: ids of comments, and the name of the emoji
        self.written: dict[int, str] = {}  #: when reviews and comments were written, by their id
        self.merges = 0

    @property
    def not_found(self) -> Answer:
        return Answer(404, "Not Found")

    def signed_in(self, authorization: str) -> bool:
        """Whether git sent one of the tokens; unlike the API it sends it as a password."""
        return authorization.lower().startswith("basic ") and self.git_token(authorization) in self.tokens

    def git_token(self, authorization: str) -> str:
        return b64decode(authorization.partition(" ")[2]).decode().partition(":")[2]

    def refuses_write(self, token: str) -> str:
        """Why a write with this token is refused, in GitHub's words."""
        if self.archived:
            return "Repository was archived so is read-only."
        return "Resource not accessible by personal access token" if token in self.read_only else ""

    def require(self, permission: str) -> None:
        if permission in self.lacks:
            raise Answer(403, "Resource not accessible by personal access token")

    def may_write(self, login: str) -> bool:
        return self.permissions.get(login) in ("admin", "write")

    def is_app(self, signed: str) -> bool:
        """Whether the JWT is from the installed app."""
        if self.app is None:
            return False
        try:
            return jwt.decode(signed, self.app[1], algorithms=["RS256"], issuer=self.app[0]) != {}
        except jwt.PyJWTError:
            return False

    def issue_token(self) -> tuple[str, datetime]:
        """A new token of the app, instead of all others, and its end."""
        self.tokens = {f"ghs_{next(self._tokens)}"}
        life_s = self.lives_s.pop(0) if self.lives_s else 3600
        return next(iter(self.tokens)), datetime.now(UTC) + timedelta(seconds=life_s)

    # --- git ---------------------------------------------------------------------------------------------

    def git(self, *args: str, ok: tuple[int, ...] = (0,)) -> str:
        identity = ("-c", "user.name=GitHub", "-c", "user.email=noreply@github.com")
        done = subprocess.run(
            ["git", *identity, "--git-dir", str(self.bare), *args], capture_output=True, text=True, check=False
        )
        assert done.returncode in ok, done.stderr
        return done.stdout.strip()

    def mirror(self, repository: Path) -> None:
        """Take over the branches of another repository."""
        self.git("fetch", "-q", str(repository), "+refs/heads/*:refs/heads/*")

    def tip(self, branch: str) -> str:
        return self.git("rev-parse", "--verify", "-q", f"refs/heads/{branch}", ok=(0, 1))

    def branches(self) -> dict[str, str]:
        lines = self.git("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads").splitlines()
        return dict(line.rsplit(" ", 1) for line in lines)

    def commit(self, branch: str, files: dict[str, str], message: str = "a person's commit") -> str:
        """Commit files on a branch, as another person's push would."""
        index = {"GIT_INDEX_FILE": str(self.bare / "person-index"), **os.environ}
        base = self.tip(branch)

        def run(*args: str, stdin: str = "") -> str:
            identity = ("-c", "user.name=Bob", "-c", "user.email=bob@example.com")
            command = ["git", *identity, "--git-dir", str(self.bare), *args]
            return subprocess.run(command, input=stdin, env=index, text=True, check=True, capture_output=True).stdout

        run("read-tree", base)
        for path, text in files.items():
            blob = run("hash-object", "-w", "--stdin", stdin=text).strip()
            run("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        new = run("commit-tree", run("write-tree").strip(), "-p", base, "-m", message).strip()
        before = self.branches()
        self.git("update-ref", f"refs/heads/{branch}", new, base)
        self.pushed(before)
        return new

    def pushed(self, before: dict[str, str]) -> None:
        """Note what a push changed: heads follow, mergeability is computed anew, gone branches close their PRs."""
        after = self.branches()
        for pull in self.pulls.values():
            if pull.state != "open":
                continue
            if not {pull.head, pull.base} <= after.keys():
                pull.state = "closed"
            elif after[pull.head] != pull.sha or before.get(pull.base) != after.get(pull.base):
                pull.sha, pull.unknown = after[pull.head], self.nulls
                self.keep(pull)
        for branch, sha in after.items():
            if before.get(branch) != sha and self.on_push is not None:
                self.on_push(branch, sha)

    # --- checks --------------------------------------------------------------------------------------------

    def check(
        self,
        sha: str,
        name: str = "ci",
        conclusion: str | None = "success",
        summary: str = "",
        at: datetime | None = None,
    ) -> None:
        """Set a check run; without a conclusion it is in progress."""
        runs = [run for run in self.runs.get(sha, []) if run["name"] != name]
        made = {"name": name, "conclusion": conclusion, "summary": summary, "at": self.now(at)}
        self.runs[sha] = [*runs, made]
        self.auto_merge_all()

    def set_status(self, sha: str, status: dict[str, Any]) -> dict[str, Any]:
        """Add a commit status; the newest one of a context counts."""
        if not self.statuses_allowed:
            raise Answer(403, "Resource not accessible by personal access token")
        if self.git("cat-file", "-t", sha, ok=(0, 128)) != "commit":
            raise Answer(422, f"No commit found for SHA: {sha}")
        if status["state"] not in ("error", "failure", "pending", "success"):
            raise Answer(422, "Validation Failed", errors=["state is not included in the list"])
        if len(status.get("description") or "") > 140:
            raise Answer(422, "Validation Failed", errors=["description is too long (maximum is 140 characters)"])
        if not (status.get("target_url") or "https://").startswith(("http://", "https://")):
            raise Answer(422, "Validation Failed", errors=["target_url must use http(s) scheme"])
        others = [old for old in self.statuses.get(sha, []) if old["context"] != status["context"]]
        at = self.now()
        made = {"target_url": None, "description": None, "created_at": at, "updated_at": at, **status}
        self.statuses[sha] = [*others, made]
        self.auto_merge_all()
        return made

    def auto_merge_all(self) -> None:
        """Merge every pull request that waits for its rules, and everything in the merge queue."""
        for pull in self.pulls.values():
            if pull.state == "open" and (pull.auto_merge or pull.queued) and not self.hindrance(pull):
                self.do_merge(pull, pull.auto_merge or "merge", pull.later)

    # --- pull requests ---------------------------------------------------------------------------------------

    def create(self, head: str, base: str, title: str, body: str, *, draft: bool = False) -> Pull:
        head = head.rpartition(":")[2]
        if any(one.state == "open" and (one.head, one.base) == (head, base) for one in self.pulls.values()):
            raise Answer(422, "Validation Failed", errors=[f"A pull request already exists for {self.owner}:{head}."])
        if not (sha := self.tip(head)):
            raise Answer(422, "Validation Failed", errors=["head is invalid"])
        if not self.git("rev-list", "--max-count=1", f"refs/heads/{base}..{sha}"):
            raise Answer(422, "Validation Failed", errors=[f"No commits between {base} and {head}"])
        if draft and not self.drafts_allowed:
            raise Answer(422, "Draft pull requests are not supported in this repository.")
        if len(body) > LONGEST_BODY:
            raise Answer(422, "Validation Failed", errors=[f"body is too long (maximum is {LONGEST_BODY} characters)"])
        number = next(self._numbers)
        pull = Pull(
            number=number, head=head, base=base, title=title, body=body, draft=draft, sha=sha, unknown=self.nulls
        )
        self.pulls[number] = pull
        self.keep(pull)
        return pull

    def retarget(self, pull: Pull, base: str) -> None:
        if pull.state != "open":
            raise Answer(422, "Validation Failed", errors=["Cannot change the base branch of a closed pull request."])
        if not self.tip(base):
            raise Answer(422, "Validation Failed", errors=[f"Proposed base branch '{base}' was not found"])
        if not self.git("rev-list", "--max-count=1", f"refs/heads/{base}..{pull.sha}"):
            error = f"There are no new commits between base branch '{base}' and head branch '{pull.head}'"
            raise Answer(422, "Validation Failed", errors=[error])
        pull.base, pull.unknown = base, self.nulls

    def keep(self, pull: Pull) -> None:
        """Name the head of the pull request; the name stays when its branch is deleted."""
        self.git("update-ref", f"refs/pull/{pull.number}/head", pull.sha)

    def review(
        self,
        number: int,
        text: str,
        *,
        path: str = "",
        line: int = 0,
        by: str = "reviewer",
        state: str = "COMMENTED",
        thread: int = 0,
    ) -> int:
        """A review, or a comment on a line, which begins a thread or replies to the comment that did; its id."""
        pull, id_ = self.pulls[number], self.new_id()
        made: dict[str, Any] = {"id": id_, "body": text, "user": {"id": 8, "login": by, "type": "User"}}
        if thread:
            root = next(comment for comment in pull.comments if comment["id"] == thread)
            pull.comments.append(made | {"path": root["path"], "line": root["line"], "in_reply_to_id": thread})
        elif path:
            pull.comments.append(made | {"path": path, "line": line})
        else:
            pull.reviews.append(made | {"state": state})
            pull.requested.discard(by)
        return id_

    def approve(self, number: int) -> None:
        self.review(number, "", state="APPROVED")

    def dismiss(self, number: int) -> None:
        """Dismiss every review that asks for changes."""
        for review in self.pulls[number].reviews:
            if review["state"] == "CHANGES_REQUESTED":
                review["state"] = "DISMISSED"

    def opinions(self, pull: Pull) -> dict[str, str]:
        """The newest opinion of each reviewer with write access."""
        said = ((review["user"]["login"], review["state"]) for review in pull.reviews)
        return {login: state for login, state in said if state != "COMMENTED" and self.may_write(login)}

    def request_reviews(self, pull: Pull, users: list[str], teams: list[str]) -> None:
        if any(user == pull.author for user in users):
            raise Answer(422, "Review cannot be requested from pull request author.")
        if set(users) - self.permissions.keys() or set(teams) - self.teams:
            named = "One or more of the users or teams you specified is not a collaborator of the"
            said = f"Reviews may only be requested from collaborators. {named} {self.owner}/{self.name} repository."
            raise Answer(422, said)
        pull.requested.update(users, teams)
        pull.review_requests += [*users, *teams]

    def mark_ready(self, pull: Pull) -> None:
        if not pull.draft:
            raise Answer(422, "Pull request is not a draft")
        pull.draft = False

    def set_draft(self, *, is_draft: bool) -> None:
        for pull in self.pulls.values():
            pull.draft = is_draft

    def conflicts(self, pull: Pull) -> bool:
        merged = subprocess.run(
            ["git", "--git-dir", str(self.bare), "merge-tree", "--write-tree", f"refs/heads/{pull.base}", pull.sha],
            capture_output=True,
            check=False,
        )
        return merged.returncode == 1

    def behind(self, pull: Pull) -> bool:
        return self.git("rev-list", "--max-count=1", f"{pull.sha}..refs/heads/{pull.base}") != ""

    def hindrance(self, pull: Pull) -> str:
        """Why the rules do not allow the merge now, in GitHub's words; "" when they do."""
        if pull.draft:
            return "Pull Request is still a draft"
        if self.conflicts(pull):
            return "Pull Request is not mergeable"
        good = {run["name"] for run in self.runs.get(pull.sha, []) if run["conclusion"] == "success"}
        good |= {one["context"] for one in self.statuses.get(pull.sha, []) if one["state"] == "success"}
        for name in self.required:
            if name not in good:
                return f'Required status check "{name}" is expected.'
        opinions = list(self.opinions(pull).values())
        if self.reviews and (opinions.count("APPROVED") < self.reviews or "CHANGES_REQUESTED" in opinions):
            return "At least 1 approving review is required by reviewers with write access."
        if self.strict and self.behind(pull):
            return "Head branch is out of date"
        if self.resolution:
            return "A conversation must be resolved before this pull request can be merged."
        return ""

    def merge_state(self, pull: Pull) -> tuple[bool | None, str]:
        if pull.state != "open":
            return None, "unknown"
        if pull.unknown > 0:
            pull.unknown -= 1
            return None, "unknown"
        if self.conflicts(pull):
            return False, "dirty"
        if pull.draft:
            return True, "draft"
        if self.strict and self.behind(pull):
            return True, "behind"
        if self.hindrance(pull):
            return True, "blocked"
        states = {run["conclusion"] for run in self.runs.get(pull.sha, [])}
        return True, "clean" if states <= {"success", "neutral", "skipped"} else "unstable"

    def merge(self, pull: Pull, method: str, sha: str, message: str) -> str:
        if pull.state != "open":
            raise Answer(405, "Pull Request is not mergeable")
        if sha and sha != pull.sha:
            raise Answer(409, "Head branch was modified. Review and try the merge again.")
        if self.merge_queue:
            raise Answer(405, "Repository rule violations found\n\nChanges must be made through the merge queue")
        if method not in self.methods:
            raise Answer(405, f"{method.capitalize()} merges are not allowed on this repository.")
        if method in self.refused:  # docs.github.com/en/rest/pulls/pulls#merge-a-pull-request: 405 has any words
            raise Answer(405, "This branch can't be rebased")
        if self.linear and method == "merge":
            raise Answer(405, "This branch must not contain merge commits.")
        for rule in self.rulesets:
            if method not in rule.get("parameters", {}).get("allowed_merge_methods", [method]):
                raise Answer(405, f"Repository rule violations found\n\nThe merge method {method} is not allowed")
        if why := self.hindrance(pull):
            raise Answer(405, why)
        return self.do_merge(pull, method, message)

    def do_merge(self, pull: Pull, method: str, message: str = "") -> str:
        base = self.tip(pull.base)
        tree = self.git("merge-tree", "--write-tree", base, pull.sha).splitlines()[0]
        parents = ["-p", base] if method == "squash" else ["-p", base, "-p", pull.sha]
        if method == "rebase":
            new = self.rebased(pull.sha, base)
        else:
            new = self.git("commit-tree", tree, *parents, "-m", message or f"{pull.title} (#{pull.number})")
        self.git("update-ref", f"refs/heads/{pull.base}", new, base)
        pull.state, pull.merged, pull.merge_commit, pull.closed_at = "closed", True, new, self.now()
        self.merges += 1
        for number, issue in self.issues.items():
            if pull.base == self.default_branch and f"fixes #{number}" in pull.body.lower():
                issue.state, issue.state_reason = "closed", "completed"
        if self.delete_branch_on_merge:
            self.git("update-ref", "-d", f"refs/heads/{pull.head}")
            # docs.github.com/en/repositories/configuring-branches-and-merges-in-your-repository/
            # managing-branches-in-your-repository/deleting-and-restoring-branches-in-a-pull-request
            for above in self.pulls.values():
                if above.state == "open" and above.base == pull.head:
                    above.base, above.unknown = pull.base, self.nulls
        return new

    def rebased(self, head: str, onto: str) -> str:
        """The commits of a branch without merges, made again on another one, unless they conflict there."""
        # docs.github.com/en/pull-requests/collaborating-with-pull-requests/incorporating-changes-from-a-pull-request/
        # about-pull-request-merges#rebasing-and-merging
        for commit in self.git("rev-list", "--reverse", "--no-merges", f"{onto}..{head}").split():
            ours = self.git("commit-tree", f"{onto}^{{tree}}", "-p", f"{commit}~", "-m", "temporary")
            tree, *conflicts = self.git("merge-tree", "--write-tree", ours, commit, ok=(0, 1)).splitlines()
            if conflicts:
                raise Answer(405, "This branch can't be rebased")
            onto = self.git("commit-tree", tree, "-p", onto, "-m", self.git("log", "-1", "--format=%B", commit))
        return onto

    def enqueue(self, pull: Pull) -> None:
        if not self.merge_queue:
            raise Answer(422, "The base branch has no merge queue")
        if pull.queued:
            raise Answer(422, "Pull request is already in the queue")
        pull.queued = True
        self.auto_merge_all()

    def enable_auto_merge(self, pull: Pull, method: str, sha: str, message: str) -> None:
        if not self.allow_auto_merge:
            raise Answer(422, "Auto merge is not allowed for this repository")
        if sha and sha != pull.sha:
            raise Answer(422, "Head sha is out of date")
        if not self.hindrance(pull):
            raise Answer(422, "Pull request Pull request is in clean status")
        pull.auto_merge, pull.later = method.lower(), message

    # --- issues ------------------------------------------------------------------------------------------------

    def add_issue(self, title: str, body: str = "", *labels: str, by: str = "reporter", labeller: str = "") -> Issue:
        """An issue; a template of the repository labels it in the name of its author."""
        number, at = next(self._numbers), self.now()
        made = [{"label": label, "actor": labeller or by, "at": at} for label in labels]
        self.issues[number] = Issue(
            number=number, title=title, body=body, labels=list(labels), author=by, labelled=made
        )
        return self.issues[number]

    def comment(self, number: int, text: str, *, by: str = "bob", at: str = "") -> int:
        """A comment of another person on an issue or a pull request; its id."""
        user, at, id_ = {"id": 9, "login": by, "type": "User"}, at or self.now(), self.new_id()
        self.comments_of(number).append({"id": id_, "body": text, "user": user, "updated_at": at})
        return id_

    def new_id(self) -> int:
        """The id of a review or comment that is written now."""
        id_ = next(self.comment_numbers)
        self.written[id_] = self.now()
        return id_

    def drop_issue(self, number: int, *, by: str = "bob") -> None:
        """A person closes the issue without a solution."""
        issue = self.issues[number]
        issue.state, issue.state_reason, issue.closed_by = "closed", "not_planned", by

    def edit_text(self, number: int, text: str) -> None:
        self.issues[number].body = text

    def reopen(self, number: int, *, by: str = "bob") -> None:
        """Open the issue again, a while after it was closed."""
        later = datetime.now(UTC) + timedelta(seconds=2)
        self.issues[number].state, self.issues[number].state_reason = "open", "reopened"
        self.issues[number].reopened.append({"actor": by, "at": self.now(later)})

    def now(self, at: datetime | None = None) -> str:
        """The time as GitHub writes it."""
        return f"{at or datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"

    def find_comment(self, id_: int) -> dict[str, Any]:
        """The comment on any issue or pull request."""
        every = (comment for place in (self.issues, self.pulls) for one in place.values() for comment in one.comments)
        found = next((comment for comment in every if comment["id"] == id_), None)
        if found is None:
            raise self.not_found
        return found

    def comments_of(self, number: int) -> list[dict[str, Any]]:
        where = self.issues.get(number) or self.pulls.get(number)
        if where is None:
            raise self.not_found
        return where.comments
