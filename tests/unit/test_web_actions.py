"""A form becomes one request, bound to what the page has shown."""

import pytest

from runplan.app.operations.requests import (
    AnswerRequest,
    ApproveRequest,
    PlanRequest,
    RejectRequest,
    RetryRequest,
    StartRequest,
    StopRequest,
)
from runplan.domain.errors import UsageError
from runplan.interfaces.web.actions import Form, read_request

PLAN = "plans/X.md"
TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def form(verb: str, **fields: str) -> Form:
    return Form(verb=verb, plan=PLAN, **fields)


@pytest.mark.parametrize(
    ("filled", "request_"),
    [
        (form("approve", phase="2", tree=TREE, text="x"), ApproveRequest(plan=PLAN, phase="2", tree=TREE)),
        (form("reject", tree=TREE, text=" --tree=o "), RejectRequest(plan=PLAN, tree=TREE, why="--tree=o")),
        (form("reject", tree=TREE), RejectRequest(plan=PLAN, tree=TREE)),
        (Form(verb="answer", id="r1.2", text="-m"), AnswerRequest(id="r1.2", text="-m")),
        (form("start", words="auto every 'day at 9'"), StartRequest(plan=PLAN, options=("auto", "every", "day at 9"))),
        (form("retry", phase="4b"), RetryRequest(plan=PLAN, phase="4b")),
        (form("retry", fresh="fresh"), RetryRequest(plan=PLAN, fresh=True)),
        (Form(verb="plan", goal=" Greet people. ", quick="quick"), PlanRequest(goal="Greet people.", quick=True)),
        (form("stop"), StopRequest(plan=PLAN)),
    ],
)
def test_a_form_becomes_one_request(filled: Form, request_: object) -> None:
    assert read_request(filled) == request_


@pytest.mark.parametrize(
    "filled",
    [
        *(Form(verb="undo", plan=PLAN, phase="1"), Form(verb="", plan=PLAN), Form(verb="approve", plan=PLAN)),
        *(Form(verb="stop"), Form(verb="plan", goal="  ", text="x"), Form(verb="answer", id="", text="x")),
        *(Form(verb="answer", id="r1.1", text="  "), Form(verb="reject", plan=PLAN, tree=TREE, text="  ")),
        Form(verb="start", plan=PLAN, words="'unfinished"),
    ],
)
def test_other_fields_are_refused(filled: Form) -> None:
    with pytest.raises(UsageError):
        read_request(filled)
