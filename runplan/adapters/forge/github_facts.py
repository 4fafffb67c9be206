"""The queries of the GitHub client, and the answers of GraphQL and PyGithub as plain values of a forge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runplan.adapters.forge import protocol as m
from runplan.domain.times import parse_iso

if TYPE_CHECKING:
    from github.CheckRun import CheckRun
    from github.Issue import Issue
    from github.NamedUser import NamedUser
    from github.Organization import Organization
    from github.PullRequest import PullRequest
    from github.WorkflowJob import WorkflowJob
    from github.WorkflowRun import WorkflowRun


Node = Mapping[str, Any]  #: an object of an answer
GOOD = ("success", "neutral", "skipped")  #: conclusions of a check run that do not block
WITHDRAWN = ("PENDING", "DISMISSED")  #: states of a review that is not submitted, or counts no more
#: The rollup has check runs and commit statuses. The first comment of a thread is the one that takes replies.
ACTIVITY = """
query(
  $owner: String!, $name: String!, $number: Int!, $head: GitObjectID!,
  $contexts: String, $reviews: String, $reviewThreads: String, $comments: String
) {
  repository(owner: $owner, name: $name) {
    object(oid: $head) { ... on Commit { statusCheckRollup {
      contexts(first: 100, after: $contexts) {
        pageInfo { hasNextPage endCursor }
        nodes {
          ... on CheckRun { name status conclusion url summary startedAt completedAt checkSuite { id } }
          ... on StatusContext { context state targetUrl description createdAt }
        }
      }
    } } }
    pullRequest(number: $number) {
      state
      reviews(first: 100, after: $reviews) {
        pageInfo { hasNextPage endCursor }
        nodes { fullDatabaseId state body createdAt author { login } }
      }
      reviewThreads(first: 100, after: $reviewThreads) {
        pageInfo { hasNextPage endCursor }
        nodes {
          isResolved path startLine line
          root: comments(first: 1) { nodes { fullDatabaseId } }
          comments(last: 100) { nodes { fullDatabaseId state body createdAt author { login } } }
        }
      }
      comments(first: 100, after: $comments) {
        pageInfo { hasNextPage endCursor }
        nodes { fullDatabaseId body createdAt author { login } }
      }
    }
  }
}"""
MERGE_STATES = {"behind": m.MergeState.BEHIND, "blocked": m.MergeState.BLOCKED, "dirty": m.MergeState.CONFLICT}
#: What decides about a merge, in one call. `refUpdateRule` is what classic protection shows to everybody.
TARGET = """
query($owner: String!, $name: String!, $branch: String!, $ref: String!, $number: Int!, $isOpen: Boolean!) {
  repository(owner: $owner, name: $name) {
    mergeCommitAllowed squashMergeAllowed rebaseMergeAllowed autoMergeAllowed
    ref(qualifiedName: $ref) {
      target { oid ... on Commit { statusCheckRollup { state } } }
      refUpdateRule {
        requiresLinearHistory requiredStatusCheckContexts requiredApprovingReviewCount
        requiresCodeOwnerReviews requiresConversationResolution requiresSignatures
      }
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
#: Further rules in words, by the field of classic protection, the parameter of a ruleset's rule, or the type of a rule:
#: docs.github.com/en/rest/repos/rules. Rules about the names of branches, tags or files hold back no merge.
RULES = {
    **dict.fromkeys(("requiresConversationResolution", "required_review_thread_resolution"), "resolved conversations"),
    **dict.fromkeys(("requiresCodeOwnerReviews", "require_code_owner_review"), "a review of a code owner"),
    "require_last_push_approval": "an approval of the last push",
    **dict.fromkeys(("requiresSignatures", "required_signatures"), "signed commits"),
    "required_deployments": "successful deployments",
    "code_scanning": "results of code scanning",
    "workflows": "required workflows",
}
#: Who wrote and labelled an issue, and when its text was changed last.
HISTORY = """
fragment history on Issue {
  author { login }
  editor { login }
  lastEditedAt
  timelineItems(itemTypes: [LABELED_EVENT, RENAMED_TITLE_EVENT], last: 100) {
    nodes {
      ... on LabeledEvent { createdAt actor { login } label { name } }
      ... on RenamedTitleEvent { createdAt actor { login } }
    }
  }
}"""
ISSUE = f"""
query($owner: String!, $name: String!, $number: Int!) {{
  repository(owner: $owner, name: $name) {{
    issue(number: $number) {{
      ...history
      reopened: timelineItems(itemTypes: [REOPENED_EVENT], last: 10) {{
        nodes {{ ... on ReopenedEvent {{ createdAt actor {{ login }} }} }}
      }}
    }}
  }}
}}{HISTORY}"""
ISSUES = f"""
query($owner: String!, $name: String!, $label: String!, $cursor: String) {{
  repository(owner: $owner, name: $name) {{
    issues(
      first: 100, after: $cursor, labels: [$label], states: OPEN, orderBy: {{field: CREATED_AT, direction: ASC}}
    ) {{
      pageInfo {{ hasNextPage endCursor }}
      nodes {{ number title body url ...history }}
    }}
  }}
}}{HISTORY}"""


def list_nodes(parent: Node | None, field: str) -> list[Any]:
    """The nodes of a connection of GraphQL, without those that the token may not read."""
    return [node for node in ((parent or {}).get(field) or {}).get("nodes") or () if node]


def author_login(author: Mapping[str, str] | None) -> str:
    return author["login"] if author else m.GHOST


def to_pull_request(pull: PullRequest) -> m.PullRequest:
    facts = pull.raw_data
    state = MERGE_STATES.get(facts.get("mergeable_state") or "", m.MergeState.READY)
    if facts.get("mergeable") is None and state not in (m.MergeState.BEHIND, m.MergeState.CONFLICT):
        state = m.MergeState.UNKNOWN
    return m.PullRequest(
        number=pull.number,
        url=pull.html_url,
        is_open=pull.state == "open",
        is_merged=pull.merged if "merged" in facts else pull.merged_at is not None,
        head=pull.head.sha,
        base=pull.base.ref,
        title=pull.title,
        body=pull.body or "",
        draft=pull.draft,
        state=state,
        merge_commit=(pull.merge_commit_sha or "") if pull.merged_at else "",
        auto_merge=facts.get("auto_merge") is not None,
        can_rebase=facts.get("rebaseable") is not False,
        merge_message=(facts.get("auto_merge") or {}).get("commit_message") or "",
        ended=pull.closed_at.timestamp() if pull.closed_at else 0.0,
    )


def run_state(run: CheckRun | WorkflowJob | WorkflowRun) -> str:
    """The state of a commit status that says the same."""
    if run.status != "completed":
        return "pending"
    return "success" if run.conclusion in GOOD else "failure"


def user_login(user: NamedUser | Organization | None) -> str:
    return user.login if user else m.GHOST


def to_issue(issue: Issue) -> m.Issue:
    return m.Issue(
        number=issue.number,
        title=issue.title,
        body=issue.body or "",
        is_open=issue.state == "open",
        url=issue.html_url,
        author=user_login(issue.user),
        closed_as=issue.state_reason or "",
        closed_by=issue.closed_by.login if issue.closed_by else "",
    )


def is_trusted(issue: Node, label: str, may_write: Callable[[str], bool]) -> bool:
    if may_write(author_login(issue.get("author"))):
        return True
    events = list_nodes(issue, "timelineItems")
    labelled = [event for event in events if event.get("label", {}).get("name", "").lower() == label.lower()]
    if not labelled:
        return False
    edits = [(issue.get("lastEditedAt") or "", issue.get("editor"))]
    edits += [(event["createdAt"], event["actor"]) for event in events if "label" not in event]
    later = [editor for when, editor in edits if when >= labelled[-1]["createdAt"]]
    return all(may_write(author_login(account)) for account in (labelled[-1]["actor"], *later))


def to_checks(pages: Sequence[Node]) -> tuple[m.PullCheck, ...]:
    """The checks; of one that ran again the newest run, as REST shows it."""
    rollups = ((page.get("object") or {}).get("statusCheckRollup") for page in pages)
    nodes = [node for rollup in rollups for node in list_nodes(rollup, "contexts")]
    ordered = sorted(nodes, key=lambda node: node.get("startedAt") or "~")  # one that waits has not begun
    newest = {(node.get("name"), str(node.get("checkSuite")), node.get("context")): node for node in ordered}
    checks = []
    for node in newest.values():
        is_status = "context" in node
        is_over = node.get("state") not in ("PENDING", "EXPECTED") if is_status else node["status"] == "COMPLETED"
        is_good = node.get("state") == "SUCCESS" or (node.get("conclusion") or "").lower() in GOOD
        changed = node.get("completedAt") or node.get("startedAt") or node.get("createdAt")
        check = m.PullCheck(
            name=node.get("context") or node.get("name") or "",
            state=(m.CheckState.PASSED if is_good else m.CheckState.FAILED) if is_over else m.CheckState.PENDING,
            url=node.get("url") or node.get("targetUrl") or "",
            summary=node.get("summary") or node.get("description") or "",
            changed=parse_iso(changed).timestamp() if changed else 0.0,
        )
        checks += [check] if check.name != m.STATUS else []
    return tuple(checks)


def to_messages(pages: Sequence[Node]) -> tuple[m.PullMessage, ...]:
    """The messages, oldest first; without threads that a person resolved, and reviews that were withdrawn."""
    pulls = [page.get("pullRequest") for page in pages]
    messages = []
    for review in (node for pull in pulls for node in list_nodes(pull, "reviews")):
        is_empty = review["state"] == "COMMENTED" and not review["body"]  # its line comments say it
        if review["state"] not in WITHDRAWN and not is_empty:
            messages.append(_to_message("review", review, is_approval=review["state"] == "APPROVED"))
    for thread in (node for pull in pulls for node in list_nodes(pull, "reviewThreads") if not node["isResolved"]):
        first = f"{thread['startLine']}-" if thread["startLine"] else ""
        place = f"{thread['path']}:{first}{thread['line']}" if thread["line"] else thread["path"]  # it may have changed
        roots = [node["fullDatabaseId"] for node in list_nodes(thread, "root")]
        comments = (node for node in list_nodes(thread, "comments") if node["state"] not in WITHDRAWN)
        messages += [_to_message("line", node, place=place, thread=f"{roots[0]}") for node in comments]
    messages += [_to_message("comment", node) for pull in pulls for node in list_nodes(pull, "comments")]
    return tuple(sorted(messages, key=lambda message: message.changed))


def _to_message(kind: str, node: Node, **more: Any) -> m.PullMessage:
    id_ = f"{kind} {node['fullDatabaseId']}"
    changed = parse_iso(node["createdAt"]).timestamp()
    return m.PullMessage(id=id_, author=author_login(node["author"]), text=node["body"], changed=changed, **more)
