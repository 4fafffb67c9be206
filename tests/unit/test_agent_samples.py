"""Every captured stream of a real agent is understood: session, last words, usage, ending."""

import pytest
from msgspec.structs import replace

from runplan.adapters.agents.clis import agent_of
from runplan.app.views.inspection import known_agents
from runplan.domain.run.dispatch import Started, ToolUsed
from tests.support.samples import FOLDERS, ending, expected, expected_of, lines, meta, outcome, streams

#: The keys that a folder may set for a stream.
KNOWN = {"ends", "resets", "role", "says", "tokens", "usd"}
KNOWN |= {"context", "window", "estimated", "model", "version", "touched"}

STREAMS = streams()


def saying(*names: str) -> list[str]:
    """The streams of which the folders say these things."""
    return [stream for stream in STREAMS if all(name in expected_of(stream) for name in names)]


def test_every_agent_has_a_folder_and_every_stream_in_it_an_expectation() -> None:
    assert set(known_agents()) == set(FOLDERS)
    reported = {f"{folder}/{name}" for folder in FOLDERS for name in expected(folder)["samples"]}
    assert reported == {stream.rpartition(".")[0] for stream in STREAMS}


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_field_of_an_expectation_is_checked(folder: str) -> None:
    assert expected(folder).keys() <= {"install", "calls", "real", "samples"}
    for reported in expected(folder)["samples"].values():
        assert reported.keys() <= KNOWN


@pytest.mark.parametrize("stream", STREAMS)
def test_a_captured_stream_is_understood(stream: str) -> None:
    reported, found = expected_of(stream), outcome(stream)
    spent, said = found.tally.usage, reported.get("says", "")
    end = ending(stream.partition("/")[0], found, writes=reported.get("role") != "read")
    assert found.message.strip().endswith(said)
    assert bool(said) == bool(found.message.strip())
    assert [spent.input_tokens, spent.output_tokens, spent.cached_tokens] == reported.get("tokens", [0, 0, 0])
    assert round(spent.usd, 6) == reported.get("usd", 0.0)
    assert end.kind == reported["ends"]
    assert round(end.resets or 0) == reported.get("resets", 0)
    assert found.tally.unread == 0


def test_an_exit_code_proves_no_success() -> None:
    zero = {expected_of(stream)["ends"] for stream in STREAMS if meta(stream)["rc"] == 0}
    assert zero >= {"success", "auth", "denied", "crashed"}
    assert all(expected_of(stream)["ends"] != "success" for stream in STREAMS if meta(stream)["rc"] != 0)


@pytest.mark.parametrize("stream", saying("context"))
def test_the_context_size_is_exact_where_it_is_reported(stream: str) -> None:
    tally, reported = outcome(stream).tally, expected_of(stream)
    assert (tally.context, tally.window, tally.estimated) == (reported["context"], reported.get("window", 0), False)


@pytest.mark.parametrize("stream", saying("estimated"))
def test_the_context_size_is_estimated_from_totals(stream: str) -> None:
    tally = outcome(stream).tally
    assert tally.estimated is expected_of(stream)["estimated"]
    assert 0 < tally.context < tally.usage.input_tokens


@pytest.mark.parametrize("stream", sorted({*saying("model"), *saying("version"), *saying("touched")}))
def test_model_version_and_the_file_that_a_tool_touched_are_read_where_they_are_reported(stream: str) -> None:
    reported, reader = expected_of(stream), agent_of(stream.partition("/")[0])
    events = [event for line in lines(stream) for event in reader.read_line(line)]
    assert outcome(stream).tally.model == reported.get("model", outcome(stream).tally.model)
    versions = [event.version for event in events if isinstance(event, Started)]
    assert "version" not in reported or reported["version"] in versions
    used = [[event.tool, event.path] for event in events if isinstance(event, ToolUsed)]
    assert "touched" not in reported or reported["touched"] in used


def test_a_denied_tool_matters_only_to_an_agent_that_writes() -> None:
    found = outcome("claude/permission_denied.jsonl")
    assert [(tool.tool, tool.denied) for tool in found.tally.denied] == [("Write", True), ("Bash", True)]
    assert ending("claude", found, writes=True).words == "not allowed to use Write, Bash"
    assert ending("claude", found, writes=False).kind == "success"
    some = replace(found, tally=replace(found.tally, uses=found.tally.denials + 1))
    assert ending("claude", some, writes=True).kind == "success", "another tool was allowed: its work is judged"
