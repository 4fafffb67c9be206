"""Evidence counts by what it resolves to: files and lines of the tree, tests that the gates ran."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from runplan.domain.checks.evidence import Facts, judge_evidence
from runplan.domain.checks.returns import parse_return
from runplan.domain.run.dispatch import Reference, ReferenceKind, Return

SAMPLES = tomllib.loads(Path(__file__).with_name("evidence.toml").read_text(encoding="utf-8"))
REAL = [(entry["project"], entry["evidence"], entry.get("says", ""), entry["agent"]) for entry in SAMPLES["real"]]
EMPTY = [
    (entry["project"], evidence)
    for entry in SAMPLES["empty"]
    for evidence in (*entry.get("evidence", ()), *entry.get("references", ()))
]


def facts_of(project: dict[str, Any], **more: Any) -> Facts:
    files, gone = project["files"], project.get("gone", [])
    names = dict.fromkeys(project.get("passed", ()), True) | dict.fromkeys(project.get("failed", ()), False)
    return Facts(
        count_lines=files.get,
        is_in_base=lambda path: path in files or path in gone,
        changed=project["changed"],
        text=" ".join(project.get("named", ())),
        tests=names or None,
        root="/home/me/tree",
        **more,
    )


def read(evidence: object) -> tuple[Reference, ...]:
    """The evidence as a verifier returns it."""
    items = [{"item": "W1", "result": "pass", "evidence": evidence}]
    ret = parse_return(json.dumps({"status": "done", "items": items}), "")
    assert isinstance(ret, Return)
    return ret.items[0].evidence


def test_evidence_as_agents_write_it_resolves() -> None:
    for project, evidence, says, agent in REAL:
        judged = judge_evidence("W1", read(evidence), facts_of(SAMPLES["project"][project]))
        assert judged.passed, f"{agent}, {project}, {evidence}: {judged.missing}"
        assert says in judged.evidence
        assert bool(says) == ("not seen" in judged.evidence)


def test_evidence_that_names_nothing_does_not_resolve() -> None:
    for project, evidence in EMPTY:
        judged = judge_evidence("W1", read(evidence), facts_of(SAMPLES["project"][project]))
        assert not judged.passed, (project, evidence, judged.evidence)


def test_one_reference_that_resolves_is_enough_and_those_that_do_not_are_named_with_their_reason() -> None:
    known, unknown = (Reference(kind=ReferenceKind.FILE, ref=ref) for ref in ("a.py", "b.py"))
    test = Reference(kind=ReferenceKind.TEST, ref="b.py::test_b")
    facts = Facts(count_lines={"a.py": 3}.get, is_in_base=lambda _: False, changed=("a.py",))
    judged = judge_evidence("W1", [known, unknown], facts)
    assert (judged.passed, judged.rests_on_work) == (True, True)
    assert judged.evidence == "a.py; b.py (is not a file of the tree)"
    for absent in (unknown, test):
        assert judge_evidence("W1", [absent], facts).missing == f"{absent.ref}: is not a file of the tree"


def test_there_are_sixty_of_each_and_every_agent_is_among_them() -> None:
    assert len(REAL) >= 60
    assert len(EMPTY) >= 60
    assert len({agent for *_, agent in REAL}) == 7


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (None, "make  lint; src/auth.js"),
        (["cd x && make lint 2>&1"], "make  lint; src/auth.js"),
        (["make test"], "make  lint (is not among the commands that ran); src/auth.js"),
    ],
)
def test_a_command_counts_beside_a_file_when_the_stream_shows_it(shown: list[str] | None, words: str) -> None:
    command = Reference(kind=ReferenceKind.COMMAND, ref="make  lint")
    file = Reference(kind=ReferenceKind.FILE, ref="src/auth.js")
    judged = judge_evidence("W1", [command, file], facts_of(SAMPLES["project"]["jest"], list_commands=lambda: shown))
    assert (judged.passed, judged.evidence) == (True, words)


@pytest.mark.parametrize("patterns", [(), ("checks/*.sh",)])
def test_a_file_of_tests_paths_is_a_test_file(patterns: tuple[str, ...]) -> None:
    project = {"files": {"checks/log.sh": 5}, "changed": ["bin/log"]}
    reference = read([{"kind": "test", "ref": "checks/log.sh::rotates"}])
    assert judge_evidence("W1", reference, facts_of(project, test_paths=patterns)).passed is bool(patterns)


@pytest.mark.parametrize(("ref", "passed"), [("Sums::adds", True), ("Other::adds", False), ("adds", False)])
def test_a_suite_tells_tests_of_one_title_apart_where_names_have_no_file(ref: str, passed: bool) -> None:
    project = {"files": {}, "changed": [], "passed": ["Sums › adds"], "failed": ["Other › adds"]}
    assert judge_evidence("W1", read([{"kind": "test", "ref": ref}]), facts_of(project)).passed is passed
