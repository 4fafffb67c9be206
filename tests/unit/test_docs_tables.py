"""Tables in the documents that repeat the code are equal to it."""

import re
import tomllib
from enum import StrEnum
from pathlib import Path

import pytest

from runplan.adapters.agents.environment import ALLOWED, ALLOWED_PREFIXES
from runplan.adapters.agents.invocation import Agents
from runplan.domain.errors import Exit
from runplan.domain.run.events import DispatchStarted
from runplan.domain.run.kinds import RESERVED, PhaseStep, Reason, Role, RunOutcome, RunStatus, WaitKind
from runplan.domain.settings.schema import AgentsSettings
from runplan.interfaces.cli.main import parser_of
from runplan.interfaces.cli.verbs import VERBS
from tests.corpus.play import load as load_corpus
from tests.e2e.attacks import ATTACKS, Kind
from tests.support import documents, reference
from tests.support.documents import prose, read, rows


def test_a_made_page_is_as_the_code_has_it() -> None:
    """Update it: python -m tests.support.reference"""
    pages = reference.pages()
    assert {path: read(path) for path in pages} == pages


def test_the_page_of_json_has_every_verb_that_prints_it() -> None:
    described = {command.split()[0] for command in reference.VIEWS} | {"logs"}  # docs/events.md
    printing = {name for name in VERBS if "--json" in parser_of(name).format_usage()}
    assert printing == described


def test_prose_is_wrapped_at_100_columns() -> None:
    assert [
        f"{name}: {line}"
        for name in documents.DOCUMENTS
        for line in prose(read(name)).splitlines()
        if len(line) > 100 and not line.lstrip().startswith(("|", "<!--"))
    ] == []


def test_the_exit_codes_are_those_of_the_code() -> None:
    listed = [(int(number), name) for number, name, _ in rows(read("docs/reference.md"), "## Exit codes")]
    assert listed == [(int(code), code.name) for code in Exit]


def test_the_threat_model_counts_the_attacks_of_the_zoo() -> None:
    """Each kind with its attacks: how many there are, and how many have no effect with the sandbox and without it."""
    kinds = {kind: [attack.needs_sandbox for attack in ATTACKS.values() if attack.kind == kind] for kind in Kind}
    counted = [(kind, len(needs), len(needs), needs.count(False)) for kind, needs in kinds.items()]
    listed = rows(read("docs/threat-model.md"), "## Attacks")
    assert listed == [[str(cell) for cell in row] for row in counted]
    assert len(ATTACKS) >= 60


def test_the_cases_of_the_corpus_are_counted_right() -> None:
    cases = [case for language in load_corpus().values() for case in language.cases]
    assert f"{len(cases)} cases" in read("CONTRIBUTING.md")
    assert f"{len(cases)} cases, with one" in read("README.md")
    assert [case.family for case in cases].count("known limit") == 1


def test_the_walk_from_start_to_the_moved_ref_names_functions_of_at_most_20_modules() -> None:
    walk = read("docs/architecture.md").partition("## From `start`")[2].partition("\n## ")[0]
    modules = {path: (documents.ROOT / "runplan" / path).read_text() for path in re.findall(r"`([\w/]+\.py)`", walk)}
    named = re.findall(r"`(?:\w+\.)?(\w+)` in `([\w/]+\.py)`", walk)
    assert [name for name, path in named if f"def {name}(" not in modules[path]] == []
    assert 15 < len(modules) <= 20


def test_every_reason_is_listed_with_its_next_action() -> None:
    listed = [
        (name.strip("`"), action, begins) for name, action, begins in rows(read("docs/reference.md"), "## Reasons")
    ]
    assert listed == [(str(reason), reason.advice, reason.beginning) for reason in Reason]


def test_the_reserved_reasons_are_named() -> None:
    after = read("docs/reference.md").partition("## Reasons")[2]
    sentence = next(part for part in after.split("\n\n") if "reserved:" in part)
    assert re.findall(r"`([a-z-]+)`", sentence) == list(RESERVED)


def test_what_a_run_can_wait_for_is_what_the_page_lists() -> None:
    waits = rows(read("docs/reference.md"), "#### Waits")
    assert sorted(name for first, _ in waits for name in re.findall(r"`([a-z-]+)`", first)) == sorted(WaitKind)


@pytest.mark.parametrize(
    ("field", "values"), [("run.state", RunStatus), ("run.step", PhaseStep), ("run.outcome", RunOutcome)]
)
def test_the_values_of_a_field_are_those_of_the_code(field: str, values: type[StrEnum]) -> None:
    line = next(line for line in read("docs/reference.md").splitlines() if line.startswith(f"| `{field}` |"))
    assert re.findall(r"`([a-z-]+)`", line) == list(values)


#: The files that the recipes of CONTRIBUTING.md make.
MADE = ("runplan/engine/landing/ref_only.py", "runplan/adapters/agents/clis/acme.py", "tests/samples/acme/")


def test_the_recipes_name_files_and_symbols_that_exist() -> None:
    """A table names the symbols of each file that changes; an example uses those of the product."""
    recipes = read("CONTRIBUTING.md").partition("\n## Add a landing mode\n")[2].partition("\n## Real agents\n")[0]
    files = {*re.findall(r"`((?:runplan|tests|config|docs)/[\w/.]*)`", prose(recipes))}
    assert {*MADE} <= files
    assert [file for file in sorted(files - {*MADE}) if not (documents.ROOT / file).exists()] == []
    code = "".join(file.read_text(encoding="utf-8") for file in sources())
    changed = re.findall(r"^\| `(runplan/[\w/.]+)` \| (.+) \|$", recipes, re.MULTILINE)
    assert len(changed) >= 6
    symbols = [(file, name) for file, change in changed for name in re.findall(r"`(\w+)`", change)]
    words = {*re.findall(r"\w+", code)}
    assert [(file, name) for file, name in symbols if name not in (words if file in MADE else read(file))] == []
    examples = "".join(fence.text for fence in documents.fences(recipes) if fence.language in ("python", "py"))
    called = {*re.findall(r"(\w+)\(", examples)} - {"Acme", "_file"}
    assert [name for name in sorted(called) if name not in words] == []


def sources() -> list[Path]:
    return sorted((documents.ROOT / "runplan").rglob("*.py"))


def test_every_dependency_is_listed_with_its_purpose() -> None:
    listed = {cells[0].strip("`") for cells in rows("\n" + read("docs/dependencies.md"), "# Dependencies")}
    declared = tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]
    assert listed == {re.split("[<>=]", dependency)[0] for dependency in declared}


def test_the_variables_of_an_agent_are_those_of_the_code() -> None:
    listed = {cells[0].strip("`") for cells in rows(read("docs/agents.md"), "### Environment")}
    agents = Agents(AgentsSettings(), Path(), "p", "r", {})
    started = DispatchStarted(id="d", role=Role.DELEGATE, cycle=1)
    _, given = agents.command("true", started, directory=Path(), cwd=Path(), writable=())
    more = ("ATTEMPT", "CYCLE", "PROMPT", "RETURN", "NOTES", "LANE", "PORT", "MODEL", "EFFORT")
    assert listed == {*given, *(f"RUNPLAN_{name}" for name in more)}


def test_the_environment_an_agent_keeps_is_the_one_the_page_lists() -> None:
    sentence = (
        read("docs/agents.md").partition("Of your environment the agent sees")[2].partition("and the names under")[0]
    )
    assert set(re.findall(r"`([A-Z_]+)`", sentence)) == {*ALLOWED, *ALLOWED_PREFIXES}


#: Pages about the code, and the modules that their examples add.
ABOUT_CODE = (
    *("CONTRIBUTING.md", "docs/architecture.md", "docs/crash-safety.md", "docs/dependencies.md", "docs/reference.md"),
)
ADDED = {"runplan/engine/landing/ref_only.py", "runplan/adapters/agents/clis/acme.py"}


def test_every_term_of_the_glossary_is_a_word_of_the_code() -> None:
    terms = re.findall(r"\*\*([a-z-]+)\*\*", read("docs/glossary.md"))
    words = {part for file in sources() for part in file.stem.split("_")}
    texts = (
        re.sub(r'""".*?"""|"[^"\n]*"|#[^\n]*', "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        for file in sources()
    )
    for name in {name for text in texts for name in re.findall(r"[A-Za-z_]+", text)}:
        words |= {part.lower() for part in [*re.findall(r"[A-Z]?[a-z]+", name), name.replace("_", "")]}
    assert terms
    assert [term for term in terms if not {(plain := term.replace("-", "")), f"{plain}s"} & words] == []


@pytest.mark.parametrize("name", [*ABOUT_CODE, *(name for name in documents.DOCUMENTS if "/adr/" in name)])
def test_every_module_that_a_page_names_exists(name: str) -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", read(name))) - ADDED
    folders = [documents.ROOT / folder for folder in (".", "runplan", "tests/agents")]
    assert {path for path in named if not any((folder / path).exists() for folder in folders)} == set()
