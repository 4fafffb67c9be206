"""Every captured stream of a real agent is understood: session, last words, usage, ending."""

from __future__ import annotations

import pytest

from runplan.core.agentevents import ToolUsed
from runplan.core.facts import PROGRAMS
from tests.support.samples import SAMPLES, ending, meta, outcome, streams

# Stream | session | end of the message | tokens sent, answered, of the sent from the cache, dollars | ending and when
# its limit resets | what the role was.
TABLE = """
aider/auth_error.txt                  |                                      | you. Check your API key. | 0 0 0 0                 | auth             | write
aider/success.txt                     |                                      | 018 feat: stubbed change | 2100 23 0 0.003         | success          | write
claude/auth_error.jsonl               | 24e2d2e7-2551-45f5-b143-00a979097f65 | Creating the file.       | 19530 25 0 0.116585     | auth             | write
claude/background_command.jsonl       | a71be1a4-6266-4db0-9945-de0c1eb8e1d3 | Phase 1 is done.         | 39217 26 18704 0.130876 | success          | write
claude/json_format.json               | 58444f78-cf2e-4b4c-8eb0-120f3d4658bd | Phase 1 is done.         | 58939 60 37440 0.146025 | success          | write
claude/max_budget.jsonl               | f1adf0ee-d7d5-4a5a-9917-4c8060970d12 | Creating the file.       | 19540 25 0 0.116644     | budget           | write
claude/max_turns.jsonl                | d386685a-ea76-466b-961d-629b7b6f52b9 | Creating the file.       | 19530 25 0 0.116585     | max-turns        | write
claude/model_fallback.jsonl           | 4265ba98-ba66-4ff1-a53d-2e88a3367e3b | Phase 1 is done.         | 72381 60 45954 0.107473 | success          | write
claude/overloaded_gives_up.jsonl      | 42130af6-dae7-4000-b66e-ac6a0b9c22dd | Creating the file.       | 19530 25 0 0.116585     | overloaded       | write
claude/overloaded_then_ok.jsonl       | 43b4a947-40fa-4e4a-b156-d1a0b6d7f8dc | Phase 1 is done.         | 58939 60 37440 0.146025 | success          | write
claude/permission_denied.jsonl        | ae02e776-2144-4bef-ac10-c02227e6212d | Phase 1 is done.         | 58964 60 37463 0.146046 | denied           | write
claude/plan_mode.jsonl                | 1a098704-4490-4724-b829-5e818dff707d | Phase 1 is done.         | 62684 60 39814 0.155234 | success          | read
claude/refusal.jsonl                  | d2310df9-10a5-4f4d-99a8-628906b78a36 | No.                      | 39185 26 18673 0.130856 | refusal          | write
claude/resume.jsonl                   | 19d5bb08-c734-4133-b283-9c1b09664cf6 | Resumed and done.        | 39668 23 37686 0.029328 | success          | write
claude/resume_unknown.jsonl           | 00000000-0000-4000-8000-000000000000 |                          | 0 0 0 0                 | crashed          | write
claude/root_refused.jsonl             |                                      |                          | 0 0 0 0                 | setup            | write
claude/sigint.jsonl                   | 2545ef82-46d6-486e-8207-33df8ccadf4a |                          | 19530 22 0 0.11651      | crashed          | write
claude/sigterm.jsonl                  | fed5da70-57e7-4203-a63b-9034f253c3c3 |                          | 19530 1 0 0             | killed           | write
claude/structured_output.jsonl        | 5602ffc1-6306-40ed-a6df-9ac8047072bb | {"verdict":"pass"}       | 19613 4 0 0.116553      | success          | write
claude/success.jsonl                  | 4562fb6b-1ad0-476f-b304-a6d1d6bb1984 | Phase 1 is done.         | 58939 60 37440 0.146025 | success          | write
claude/too_long.jsonl                 | e8104a67-a086-470f-801f-e340ea4c9a6e | Creating the file.       | 19530 25 0 0.116585     | context          | write
claude/usage_limit_api_key.jsonl      | d80b4ad8-dfaa-455f-8af1-a0946a20fb47 | Creating the file.       | 19530 25 0 0.116585     | limit 1794708289 | write
claude/usage_limit_subscription.jsonl | 6cd61334-2cae-417f-9dc0-d2155022b6b5 | Creating the file.       | 29334 25 0 0.104878     | limit 1794708291 | write
codex/auth_error.jsonl                | 01a1dcbd-7aba-7b51-b4c2-d2006275a278 | Creating the file.       | 0 0 0 0                 | auth             | write
codex/failing_command.jsonl           | 01a1dcbd-a914-77d3-961d-3b869ecaab50 | Phase 1 is done.         | 19410 12 9274 0         | success          | write
codex/length_stop.jsonl               | 01a1dcbd-9ccc-7051-aaa6-b78e967e1ba4 | cut off in the mid       | 0 0 0 0                 | crashed          | write
codex/rate_limit_gives_up.jsonl       | 01a1dcbd-7463-7b12-aff7-caa598e05705 | Creating the file.       | 0 0 0 0                 | overloaded       | write
codex/rate_limit_then_ok.jsonl        | 01a1dcbd-6c4b-7d10-bac0-733fdac4e7b0 | Phase 1 is done.         | 29411 47 18776 0        | success          | write
codex/read_only.jsonl                 | 01a1dcbd-a2a1-7101-a2bd-89446a117b95 | Phase 1 is done.         | 29458 47 18811 0        | success          | read
codex/resume.jsonl                    | 01a1dcbd-af05-7602-8019-e42072b49b40 | Resumed and done.        | 49598 60 37955 0        | success          | write
codex/resume_unknown.jsonl            |                                      |                          | 0 0 0 0                 | crashed          | write
codex/sigint.jsonl                    | 01a1dcbd-bc32-7662-affc-0b9f5f546945 |                          | 0 0 0 0                 | crashed          | write
codex/success.jsonl                   | 01a1dcbd-5fc9-7861-849b-0fdabf7e0697 | Phase 1 is done.         | 29411 47 18776 0        | success          | write
codex/too_long.jsonl                  | 01a1dcbd-96be-7341-b263-7ff0e0acbf6c | Creating the file.       | 0 0 0 0                 | context          | write
codex/usage_limit.jsonl               | 01a1dcbd-6584-7f02-8f98-5141cac72ceb | Creating the file.       | 0 0 0 0                 | limit 1794708360 | write
gemini/auth_error.jsonl               | 577cca4a-7002-4ed2-b645-47fd99b4e19c |                          | 12951 51 0 0            | auth             | write
gemini/json_format.json               | abcb7270-2bf9-4297-a5b6-5ddc3211ed61 | Phase 1 is done.         | 37506 86 23328 0        | success          | write
gemini/overloaded_then_ok.jsonl       | 0dfa6e24-4f3b-44b9-9df7-9da300c62562 | Phase 1 is done.         | 37506 86 23328 0        | success          | write
gemini/plan_mode.jsonl                | 47ccdb8f-f07b-468d-a9a2-8b1f57b9541d | ```                      | 22069 47 10552 0        | success          | read
gemini/resume.jsonl                   | 6b0c410b-6f8d-44ec-8ff0-e5a9e6a1dd5c | Resumed and done.        | 26328 49 25013 0        | success          | write
gemini/sigterm.jsonl                  | fb4c55b3-8b5d-4dae-8cbd-2bf00eedea00 |                          | 0 0 0 0                 | crashed          | write
gemini/success.jsonl                  | 7fcb9650-a7f8-469e-9766-dde1cd7ba1e1 | Phase 1 is done.         | 37506 86 23328 0        | success          | write
gemini/untrusted_folder.jsonl         |                                      |                          | 0 0 0 0                 | setup            | write
gemini/usage_limit.jsonl              | 07e72af1-7d59-44d3-8d8b-9dfff16b3640 |                          | 12951 51 0 0            | limit            | write
mini/auth_error.txt                   |                                      |                          | 0 0 0 0                 | auth             | write
mini/success.txt                      |                                      | Phase 1 is done.         | 1072 25 1019 0.00044    | success          | write
opencode/auth_error.jsonl             | ses_e2340b6f6ffe10QjToJVhRot33       | Creating the file.       | 7775 24 0 0.023685      | auth             | write
opencode/plan_agent.jsonl             | ses_e233ff654ffebz8z3NGJM64EQt       | Phase 1 is done.         | 24863 50 15901 0.032406 | success          | read
opencode/rate_limit_gives_up.jsonl    | ses_e23408196ffewfYds2jps4G2E0       | Creating the file.       | 7775 24 0 0.023685      | overloaded       | write
opencode/refusal.jsonl                | ses_e23402fe2ffelX0wKNziL6oPPS       | No.                      | 15642 25 7474 0.027121  | refusal          | write
opencode/resume.jsonl                 | ses_e233fc353ffePfjvrxX7t32uma       | Resumed and done.        | 16035 14 15235 0.007181 | success          | write
opencode/success.jsonl                | ses_e2340e569ffekpvARyWi8bhBzX       | Phase 1 is done.         | 23596 50 15031 0.030954 | success          | write
qwen/auth_error.jsonl                 | 094b1d29-b1d1-4339-b1e6-f22c093befc9 | rrect API key provided.] | 20019 25 19019 0        | auth             | write
qwen/max_turns.jsonl                  | dc604bc5-2849-4ecc-83bb-a8b38b4da9b8 | Creating the file.       | 20019 25 19019 0        | max-turns        | write
qwen/plan_mode.jsonl                  | 034ee61b-a8b4-441e-93cc-d09cf4ffc87c | ```                      | 25617 60 24337 0        | success          | read
qwen/resume.jsonl                     | c5149ca9-5d44-4414-b749-7b9c2774750e | Resumed and done.        | 101215 83 96157 0       | success          | write
qwen/success.jsonl                    | 3eaf1eee-575d-444a-a60d-353c4fac9902 | Phase 1 is done.         | 60434 60 57414 0        | success          | write
"""  # noqa: E501

ROWS = {line.partition(" ")[0]: [cell.strip() for cell in line.split(" | ")] for line in TABLE.strip().splitlines()}


def test_no_captured_stream_is_left_out() -> None:
    assert sorted(ROWS) == streams()
    assert {path.name for path in SAMPLES.iterdir()} == set(PROGRAMS)


@pytest.mark.parametrize("stream", sorted(ROWS))
def test_a_captured_stream_is_understood(stream: str) -> None:
    _, session, said, usage, ends, role = ROWS[stream]
    found = outcome(stream)
    spent = found.tally.usage
    end = ending(stream.partition("/")[0], found, writes=role == "write")

    assert found.tally.session == session
    assert found.message.strip().endswith(said)
    assert bool(said) == bool(found.message.strip())
    assert f"{spent.input_tokens} {spent.output_tokens} {spent.cached_tokens} {round(spent.usd, 6):g}" == usage
    assert (f"{end.kind} {end.resets:.0f}" if end.resets else end.kind) == ends


@pytest.mark.parametrize("stream", sorted(ROWS))
def test_no_line_of_a_captured_stream_is_strange(stream: str) -> None:
    assert outcome(stream).tally.unread == 0


def test_an_exit_code_proves_no_success() -> None:
    zero = {ROWS[stream][4] for stream in ROWS if meta(stream)["rc"] == 0}
    assert zero == {"success", "auth", "denied", "crashed"}
    assert all(ROWS[stream][4] != "success" for stream in ROWS if meta(stream)["rc"] != 0)


@pytest.mark.parametrize(
    ("stream", "context", "window"),
    [
        ("claude/success.jsonl", 19_754, 1_000_000),
        ("claude/resume.jsonl", 19_877, 200_000),
        ("opencode/success.jsonl", 7_954, 0),
        ("qwen/success.jsonl", 20_283, 0),
        ("aider/success.txt", 2_100, 0),
        ("mini/success.txt", 1_072, 0),
    ],
)
def test_how_full_the_context_is_is_told_exactly(stream: str, context: int, window: int) -> None:
    tally = outcome(stream).tally
    assert (tally.context, tally.window, tally.estimated) == (context, window, False)


@pytest.mark.parametrize("stream", ["codex/success.jsonl", "gemini/success.jsonl"])
def test_where_only_totals_are_told_the_context_is_a_guess(stream: str) -> None:
    tally = outcome(stream).tally
    assert tally.estimated
    assert 0 < tally.context < tally.usage.input_tokens


@pytest.mark.parametrize(
    ("stream", "model", "version"),
    [
        ("claude/success.jsonl", "claude-opus-4-8[1m]", "2.1.197"),
        ("claude/model_fallback.jsonl", "claude-sonnet-5", "2.1.197"),
        ("qwen/success.jsonl", "qwen3-coder-plus", "0.15.10"),
        ("aider/success.txt", "openai/gpt-4o", "0.86.2"),
        ("mini/success.txt", "gpt-5-mini", "2.4.6"),
        ("gemini/success.jsonl", "auto", ""),
    ],
)
def test_who_was_at_work_is_known_where_it_is_told(stream: str, model: str, version: str) -> None:
    tally = outcome(stream).tally
    assert (tally.model, tally.version) == (model, version)


@pytest.mark.parametrize(
    ("stream", "tool", "path"),
    [
        ("claude/success.jsonl", "Write", "$RIG/tree/phase1.txt"),
        ("codex/success.jsonl", "file_change", "$RIG/tree/phase1.txt"),
        ("gemini/success.jsonl", "write_file", "$RIG/tree/phase1.txt"),
        ("opencode/success.jsonl", "write", "$RIG/tree/phase1.txt"),
        ("qwen/success.jsonl", "write_file", "$RIG/tree/phase1.txt"),
        ("aider/success.txt", "edit", "phase1.txt"),
    ],
)
def test_the_file_that_a_tool_touched_is_known(stream: str, tool: str, path: str) -> None:
    used = [(event.tool, event.path) for event in outcome(stream).events if isinstance(event, ToolUsed)]
    assert (tool, path) in used


def test_a_denied_tool_is_missed_only_by_who_was_to_write() -> None:
    found = outcome("claude/permission_denied.jsonl")
    assert [(tool.tool, tool.denied) for tool in found.tally.denied] == [("Write", True), ("Bash", True)]
    assert ending("claude", found, writes=True).words == "not allowed to use Write, Bash"
    assert ending("claude", found, writes=False).kind == "success"
