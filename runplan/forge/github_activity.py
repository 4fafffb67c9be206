"""Checks and messages of a pull request on GitHub: one query for all of them, and its answer as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runplan.forge import model as m
from runplan.times import parse_iso

GOOD = ("success", "neutral", "skipped")  #: conclusions of a check run that do not block
GHOST = "ghost"  #: as GitHub shows an account that was deleted
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
      reviews(first: 100, after: $reviews) {
        pageInfo { hasNextPage endCursor }
        nodes { fullDatabaseId state body createdAt author { login } }
      }
      reviewThreads(first: 100, after: $reviewThreads) {
        pageInfo { hasNextPage endCursor }
        nodes {
          isResolved path line
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


def list_nodes(parent: Mapping[str, Any] | None, field: str) -> list[Any]:
    """The nodes of a connection of GraphQL, without those that the token may not read."""
    return [node for node in ((parent or {}).get(field) or {}).get("nodes") or () if node]


def author_login(author: Mapping[str, str] | None) -> str:
    return author["login"] if author else GHOST


def next_cursors(page: Mapping[str, Any], cursors: Mapping[str, str]) -> dict[str, str] | None:
    """Where the next page of each connection begins, behind the last one where there is none; None after all."""
    rollup = (page.get("object") or {}).get("statusCheckRollup") or {}
    connections = {**(page.get("pullRequest") or {}), **rollup}
    infos = {name: (connections.get(name) or {}).get("pageInfo") or {} for name in cursors}
    if not any(info.get("hasNextPage") for info in infos.values()):
        return None
    return {name: info.get("endCursor") or cursors[name] for name, info in infos.items()}


def to_checks(pages: Sequence[Mapping[str, Any]]) -> tuple[m.Check, ...]:
    """The checks; of one that ran again the newest run, as REST shows it."""
    rollups = ((page.get("object") or {}).get("statusCheckRollup") for page in pages)
    nodes = [node for rollup in rollups for node in list_nodes(rollup, "contexts")]
    ordered = sorted(nodes, key=lambda node: node.get("startedAt") or "~")  # one that waits has not begun
    newest = {(node.get("name"), str(node.get("checkSuite")), node.get("context")): node for node in ordered}
    return tuple(check for check in map(_to_check, newest.values()) if check.name != m.STATUS)


def _to_check(node: Mapping[str, Any]) -> m.Check:
    conclusion = (node.get("conclusion") or "").lower()
    is_over = node.get("state") not in ("PENDING", "EXPECTED") if "context" in node else node["status"] == "COMPLETED"
    is_good = node.get("state") == "SUCCESS" or conclusion in GOOD
    changed = node.get("completedAt") or node.get("startedAt") or node.get("createdAt")
    return m.Check(
        name=node.get("context") or node.get("name") or "",
        state=(m.CheckState.PASSED if is_good else m.CheckState.FAILED) if is_over else m.CheckState.PENDING,
        url=node.get("url") or node.get("targetUrl") or "",
        summary=node.get("summary") or node.get("description") or "",
        changed=parse_iso(changed).timestamp() if changed else 0.0,
    )


def to_messages(pages: Sequence[Mapping[str, Any]]) -> tuple[m.Message, ...]:
    """The messages, oldest first; without threads that a person resolved, and reviews that were withdrawn."""
    pulls = [page.get("pullRequest") for page in pages]
    reviews = (_to_review(node) for pull in pulls for node in list_nodes(pull, "reviews"))
    threads = (node for pull in pulls for node in list_nodes(pull, "reviewThreads") if not node["isResolved"])
    lines = (message for thread in threads for message in _to_lines(thread))
    comments = (_to_message("comment", node) for pull in pulls for node in list_nodes(pull, "comments"))
    messages = [message for message in (*reviews, *lines, *comments) if message is not None]
    return tuple(sorted(messages, key=lambda message: message.changed))


def _to_review(node: Mapping[str, Any]) -> m.Message | None:
    state = node["state"]
    if state in WITHDRAWN or (state == "COMMENTED" and not node["body"]):  # its line comments say it
        return None
    return _to_message("review", node, is_objection=state == "CHANGES_REQUESTED", is_approval=state == "APPROVED")


def _to_lines(thread: Mapping[str, Any]) -> list[m.Message]:
    place = f"{thread['path']}:{thread['line']}" if thread["line"] else thread["path"]  # the line may have changed
    roots = [node["fullDatabaseId"] for node in list_nodes(thread, "root")]
    comments = (node for node in list_nodes(thread, "comments") if node["state"] not in WITHDRAWN)
    return [_to_message("line", node, place=place, thread=f"{roots[0]}") for node in comments]


def _to_message(kind: str, node: Mapping[str, Any], **more: Any) -> m.Message:
    return m.Message(
        id=f"{kind} {node['fullDatabaseId']}",
        author=author_login(node["author"]),
        text=node["body"],
        changed=parse_iso(node["createdAt"]).timestamp(),
        **more,
    )
