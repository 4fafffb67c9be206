"""A new agent is one module and one folder of samples: those of CONTRIBUTING.md and no other file."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.support.cli import Project, a_project
from tests.support.documents import ROOT, fences, read

SECTION = read("CONTRIBUTING.md").partition("\n## Add an agent\n")[2]

#: The program itself: it writes what phase 1 asks for, and judges it.
PROGRAM = f"""\
#!{sys.executable}
import json, os, pathlib, sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print("acme 4.2"))
assert sys.argv[1:3] == ["run", "--json"], sys.argv
assert "phase" in sys.stdin.read()
if os.environ["RUNPLAN_ROLE"] == "verify":
    items = [{{"item": "W1", "result": "pass", "evidence": "1.txt:1"}}]
    answer = json.dumps({{"status": "done", "summary": "Looked.", "items": items}})
    pathlib.Path(os.environ["RUNPLAN_RETURN"]).write_text(answer)
else:
    pathlib.Path("1.txt").write_text(sys.argv[3] + " with " + os.environ["ACME_API_KEY"][:4] + "\\n")
print(json.dumps({{"type": "start", "id": "s-1"}}))
print(json.dumps({{"type": "say", "text": "Phase 1 is done."}}))
print(json.dumps({{"type": "usage", "in": 1200, "out": 34}}))
print(json.dumps({{"type": "done"}}))
"""


def block(language: str, place: int = 0) -> str:
    return [fence.text for fence in fences(SECTION) if fence.language == language][place]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources with one module and one folder more."""
    made = tmp_path_factory.mktemp("tree")
    without = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("runplan", "config", "docs", "tests"):
        shutil.copytree(ROOT / name, made / name, ignore=without)
    shutil.copy(ROOT / "pyproject.toml", made)
    (made / "runplan/adapters/agents/clis/acme.py").write_text(block("py"), encoding="utf-8")
    for stray in (".#acme.py", "_draft.py", "acme-old.py", "notes.txt"):  # other files are no agents
        (made / "runplan/adapters/agents/clis" / stray).write_text("", encoding="utf-8")
    samples = made / "tests/samples/acme"
    samples.mkdir()
    (samples / "success.jsonl").write_text(block("jsonl"), encoding="utf-8")
    (samples / "success.meta.json").write_text(block("json"), encoding="utf-8")
    (samples / "expected.toml").write_text(block("toml"), encoding="utf-8")
    return made


@pytest.fixture
def project(tmp_path: Path, tree: Path) -> Project:
    program = tmp_path / "bin/acme"
    program.parent.mkdir()
    program.write_text(PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    project = a_project(tmp_path, "1")
    path = f"{program.parent}:{project.env['PATH']}"
    project.extra |= {"PYTHONPATH": str(tree), "PATH": path, "ACME_API_KEY": "key-of-acme"}
    return project


def test_a_new_agent_module_implements_and_verifies_a_phase(project: Project) -> None:
    """Called, given its key, read, judged, booked."""
    project.commit_file("runplan.toml", '[agents]\nimplementer = "acme"\nverifier = "acme"\n')
    project.start("auto").exits(0)
    assert project.show("main:1.txt") == "--write with key-"
    ended = [body for body in project.bodies("DispatchEnded") if body.get("agent")]
    assert [(each["agent"], each["kind"]) for each in ended] == [("acme", "success")] * 2
    assert [(each["input_tokens"], each["output_tokens"]) for each in ended] == [(1200, 34)] * 2
    started = [body for body in project.bodies("DispatchStarted") if body["agent"]]
    assert [each["version"] for each in started] == ["4.2"] * 2


def test_a_new_agent_module_is_known_to_init_doctor_and_config(project: Project) -> None:
    (project.path / "runplan.toml").unlink()
    only = f"{project.extra['PATH'].partition(':')[0]}:/usr/bin:/bin"
    assert project.runplan("init", PATH=only).code == 0
    assert 'implementer = "acme"' in (project.path / "runplan.toml").read_text(encoding="utf-8")
    project.repo.commit("Set up")
    assert "acme (acme 4.2)" in project.runplan("doctor", PATH=only).out

    limited = project.runplan("doctor", PATH=only, RUNPLAN_LIMITS_USD="1").out
    assert "acme reports no dollars" in limited
    unknown = project.runplan("config", RUNPLAN_AGENTS_VERIFIER="hal")
    assert "unknown agent 'hal'; known agents: acme, aider, claude, codex, command," in unknown.err
