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


@pytest.mark.parametrize(
    ("form", "request_"),
    [
        (
            Form(verb="approve", plan=PLAN, phase="2", tree=TREE, text="x"),
            ApproveRequest(plan=PLAN, phase="2", tree=TREE),
        ),
        (
            Form(verb="reject", plan=PLAN, tree=TREE, text=" --tree=other "),
            RejectRequest(plan=PLAN, tree=TREE, why="--tree=other"),
        ),
        (Form(verb="reject", plan=PLAN, tree=TREE), RejectRequest(plan=PLAN, tree=TREE)),
        (Form(verb="answer", id="r1.2", text="-m"), AnswerRequest(id="r1.2", text="-m")),
        (
            Form(verb="start", plan=PLAN, words="auto every 'day at 9am'"),
            StartRequest(plan=PLAN, options=("auto", "every", "day at 9am")),
        ),
        (Form(verb="retry", plan=PLAN, phase="4b"), RetryRequest(plan=PLAN, phase="4b")),
        (Form(verb="retry", plan=PLAN, fresh="fresh"), RetryRequest(plan=PLAN, fresh=True)),
        (Form(verb="plan", goal=" Greet people. ", quick="quick"), PlanRequest(goal="Greet people.", quick=True)),
        (Form(verb="stop", plan=PLAN), StopRequest(plan=PLAN)),
    ],
)
def test_a_form_becomes_one_request(form: Form, request_: object) -> None:
    assert read_request(form) == request_


@pytest.mark.parametrize(
    "form",
    [
        *(Form(verb="undo", plan=PLAN, phase="1"), Form(verb="", plan=PLAN), Form(verb="approve", plan=PLAN)),
        *(Form(verb="stop"), Form(verb="plan", goal="  ", text="x"), Form(verb="answer", id="", text="x")),
        *(Form(verb="answer", id="r1.1", text="  "), Form(verb="reject", plan=PLAN, tree=TREE, text="  ")),
        Form(verb="start", plan=PLAN, words="'unfinished"),
    ],
)
def test_other_fields_are_refused(form: Form) -> None:
    with pytest.raises(UsageError):
        read_request(form)
