"""The queries of the GitHub client, and the objects of PyGithub as values of a forge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runplan.forge import model as m
from runplan.forge.github_activity import GHOST, list_nodes

if TYPE_CHECKING:
    from github.Issue import Issue
    from github.NamedUser import NamedUser
    from github.Organization import Organization
    from github.PullRequest import PullRequest

MERGE_STATES = {"behind": m.MergeState.BEHIND, "blocked": m.MergeState.BLOCKED, "dirty": m.MergeState.CONFLICT}
#: What decides about a merge, in one call. `refUpdateRule` is what classic protection shows to everybody.
TARGET = """
query($owner: String!, $name: String!, $branch: String!, $ref: String!, $number: Int!, $isOpen: Boolean!) {
  repository(owner: $owner, name: $name) {
    mergeCommitAllowed squashMergeAllowed rebaseMergeAllowed autoMergeAllowed
    ref(qualifiedName: $ref) {
      refUpdateRule { requiresLinearHistory requiredStatusCheckContexts requiredApprovingReviewCount }
    }
    pullRequests(states: MERGED, baseRefName: $branch, first: 5, orderBy: {field: UPDATED_AT, direction: DESC}) {
      nodes { commits(last: 1) { nodes { commit { statusCheckRollup { contexts(first: 100) {
        nodes { ... on CheckRun { name } ... on StatusContext { context } }
      } } } } } }
    }
    pullRequest(number: $number) @include(if: $isOpen) {
      latestOpinionatedReviews(first: 100, writersOnly: true) { nodes { state author { login } } }
    }
  }
}"""
#: Who wrote, labelled and reopened an issue, and when its text was changed last.
ISSUE = """
query($owner: String!, $name: String!, $number: Int!) {
  repository(owner: $owner, name: $name) {
    issue(number: $number) {
      author { login }
      editor { login }
      lastEditedAt
      timelineItems(itemTypes: [LABELED_EVENT, RENAMED_TITLE_EVENT], last: 100) {
        nodes {
          ... on LabeledEvent { createdAt actor { login } label { name } }
          ... on RenamedTitleEvent { createdAt actor { login } }
        }
      }
      reopened: timelineItems(itemTypes: [REOPENED_EVENT], last: 10) {
        nodes { ... on ReopenedEvent { createdAt actor { login } } }
      }
    }
  }
}"""


def to_pull_request(pull: PullRequest) -> m.PullRequest:
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
        state=_merge_state(pull.raw_data),
        merge_commit=(pull.merge_commit_sha or "") if pull.merged_at else "",
        auto_merge=pull.raw_data.get("auto_merge") is not None,
        merge_message=(pull.raw_data.get("auto_merge") or {}).get("commit_message") or "",
        ended=pull.closed_at.timestamp() if pull.closed_at else 0.0,
    )


def _merge_state(facts: Mapping[str, Any]) -> m.MergeState:
    state = MERGE_STATES.get(facts.get("mergeable_state") or "", m.MergeState.READY)
    is_final = state in (m.MergeState.BEHIND, m.MergeState.CONFLICT)
    return m.MergeState.UNKNOWN if facts.get("mergeable") is None and not is_final else state


def check_names(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the checks of the newest merged pull requests."""
    commits = (node["commit"] for pull in list_nodes(facts, "pullRequests") for node in list_nodes(pull, "commits"))
    checks = (check for commit in commits for check in list_nodes(commit.get("statusCheckRollup"), "contexts"))
    return tuple(dict.fromkeys(check.get("name") or check.get("context") or "" for check in checks))


def user_login(user: NamedUser | Organization | None) -> str:
    return user.login if user else GHOST


def to_issue(issue: Issue) -> m.Issue:
    return m.Issue(
        number=issue.number,
        title=issue.title,
        body=issue.body or "",
        is_open=issue.state == "open",
        url=issue.html_url,
        author=user_login(issue.user),
    )
