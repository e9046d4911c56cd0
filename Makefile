# Everything a person does here by name. `make` alone lists it.
#
# The environment is a plain venv filled by pip from requirements-dev.lock (hashes checked), because a
# fresh machine has neither uv nor a build tool. The stamp is written last: an install that was
# interrupted is taken up again by the next `make`.

SHELL := /bin/sh
.DEFAULT_GOAL := help
STAMP := .venv/.installed
PY := .venv/bin/python

# The first interpreter that is 3.11 or newer; `make PYTHON=/path/to/python3.12 up` overrides.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

# One test process more than there are cores, because tests of processes wait for clocks and sockets; the tests of a file
# share a process (tests/sharing.py). `make test PARALLEL=` runs them one after the other.
CORES := $(shell nproc 2>/dev/null || echo 2)
PARALLEL ?= -n $(shell expr $(CORES) + 1) --dist loadfile
# What `make test-system` runs; `make test-system SYSTEM=tests/system/crash` runs one folder.
SYSTEM ?= tests
# What `make test-core` runs without any app.
CORE ?= tests/unit tests/integration

# `make up` and `make test` may be started together on a fresh checkout: one installs, one waits.
LOCKED := $(shell command -v flock >/dev/null 2>&1 && echo flock .venv.lock)

# Every test process compiles every test, unless what came of it last time was kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help up test test-unit test-core test-system lint rules types crash mutants bench bench-scale docs clean-data install lock

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: install ## start everything: database, sandbox, web, workers (Ctrl-C drains and stops)
	@exec $(PY) manage.py up $(UP_ARGS)

test: install rules ## all checks; unit and integration tests and a smoke of the system tests
	@$(call beside_types,$(PY) -m pytest --smoke $(PARALLEL) $(PYTEST_ARGS))

# These wait for nothing, and one process more would collect all tests once more.
test-unit: PARALLEL = -n $(CORES) --dist loadfile
test-unit: install ## tests that need no database or process: run them at every save
	@$(PY) -m pytest tests/unit $(PARALLEL) $(PYTEST_ARGS)

test-core: install ## the core's tests without the apps of durableagents/contrib (CORE="FOLDER…" runs some)
	@WITHOUT=all $(PY) -m pytest --ds tests.without $(CORE) $(PARALLEL) $(PYTEST_ARGS)

test-system: install ## what `make test` leaves out: processes, kills, browsers, whole ranges
	@$(PY) -m pytest --rest $(SYSTEM) $(PARALLEL) $(PYTEST_ARGS)

lint: install rules types ## ruff (rules and format), mypy, import contracts

rules: install
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet . || { echo "make: not formatted: run .venv/bin/ruff format ." >&2; exit 1; }
	@.venv/bin/lint-imports --no-cache

types: install
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && DURABLEAGENTS_DATA="$$scratch" $(PY) -m mypy

# mypy takes half a minute without its cache, in which the stories leave the processors idle now and then: it has what
# they leave. What it says comes last, and what it finds fails the target as a test does.
define beside_types
scratch=$$(mktemp -d); DURABLEAGENTS_DATA="$$scratch" nice -n 19 $(PY) -m mypy >"$$scratch/said" 2>&1 & types=$$!; \
trap 'kill $$types 2>/dev/null; rm -rf "$$scratch"' EXIT; trap 'exit 130' INT TERM; \
$(1); tested=$$?; wait $$types; typed=$$?; cat "$$scratch/said"; \
[ $$tested -ne 0 ] && exit $$tested; exit $$typed
endef

crash: install ## randomised crash schedules, 500 unless told otherwise (CRASH_ARGS="--schedules 10000 --seed 7")
	@exec $(PY) -m tests.system.crash $(CRASH_ARGS)

mutants: install ## mutations of the heart, each of which a test must notice (MUTANTS_ARGS="gate" or "--sample 60 --seed 7")
	@exec $(PY) -m tests.mutants $(MUTANTS_ARGS)

bench: install ## every figure of docs/explanation/performance.md, next to the floor (BENCH_ARGS="--only W1 --json FILE")
	@exec $(PY) -m tests.system.bench $(BENCH_ARGS)

bench-scale: install ## what pages, lists and open consoles cost at a million runs (BENCH_ARGS="--runs 100000 --json FILE")
	@exec $(PY) -m tests.system.bench.scale $(BENCH_ARGS)

docs: install ## build the documentation into site/, with search; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

clean-data: install ## remove what `make up` created (asks nothing; refuses while it runs)
	@exec $(PY) manage.py clean_data

install: ## build .venv from requirements-dev.lock (the other targets do it by themselves)
	@$(LOCKED) $(MAKE) -s --no-print-directory $(STAMP)

$(STAMP): requirements-dev.lock
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed; none found on PATH (set PYTHON=/path/to/python3)" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "make: $(PYTHON) is not Python 3.11 or newer" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) has no venv module (Debian: apt-get install python3-venv)" >&2; exit 2; }
	@echo "installing about $$(grep -c == requirements-dev.lock) packages into .venv (once; one to ten minutes, without output)"
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(PY) -m pip install -qq --disable-pip-version-check --no-input --no-deps --require-hashes -r requirements-dev.lock
	@found=$$($(PY) -m pip check --disable-pip-version-check 2>&1) || printf '%s\n' "$$found" "make: .venv holds packages that do not fit together, maybe from an earlier lock; if something fails: rm -r .venv && make install" >&2
	@touch $(STAMP)

LOCK := uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links \
	--python-version 3.11 --custom-compile-command 'make lock'

lock: ## renew the locks: of an installation, with extras, and of development (needs uv)
	@$(LOCK) -o requirements.lock requirements.in
	@$(LOCK) -c requirements.lock -o requirements-extras.lock requirements-extras.in
	@$(LOCK) -c requirements-extras.lock -o requirements-dev.lock requirements-dev.in
