# `make demo` and `make test` need only git, make and Python 3.11+.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# The tests start hundreds of short processes; without compiled files each would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

# Real git and real files, in memory where there are 2 GB of it: the tests make and remove many thousand files.
SCRATCH := $(shell test -w /dev/shm && test "$$(df -Pk /dev/shm | awk 'NR==2 {print $$4}')" -gt 2000000 && echo TMPDIR=/dev/shm)

CHAOS := $(if $(SOAK),--soak $(SOAK)) $(if $(SEED),--seed $(SEED)) $(if $(SAMPLE),--sample $(SAMPLE))

.PHONY: demo test test-fast check format docs bench chaos install-agents test-agents clean

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("runplan needs Python 3.11 or newer; this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[dev]'
	@touch $@

demo: $(READY)  ## work a three-phase plan to its end in a throw-away repository
	@$(BIN)/runplan demo

test: $(READY)  ## every test, on all cores
	@$(SCRATCH) $(BIN)/python -m pytest -q -n auto --dist worksteal

test-fast: $(READY)  ## unit and contract tests
	@$(SCRATCH) $(BIN)/python -m pytest -q -n auto tests/unit tests/contract

test-fast: $(READY)  ## unit and contract tests
	@$(SCRATCH) $(BIN)/python -m pytest -q -n auto tests/unit tests/contract

check: $(READY)  ## formatter, linter, types, import directions
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/unit/test_house.py

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(READY)  ## capture the output shown in README and tutorial again
	@$(SCRATCH) $(BIN)/python -m tests.support.transcripts

bench: $(READY)  ## ratios against a plain shell script and a bare interpreter
	@$(BIN)/python -m bench

chaos: $(READY)  ## kill at every point of the matrix and at random moments; SAMPLE=20, SOAK=200, SEED=7
	@$(SCRATCH) $(BIN)/python -m tests.chaos $(CHAOS)

install-agents:  ## the agents that test-agents drives, into .agents; ONLY="claude codex" for some of them
	@PYTHON=$(PYTHON) tests/agents/install.sh $(ONLY)

test-agents: $(READY)  ## real agents against a scripted model, one after the other; ONLY="claude or codex-limit"
	@$(SCRATCH) $(BIN)/python -m pytest -q tests/agents $(if $(ONLY),-k "$(ONLY)")

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
