"""The answer of the stand-in to the query for the activity of a pull request."""

from collections.abc import Sequence
from typing import Any

from tests.support.github.hub import Hub, Pull

PAGE = 100  #: nodes of a connection in one answer
FORBIDDEN = [{"type": "FORBIDDEN", "message": "Resource not accessible by personal access token"}]


def activity(hub: Hub, values: dict[str, Any]) -> dict[str, Any]:
    pull = hub.pulls[values["number"]]
    contexts = [_check_run(number, run) for number, run in enumerate(hub.runs.get(values["head"], []), 1)]
    contexts += [_status(status, hub) for status in hub.statuses.get(values["head"], [])]
    reviews = [_said(hub, review) | {"state": review["state"]} for review in pull.reviews]
    comments = [_said(hub, comment) for comment in pull.comments if "path" not in comment]
    shown = {"reviews": reviews, "reviewThreads": _threads(hub, pull), "comments": comments}
    rollup = {"contexts": page(contexts, values["contexts"])} if contexts else None
    repository = {
        "object": {"statusCheckRollup": rollup},
        "pullRequest": {"state": "MERGED" if pull.merged else pull.state.upper()}
        | {name: page(nodes, values[name]) for name, nodes in shown.items()},
    }
    if hub.hides_checks:
        repository["object"] = None
    return {"data": {"repository": repository}} | ({"errors": FORBIDDEN} if hub.hides_checks else {})


def page(nodes: Sequence[Any], cursor: str | None) -> dict[str, Any]:
    """Behind the last page GitHub answers with no nodes and without a cursor."""
    begin = int(cursor or 0)
    shown = nodes[begin : begin + PAGE]
    info = {"hasNextPage": begin + PAGE < len(nodes), "endCursor": f"{begin + len(shown)}" if shown else None}
    return {"pageInfo": info, "nodes": list(shown)}


def _said(hub: Hub, made: dict[str, Any]) -> dict[str, Any]:
    author = {"login": made["user"]["login"]} if made["user"] else None
    return {
        "fullDatabaseId": f"{made['id']}",
        "body": made["body"],
        "author": author,
        "createdAt": hub.written[made["id"]],
    }


def _threads(hub: Hub, pull: Pull) -> list[dict[str, Any]]:
    lines = [comment for comment in pull.comments if "path" in comment]
    threads = []
    for root in (comment for comment in lines if "in_reply_to_id" not in comment):
        said = [comment for comment in lines if root["id"] in (comment["id"], comment.get("in_reply_to_id"))]
        threads.append(
            {
                "isResolved": root["id"] in pull.resolved,
                "path": root["path"],
                "startLine": root.get("start_line"),  # docs.github.com/en/graphql/reference/objects
                "line": root["line"] or None,
                "root": {"nodes": [{"fullDatabaseId": f"{root['id']}"}]},
                "comments": {"nodes": [_said(hub, one) | {"state": "SUBMITTED"} for one in said[-PAGE:]]},
            }
        )
    return threads


def _check_run(number: int, run: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": run["name"],
        "status": "COMPLETED" if run["conclusion"] else "IN_PROGRESS",
        "conclusion": run["conclusion"].upper() if run["conclusion"] else None,
        "url": f"https://github.test/runs/{number}",
        "summary": run["summary"],
        "startedAt": run["at"],
        "completedAt": run["at"] if run["conclusion"] else None,
        "checkSuite": {"id": run.get("suite", "CS_1")},
    }


def _status(status: dict[str, Any], hub: Hub) -> dict[str, Any]:
    return {
        "context": status["context"],
        "state": status["state"].upper(),
        "targetUrl": status.get("target_url"),
        "description": status.get("description"),
        "createdAt": status.get("updated_at") or hub.now(),
    }
