# Everything from a fresh machine with Python and make: `make check`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests at a time. More than two processors' worth: most of them wait for a real server.
JOBS ?= 4

# One shell a recipe; the first command that fails ends it.
.ONESHELL:
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv binaries test torture soak soak-supervisor soak-keepalive idle compatibility record states lint types demo wheel-test check clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP) ## Make .venv, with all that development needs (PYTHON=python3)

# The editable install follows the sources; only the project file can make it stale.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "codexdrv needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,codex]'
	touch $@

binaries: $(STAMP) ## Install the other codex versions that the tests run on (with npm, outside the checkout)
	@$(BIN)/python -m tests.acceptance.binaries

# Without npm it runs on the versions that are there, and says at the end what it leaves out.
test: $(STAMP) ## Run the tests (ARGS="-k word" narrows them)
	@$(BIN)/python -m tests.acceptance.binaries --try
	$(BIN)/pytest -n $(JOBS) --dist worksteal $(ARGS)

torture: binaries ## Torture every version: kills, cuts, locks, full disks (DELIVERIES=1000 SEED=1)
	$(BIN)/python -m tests.torture --deliveries $(or $(DELIVERIES),1000) --seed $(or $(SEED),1) $(ARGS)
	$(BIN)/python -m tests.torture scenes

soak: $(STAMP) ## Run 10,000 worlds of the simulator, and every pair of steps (SEEDS=N START=N)
	$(BIN)/python -m tests.sim --seeds $(or $(SEEDS),10000) --start $(or $(START),0) --pairs

soak-supervisor: binaries ## Run a supervisor for an hour, with a fault a minute (MINUTES=60 SEED=1)
	$(BIN)/python -m tests.soak supervisor --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1) $(ARGS)

soak-keepalive: binaries ## Show that a thread stays loaded while a supervisor runs, and else does not
	$(BIN)/python -m tests.soak keepalive $(ARGS)

idle: binaries ## Measure a supervisor that has nothing to do, with 20 threads
	$(BIN)/python -m tests.soak idle $(ARGS)

compatibility: binaries ## Write docs/compatibility.md from a run on every version
	@export CODEXDRV_REQUIRE_ALL_VERSIONS=1 CODEXDRV_RECORD_COMPATIBILITY=1
	$(BIN)/pytest tests/acceptance/test_compatibility.py
	$(BIN)/python docs/render_compatibility.py

record: binaries ## Record fixtures/ anew from every version; read the difference before you commit it
	@$(BIN)/python -m tests.recording.record

lint: $(STAMP) ## Check format and style
	@$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## Check the types
	@$(BIN)/mypy

states: $(STAMP) ## Render docs/states.md from the decision tables
	@$(BIN)/python docs/render_states.py

demo: $(STAMP) ## Run the demo: a real server, a scripted model
	@$(BIN)/codexdrv demo

wheel-test: $(STAMP) ## Build the wheel; install and use it outside the checkout
	@dir=$$(mktemp -d)
	trap 'rm -rf "$$dir"' EXIT
	$(BIN)/python -m build --outdir "$$dir/dist" . >"$$dir/build.log" 2>&1 || { cat "$$dir/build.log" >&2; exit 1; }
	$(PYTHON) -m venv "$$dir/venv"
	"$$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$$dir"/dist/*.whl
	cd "$$dir"
	echo "$$(basename dist/*.whl)"
	# make takes the indentation out of recipes: no blocks in here.
	venv/bin/python -c '
	import sys, zipfile
	wanted = {"codexdrv/journal/schema.sql", "codexdrv/py.typed", "supervisor/py.typed"}
	missing = wanted - set(zipfile.ZipFile(sys.argv[1]).namelist())
	assert not missing, f"not in the wheel: {missing}"
	' dist/*.whl
	# Nothing of the caller: no configuration, no PYTHONPATH, a home of its own.
	clean="env -i HOME=$$dir XDG_STATE_HOME=$$dir/state PATH=/usr/bin:/bin"
	$$clean venv/bin/codexdrv --version
	$$clean venv/bin/codexdrv --help >/dev/null
	$$clean venv/bin/python -c '
	import json, subprocess, sys
	done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True)
	assert done.returncode == 0, f"exit {done.returncode}"
	assert json.loads(done.stdout)["phase"] == "queued", done.stdout
	' venv/bin/codexdrv deliver --thread 019a0000-0000-7000-8000-000000000001 hello --json
	echo "the wheel delivers"

check: lint types test ## What a change must pass

clean: ## Remove .venv and everything that tools left
	@rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find codexdrv supervisor tests -name __pycache__ -type d -prune -exec rm -rf {} +
