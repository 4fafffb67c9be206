"""Real agents work a phase against a scripted model: they land it, or end by name, in bounded time, leaving nothing.

Run by `make test-agents`. A program that is not installed is skipped, with the reason.
"""

import contextlib
import json
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from runplan.domain.names import DIFF_FILE
from tests.agents.clis import (
    CLIS,
    FIX,
    FOREIGN,
    FORGE,
    GOAL,
    IMPLEMENT,
    PROPOSED,
    SANDBOX,
    STEPS,
    VERIFY,
    Cli,
    a_project,
    fenced,
    in_image,
    plan_work,
    verdict,
    work,
)
from tests.agents.modelserver import TITLE, ModelServer
from tests.agents.scenario import KEY, Fault, FaultKind, Judge, Read, Run, Say, Turn, Use, Write
from tests.container.image import find_image, list_engines
from tests.support.cli import Project
from tests.support.forks import Process
from tests.support.planning import CRITIQUE

pytestmark = pytest.mark.timeout(300)

#: (how the agent's work ended, what runplan makes of it) by case.
#: "waiting": it says until when, and goes on by itself. A reason: it failed by that name.
ENDINGS: dict[str, tuple[str, str]] = {
    "limit": ("limit", "waiting"),
    "overload": ("overloaded", "waiting"),
    "hang": ("silent", "silent"),
    "stall": ("silent", "silent"),
    "auth": ("auth", "agent-failed"),
}
LIMITS = 'wall = "150s"\nsilence = "60s"'
SHORT = 'wall = "70s"\nsilence = "12s"'
#: For a program that is silent for a while before it reports the error.
PATIENT = 'wall = "200s"\nsilence = "150s"'
LONGEST_S = 150.0  #: until any ending has its name: twice the wall limit, and the time to end the processes


@dataclass(frozen=True)
class How:
    """The result of a run."""

    outcome: str  #: landed, waiting, or the reason of a failure
    kind: str  #: of the last agent's ending
    output: str  #: standard error, and the line of `status` for a waiting run
    seconds: float


Record: TypeAlias = Callable[[str, How], None]


@pytest.fixture(params=list(CLIS))
def cli(request: pytest.FixtureRequest) -> Cli:
    found = CLIS[request.param]
    if found.missing:
        pytest.skip(found.missing)
    return found


@pytest.fixture(autouse=True)
def nothing_is_left_running(tmp_path: Path) -> Iterator[None]:
    yield
    assert running(tmp_path) == []


@pytest.fixture
def record(record_property: Callable[[str, object], None], cli: Cli) -> Record:
    def add(case: str, how: How) -> None:
        outcome = how.outcome if how.kind in ("success", how.outcome) else f"{how.outcome} ({how.kind})"
        for name, value in (("cli", cli.name), ("case", case), ("seconds", f"{how.seconds:.1f}"), ("outcome", outcome)):
            record_property(name, value)

    return add


def test_the_work_of_a_real_agent_lands(tmp_path: Path, cli: Cli, record: Record) -> None:
    """The real program edits a file, another one judges it, and the file is on main, with what it cost."""
    with ModelServer(work()) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS)
        how = carried(project)
    record("success", how)
    assert how.outcome == "landed", how.output
    assert project.show("main:1.txt") == "one"
    assert "✅ Done" in project.show("main:plans/X.md")
    assert project.landed() == ["1"]
    assert project.leftovers() == []
    ended = endings(project)
    assert [(each["role"], each["kind"]) for each in ended] == [("implement", "success"), ("verify", "success")]
    assert not any(TITLE.encode() in seen.body for seen in server.seen), "nobody reads a title"
    asked = sum(seen.part != "" for seen in server.seen)
    assert asked * 1_000 <= sum(each["input_tokens"] for each in ended) <= (asked + 4) * 1_000
    assert all(each["output_tokens"] for each in ended)


@pytest.mark.parametrize("sandbox", ["bwrap", "container"])
def test_a_real_agent_reaches_its_model_as_the_one_host(tmp_path: Path, cli: Cli, sandbox: str, record: Record) -> None:
    if sandbox == "container" and not any(map(find_image, list_engines())):
        pytest.skip("no engine has the image; make test-container makes it")
    with ModelServer(work()) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS)
        project.extra |= {"RUNPLAN_AGENTS_SANDBOX": sandbox, **in_image(cli)}
        project.extra["RUNPLAN_AGENTS_NETWORK"] = server.url.removeprefix("http://")
        how = carried(project)
    record(f"one host, {sandbox}", how)
    assert how.outcome == "landed", how.output
    assert project.show("main:1.txt") == "one"


#: Files in the home with a key and the settings to use it; URL is the provider's address.
LOGINS: dict[str, dict[str, str]] = {
    "aider": {".aider/oauth-keys.env": f"OPENAI_API_KEY={KEY}\n"},
    "claude": {
        ".claude/.credentials.json": json.dumps(
            {
                "claudeAiOauth": {
                    "accessToken": KEY,
                    "refreshToken": "x",
                    "expiresAt": 4e12,
                    "scopes": ["user:inference"],
                }
            }
        )
    },
    "codex": {
        ".codex/auth.json": json.dumps({"OPENAI_API_KEY": KEY}),
        ".codex/config.toml": 'model_provider = "own"\n[model_providers.own]\nname = "own"\nbase_url = "URL"\n'
        'wire_api = "responses"\nrequires_openai_auth = true\n',
        ".codex/skills/mine/SKILL.md": "---\nname: mine\ndescription: Mine.\n---\n",
    },
    "gemini": {
        ".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}',
        ".gemini/.env": f"GEMINI_API_KEY={KEY}\nGOOGLE_GEMINI_BASE_URL=URL\n",
    },
    "mini": {".config/mini-swe-agent/.env": f"OPENAI_API_KEY={KEY}\nMSWEA_CONFIGURED=true\n"},
    "opencode": {".local/share/opencode/auth.json": json.dumps({"openai": {"type": "api", "key": KEY}})},
    "qwen": {
        ".qwen/settings.json": json.dumps(
            {"security": {"auth": {"selectedType": "openai", "apiKey": KEY, "baseUrl": "URL"}}, "$version": 1}
        )
    },
}


def test_a_login_in_the_home_is_seen(tmp_path: Path, cli: Cli, record: Record) -> None:
    """Without a key in the environment, the implementer and the verifier use the one that the user logged in with."""
    with ModelServer(work()) as server:
        files = {name: text.replace("URL", server.url + cli.path) for name, text in LOGINS[cli.name].items()}
        user = replace(cli, key="UNUSED", without=(cli.key,), home={**cli.home, **files})
        project = a_project(tmp_path, user, server, limits=LIMITS)
        how = carried(project)
    record("login", how)
    assert how.outcome == "landed", how.output
    assert {name: (project.home / name).read_text() for name in files} == files


@pytest.mark.parametrize("case", list(ENDINGS))
def test_a_provider_error_has_a_named_ending(tmp_path: Path, cli: Cli, case: str, record: Record) -> None:
    """Each trouble of a provider has its name in bounded time; nothing lands, and nothing is left running."""
    fault = Fault(kind=FaultKind(case), turn=1 if cli.tools else None)
    with ModelServer(work(faults=(fault,))) as server:
        project = a_project(tmp_path, cli, server, limits=PATIENT if case in cli.patient else SHORT)
        before = project.repo.git("rev-parse", "main")
        how = carried(project)
        record(case, how)
        assert server.faulted(), [seen.path for seen in server.seen]
    assert (how.kind, how.outcome) == ENDINGS[case], how.output
    assert how.seconds < (2 * LONGEST_S if case in cli.patient else LONGEST_S)
    if how.kind == "limit":
        assert (wait_s(project) > 3_400) == cli.reports_reset, "the limit ends in an hour"
    assert project.repo.git("rev-parse", "main") == before
    assert project.dispatched() == ["implement"] * (2 if how.kind == "silent" else 1), "silence is tried once more"


@pytest.mark.parametrize("cli", ["claude"], indirect=True)
def test_the_limit_of_a_subscription_has_its_reset_time(tmp_path: Path, cli: Cli, record: Record) -> None:
    """With a login instead of a key the program reports the limit as an event with its reset time."""
    by_login = replace(cli, key="CLAUDE_CODE_OAUTH_TOKEN", without=("ANTHROPIC_API_KEY",))
    with ModelServer(replace(work(faults=(Fault(kind=FaultKind.LIMIT, turn=1),)), resets_in=7_200)) as server:
        project = a_project(tmp_path, by_login, server, limits=SHORT)
        how = carried(project)
        record("limit-login", how)
    assert (how.kind, how.outcome) == ENDINGS["limit"], how.output
    assert 7_000 < wait_s(project) < 7_600


def test_an_agent_with_a_full_context_hands_over(tmp_path: Path, cli: Cli, record: Record) -> None:
    """The real program is stopped while a tool runs, and a fresh one continues with a note."""
    if cli.name not in ("claude", "opencode", "qwen"):
        pytest.skip(f"{cli.name} reports no usage before its end")
    scenario = work(implement=(Write("half.txt", "x\n"), Run("sleep 30"), Say("I would go on.")))
    after = (Write("1.txt", "one\n"), Say("Phase 1 is done."))
    parts: dict[str, tuple[Turn, ...]] = {"# Hand-over 1": after, **scenario.parts}
    with ModelServer(replace(scenario, parts=parts, small="# Hand-over 1")) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS, more="context = 1500\n")
        how = carried(project)
    record("hand-over", how)
    assert how.outcome == "landed", how.output
    assert len([body for kind, body in project.events() if kind == "HandedOver"]) == 1
    assert [each["kind"] for each in endings(project)] == ["context", "success", "success"]
    assert project.show("main:1.txt") == "one"


@pytest.mark.parametrize("cli", ["claude"], indirect=True)
def test_claude_is_told_to_write_notes_as_it_runs(tmp_path: Path, cli: Cli, record: Record) -> None:
    """The message reaches the model with the result of the tool that runs, and the program ends after its work."""
    done = (Run("sleep 2"), Write("1.txt", "one\n"), Say("Phase 1 is done."))
    with ModelServer(work(implement=done)) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS, more="context = 1900\n")
        how = carried(project)
    record("told", how)
    assert how.outcome == "landed", how.output
    warned = [b"file named by RUNPLAN_NOTES now" in each.body for each in server.seen if each.part == IMPLEMENT]
    assert warned == [False, True, True]


@pytest.mark.parametrize("cli", ["claude"], indirect=True)
def test_claude_gets_of_the_project_what_it_gets_in_a_terminal(tmp_path: Path, cli: Cli) -> None:
    """Memory, skills and agents reach the model; hooks, helpers, servers and the address of the repository do not."""
    touched = f"touch {tmp_path}/RAN"
    hooks = [{"matcher": "", "hooks": [{"type": "command", "command": touched}]}]
    own = {
        "hooks": {"PreToolUse": hooks, "SessionStart": hooks},
        "apiKeyHelper": f"{touched}; echo x",
        "env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"},
        "permissions": {"deny": ["Bash(ls:*)"]},
        "enableAllProjectMcpServers": True,
    }
    files = {
        "CLAUDE.md": "Indent by tabs only. @docs/more.md\n",
        "docs/more.md": "Sign every file.\n",
        "sub/CLAUDE.md": "Here indent by spaces.\n",
        "sub/x.txt": "x\n",
        ".claude/skills/deploy/SKILL.md": "---\nname: deploy\ndescription: Deploys to the moon.\n---\nGo.\n",
        ".claude/agents/critic.md": "---\nname: critic\ndescription: Finds every comma.\n---\nLook.\n",
        ".claude/settings.json": json.dumps(own),
        ".mcp.json": json.dumps({"mcpServers": {"own": {"command": "sh", "args": ["-c", touched]}}}),
    }
    turns = (Run("ls"), Read("sub/x.txt"), Write("1.txt", "one\n"), Say("Phase 1 is done."))
    with ModelServer(work(implement=turns)) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS)
        for name, content in files.items():
            project.repo.write(name, content)
        project.repo.commit("Configure the agent")
        project.repo.write("CLAUDE.local.md", "Prefer short names.\n")
        mine = {"mcpServers": {"mine": {"command": "sh", "args": ["-c", 'touch "$RUNPLAN_RETURN.MINE"']}}}
        (project.home / ".claude.json").write_text(json.dumps(mine), encoding="utf-8")
        how = carried(project)
    assert how.outcome == "landed", how.output
    heard = {part: [seen for seen in server.seen if seen.part == part] for part in (IMPLEMENT, VERIFY)}
    for words in ("Indent by tabs only.", "Sign every file.", "Prefer short names."):
        assert all(words in seen[-1].body.decode() for seen in heard.values())
    implementer = heard[IMPLEMENT][-1].body.decode()
    for words in ("Here indent by spaces.", "Deploys to the moon.", "Finds every comma."):
        assert words in implementer
    assert not (tmp_path / "RAN").exists()
    started = [*(project.path / ".git/runplan/dispatch").glob("*/own/return.json.MINE")]
    assert len(started) == 2, "the user's own server, with the implementer and the verifier"
    assert project.repo.git("ls-files", "CLAUDE.local.md") == ""


@pytest.mark.parametrize("cli", ["claude"], indirect=True)
def test_claude_is_offered_only_tools_that_are_of_use_in_a_run(tmp_path: Path, cli: Cli) -> None:
    with ModelServer(work()) as server:
        assert carried(a_project(tmp_path, cli, server, limits=LIMITS)).outcome == "landed"
    first = next(seen for seen in server.seen if seen.part == IMPLEMENT)
    assert {"Bash", "Edit", "Read", "Write", "Skill", "Agent"} <= set(first.tools)
    assert not {"CronCreate", "EnterWorktree", "ScheduleWakeup", "SendMessage", "Workflow"} & set(first.tools)
    assert len(first.body) < 45_000


@pytest.mark.parametrize("cli", ["aider"], indirect=True)
def test_aider_reads_guarded_files_and_does_not_edit_them(tmp_path: Path, cli: Cli) -> None:
    """The prompt names the plan and the settings, and the program adds every named file to the chat."""
    with ModelServer(work()) as server:
        assert carried(a_project(tmp_path, cli, server, limits=LIMITS)).outcome == "landed"
    for part in (IMPLEMENT, VERIFY):
        body = json.loads(next(seen.body for seen in server.seen if seen.part == part))
        said = [each["content"] for each in body["messages"]]
        editable = "".join(content for content in said if "*added these files" in content)
        read_only = "".join(content for content in said if "READ ONLY files" in content)
        for name in ("plans/X.md", "runplan.toml"):
            assert f"{name}\n```" in read_only
            assert f"{name}\n```" not in editable


@pytest.mark.parametrize("cli", ["codex"], indirect=True)
def test_a_configured_gateway_is_used_although_there_is_a_key(tmp_path: Path, cli: Cli) -> None:
    """The configuration in the user's home names address, key and model; the key in the environment stays out of it."""
    mine = replace(cli, address="UNUSED", key="GATEWAY_KEY", model="")
    with ModelServer(work()) as server:
        project = a_project(tmp_path, mine, server, limits=LIMITS)
        (project.home / ".codex").mkdir()
        (project.home / ".codex/config.toml").write_text(
            'model = "gw-model"\nmodel_provider = "gw"\n[model_providers.gw]\nname = "GW"\nwire_api = "responses"\n'
            f'base_url = "{server.url}/v1"\nenv_key = "GATEWAY_KEY"\n'
        )
        how = carried(project)
        shown = project.runplan("doctor").out
    assert how.outcome == "landed", how.output
    assert {json.loads(seen.body)["model"] for seen in server.seen if seen.part} == {"gw-model"}
    assert f"login of its own configuration; address {server.url}/v1; model gw-model; billed to the account" in shown


def test_a_verifier_changes_nothing(tmp_path: Path, cli: Cli, record: Record) -> None:
    """The model asks the verifier to write and commit: it cannot, or the change is detected."""
    sneak = (
        Write("sneaked.txt", "x\n"),
        Run("echo x > sneaked-too.txt && git add -A && git commit -qm Sneaked"),
        Say(verdict()),
    )
    with ModelServer(work(verify=sneak)) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS)
        how = carried(project)
        record("read-only", how)
        turns = {seen.turn for seen in server.seen if seen.part == VERIFY}
    assert turns, how.output
    expected = "landed" if cli.reads_only or SANDBOX == "bwrap" else "readonly-violated"
    assert how.outcome == ("invalid-verdict" if cli.name == "aider" else expected), (
        how.output
    )  # it adds errors below it
    refs = project.repo.git("for-each-ref", "--format=%(refname)").split()
    kept = [ref for ref in refs if "/parked/" in ref]
    for ref in set(refs) - set(kept):
        assert "Sneaked" not in project.repo.git("log", "--format=%s", ref)
        assert "sneaked" not in project.repo.git("ls-tree", "-r", "--name-only", ref)
    assert project.repo.git("status", "--porcelain") == ""


PLANTED = "total = 0  # planted fault"
NO_FIX = f"{LIMITS}\n[run]\nmax_fix_cycles = 0"


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_verifier_finds_the_fault_in_the_diff(tmp_path: Path, cli: Cli, size: str, record: Record) -> None:
    """A small diff is in the prompt; a large one is read in the worktree, also by a program without a shell."""
    lines = [f"line {number} of a generated table, long enough to fill the page" for number in range(400)]
    text = "\n".join([*(lines if size == "large" else []), PLANTED, ""])
    judge = Judge(PLANTED, found=verdict("fail"), missed=verdict())
    look = () if size == "small" else (Read(DIFF_FILE),)
    implement = (Write("1.txt", text), Say("Phase 1 is done."))
    with ModelServer(work(implement=implement, verify=(*look, judge))) as server:
        project = a_project(tmp_path, cli, server, limits=NO_FIX)
        how = carried(project)
        record(f"diff-{size}", how)
    assert how.outcome == "verification-failed", how.output
    asked = [seen.body.decode() for seen in server.seen if seen.part == VERIFY]
    assert f"+{PLANTED}" in asked[-1]
    assert (f"+{PLANTED}" in asked[0]) == (size == "small" or not cli.tools)


def test_a_real_agent_fixes_what_did_not_pass(tmp_path: Path, cli: Cli, record: Record) -> None:
    judge = Judge("+repaired", found=verdict(), missed=verdict("fail"))
    scenario = work(verify=(judge,))
    parts: dict[str, tuple[Turn, ...]] = {**scenario.parts, FIX: (Write("2.txt", "repaired\n"), Say("It is fixed."))}
    with ModelServer(replace(scenario, parts=parts)) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS)
        how = carried(project)
    record("fix", how)
    assert how.outcome == "landed", how.output
    assert [each["role"] for each in endings(project)] == ["implement", "verify", "fix", "verify"]
    assert project.show("main:2.txt") == "repaired"


def test_an_agent_sees_no_key_of_another_agent(tmp_path: Path, cli: Cli, record: Record) -> None:
    """The tools of the agent see its key, and no key of another agent or of the forge."""
    turns = (Run("env"), Write("1.txt", "one\n"), Say("Phase 1 is done."))
    # A program whose model runs no commands runs the user's tests, and shows it their output.
    more = "" if cli.tools else 'args = ["--auto-test", "--test-cmd", "env; false"]\n'
    with ModelServer(work(implement=turns)) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS, more=more)
        how = carried(project)
        record("keys", how)
    said = b"\n".join(seen.body for seen in server.seen).decode()
    assert "RUNPLAN_ROLE=implement" in said, "the environment was never shown to the model"
    assert [name for name, secret in FORGE.items() if secret in said] == []
    assert [name for name, secret in FOREIGN.items() if secret in said] == []
    assert how.outcome == "landed", how.output


# --- planning ------------------------------------------------------------------------------------------

QUICK = ("explore", "draft", "critique", "revise")
FULL = ("understand", "explore", "alternatives", "draft", *("critique", "revise") * 2)
SNEAK = (Write("sneaked.txt", "x\n"), Run("echo x > sneaked-too.txt && git add -A && git commit -qm Sneaked"))


@pytest.mark.parametrize(("words", "roles"), [(("--quick",), QUICK), ((), FULL)], ids=["quick", "full"])
def test_a_real_agent_plans(
    tmp_path: Path, cli: Cli, words: tuple[str, ...], roles: tuple[str, ...], record: Record
) -> None:
    """Each step gets its whole prompt and is answered in the last message; the checkout stays as it is."""
    with ModelServer(plan_work()) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS)
        before = checkout(project)
        how = carried(project, "plan", GOAL, *words, "--foreground", plan=PROPOSED)
        prompts = prompts_of(project)
        asked = [seen for seen in server.seen if seen.part]
        sizes = f"{len(asked)} calls, {len(prompts)} prompts of {sum(map(len, prompts)):,} bytes"
        record(f"plan{''.join(words)}", replace(how, outcome=f"{how.outcome}; {sizes}"))
        assert how.outcome == "waiting", how.output
        assert "with the word bye" in project.runplan("diff", "greet-people").out
    ended = endings(project, PROPOSED)
    assert [(each["role"], each["kind"]) for each in ended] == [(role, "success") for role in roles]
    assert len(asked) == len(roles) + 1, "a step is one request, and the files that explore reads another"
    assert len(asked) * 1_000 <= sum(each["input_tokens"] for each in ended) <= (len(asked) + 4) * 1_000
    assert all(each["output_tokens"] for each in ended)
    heard = [text for seen in asked for text in texts_in(json.loads(seen.body))]
    assert [prompt for prompt in prompts if not any(prompt.decode().strip() in text for text in heard)] == []
    assert checkout(project) == before


def test_a_critic_may_write_its_return_to_a_file(tmp_path: Path, cli: Cli, record: Record) -> None:
    """A program with a mode that writes nothing is refused the file, and its message counts."""
    critique = json.dumps({**CRITIQUE, "findings": []}).replace("FAIL", "PASS")
    turns = (Run(f"printf %s '{critique}' > \"$RUNPLAN_RETURN\""), Say(f"I wrote it.\n\n{fenced(CRITIQUE)}"))
    with ModelServer(plan_work(critique=turns)) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS)
        how = carried(project, "plan", GOAL, "--quick", "--foreground", plan=PROPOSED)
    record("plan-file", how)
    assert how.outcome == "waiting", how.output
    can_write = not cli.reads_only or (cli.name == "codex" and SANDBOX == "bwrap")  # its own mode is not used there
    assert project.dispatched(PROPOSED) == list(QUICK[:3] if can_write else QUICK)


@pytest.mark.parametrize("role", ["explore", "critique"])
def test_a_planning_agent_changes_nothing(tmp_path: Path, cli: Cli, role: str, record: Record) -> None:
    """The model asks the agent to write and commit: it cannot, or the change is detected."""
    usual = plan_work().parts[STEPS[role]]
    with ModelServer(plan_work(**{role: (*SNEAK, *usual)})) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS)
        before = checkout(project)
        how = carried(project, "plan", GOAL, "--quick", "--foreground", plan=PROPOSED)
    record(f"plan-{role}", how)
    expected = "waiting" if cli.reads_only or SANDBOX == "bwrap" else "readonly-violated"
    assert how.outcome == ("plan-invalid" if cli.name == "aider" else expected), how.output  # it adds errors at the end
    assert checkout(project) == before


@pytest.mark.parametrize("cli", ["gemini", "qwen"], indirect=True)
def test_no_model_leaves_the_mode_that_reads(tmp_path: Path, cli: Cli, record: Record) -> None:
    """Both have a tool that ends their plan mode; without a person gemini would go on to write."""
    leave = (
        Use("write_file", {"file_path": "plans/greet.md", "content": "# Greet\n"}),
        Use("exit_plan_mode", {"plan": "# Greet", "plan_filename": "greet.md", "plan_path": "plans/greet.md"}),
    )
    usual = plan_work().parts[STEPS["explore"]]
    with ModelServer(plan_work(explore=(*leave, *SNEAK, *usual))) as server:
        project = a_project(tmp_path, cli, server, limits=LIMITS)
        before = checkout(project)
        how = carried(project, "plan", GOAL, "--quick", "--foreground", plan=PROPOSED)
    record("plan-exit", how)
    assert how.outcome == "waiting", how.output
    assert checkout(project) == before


def checkout(project: Project) -> tuple[str, str]:
    """The files that are not committed, and every ref that is not runplan's."""
    refs = project.repo.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    own = "\n".join(ref for ref in refs if not ref.startswith("refs/runplan/"))
    return project.repo.git("status", "--porcelain", "--ignored"), own


def prompts_of(project: Project) -> list[bytes]:
    started = [body["id"] for kind, body in project.events(PROPOSED) if kind == "DispatchStarted"]
    return [(project.path / ".git/runplan/dispatch" / id_ / "prompt.md").read_bytes() for id_ in started]


def texts_in(content: object) -> list[str]:
    """Every text in a request."""
    if isinstance(content, str):
        return [content]
    parts = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return [text for part in parts for text in texts_in(part)]


# --- watching ------------------------------------------------------------------------------------------


def carried(project: Project, *words: str, plan: str = "plans/X.md") -> How:
    """The plan worked to an end, or to the point where it waits for a provider and says so."""
    started = time.monotonic()
    process = project.popen(*(words or ("start", "X", "finish", "auto", "--foreground")))
    waiting = ""
    try:
        while process.poll() is None and not (waiting := waits(project)):
            assert time.monotonic() - started < 2 * LONGEST_S, "runplan itself came to no end"
            time.sleep(0.05)
        seconds = time.monotonic() - started
        if waiting:
            process.send_signal(signal.SIGINT)
    finally:
        error = ended(process)
    outcome = "waiting" if waiting or process.returncode == 4 else "landed"
    if process.returncode not in (0, 4) and not waiting:
        outcome = error.rstrip().rpartition("runplan: failed: ")[2]
    kinds = [each["kind"] for each in endings(project, plan)]
    return How(outcome=outcome, kind=kinds[-1] if kinds else "", output=f"{waiting}\n{error}", seconds=seconds)


def waits(project: Project) -> str:
    """The words of `status` about a run that waits for a provider; "" for none."""
    with contextlib.suppress(sqlite3.OperationalError):  # the journal is being made
        if any(kind in ("AgentLimited", "Paused") for kind, _ in project.events()):
            said = project.runplan("status").out
            return said if "Waiting: " in said else ""
    return ""


def wait_s(project: Project) -> float:
    """For how long a limit is waited out from now."""
    until = next(body["until"] for kind, body in project.events() if kind == "AgentLimited")
    return datetime.fromisoformat(until).timestamp() - time.time()


def ended(process: Process) -> str:
    try:
        return process.communicate(timeout=30)[1].decode()
    finally:
        process.kill()


def endings(project: Project, plan: str = "plans/X.md") -> list[dict[str, Any]]:
    """How each agent's work ended, in order; nothing when it did not come to that."""
    with contextlib.suppress(sqlite3.OperationalError):
        return [body for kind, body in project.events(plan) if kind == "DispatchEnded" and body.get("agent")]
    return []


def running(place: Path) -> list[str]:
    """Every process whose environment names this place; a moment is given for the last of them to be reaped."""
    for _ in range(40):
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and str(place).encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        if not found:
            break
        time.sleep(0.05)
    return found
