"""Makes the image of `make test-container`, a small Debian, in each engine that works here and lacks it."""

import subprocess
import sys
import tempfile
from pathlib import Path

from runplan.adapters.configuration.load import environment
from runplan.adapters.sandbox.container import Container, Engine, find_engine, try_image
from runplan.adapters.sandbox.view import Places
from runplan.domain.errors import RefusedEarly
from runplan.domain.settings.schema import ContainerSettings

NAME = "runplan-test"
PACKAGES = "git,python3,make,ca-certificates"
ENV = environment()


def list_engines() -> list[Engine]:
    engines = []
    for name in ("podman", "docker"):
        try:
            engines.append(find_engine(ContainerSettings(engine=name), ENV))
        except RefusedEarly as why:
            sys.stdout.write(f"{why}\n")
    return engines


def find_image(engine: Engine) -> str:
    return engine.run("image", "inspect", "--format={{.Id}}", NAME, env=ENV)[1].strip()


def list_containers(engine: str, homes: Path) -> str:
    words = (engine, "ps", "-aq", "--filter", f"label=runplan={homes}")
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def make_image(engines: list[Engine]) -> None:
    """A root by debootstrap, which needs root and the package mirrors; no registry of images."""
    with tempfile.TemporaryDirectory(prefix="runplan-image-") as root:
        bootstrap = ("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root)
        subprocess.run(bootstrap, stdout=subprocess.DEVNULL, check=True)
        Path(root).chmod(0o755)  # the root of the image, which each user in it has to enter
        with open(f"{root}/etc/runplan-image", "w") as mark:
            mark.write("made by make test-container\n")
        for engine in engines:
            with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as packed:
                subprocess.run([engine.program, "import", "-", NAME], stdin=packed.stdout, check=True)


def main() -> None:
    """Fail where no container can be started."""
    engines = list_engines()
    try:
        if missing := [engine for engine in engines if not find_image(engine)]:
            make_image(missing)
        for engine in engines:
            try_image(Container(engine, ContainerSettings(), ENV, Places(image=NAME)), ())
    except (OSError, subprocess.CalledProcessError, RefusedEarly) as why:
        sys.exit(f"no container can be started here: {why}")
    if not engines:
        sys.exit("no container can be started here")


if __name__ == "__main__":
    main()
