"""Every reader of foreign text takes linear time: 40 kB of hostile lines in little processor time."""

import time
from collections.abc import Callable

import pytest

from runplan.adapters.agents import endings, prompts
from runplan.domain import gitfacts, text as terminal
from runplan.domain.checks import drift, evidence, guarded, results, returns, secrets, tamper
from runplan.domain.errors import PlanUnreadable
from runplan.domain.plan import model as plan
from runplan.domain.run.dispatch import Reference
from runplan.domain.settings import toolchain
from runplan.engine.report import text as markdown

LENGTH = 40_000
NO_FACTS = evidence.Facts(count_lines=lambda _: None, is_in_base=lambda _: False, tests={"a > b": True})
MOST = 100  #: times the work of a plain loop over five such texts; a quadratic reader needs far more

#: How a text begins, and what it repeats.
Text = tuple[str, str]
LONG_RUNS: tuple[Text, ...] = (("", " "),)


def hostile(text: Text) -> str:
    begin, repeated = text
    return begin + repeated * (LENGTH // len(repeated)) + "x"


def spent_on(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def parsed(before: str) -> Callable[[str], object]:
    """Parse a plan with this text; a refusal is an answer."""

    def parse(text: str) -> object:
        try:
            return plan.parse_plan(f"{before}{text}\n".encode(), path="plans/x.md")
        except PlanUnreadable:
            return None

    return parse


TRACKER = "## Progress Tracker\n\n| Phase | Status |\n|---|---|\n| 1 — a | ⬚ |\n\n## Phase 1 — a\n\n"

MARKDOWN = (markdown.escape_first_line, markdown.code_span, markdown.table_cell, markdown.indent_block)
MANIFESTS = ("Makefile", "CMakeLists.txt", "package.json", "pyproject.toml")

READERS: dict[str, tuple[Callable[[str], object], tuple[Text, ...]]] = {
    "what a phase permits": (
        lambda text: tamper.Permit(text=text).names("tests/a/test_x.py"),
        (("", "a/"), ("", "`"), ("", "`a "), ("", "a:")),
    ),
    "test output": (
        lambda text: results.read_results(text, exit_code=1, summary_pattern=""),
        (
            *(("", "passed: 1 "), ("", "passed: 1 failed "), ("1%", " "), ("", "1% "), ("Tests: ", "1"), ("ok ", "1")),
            *(("", "ok 1/1 "), ("", "1 passed, "), ("FAILED a[", "]"), ("", "FAILED a - "), ("not ok ", "# ")),
            *(("Ran 1 test in 1s\nFAILED (", "a"), ("", "\x1b["), ("", "1 passed\n"), ("1..1", "1"), ("", "  1 - a (")),
        ),
    ),
    "files of the test command": (
        lambda text: [
            guarded.find_changes([command], [path], before={path: text}.get, after={path: f"{text}\n"}.get)
            for command, path in (("make test", "Makefile"), ("npm test", "package.json"), ("tox", "tox.ini"))
        ],
        (("", "a: b\n"), ("", "tests/a.sh "), ("[pytest]\n", "a=b\n"), ("", "["), ('{"scripts":', "{"), ("", "a/")),
    ),
    "drift": (
        lambda text: (drift.read_tokens(text), drift.find_contradictions(text)),
        (
            *(("", "PLAN-TEXT-DRIFT: phase=1\n"), ("PLAN-TEXT-DRIFT: phase=", "1"), ("", "1 + "), ("", "1+")),
            *(("### Design\n", "1 + 1 "), ("### Design\n", "lines 1-"), ("", "- 1, 1\n")),
        ),
    ),
    "evidence": (
        lambda text: evidence.judge_evidence("W1", [Reference(ref=text[: returns.LONGEST_EVIDENCE])], NO_FACTS),
        (("", "a"), ("", "a/"), ("", "`a "), ("", "a:1"), ("", "“"), ("", "a:b"), ("", "a::"), ("", " > "), ("", "a[")),
    ),
    "stale dependencies": (drift.find_contradictions, (("### Dependencies\n", "based on "),)),
    "secrets": (
        secrets.redact_text,
        (("", "sk-"), ("", "eyJ-"), ("", "eyJaaaaaaaaaa."), ("", "-----BEGIN "), ("", "-----BEGIN PRIVATE KEY-----\n")),
    ),
    "an agent's last message": (
        lambda text: (returns.parse_return(None, text), returns.find_blockers(text)),
        (("", "```json\n"), ("", "~~~~json\n"), ("", "BLOCKER: a\n"), ("```json\n", "["), ('```json\n{"a":', "1")),
    ),
    "when a limit ends": (
        lambda text: endings.reset_time(text, now=1e9),
        (("", "resets at "), ("try again in ", "1"), ("", "try again in 1 "), ("retry after ", " ")),
    ),
    "an agent's error": (endings.classify_trouble, (("", "model "), ("", "hit your "), ("", "exceeded your "))),
    "foreign text in a report": (
        lambda text: [write(text) for write in MARKDOWN],
        (("", "\\"), ("", "`a"), ("`", "a "), ("", "".join(f"{'`' * n}a" for n in range(1, 1400))), ("", "\x1b[")),
    ),
    "a terminal": (terminal.plain, (("", "\x1b["), ("", "\x1b]"), ("\x1b[", "0"), ("\x1b", " "))),
    "a commit message": (
        lambda text: (gitfacts.read_trailers(text), gitfacts.newest_landing([("c", text)], plan="p", phase="1")),
        (("a\n\nb: c\n", " d\n"), ("", "a: b\n"), ("", "a\n\n"), ("", "Runplan-Plan: a\n")),
    ),
    "signs of tests": (
        lambda text: toolchain.detect(MANIFESTS, dict.fromkeys(MANIFESTS, text)),
        (("", "test "), ("", "a: "), ("", "["), ("", '{"scripts":'), ("", "\t\n"), ("", "a = [")),
    ),
    "a quoted text in a prompt": (lambda text: (prompts.quote_text(text, "a"), terminal.one_line(text)), (("", "`"),)),
    "a plan": (
        parsed(""),
        (
            *(("", "## Phase 1 — a\n"), ("", "| a | b |\n"), ("", "```\n"), ("", f"- [ ] {'a' * 80}\n"), ("", "#")),
            *(("## ", "."), ("", "**Status:** ")),
        ),
    ),
    "front matter": (parsed("---\n"), (("", "a:\n"), ("a: '", "''"), ('a: "', "\\"), ("a:", " "), ("a: |\n", " b\n"))),
    "a phase": (
        parsed(f"{TRACKER}### Work Items\n\n"),
        (
            *(("", "- [ ] a\n"), ("- [ ] ", "`"), ("Touches: ", "a, "), ("Touches: ", "`a` "), ("", "Touches: a\n")),
            ("- ", "("),
        ),
    ),
    "dependencies": (
        parsed(f"{TRACKER}### Dependencies\n\n"),
        (("Phase ", "1, "), ("", "not "), ("", "(optional "), ("", "`")),
    ),
}
CASES = [
    pytest.param(read, text, id=f"{name}: {text!r:.40}")
    for name, (read, texts) in READERS.items()
    for text in (*texts, *LONG_RUNS)
]


@pytest.mark.matrix
@pytest.mark.parametrize(("read", "text"), CASES)
def test_hostile_text_is_read_in_linear_time(read: Callable[[str], object], text: Text) -> None:
    long = hostile(text)
    assert spent_on(lambda: read(long)) < MOST * spent_on(lambda: sum(ord(character) for character in long * 5))
