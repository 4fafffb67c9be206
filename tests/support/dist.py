"""Builds wheel and sdist, installs each into a new environment, plays the demo there, and lists what was installed.

`python -m tests.support.dist` (`make dist`). `dist/` then has the two files, `build/runplan.cdx.json` the list of
components (SBOM, CycloneDX) of the wheel's environment.
"""

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import runplan
from tests.support.documents import ROOT
from tests.support.environment import own_environment

DIST = ROOT / "dist"
SBOM = ROOT / "build/runplan.cdx.json"


def run(*argv: str | Path, cwd: Path = ROOT) -> str:
    ran = subprocess.run(argv, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{' '.join(map(str, argv))}: exit {ran.returncode}\n{ran.stdout}")
    return ran.stdout


def try_out(file: Path, place: Path) -> Path:
    """Install the file into an environment without runplan's sources, and play the demo; the interpreter."""
    venv.create(place / "venv", with_pip=True)
    python = place / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "requirements.lock", file, cwd=place)
    command = place / "venv/bin/runplan"
    version = run(command, "--version", cwd=place).strip()
    if version != f"runplan {runplan.__version__}":
        raise SystemExit(f"{file.name} has the version {version!r}")
    with own_environment():
        printed = run(command, "demo", cwd=place)
    if "Done: 3 phases landed" not in printed:
        raise SystemExit(f"the demo of {file.name} ended otherwise:\n{printed}")
    sys.stdout.write(f"{file.name}: installed; its demo landed 3 phases\n")
    return python


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (wheel,) = DIST.glob("*.whl")
    (sdist,) = DIST.glob("*.tar.gz")
    tool = Path(sys.executable).with_name("cyclonedx-py")
    SBOM.parent.mkdir(exist_ok=True)
    for file in (sdist, wheel):
        with tempfile.TemporaryDirectory() as place:
            python = try_out(file, Path(place))
            if file == wheel:
                run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "pip")  # no part of what is shipped
                run(tool, "environment", "--output-reproducible", "--pyproject", ROOT / "pyproject.toml",
                    "--output-file", SBOM, python)  # fmt: skip
    sys.stdout.write(f"{SBOM.relative_to(ROOT)}: what the wheel brings along\n")


if __name__ == "__main__":
    main()
