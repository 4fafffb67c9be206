"""Results of MCP tools cost a model no more words than they need to."""

import pytest

from runplan.domain.errors import NotFound
from runplan.interfaces.mcp.tools import LARGEST_TEXT, TOOLS, cut_diff, make_result, schema_of


def diff_of(**files: str) -> str:
    parts = (f"diff --git a/{name} b/{name}\n+++ b/{name}\n{text}\n" for name, text in files.items())
    return f" {len(files)} files changed\n\n{''.join(parts)}"


def test_a_large_diff_is_read_in_parts_by_offset_and_by_file() -> None:
    diff = diff_of(a="+x" * LARGEST_TEXT, b="+y")
    first = cut_diff(diff, "", 0)
    note = f"\n[{len(diff) - LARGEST_TEXT} more characters: call diff with file, or with offset {LARGEST_TEXT}]"
    assert first == diff[:LARGEST_TEXT] + note
    assert make_result({"diff": first}).content == {"diff": first}, "it is cut once"
    assert cut_diff(diff, "", len(diff) - 5) == diff[-5:]
    assert cut_diff(diff, "b", 0) == "diff --git a/b b/b\n+++ b/b\n+y\n"
    with pytest.raises(NotFound, match="c: no such file in the diff:\n 2 files changed"):
        cut_diff(diff, "c", 0)


def test_a_result_has_no_empty_fields_and_is_read_as_lines() -> None:
    result = make_result(
        {"plan": "X", "run": None, "phases": [{"id": "1", "depends": [], "done": False}], "log": "a\nb"}
    )
    assert result.content == {"plan": "X", "phases": [{"id": "1", "done": False}], "log": "a\nb"}
    assert result.text == "plan: X\nphases:\n  - id: 1\n    done: false\nlog:\n  a\n  b"


def test_a_person_who_reads_a_result_sees_every_character() -> None:
    hidden = "a\x1bPb\x1b\\c\rd\0e\u202ef\u200bg\U000e0041"
    shown = r"a\x1bPb\x1b\c\rd\x00e<U+202E>f<U+200B>g<U+E0041>"
    assert make_result({"text": hidden, "items": [hidden]}).content == {"text": shown, "items": [shown]}
    assert make_result({"text": "a\u00a0b"}).content == {"text": "a\u00a0b"}, "prose keeps its spaces"
    assert cut_diff(f"+{hidden}\u00a0\n", "", 0) == f"+{shown}<U+00A0>\n"
    quoted = 'diff --git "a/a\\033\u202e" "b/a\\033\u202e"\n+x\n'
    assert cut_diff(quoted, r"a\033<U+202E>", 0).endswith("\n+x\n")


def test_the_tools_cost_a_model_at_most_six_kilobytes() -> None:
    assert sum(len(name) + len(tool.text) + len(str(schema_of(tool))) for name, tool in TOOLS.items()) <= 6_000
