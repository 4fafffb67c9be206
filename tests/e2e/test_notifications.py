"""Notifications hold links that answer, `notify --test` tries the channels, and `doctor` shows failures."""

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from runplan.adapters.configuration.places import key_directory
from runplan.adapters.notify.links import Link, load_key, read_link
from tests.support.cli import Project, set_up, steps, until, verify
from tests.support.daemons import user_settings
from tests.support.webhook import served

pytestmark = pytest.mark.promise


def test_a_notice_of_a_change_holds_a_link_that_names_the_tree_that_was_shown(project: Project) -> None:
    project.extra["no_proxy"] = "*"
    with served() as (address, got):
        user_settings(project, f'[notify]\nwebhook = "{address}"\n[web]\nurl = "https://pc.example"\n')
        assert project.runplan("start", "X", "1", "--wait").code == 4
        until(lambda: got)
        ((_, waiting),) = got
        base, _, token = waiting["link"].rpartition("/")
        link = read_link(load_key(key_directory(project.env)), token, 0.0)
        assert isinstance(link, Link)
        assert base == "https://pc.example/a"
        assert waiting["text"] == "phase 1 passed all checks and needs your approval."
        answer = ("approve", link.plan, link.phase, "--tree", link.tree, "--via", link.by)
        assert project.runplan(*answer).code == 0
        until(lambda: len(got) == 2)
    done = urlsplit(got[1][1]["link"])
    assert (got[1][1]["notice"], done.path, parse_qs(done.query)["plan"]) == ("done", "/plan", ["plans/X.md"])
    assert parse_qs(done.query)["repo"] == [link.repo]
    assert [body["by"] for body in project.bodies("Answered")] == [link.by]
    written = [path for path in project.home.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert written == [], "an agent could read it"


def test_a_limit_that_is_nearly_used_up_is_told_once(project: Project) -> None:
    project.extra["no_proxy"] = "*"
    spends = steps('write = "1.txt"\ntext = "1\\n"', "tell = {tokens = 90}") + verify("pass_all = true")
    set_up(project, agent=spends, settings="[limits]\nplan_tokens = 100\n")
    with served() as (address, got):
        user_settings(project, f'[notify]\nwebhook = "{address}"\non = ["limit"]\n')
        assert project.runplan("start", "X", "1", "auto", "--wait").code == 0
        until(lambda: got)
    near = "90 of 100 tokens (limits.plan_tokens)"
    assert [(notice["notice"], notice["text"][: len(near)]) for _, notice in got] == [("limit", near)]
    assert [body["near"] for body in project.bodies("DispatchStarted") if body.get("near")] == [[near]]


@pytest.mark.rest
def test_the_channels_are_tried_and_one_that_fails_is_shown_by_doctor(project: Project, tmp_path: Path) -> None:
    project.extra["no_proxy"] = "*"
    assert project.runplan("notify", "--test").code == 2, "there is none"
    command = f"cat >{tmp_path}/sent"
    with served(404, 204) as (address, _):
        broken = f'[notify]\ncommand = "{command}"\nwebhook = "{address}/t0ken"\nurls = ["json://127.0.0.1:1/t0ken"]\n'
        user_settings(project, broken)
        ran = project.runplan("notify", "--test")
        assert (ran.code, ran.out.splitlines()) == (
            5,
            [
                "command: sent",
                "webhook: failed: the answer was 404 Not Found",
                "url 1 (json): failed: A Connection error occurred sending JSON notification to ….",
            ],
        )
        assert json.loads((tmp_path / "sent").read_text())["notice"] == "test"
        seen = project.runplan("doctor")
        (check,) = [check for check in project.runplan("doctor", "--json").json if check["name"] == "notify"]
        assert (seen.code, check["state"], "t0ken" in seen.out) == (0, "WARN", False), seen.out
        failures = check["detail"].splitlines()
        assert [line.split(" failed at ")[0] for line in failures] == ["webhook", "url 1 (json)"]
        user_settings(project, broken.replace("json://127.0.0.1:1/t0ken", address.replace("http:", "json:")))
        again = project.runplan("notify", "--test")
        assert (again.code, again.out.splitlines()[1:]) == (0, ["webhook: sent", "url 1 (json): sent"])
    assert "ok    notify      command, webhook, url 1 (json)\n" in project.runplan("doctor").out
    assert project.runplan("notify", "--test", RUNPLAN_AGENT="1").code == 2
    assert project.runplan("notify").code == 2
