"""Forbidden changes of an agent are found; naming a file permits adding to it, and only Allows: the rest."""

import pytest
from msgspec.structs import replace

from runplan.domain.checks.tamper import (
    FileChange,
    Permit,
    Tampering,
    describe_remedy,
    examine_changes,
    examine_checks,
    examine_commits,
    foresee_refusals,
)
from runplan.domain.plan.model import parse_plan
from runplan.domain.run.kinds import Reason
from runplan.domain.settings.schema import FILES
from tests.support.builders import a_plan


def changed(path: str, before: str = "", after: str = "") -> FileChange:
    return FileChange(path=path, before=before, after=after)


def deleted(path: str, before: str = "") -> FileChange:
    return FileChange(path=path, before=before, after=None, deleted=True)


def added(path: str, after: str = "") -> FileChange:
    return FileChange(path=path, before=None, after=after, added=True)


def a_permit(text: str = "Add sums.", *touches: str, allows: tuple[str, ...] = ()) -> Permit:
    written = ("plans/x.md", "reports/plan-x.md")
    own = (*written, "runplan.toml", "config/runplan.toml")
    return Permit(text=text, touches=touches, allows=allows, bookkeeping=own, written=written)


def kinds(*changes: FileChange, permit: Permit | None = None) -> list[str]:
    return [finding.kind.value for finding in examine_changes(changes, permit or a_permit())]


@pytest.mark.parametrize("path", ["plans/x.md", "plans/x.md/task-1.md", "reports/plan-x.md", "runplan.toml"])
def test_plan_report_and_settings_are_never_permitted(path: str) -> None:
    permit = a_permit(f"Change {path}.", "**", path)
    (finding,) = examine_changes([changed(path)], permit)
    assert (finding.kind, finding.reason) == ("bookkeeping", Reason.TAMPERED)


def test_only_a_person_writes_a_command_into_a_plan() -> None:
    plan = "# P\n\n- [ ] 1 Release\n\n## Phase 1 — Release\n\nExecution: delegate make release\n\n**Status:** ⬚\n"
    other = plan.replace("make release", "make ship")
    permit = a_permit("Write plans/y.md.", "plans/**", allows=("plans/**",))
    assert kinds(added("plans/y.md", plan), permit=permit) == ["command"]
    assert kinds(changed("plans/y.md", plan, other), permit=permit) == ["command"]
    assert kinds(changed("plans/y.md", plan, plan.replace("⬚", "✅ Done")), permit=permit) == []
    listed = '[{"title": "a", "status": "todo", "details": "Execution: \\u0064elegate make release"}]'
    assert kinds(added("plans/y.json", listed), permit=permit) == ["command"]
    assert (
        kinds(changed("plans/y.md", plan, "# Only prose about `Execution: delegate make ship`\n"), permit=permit) == []
    )


@pytest.mark.parametrize("path", ["reports", "plans"])
def test_no_file_may_block_the_paths_of_plan_and_report(path: str) -> None:
    (committed,) = examine_changes([added(path)], a_permit(f"Make {path}.", "**", path))
    assert (committed.kind, committed.reason) == ("bookkeeping", Reason.TAMPERED)
    assert f"{path}: is in the way of {path}/" in str(committed)
    similar = (deleted("reports", ""), added("reports.txt"), added("report"), added("config"))
    assert kinds(*similar) == [], "it may be removed, and a folder that only settings could be in is not kept free"


@pytest.mark.parametrize("path", [".github/workflows/ci.yml", ".gitlab-ci.yml", ".ci/run", ".pre-commit-config.yaml"])
def test_a_file_of_the_ci_changes_only_where_the_phase_names_or_allows_it(path: str) -> None:
    assert kinds(changed(path)) == ["changed-ci"]
    assert kinds(changed(path), permit=a_permit("Anything.", "**")) == ["changed-ci"]
    assert kinds(changed(path), permit=a_permit(f"Change `{path}` as said.")) == []
    assert kinds(changed(path), permit=a_permit("Anything.", path)) == []
    assert kinds(changed(path), permit=a_permit(allows=(path,))) == []
    assert kinds(changed(path), permit=a_permit(allows=("other/**",))) == ["changed-ci"]


def test_a_script_of_the_set_up_changes_only_where_the_phase_names_or_allows_it() -> None:
    """It prepares what runs the tests."""
    script = "tools/setup.sh"

    def found(permit: Permit) -> list[str]:
        return kinds(changed(script), changed("tools/other.sh"), permit=replace(permit, setup=(script,)))

    assert found(a_permit()) == ["changed-ci"]
    assert found(a_permit(f"Change `{script}` as said.")) == found(a_permit(allows=("tools/**",))) == []


@pytest.mark.parametrize(
    "path",
    [
        *("config/prompts/verify.md", "CLAUDE.md", "src/AGENTS.md", "GEMINI.md", ".claude", ".claude/x/SKILL.md"),
        *(".codex/config.toml", ".cursor/rules/x.mdc", ".github/copilot-instructions.md"),
    ],
)
def test_instructions_of_agents_change_only_where_the_phase_allows_it(path: str) -> None:
    permit = a_permit(f"Change `{path}`.", path)
    assert kinds(changed(path), permit=permit) == kinds(added(path), permit=permit) == ["instructions"]
    assert kinds(changed(path), permit=replace(permit, allows=(path,))) == []


def test_an_allowed_change_is_still_checked_for_scope_and_secrets() -> None:
    permit = a_permit("x", "src/**", allows=("**",))
    assert kinds(changed("tests/test_old.py"), permit=permit) == ["out-of-scope"]
    assert kinds(added(".env"), permit=a_permit(allows=("**",))) == ["secret"]
    assert kinds(changed("runplan.toml"), permit=a_permit(allows=("**",))) == ["bookkeeping"]


def test_a_file_of_the_checks_is_named_with_the_remedy() -> None:
    before, after = {"Makefile": "test:\n\tpytest\n"}, {"Makefile": "test:\n\ttrue\n"}

    def examined(permit: Permit) -> tuple[Tampering, ...]:
        return examine_checks(["make test"], ["Makefile"], permit, before=before.get, after=after.get)

    (finding,) = found = examined(a_permit("Mend the `Makefile`."))
    assert str(finding) == "Makefile: a check runs make, which reads it, and it was changed"
    assert describe_remedy(found) == "; if the plan means it, add to the phase: Allows: Makefile"
    assert examined(a_permit(allows=("Makefile",))) == ()


MAY_NOT = "9: phase 1 names {0}, which agents may not change"
ALLOW = f"{MAY_NOT}; if the plan means it, add to the phase: Allows: {{0}}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("- [ ] Add a target to `Makefile`", [ALLOW.format("Makefile")]),
        ("Speed up `./tests/run.sh` and `src/a.py`.", [ALLOW.format("tests/run.sh")]),
        ("Reword `config/prompts/verify.md`.", [ALLOW.format("config/prompts/verify.md")]),
        ("Allows: Makefile, config/\n\nChange `runplan.toml` and `Makefile`.", [MAY_NOT.format("runplan.toml")]),
        *((f"Change `{path}`.", []) for path in ("src/a.py", ".gitlab-ci.yml", "pyproject.toml", "x.mk", "make test")),
        ("Run `/etc/hosts` and `../x`; Makefile stays.\n\n### Acceptance Criteria\n\n- `tests/run.sh` passes", []),
    ],
)
def test_a_phase_that_names_a_guarded_file_is_told_beforehand(body: str, said: list[str]) -> None:
    paths = ("src/a.py", ".gitlab-ci.yml", "pyproject.toml", "runplan.toml", "config/prompts/verify.md", "tests/run.sh")
    tree = {**dict.fromkeys(paths, "x = 1\n"), "Makefile": "test:\n\tsh tests/run.sh\n"}
    plans = [parse_plan(a_plan({"1": mark}, {"1": body}), path="p.md") for mark in ("⬚", "✅")]
    usual = Permit(text="", bookkeeping=FILES)
    open_, done = (list(foresee_refusals(plan, ["make test"], usual, read=tree.get)) for plan in plans)
    assert [f"{remark.line}: {remark.text}" for remark in open_] == said
    assert done == []


@pytest.mark.parametrize(("test_paths", "count"), [((), 1), (("checks/**",), 0)])
def test_a_phase_may_name_a_test_of_tests_paths(test_paths: tuple[str, ...], count: int) -> None:
    plan = parse_plan(a_plan({"1": "⬚"}, {"1": "Change `checks/a.py`."}), path="p.md")
    tree = {"checks/a.py": "x = 1\n"}
    usual = Permit(text="", bookkeeping=FILES, test_paths=test_paths)
    assert len(list(foresee_refusals(plan, ["python checks/a.py"], usual, read=tree.get))) == count


@pytest.mark.parametrize(("text", "count"), [("Add fixtures to tests/conftest.py.", 0), ("Add fixtures.", 1)])
def test_a_phase_that_names_a_new_file_of_the_checks_permits_it(text: str, count: int) -> None:
    after = {"tests/conftest.py": "x\n"}
    assert len(examine_checks(["pytest"], after, a_permit(text), before=lambda _: None, after=after.get)) == count


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *((text, True) for text in ("Change src/a.py.", "See `src/a.py`, then stop", "**src/a.py**: the sum")),
        *((text, True) for text in ("the sum (src/a.py:12)", "[the sum](./src/a.py)")),
        *((text, False) for text in ("Change src/a.pyi", "Change lib/src/a.py", "Remove src/", "Remove src/**")),
    ],
)
def test_a_path_is_named_as_a_whole_word(text: str, named: bool) -> None:
    assert a_permit(text).names("src/a.py") is named
    assert a_permit("Change `my file.txt`").names("my file.txt")


@pytest.mark.parametrize(
    ("touches", "permitted"),
    [
        *((touches, True) for touches in ((".github/workflows/**",), (".github/**",), (".github/workflows/ci.yml",))),
        *((touches, False) for touches in (("**",), ("**/*.yml",), (".*/**",))),
    ],
)
def test_touches_permits_the_ci_only_where_it_means_it(touches: tuple[str, ...], permitted: bool) -> None:
    found = kinds(changed(".github/workflows/ci.yml"), permit=a_permit("x", *touches))
    assert found == ([] if permitted else ["changed-ci"])


def test_files_outside_touches_are_out_of_scope() -> None:
    permit = a_permit("Work on sums, and on setup.py.", "src/**", "docs/*.md")
    files = [changed(path) for path in ("src/a/b.py", "docs/a.md", "docs/a/b.md", "x.py", "setup.py")]
    findings = examine_changes(files, permit)
    assert [finding.path for finding in findings] == ["docs/a/b.md", "x.py"]
    assert {finding.reason for finding in findings} == {Reason.OUT_OF_SCOPE}
    assert str(findings[0]) == "docs/a/b.md: outside Touches: src/**, docs/*.md"


# --- new files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *(".env", ".env.local", "deep/.env", "server.pem", "tls/x.key", "id_rsa", "id_ed25519", "id_rsa.bak"),
        *("credentials", "credentials.json", ".credentials.yml", ".netrc", ".pypirc", "service-account-1.json"),
    ],
)
def test_new_files_that_are_named_like_secrets_are_found(path: str) -> None:
    assert kinds(added(path)) == ["secret"]


def test_files_that_only_sound_like_secrets_are_free_and_a_changed_one_is() -> None:
    free = (".env.example", "src/credentials.py", "id_rsa.pub", "environment.py", "keys.md", ".npmrc", "key")
    assert kinds(*map(added, free), changed(".env")) == []


def test_large_new_files_are_found_unless_the_phase_names_them() -> None:
    large = FileChange(path="tests/tls.pem", before=None, after=None, added=True, size=5_000_001)
    assert kinds(large) == ["too-large", "secret"]
    assert kinds(replace(large, path="a.bin", size=5_000_000), replace(large, path="a.bin", added=False)) == []
    assert kinds(large, permit=a_permit("Add the test certificate tests/tls.pem.", "src/**")) == []


def test_single_commits_may_contain_no_secret_no_large_file_and_no_bookkeeping() -> None:
    """Everything else is judged by the net change."""
    files = [added(".env"), changed("plans/x.md"), changed(".github/workflows/ci.yml"), changed("src/a.py", "", TOKEN)]
    permit = a_permit("x", "src/**", "plans/**", ".env", ".github/**")
    findings = examine_commits(files, messages=[f"Use {TOKEN}"], permit=permit)
    secrets = [("src/a.py", "secret"), ("a commit message", "secret")]
    assert [(finding.path, finding.kind) for finding in findings] == [("plans/x.md", "bookkeeping"), *secrets]


# --- secrets -----------------------------------------------------------------------------------------------

TOKEN = "ghp_" + 36 * "a"
OTHER = "ghp_" + 36 * "b"
PLAIN = Permit(text="Write the thing.")


def found(*files: FileChange, messages: tuple[str, ...] = (), permit: Permit = PLAIN) -> list[str]:
    return [str(one) for one in examine_changes(files, permit, messages=messages)]


def wrote(after: str, before: str = "", path: str = "a.txt", *, added: bool = False) -> FileChange:
    return FileChange(path=path, before=before, after=after, added=added)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("//registry.example/:_authToken=abcdef", True),
        ("//registry.example/:_authToken=${TOKEN}", False),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", True),
        ("AKIA" + "A1" * 8, True),
        ("registry=https://registry.example", False),
    ],
)
def test_a_token_in_the_text_makes_a_secret(text: str, secret: bool) -> None:
    assert bool(found(wrote(text, path=".npmrc"))) is secret


GITHUB = "a.txt: seems to contain a GitHub token"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param([wrote(f"x\ntoken = {TOKEN}\n", "x\n")], [GITHUB], id="added"),
        pytest.param([wrote("x\n", f"{TOKEN}\n")], [], id="removed"),
        pytest.param([wrote(f"{TOKEN}\nmore\n", f"{TOKEN}\n")], [], id="there before"),
        pytest.param([wrote("", TOKEN, "old.txt"), wrote(TOKEN, path="new.txt", added=True)], [], id="moved"),
        pytest.param([wrote(f"{TOKEN} {OTHER}", TOKEN)], [GITHUB], id="a second one"),
        pytest.param(
            [wrote(f"{TOKEN} {OTHER} AKIA{'A1' * 8}")] * 2,
            ["a.txt: seems to contain an AWS key", GITHUB],
            id="each place and kind once",
        ),
    ],
)
def test_a_secret_that_was_not_there_before_is_found(files: list[FileChange], said: list[str]) -> None:
    assert found(*files) == said


def test_messages_and_new_names_are_searched_and_the_secret_is_not_printed() -> None:
    named, other = wrote("x", path=f"{TOKEN}.txt", added=True), wrote("y", path=f"{OTHER}.txt")
    assert found(named, other, messages=(f"Use {TOKEN}\n", "Fine\n")) == [
        *("[redacted].txt: its name contains a GitHub token", "a commit message: seems to contain a GitHub token")
    ]


def test_a_file_that_the_phase_names_may_hold_a_secret() -> None:
    permit = Permit(text="Add the example key to docs/example.md.")
    assert found(wrote(TOKEN, path="docs/example.md", added=True), permit=permit) == []
