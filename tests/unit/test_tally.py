"""Agent events are folded in bounded memory."""

import json

import msgspec
import pytest

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.supervise.output import EventCollector
from runplan.domain.run.dispatch import (
    MESSAGE_TAIL,
    MOST_DENIED,
    MOST_TROUBLES,
    WORDS,
    AgentEvent,
    Context,
    EndingKind,
    Finished,
    Folding,
    Message,
    Quota,
    Retrying,
    Spent,
    Started,
    ToolUsed,
    Trouble,
    Unread,
    Usage,
)

BUSY = Trouble(kind=EndingKind.OVERLOADED, words="busy")


def folded(*events: AgentEvent) -> Folding:
    folding = Folding()
    for event in events:
        folding.add_event(event)
    return folding


def test_pieces_make_the_message_and_a_final_one_takes_their_place() -> None:
    final = Message(text="b", final=True)
    assert folded(Message(text="a"), Message(text="b")).message == "ab"
    assert folded(Message(text="a"), final, Message(text="c")).message == "bc"
    assert folded(Message(text="a"), Message(text="", final=True)).message == ""
    assert folded(Message(text="x" * (MESSAGE_TAIL + 9) + "end", final=True)).message.endswith("xend")
    assert len(folded(Message(text="x" * 3 * MESSAGE_TAIL)).message) == MESSAGE_TAIL


def test_usage_adds_up_is_corrected_by_message_and_replaced_by_a_total() -> None:
    def spent(sent: int, of: str = "", *, total: bool = False) -> Spent:
        return Spent(usage=Usage(input_tokens=sent, output_tokens=1, usd=0.5), of=of, total=total)

    assert folded(spent(1), spent(2)).tally.usage == Usage(input_tokens=3, output_tokens=2, usd=1.0)
    assert folded(spent(1, "m"), spent(5, "m"), spent(2, "n")).tally.usage.input_tokens == 7
    assert folded(spent(1, "m"), spent(5, "n"), spent(2, "m")).tally.usage.input_tokens == 7
    assert folded(spent(9), spent(4, total=True)).tally.usage == Usage(input_tokens=4, output_tokens=1, usd=0.5)
    assert folded(*(spent(1, str(number)) for number in range(1_000))).tally.usage.input_tokens == 1_000


def test_the_context_is_the_last_report_or_a_growing_estimate() -> None:
    exact = folded(Context(tokens=5), Context(window=9), Context(tokens=7)).tally
    assert (exact.context, exact.window, exact.estimated) == (7, 9, False)
    guess = folded(Context(tokens=5, estimated=True), Context(tokens=7, estimated=True)).tally
    assert (guess.context, guess.estimated) == (12, True)
    assert not folded().tally.estimated


def test_a_trouble_takes_a_good_end_back_and_a_wait_lasts_until_the_next_event() -> None:
    assert folded(Finished(ok=True), BUSY).tally.finished is None
    assert folded(Finished(ok=False), BUSY).tally.finished == Finished(ok=False)
    assert folded(BUSY, Finished(ok=True)).tally.finished == Finished(ok=True)
    assert folded(Retrying(words="busy"), Unread()).tally.waiting == "busy"
    assert folded(Retrying(words="busy"), Message(text="x")).tally.waiting == ""


def test_the_tally_is_bounded() -> None:
    long = "x" * 10 * WORDS
    folding = Folding()
    for number in range(1_000):
        folding.add_event(ToolUsed(tool=str(number), denied=True))
        folding.add_event(Trouble(kind=EndingKind.AUTH, words=f"{number} {long}"))
        folding.add_event(Started(model=long))
        folding.add_event(Finished(ok=False, words=long))
    folding.add_event(Retrying(words=long))
    tally = folding.tally
    assert len(tally.denied) == MOST_DENIED
    assert [each.words.split()[0] for each in tally.troubles] == ["0", *map(str, range(993, 1_000))]
    assert len(tally.troubles) == MOST_TROUBLES
    assert len(msgspec.json.encode(tally)) < 20 * WORDS


# --- the gauge -----------------------------------------------------------------------------------------


def assistant(tokens: int, *, parent: str | None = None, id: str = "m") -> bytes:
    usage = {"input_tokens": 10, "cache_read_input_tokens": tokens - 10, "output_tokens": 5}
    message = {"id": id, "model": "x", "content": [{"type": "text", "text": "said"}], "usage": usage}
    return json.dumps({"type": "assistant", "message": message, "parent_tool_use_id": parent}).encode()


def gauge(*lines: bytes) -> EventCollector:
    events = EventCollector(agent_of("claude").read_line)
    for line in lines:
        events.read_line(line)
    return events


def test_s6_a_sub_agents_record_never_resets_the_gauge() -> None:
    found = gauge(assistant(120_000), assistant(2_000, parent="tool_1", id="sub"))
    assert found.tally.context == 120_000
    assert found.tally.usage.input_tokens == 122_000
    assert found.message == "said\n"


def test_after_a_compaction_the_gauge_starts_anew() -> None:
    boundary = b'{"type":"system","subtype":"compact_boundary"}'
    assert gauge(assistant(150_000), boundary).tally.context == 0
    assert gauge(assistant(150_000), boundary, assistant(20_000, id="n")).tally.context == 20_000


def test_an_event_of_the_same_message_or_of_the_program_itself_does_not_move_the_gauge() -> None:
    assert gauge(assistant(1_000), assistant(1_000), assistant(1_100)).tally.usage.input_tokens == 1_100
    synthetic = json.loads(assistant(10))
    synthetic["message"]["model"] = "<synthetic>"
    found = gauge(assistant(1_000), json.dumps(synthetic).encode())
    assert (found.message, found.tally.context) == ("said\n", 1_000)


MORE = [Message(text="more"), Started(model="m"), Context(tokens=9)]
UNSURE = [ToolUsed(tool="Bash"), Spent(usage=Usage(input_tokens=1))]


GOOD, SO_FAR = Finished(ok=True), Finished(ok=True, so_far=True)
IDLE = [Unread(), Retrying(words="busy"), Context(window=9)]


@pytest.mark.parametrize(
    ("end", "more", "finished"),
    [
        *((GOOD, more, None) for more in MORE),
        *((GOOD, more, SO_FAR) for more in UNSURE),  # perhaps of a sub-agent
        *((GOOD, more, GOOD) for more in IDLE),
        *((SO_FAR, more, SO_FAR) for more in (*MORE, *UNSURE)),
        *((Finished(ok=False, words="w"), more, Finished(ok=False, words="w")) for more in MORE),
    ],
)
def test_a_good_end_with_work_after_it_was_none(end: Finished, more: AgentEvent, finished: Finished | None) -> None:
    assert folded(end, more).tally.finished == finished
    assert folded(end, more, GOOD).tally.finished == GOOD


def test_an_incomplete_total_is_at_least_the_sum_so_far() -> None:
    seen = Spent(usage=Usage(input_tokens=900, output_tokens=5, cached_tokens=300), of="m")
    reported_usage = Usage(input_tokens=100, output_tokens=7, usd=0.5, cached_tokens=50)
    larger = Usage(input_tokens=900, output_tokens=7, usd=0.5, cached_tokens=300)
    assert folded(seen, Spent(usage=reported_usage, total=True, least=True)).tally.usage == larger
    assert folded(seen, Spent(usage=reported_usage, total=True)).tally.usage == reported_usage
    whole = Usage(input_tokens=1_000, output_tokens=9, cached_tokens=0)
    assert folded(seen, Spent(usage=whole, total=True, least=True)).tally.usage == whole


def test_the_fullest_usage_window_that_claude_warns_of_is_kept() -> None:
    folding = Folding()
    for used, resets in ((0.76, 1800000000), (0.81, 1800600000), (0.77, 1800000001)):
        info = {"status": "allowed_warning", "rateLimitType": "seven_day", "utilization": used, "resetsAt": resets}
        for event in agent_of("claude").read_event({"type": "rate_limit_event", "rate_limit_info": info}):
            folding.add_event(event)
    assert folding.tally.quota == Quota(percent=81, resets=1800600000.0)
    allowed = {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "resetsAt": 1800000000}}
    assert list(agent_of("claude").read_event(allowed)) == []
