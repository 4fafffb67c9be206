"""A forge: the pull requests, checks and issues of one repository, on any host."""

from collections.abc import Sequence
from typing import Protocol

from runplan.adapters.forge import model as m
from runplan.domain.gitfacts import Oid


class IssueTracker(Protocol):
    """The issues of a forge, all that a watch of issues and a claim need; comments of pull requests are among them."""

    def read_issue(self, number: int) -> m.Issue: ...
    def list_issues(self, label: str) -> tuple[m.Issue, ...]:
        """The open issues with this label, oldest first."""

    def is_issue_trusted(self, number: int, label: str) -> bool:
        """Whether its author may write, or the account that set this label and every later editor of the text."""

    def find_reopening(self, number: int) -> float:
        """When an account that may write reopened the issue last, in seconds since the epoch; 0.0 for never."""

    def close_issue(self, number: int) -> None: ...
    def label_issue(self, number: int, *, add: str = "", remove: str = "") -> None: ...
    def assign_issue(self, number: int, *, is_assigned: bool) -> None:
        """Assign the issue to the owner of the token, or take it back."""

    def list_comments(self, number: int) -> tuple[m.Comment, ...]: ...
    def put_comment(self, number: int, *, marker: str, text: str, is_pull: bool = False) -> None:
        """Comment on an issue or pull request, once per marker; a later text replaces it.

        GitLab counts the two apart. A comment of another account with this marker is not ours, and stays.
        """

    def may_write(self, login: str) -> bool:
        """Whether this account may push to the repository."""


class Forge(IssueTracker, Protocol):
    """Every write may be repeated after a lost answer: it reads first what has happened.

    A method raises NotAllowed, NotThere, RateLimited or Unreachable.
    """

    @property
    def address(self) -> m.Address: ...
    @property
    def token_source(self) -> str:
        """The variable or program that gave the token, for messages."""

    @property
    def own_login(self) -> str:
        """The account of the token."""

    def git_settings(self) -> tuple[str, ...]:
        """Settings with which git signs in to this host alone; for its environment, never for its arguments."""

    # --- the repository -----------------------------------------------------------------------------------

    def read_repository(self) -> m.ForgeRepository: ...
    def require_may_open(self, base: str) -> None:
        """Raise NotAllowed for a token that may not open pull requests."""

    def read_target(self, branch: str, *, number: int = 0) -> m.Target:
        """The settings and rules for merges into a branch; with a number also the objections to that pull request."""

    def file_url(self, path: str, ref: str) -> str:
        """The web address of a file on a branch or at a commit; sends no request."""

    # --- pull requests --------------------------------------------------------------------------------------

    def find_pull_request(self, *, branch: str, base: str) -> m.PullRequest | None:
        """The newest pull request of this branch, open or not, wherever it leads."""

    def list_merged(self, branch: str) -> tuple[m.PullRequest, ...]:
        """The newest merged pull requests of this branch, newest first."""

    def create_pull_request(
        self, *, branch: str, base: str, title: str, body: str, draft: bool = False
    ) -> m.PullRequest:
        """Open a pull request, or adopt the open one of this branch; a draft only where the forge allows drafts."""

    def mark_ready(self, number: int) -> None:
        """End the draft state; nothing happens to a pull request that is no draft."""

    def add_people(
        self, number: int, *, labels: Sequence[str], assignees: Sequence[str], reviewers: Sequence[str]
    ) -> tuple[str, ...]:
        """Label and assign a pull request and ask for reviews, also of `org/team`; remarks on what was refused."""

    def read_pull_request(self, number: int) -> m.PullRequest: ...
    def edit_pull_request(self, number: int, *, body: str) -> None: ...
    def retarget(self, number: int, base: str) -> None:
        """Have an open pull request lead to another branch."""

    def merge_pull_request(self, number: int, how: m.Merge) -> Oid | m.NotMerged:
        """The merge commit, or why there is none."""

    def merge_later(self, number: int, how: m.Merge, *, queue: bool) -> m.NotMerged | None:
        """Ask the forge to merge as soon as its rules allow: auto-merge, or its merge queue."""

    def cancel_merge(self, number: int) -> None:
        """Take back the request for auto-merge."""

    def list_open_files(self, base: str) -> dict[int, tuple[str, ...]]:
        """The files that each open pull request changes; of the newest ones, where there are very many."""

    def read_activity(self, number: int, head: Oid) -> m.Activity:
        """The checks of the head and the messages of a pull request, by one call; without the status of runplan."""

    def answer_message(self, number: int, message: m.PullMessage, *, marker: str, text: str) -> None:
        """Answer in the thread of a message, else by a comment; once per marker, as `put_comment`."""

    def react_to(self, number: int, message: str) -> None:
        """Show by 👀 that the message with this id was seen; nothing where the forge has no reactions to its kind."""

    def request_review(self, number: int, logins: Sequence[str]) -> None:
        """Ask these accounts for a new review; one that the forge refuses is left out."""

    # --- checks -----------------------------------------------------------------------------------------------

    def list_checks(self, head: Oid) -> tuple[m.PullCheck, ...]:
        """The checks of a commit, without the status that runplan sets."""

    def set_status(self, head: Oid, *, state: m.CheckState, text: str, url: str) -> None:
        """Set runplan's own commit status; the forge shows the first 140 characters of the text."""

    def read_failure_log(self, head: Oid) -> str:
        """The end of the logs of failed checks, bounded."""
