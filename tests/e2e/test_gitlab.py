"""Landing by a merge request on GitLab."""

from pathlib import Path

from runplan.domain.gitfacts import PLAN, RUN, read_trailers
from tests.support.cli import Project, fix, set_up, work
from tests.support.gitlab.server import on_gitlab


def test_a_plan_lands_by_a_merge_request_whose_pipeline_is_repaired(project: Project, tmp_path: Path) -> None:
    plan = project.show("main:plans/X.md").replace("---\n", "---\nissue: 1\n", 1)
    repair = fix('write = "fixed.txt"', 'commit = "Fix"', phase="")
    set_up(project, plan=plan, agent=work() + work(phase="2") + repair)
    with on_gitlab(project, tmp_path) as server:
        hub = server.hub
        issue = hub.add_issue("Bug")
        hub.required, hub.squash_option = ["unit"], "never"

        def start_pipeline(branch: str, sha: str) -> None:
            is_good = "fixed.txt" in hub.git("ls-tree", "--name-only", sha)
            hub.check(sha, "unit", "success" if is_good else "failure")
            if not is_good:
                hub.logs[sha] = "fixed.txt is missing"

        hub.on_push = start_pipeline
        checked = project.runplan("doctor", RUNPLAN_RUN_LANDING="pr")
        assert "acme/tools/app; token from $GITLAB_TOKEN (scopes api, write_repository) may push" in checked.out
        assert "main requires a successful pipeline" in checked.out
        ran = project.start("finish", "auto", "pr").exits(0)
        assert (hub.merges, issue.state, list(hub.branches())) == (1, "closed", ["main"])
        assert "merge request !1 is merged: https://gitlab.test/acme/tools/app/-/merge_requests/1" in ran.err
        assert ("issues", 1) not in hub.notes, "GitLab says itself which merge request closed the issue"
        assert any("## unit\nfixed.txt is missing" in prompt for prompt in project.prompts("fix"))
        message = hub.git("log", "-1", "--format=%B", "main")
        assert (set(read_trailers(message)), message.splitlines()[0].endswith("(!1)")) == ({PLAN, RUN}, True)
        assert (hub.ran, hub.pulls[1].draft) == ([], False)
        assert "status: complete" in project.show("origin/main:plans/X.md")
        assert project.repo.head("main") == hub.tip("main")
        assert project.leftovers() == []
