"""Which messages on a pull request start work, and which answers are missing there."""

from typing import Any

import pytest
from msgspec.structs import replace

from runplan.adapters.forge.protocol import PullMessage
from runplan.domain.run.dispatch import ItemAnswer, ItemResult, Reference, Return, ReturnStatus
from runplan.domain.run.events import ReviewItem
from runplan.engine.landing.conversation import (
    find_due,
    handle_requests,
    list_comments,
    missing_answers,
    to_repair,
    write_answers,
)
from runplan.engine.landing.lander import Commanded, DueMessages, NeedsRepair, Progress, Waiting

WRITERS = {"ann", "bob", "octocat"}
LOGIN = "octocat"


def message(id: str, text: str = "Please.", author: str = "ann", **more: Any) -> PullMessage:
    return PullMessage(id=id, author=author, text=text, **{"changed": 10.0} | more)


def due(*messages: PullMessage, handled: tuple[str, ...] = (), login: str = LOGIN, since: float = 0.0) -> DueMessages:
    return find_due(messages, handled=handled, login=login, may_write=WRITERS.__contains__, since=since)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (message("review 1"), True),
        (message("review 1", ""), True),
        (message("review 1", "Fine, but rename it.", is_approval=True), False),
        (message("line 1"), True),
        (message("line 1", author="octocat"), True),  # a person may use the account of the token
        (message("line 1", "Handled.\n\n<!-- runplan-answer line 2 -->"), False),
        (message("comment 1"), False),
        (message("comment 1", "@octocat rename it"), True),
        (message("comment 1", "Rename it, @OctoCat!"), True),
        (message("comment 1", "@octocats, @octocat-2, x@octocat, @octocat/team"), False),
    ],
)
def test_reviews_line_comments_and_mentions_of_writers_are_requests(asked: PullMessage, expected: bool) -> None:
    assert bool(due(asked).requests) is expected
    assert due(asked, handled=(asked.id,)) == DueMessages(), "an edited text is not due again"


def test_the_account_of_an_app_is_mentioned_without_its_suffix() -> None:
    assert due(message("comment 1", "@planner rename it"), login="planner[bot]").requests


def test_words_of_strangers_start_nothing() -> None:
    said = (message("line 1", author="eve"), message("comment 2", "/runplan stop", author="eve"))
    assert due(*said) == DueMessages(strangers=said[:1])
    assert handle_requests(due(*said), progress(shows_strangers=True), plan="plans/X.md", name="#1") is None


def test_an_approval_settles_what_its_author_wrote_before() -> None:
    said = [message("review 1"), message("line 2", author="bob"), message("line 3")]
    approval = message("review 4", "", is_approval=True)
    assert [one.id for one in due(*said, approval, message("line 5")).requests] == ["line 2", "line 5"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/runplan stop", True),
        ("/runplan retry \nbecause of this", False),
        *((text, None) for text in ("/runplan retry now", "Please /runplan stop", " /runplan stop", "> /runplan stop")),
        *((text, None) for text in ("/runplan approve", "/runplan stop\n\n<!-- runplan x -->", "")),
    ],
)
def test_the_first_line_of_a_comment_is_a_command(text: str, expected: bool | None) -> None:
    commands = due(message("comment 1", text)).commands
    assert commands == (() if expected is None else (Commanded(id="comment 1", by="ann", is_stop=expected),))
    assert due(message("line 1", text, changed=9.0)).commands == ()
    assert due(message("comment 1", text), since=11.0).commands == (), "it was for an earlier run"
    assert due(message("comment 1", text), handled=("comment 1",)).commands == ()


def progress(**fields: Any) -> Progress:
    usual = {"may_merge": True, "repairs": 0, "max_repairs": 2, "updates": 0, "max_reviews": 3}
    return Progress(**usual | fields)


ASKED = due(message("line 1", place="a.py:3"), message("line 2", "Me too.", author="eve", changed=9.0))


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (progress(), ("line 1",)),
        (progress(reviews=("", "", "a"), shows_strangers=True), ("line 2", "line 1")),
        (progress(reviews=("",) * 3), None),
        (progress(max_reviews=0), None),
        (progress(may_merge=False), None),
    ],
)
def test_a_repair_starts_by_itself_a_few_times_with_auto(progress: Progress, expected: tuple[str, ...] | None) -> None:
    step = handle_requests(ASKED, progress, plan="plans/X.md", name="pull request #1")
    if expected is None:
        assert isinstance(step, Waiting)
        assert "ann asked for changes on pull request #1" in step.why
        assert step.why.endswith("have an agent make them: runplan retry plans/X.md --review")
        return
    assert isinstance(step, NeedsRepair)
    assert tuple(item.thread for item in step.comments) == expected


def test_each_request_is_an_item_and_what_else_was_said_is_context() -> None:
    said = (message("comment 3", "It is for #7."), message("comment 4", "Me too.", author="eve"))
    stranger = message("line 2", "Me too.", place="2026", author="eve", changed=9.0)
    asked = due(message("line 1", place="a.py:3"), stranger, *said)
    items = list_comments(asked, with_strangers=True)
    assert items == (
        ReviewItem("line 2", "Me too.", author="eve (without write access)", path="2026", id="R1"),
        ReviewItem("line 1", "Please.", author="ann", path="a.py", line=3, id="R2"),
        ReviewItem("comment 3", "It is for #7.", author="ann"),
    )
    assert list_comments(asked, with_strangers=False) == (replace(items[1], id="R1"), items[2])
    quoted = ["R1 eve (without write access) on 2026:\n> Me too.", "R2 ann on a.py:3:\n> Please."]
    others = ["What else was said there. It asks for nothing:", "ann:\n> It is for #7."]
    assert to_repair(items).complaint.endswith("\n\n".join([*quoted, *others]))
    assert due(*said).context == (), "without a request nobody is asked who may write"


ITEMS = [ReviewItem(f"line {number}", "Please.", id=f"R{number}") for number in range(1, 6)]
SAID = Return(
    status=ReturnStatus.DONE,
    summary="All well.",
    items=(
        ItemResult(item="R1", answer=ItemAnswer.PASSED, evidence=(Reference(ref="I renamed it, see #1."),)),
        ItemResult(item="R2", answer=ItemAnswer.PARTIAL, evidence=(Reference(ref="The test is missing."),)),
        ItemResult(item="R3", answer=ItemAnswer.FAILED, evidence=(Reference(ref="It is right, @ann.\n<!-- x -->"),)),
    ),
)


def test_each_item_is_answered_with_its_own_words() -> None:
    others = [ReviewItem("comment 9", "It is for #7.")]
    assert write_answers([*ITEMS, *others], SAID, commit="abc1234", proven={"R1": "b.py", "R4": "a.py:3"}) == (
        ("line 1", "Changed in abc1234:\n\n> I renamed it, see #\u200b1."),
        ("line 2", "Changed in part in abc1234:\n\n> The test is missing."),
        ("line 3", "No change:\n\n> It is right, @\u200bann.\n> <! -- x -->"),
        ("line 4", "The agent did not answer this; the check of abc1234 found it handled:\n\n> a.py:3"),
        ("line 5", "Not done."),
    )


def test_an_agent_without_a_change_is_quoted() -> None:
    answers = dict(write_answers(ITEMS, SAID, commit="", proven={}))
    assert answers["line 1"] == "No change:\n\n> I renamed it, see #\u200b1."
    assert answers["line 5"] == "No change:\n\n> All well."
    silent = Return(status=ReturnStatus.DONE, summary="")
    assert write_answers(ITEMS[:1], silent, commit="", proven={}) == (("line 1", "Not done."),)
    long = Return(status=ReturnStatus.DONE, summary="x" * 9000)
    assert len(write_answers(ITEMS[:1], long, commit="", proven={})[0][1]) < 2100


THREAD = (message("line 1", thread="1"), message("line 2", thread="1", author="bob"))
HANDLED = {"line 1": "Handled in abc.", "line 2": "Handled in def."}


def answered(id: str, author: str = LOGIN) -> PullMessage:
    return message("line 9", f"Handled.\n\n<!-- runplan-answer {id} -->", author, thread="1")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (THREAD[:1], ("line 1", "Handled in abc.")),
        (THREAD, ("line 2", "Handled in abc.\n\nHandled in def.")),
        ((*THREAD, answered("line 1")), ("line 2", "Handled in def.")),
        ((*THREAD, answered("line 2")), None),
        ((*THREAD, answered("line 2", "planner")), ("line 2", "Handled in abc.\n\nHandled in def.")),  # a forged mark
        ((message("line 5", thread="5"),), None),
    ],
)
def test_a_thread_is_answered_once_for_all_of_its_handled_messages(
    messages: tuple[PullMessage, ...], expected: tuple[str, str] | None
) -> None:
    missing = missing_answers(messages, HANDLED, LOGIN)
    assert [(said.id, text) for said, _, text in missing] == ([] if expected is None else [expected])


def test_what_another_clone_has_answered_is_not_due() -> None:
    later = message("line 4", thread="1")
    answers = (answered("line 2"), message("comment 8", "No change.\n\n<!-- runplan-answer review 3 -->", LOGIN))
    said = (*THREAD, message("review 3"), *answers, later)
    assert due(*said).requests == (later,)
    forged = [message(one.id, one.text, "eve") for one in answers]
    assert due(*THREAD, *forged).requests == THREAD
    quoted = message("comment 8", "Failed:\n\n    <!-- runplan-answer line 2 -->\n\n<!-- runplan x -->", LOGIN)
    assert due(*THREAD, quoted).requests == THREAD, "words of an agent"


def test_each_message_outside_of_a_thread_gets_its_own_answer_which_quotes_it() -> None:
    said = [message("comment 1", "@octocat rename it\nnow"), message("comment 2")]
    missing = missing_answers(said, {"comment 1": "Handled in abc.", "comment 2": "No change."}, LOGIN)
    text = "> @\u200boctocat rename it\n\nHandled in abc."
    assert missing[0] == (said[0], "runplan-answer comment 1", text)
    assert [asked.id for asked, _, _ in missing] == ["comment 1", "comment 2"]
