"""Git reads from our messages the trailers we wrote."""

import os
import subprocess

import pytest

from runplan.domain.gitfacts import PHASE, PLAN, add_trailers, read_trailers


@pytest.mark.parametrize(
    "message", ["Subject", "core: subject\n\nBody: not a trailer\nbut prose\n", "S\n\nSigned-off-by: A <a@b>\n", ""]
)
def test_git_and_we_agree_on_the_trailers_of_a_message(message: str) -> None:
    text = add_trailers(message, [(PLAN, "plans/x.md"), (PHASE, "P1.A")])
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    asked = ["git", "interpret-trailers", "--parse"]
    answer = subprocess.run(asked, input=text, text=True, capture_output=True, check=True, env=env).stdout
    assert dict(line.split(": ", 1) for line in answer.splitlines()) == read_trailers(text)
    assert read_trailers(text)[PLAN] == "plans/x.md"
