"""The documents are right: commands run, links lead somewhere, examples are understood."""

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from runplan.adapters.agents.prompts import PLACEHOLDERS, PRINCIPLES
from runplan.domain.gitfacts import AGENT
from runplan.interfaces.cli.verbs import EXAMPLES, VERBS
from tests.support import documents
from tests.support.cli import SETTINGS, Project, a_project, end_processes_of, fix, steps, with_remote, writes
from tests.support.daemons import a_manager
from tests.support.documents import DOCUMENTS, anchors, commands, fences, links, read, rows, verbs_named
from tests.support.github.hub import Issue
from tests.support.github.server import on_github
from tests.support.planning import REVISE, planner
from tests.support.transcripts import PAGES, play as play_page

pytestmark = pytest.mark.promise

PHASES = ("1", "2", "4b")
#: Files of their own test these.
NOT_RUN = (
    *("demo", "daemon", "fleet", "mcp", "memory", "notify", "tell", "attach", "uninstall", "watch", "web", "worker"),
)
#: Verbs that read; they share a project.
READING = (
    *("completion", "help", "status", "next", "inbox", "metrics", "report", "logs", "explain", "check", "config"),
    *("doctor", "gc"),
)


def examples(verb: str) -> str:
    """The examples of `--help` as a page would show them."""
    return f"```text\n{EXAMPLES[verb]}\n```\n"


def verb_of(line: str) -> str:
    return re.sub(r"^.*?runplan ", "", line).split()[0]


#: All commands, with a plan by its name: a path means the same.
SHOWN = sorted(
    {
        line.replace("plans/X.md", "X")
        for text in (*map(read, DOCUMENTS), *map(examples, VERBS))
        for line in commands(text)
    }
)


def by_verb(verbs: Container[str]) -> list[Any]:
    """The commands of these verbs; the first one of each is in `make test`."""
    lines = [line for line in SHOWN if verb_of(line) in verbs]
    first = {verb_of(line): line for line in reversed(lines)}.values()
    return [pytest.param(line, marks=() if line in first else pytest.mark.rest) for line in lines]


def play(project: Project, line: str) -> tuple[int, str]:
    runs = [run for (run,) in project.rows("SELECT id FROM runs ORDER BY number DESC")]
    words = [runs[0] if re.fullmatch("r1a2b3c4d?", word) else word for word in shlex.split(line)]
    env = dict(word.split("=", 1) for word in words[: words.index("runplan")])
    ran = project.runplan(*words[words.index("runplan") + 1 :], **env)
    return ran.code, ran.out + ran.err


# --- commands -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose plan X is complete."""
    project = a_project(tmp_path_factory.mktemp("ended"), *PHASES)
    project.start("finish", "auto").exits(0)
    return project


@pytest.mark.parametrize("line", by_verb(READING))
def test_a_reading_command_succeeds(ended: Project, line: str) -> None:
    code, printed = play(ended, line)
    assert code == 0, printed


def scheduled(project: Project) -> None:
    assert project.runplan("start", "X", "every", "4h").code == 0


def waiting(project: Project) -> None:
    """Its phase 2 needs approval."""
    project.agent(writes("2") + fix('append = "2.txt"\ntext = "more"', phase="2"))
    assert project.start().code == 4


def asking(project: Project) -> None:
    """Its phase 2 has a question."""
    project.agent(steps('say = "BLOCKER: which port?"', phase="2"))
    assert project.start().code == 4
    project.agent(writes("2"))


def planning(project: Project) -> None:
    """It has a planner and texts that goals are taken from."""
    project.commit_file("runplan.toml", SETTINGS.replace("[agents]\n", '[agents]\nplanner = "robot"\n'))
    project.agent(planner())
    project.commit_file("PRD.md", "# Greet people\n")
    project.commit_file("specs/001-login/spec.md", "# Login\n\nPeople log in.\n")


def proposed(project: Project) -> None:
    """It has a proposed plan, and an editor that changes it."""
    planning(project)
    project.repo.git("rm", "-q", "plans/X.md")
    project.repo.git("commit", "-qm", "Drop X")
    assert project.runplan("plan", "Greet", "--out", "plans/X.md", "--quick", "--foreground").code == 4
    project.extra["EDITOR"] = "sed -i s/bye/ciao/"


def failed(project: Project) -> None:
    project.agent("")
    assert project.start("auto").code == 1
    project.agent(writes("4b"))


def landed(project: Project) -> None:
    assert project.start("auto").code == 0


def with_origin(project: Project) -> None:
    project.commit_file("specs/001-login/tasks.md", "# Tasks: Login\n\n## Phase 1: Form\n\n- [ ] T001 Draw it\n")
    for path in (".taskmaster/tasks/tasks.json", "prd.json"):
        project.commit_file(path, '[{"title": "Draw it", "status": "pending"}]\n')
    project.commit_file("backlog/config.yml", "project_name: X\n")
    project.commit_file(
        "backlog/tasks/task-1 - Draw.md",
        "---\nid: T-1\ntitle: Draw\nstatus: To Do\nlabels: []\ndependencies: []\n---\n",
    )
    with_remote(project, project.path.with_name("origin.git"))


def without_settings(project: Project) -> None:
    (project.path / "runplan.toml").unlink()


def with_manager(project: Project) -> None:
    project.extra["PATH"] = f"{a_manager(project.path.with_name('bin'))}:{project.env['PATH']}"


#: How the project is prepared in which each verb that changes something is run, and its phases.
PROJECTS: dict[str, tuple[Callable[[Project], None], tuple[str, ...]]] = {
    **dict.fromkeys(("start", "watch-issues", "work", "queue"), (with_origin, PHASES)),
    **dict.fromkeys(("stop", "now", "pause", "resume"), (scheduled, PHASES)),
    **dict.fromkeys(("diff", "approve", "reject"), (waiting, ("2",))),
    "answer": (asking, ("2",)),
    "plan": (planning, PHASES),
    "edit": (proposed, PHASES),
    "retry": (failed, ("4b",)),
    "undo": (landed, ("3",)),
    "init": (without_settings, PHASES),
    "service": (with_manager, ()),
}


def expected_code(line: str) -> int:
    asks = verb_of(line) == "start" and "--foreground" in line and "auto" not in line
    if "plan -" in line and "--" not in line:
        return 2  # standard input is empty
    return 4 if asks or verb_of(line) in ("answer", "plan", "edit") or " -m " in line or "--tree" in line else 0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of a user whose daemon serves the repositories of all these commands."""
    place = tmp_path_factory.mktemp("home")
    yield place
    end_processes_of(place)


@pytest.mark.parametrize("line", by_verb(PROJECTS))
def test_a_changing_command_ends_as_expected(tmp_path: Path, home: Path, line: str) -> None:
    on_forge = line.endswith(" pr") or "issue" in line or "--review" in line or "--then" in line
    own = on_forge or verb_of(line) == "service"  # another environment of the daemon
    with contextlib.ExitStack() as stack:
        prepare, phases = PROJECTS[verb_of(line)]
        project = a_project(tmp_path, *phases)
        project.home = project.home if own else home
        prepare(project)
        if own:
            stack.callback(end_processes_of, project.home)
        if on_forge:
            hub = stack.enter_context(on_github(project, tmp_path)).hub
            hub.issues[42] = Issue(number=42, title="Bug", body="It is broken.")
        if "issues:" in line:
            assert project.runplan("watch-issues", "--label", "runplan", "every", "10m").code == 0
        if "queue:" in line:
            assert project.runplan("work", "all", "every", "10m").code == 0
        if "--revise" in line:
            text = project.show("main:plans/X.md")
            project.agent(planner(draft={"plan": text}, revise={**REVISE, "plan": text}))
        if "--review" in line:
            assert project.start("finish", "pr").code == 4
        asked = [body["id"] for body in project.bodies("QuestionAsked")]
        code, printed = play(project, line.replace("r1a2b3c4d.2", *asked) if asked else line)
    assert code == expected_code(line), printed


def test_every_verb_is_tested() -> None:
    assert {*READING, *NOT_RUN, *PROJECTS} == set(VERBS)
    assert {verb_of(line) for line in SHOWN} <= set(VERBS)


def test_every_make_target_that_a_page_names_exists() -> None:
    named = {
        target
        for name in DOCUMENTS
        for target in re.findall(r"(?:^|`)make ([a-z-]+)(?![a-z=-])", read(name), re.MULTILINE)
    }
    targets = re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE)
    assert named - {*targets, "test"} == set()


# --- verbs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_help_with_examples_and_a_row(ended: Project, verb: str) -> None:
    ran = ended.runplan(verb, "--help").exits(0)
    assert f"  runplan {verb}" in ran.out.partition("examples:")[2]
    listed = " ".join(cells[0] for cells in rows(read("docs/reference.md"), "## Commands"))
    assert re.search(rf"`{verb}\b", listed)


def test_no_document_names_a_verb_that_is_not_there() -> None:
    known = {*VERBS, AGENT.name.split()[1]}
    assert {name: unknown for name in DOCUMENTS if (unknown := verbs_named(read(name)) - known)} == {}


# --- links --------------------------------------------------------------------------------------------


def test_every_link_leads_somewhere() -> None:
    broken = []
    for name in DOCUMENTS:
        here = documents.ROOT / name
        for target in links(read(name)):
            path, _, anchor = target.partition("#")
            file = (here.parent / path) if path else here
            if not file.exists() or (anchor and anchor not in anchors(file.read_text(encoding="utf-8"))):
                broken.append(f"{name}: {target}")
    assert broken == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [documents.ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        waiting += [page.parent / target.partition("#")[0] for target in links(page.read_text()) if target[0] != "#"]
    assert {documents.ROOT / name for name in DOCUMENTS} - seen == set()


def test_the_figures_of_the_readme_are_those_of_its_picture() -> None:
    drawn = "".join(ET.parse(documents.ROOT / "docs/session.svg").getroot().itertext())
    figures = [line for line in read("README.md").splitlines() if " tokens, " in line]
    assert len(figures) == 2
    assert [line for line in figures if line not in drawn] == []


# --- examples -----------------------------------------------------------------------------------------


def plan_examples() -> list[tuple[str, str]]:
    """The plans of plan-format.md, each with the output of check that follows it, if one does."""
    shown = [fence for fence in fences(read("docs/plan-format.md")) if fence.language in ("markdown", "check")]
    following = [*shown[1:], None]
    return [
        (one.text, two.text if two is not None and two.language == "check" else "")
        for one, two in zip(shown, following, strict=True)
        if one.language == "markdown"
    ]


@pytest.mark.parametrize(("text", "shown"), plan_examples())
def test_check_prints_what_the_format_page_shows(ended: Project, tmp_path: Path, text: str, shown: str) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans/X.md").write_text(text, encoding="utf-8")
    ran = ended.runplan_in(tmp_path, "check", "plans/X.md", "--strict")
    assert ran.code == (2 if "warning: " in shown else 0), ran.err
    assert shown in ("", ran.out)


@pytest.mark.parametrize(
    "name",
    [
        *("docs/agents.md", "docs/configuration.md", "docs/notifications.md"),
        *("docs/sandboxes/bubblewrap.md", "docs/sandboxes/none.md"),
    ],
)
def test_settings_in_a_page_are_valid(tmp_path: Path, name: str) -> None:
    project = a_project(tmp_path)
    blocks = [fence.text for fence in fences(read(name)) if fence.language == "toml" and "[[" not in fence.text]
    assert blocks
    for block in blocks:
        file = "home/.config/runplan/runplan.toml" if "[notify]" in block else "runplan.toml"
        (project.path / file).parent.mkdir(parents=True, exist_ok=True)
        (project.path / file).write_text(block, encoding="utf-8")
        project.runplan("config", XDG_CONFIG_HOME=str(project.path / "home/.config")).exits(0)


def test_the_agent_in_the_page_works_on_a_phase(tmp_path: Path) -> None:
    (source,) = [fence.text for fence in fences(read("docs/agents.md")) if fence.language == "python"]
    project = a_project(tmp_path, "1")
    project.commit_file("tools/agent.py", source)
    agent = '[agents]\nimplementer = "own"\nverifier = "own"\n[agents.own]\nkind = "command"\n'
    project.commit_file("runplan.toml", f'{agent}argv = ["python3", "tools/agent.py"]\n')
    project.start("auto").exits(0)
    assert project.show("main:hello.txt") == "hello"


def test_a_prompt_of_the_repository_and_one_of_the_user_replace_the_shipped_ones(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    mine = tmp_path / "config/runplan/prompts/verify.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("From my settings.\n" + read("config/prompts/verify.md"), encoding="utf-8")
    project.commit_file("config/prompts/implement.md", "Rules of this project.\n" + read("config/prompts/implement.md"))
    project.start("auto", XDG_CONFIG_HOME=str(tmp_path / "config")).exits(0)
    asked = {
        path.read_text(encoding="utf-8").splitlines()[0]
        for path in project.path.glob(".git/runplan/dispatch/*/prompt.md")
    }
    assert asked == {"Rules of this project.", "From my settings."}
    shipped = f"{documents.ROOT}/config/prompts/*.md: fix, try, final, plan-understand, "
    used = f"config/prompts/*.md on main: implement; {shipped}"
    doctor = project.runplan("doctor", XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert used in doctor.out
    assert f"; {mine.parent}/*.md: verify\n" in doctor.out


def test_a_prompt_with_an_unknown_placeholder_is_refused_before_any_work(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    project.commit_file("config/prompts/fix.md", read("config/prompts/fix.md").replace("{{why}}", "{{reason}}"))
    ran = project.start("auto").exits(2)
    assert (
        "config/prompts/fix.md on main: unknown placeholder {{reason}}; known are baseline, branch, context, diff, "
        in ran.err
    )
    assert project.events() == []


def test_the_page_on_prompts_names_the_words_of_each_prompt() -> None:
    listed = re.findall(r"\| (`\{\{.*) \| [^|]* \| ([a-z, ]+) \|", read("config/prompts/README.md"))
    assert listed
    for role in PLACEHOLDERS:
        everywhere = "every step" if role.startswith("plan-") else "" if role == PRINCIPLES else "all"
        ways = {role.removeprefix("plan-"), everywhere}
        named = {
            word
            for words, roles in listed
            if not ways.isdisjoint(roles.split(", "))
            for word in re.findall(r"\w+", words)
        }
        assert named == set(re.findall(r"\{\{(\w+)\}\}", read(f"config/prompts/{role}.md")))


# --- JSON ---------------------------------------------------------------------------------------------


def documented(heading: str) -> object:
    """The first JSON block below a heading of the reference."""
    section = read("docs/reference.md").partition(f"\n### {heading}\n")[2]
    return json.loads(next(fence.text for fence in fences(section) if fence.language == "json"))


def shape(value: object) -> object:
    """The keys of a value at every level; of a list, those of its first entry."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else None


def test_status_has_the_fields_of_its_page(ended: Project) -> None:
    stated = shape(documented("status --json"))
    given = shape(ended.runplan("status", "X", "--json").json)
    assert isinstance(stated, dict)
    assert isinstance(given, dict)
    run = given["run"] | {"stuck": stated["run"]["stuck"]}
    known = {"run": run, **{name: stated[name] for name in ("claim", "schedule", "daemon", "actions")}}
    assert given | known == stated, "a run that has ended has no claim, schedule and draining daemon"


def test_check_has_the_fields_of_its_page(ended: Project) -> None:
    assert shape(ended.runplan("check", "X", "--json").json) == shape(documented("check --json"))


def test_the_other_verbs_have_no_field_that_the_page_lacks(ended: Project) -> None:
    for line, fields in rows(read("docs/reference.md"), "### The others"):
        value = ended.runplan(*shlex.split(line.strip("`"))[1:]).json
        for entry in value if isinstance(value, list) else [value]:
            assert {*entry} <= set(re.findall(r'"(\w+)"', fields)), line


def test_diff_has_the_fields_of_its_page(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    assert project.start().code == 4
    stated = shape(documented("diff --json"))
    assert isinstance(stated, dict)
    assert set(project.runplan("diff", "X", "--json").json) == set(stated)


def test_a_proposal_has_the_fields_of_its_page(tmp_path: Path) -> None:
    project = a_project(tmp_path, *PHASES)
    planning(project)
    ran = project.runplan("plan", "Greet", "--quick", "--foreground", "--json").exits(4)
    stated: Any = shape(documented("plan --json"))
    stated["proposal"]["summary"]["permissions"] = None
    assert shape(ran.json) == stated
    assert shape(project.runplan("diff", "greet", "--json").json) == stated


PROMISES = ("README.md", "docs/planning.md")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in PROMISES else pytest.mark.rest) for name in PAGES]
)
def test_every_command_of_a_page_prints_what_the_page_shows(tmp_path: Path, name: str) -> None:
    different = [step for step in play_page(name, tmp_path / "uma") if not step.agrees]
    assert different == []
