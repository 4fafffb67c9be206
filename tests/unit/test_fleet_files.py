"""The files that start a fleet: an image, a compose file and a unit. Without Docker and systemd they are read."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from runplan.interfaces.cli.main import parser_of
from tests.support.documents import ROOT, read
from tests.support.image import instructions

FOLDER = "config/fleet"
COMPOSE: dict[str, Any] = yaml.safe_load(read(f"{FOLDER}/compose.yaml"))
IMAGE = instructions(read(f"{FOLDER}/Dockerfile"))
WORKERS = ("worker-1", "worker-2")


def require_command(words: list[str]) -> None:
    """The command line accepts these words after `runplan`."""
    parser_of(words[0]).parse_args(words[1:])


def test_the_image_copies_what_is_there_and_ends_as_an_ordinary_user() -> None:
    sources = [source for word, rest in IMAGE if word == "COPY" for source in rest.split()[:-1]]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [rest for word, rest in IMAGE if word == "USER"] == ["runplan"]
    (entry,) = [json.loads(rest) for word, rest in IMAGE if word == "ENTRYPOINT"]
    assert entry[0] == "runplan"
    require_command(entry[1:])


def test_no_secret_is_in_the_files() -> None:
    assert {word for word, _ in IMAGE} == {"FROM", "RUN", "COPY", "USER", "WORKDIR", "ENTRYPOINT"}
    given = [value for service in COMPOSE["services"].values() for value in service["environment"].values()]
    assert [value for value in given if not re.search(r"(^|:)\$\{[A-Z_]+_PASSWORD:\?", value)] == []
    assert f"/{FOLDER}/*.env" in read(".gitignore").splitlines()


def test_workers_do_not_know_the_owner_of_the_database() -> None:
    for name in WORKERS:
        assert COMPOSE["services"][name]["env_file"] == "worker.env"
        assert "POSTGRES_PASSWORD" not in str(COMPOSE["services"][name])
    assert COMPOSE["services"]["init"]["environment"]["RUNPLAN_FLEET_DSN"].startswith("postgresql://postgres:$")
    assert "CREATE ROLE worker LOGIN PASSWORD :'password' IN ROLE runplan_worker;" in read(f"{FOLDER}/roles.sh")


def test_the_compose_file_names_services_volumes_and_commands_that_are_there() -> None:
    services = COMPOSE["services"]
    assert {*services} == {"database", "init", *WORKERS}
    assert {other for service in services.values() for other in service.get("depends_on", {})} <= {*services}
    mounted = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())]
    assert sorted(name for name in mounted if not name.startswith("./")) == sorted(COMPOSE["volumes"])
    assert [name for name in mounted if name.startswith("./") and not (ROOT / FOLDER / name).is_file()] == []
    require_command(services["init"]["entrypoint"][1:])
    for name in WORKERS:
        service = services[name]
        assert (ROOT / FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        require_command(["worker", *service["command"]])
        test = service["healthcheck"]["test"][1].replace('"$$(hostname)"', service["hostname"]).split()
        assert service["hostname"] in service["command"]
        require_command(test[1:])


@pytest.mark.rest
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = read(f"{FOLDER}/runplan-worker.service")
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    require_command(line.split()[1:])
    assert "\nRestart=always\n" in text
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not there")
    unit = tmp_path / "runplan-worker.service"
    unit.write_text(text.replace(line.split()[0], sys.executable), encoding="utf-8")
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
