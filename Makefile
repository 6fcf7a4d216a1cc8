# The developer's verbs. `make` alone lists them; each does its own set-up.
# Needed: make, and Python 3.11 or newer. uv is used where it is installed.
# The tests of Kafka and S3 also need Java 17 and Maven, and are skipped without.

.DEFAULT_GOAL := help
BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null)
ARGS =

# What runs here never sees the developer's own settings.
unexport PYTHONPATH $(filter PENSTOCK_%,$(.VARIABLES))

# The tests start hundreds of processes. Without bytecode each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo; echo '  ARGS="…" reaches the command: make test ARGS="-k layout"'

.PHONY: demo
demo: .venv/ready ## the whole loop around a small transformer, in four to five minutes
	$(BIN)/penstock demo $(ARGS)

.PHONY: test
test: .venv/ready ## the tests, in random order
	$(BIN)/pytest $(ARGS)

.PHONY: test-system
test-system: .venv/ready ## the tests of clusters (PostgreSQL, Kafka, S3, Ray), sandboxes, outages, kills, whole loops
	$(BIN)/pytest -m "system and not smoke" $(ARGS)

.PHONY: test-study
test-study: .venv/ready ## soaks, hundreds of kills, statistics: an hour or more
	$(BIN)/pytest -m study -o timeout=0 $(ARGS)

.PHONY: trainers
trainers: .venv-trl/ready .venv-verl/ready ## exports and examples run by PyTorch, TRL and verl, each in an environment of several GB
	.venv-trl/bin/pytest -m "" tests/study/trainers tests/room/shards/test_reader_torch.py $(ARGS)
	.venv-verl/bin/pytest -m "" tests/study/trainers/test_verl.py $(ARGS)

.PHONY: engines
engines: .venv/ready .venv-vllm/ready ## the example for vLLM and the proxy, with a vLLM for CPUs of several GB
	VLLM_PYTHON=.venv-vllm/bin/python $(BIN)/pytest -m "" tests/study/fleet/test_vllm_for_real.py tests/study/proxy/test_vllm_for_real.py $(ARGS)

.PHONY: exporters
exporters: .venv/ready .venv-exporters/ready ## a dozen libraries that export spans, against a running service
	EXPORTERS_PYTHON=.venv-exporters/bin/python $(BIN)/pytest -m "" tests/study/otlp/test_exporters.py $(ARGS)

.PHONY: harnesses
harnesses: HARNESSES = .harnesses
harnesses: .venv/ready ## Claude Code and Codex from npm (HARNESSES=…, 660 MB), recorded before an engine with a log
	@test -e $(HARNESSES)/ready -a ! tests/study/harnesses/package.json -nt $(HARNESSES)/ready || { \
	    mkdir -p $(HARNESSES) && cp tests/study/harnesses/package.json $(HARNESSES) && \
	    npm --prefix $(HARNESSES) install --no-audit --no-fund --ignore-scripts && \
	    node $(HARNESSES)/node_modules/@anthropic-ai/claude-code/install.cjs && \
	    touch $(HARNESSES)/ready; }
	HARNESSES=$(HARNESSES) $(BIN)/pytest -m "" tests/study/harnesses $(ARGS)

.PHONY: typescript
typescript: clients/typescript/node_modules/ready ## build the recorder for TypeScript, and run its tests under Node
	npm --prefix clients/typescript run build
	npm --prefix clients/typescript test

.PHONY: faults
faults: SECONDS = 60
faults: .venv/ready ## kill, hang and cut off everything under load (SECONDS=600 SEED=…), then count
	$(BIN)/python -m tests.study.faults.run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: tenants
tenants: TENANTS = 100000
tenants: .venv/ready ## start a service where very many tenants wait (TENANTS=100000): time, memory, files
	$(BIN)/python -m bench.waiting_tenants --tenants $(TENANTS)

.PHONY: soak-hostile
soak-hostile: SECONDS = 600
soak-hostile: .venv/ready ## two hostile tenants beside an honest one (SECONDS=600): what that one notices
	$(BIN)/python -m bench.hostile_soak --seconds $(SECONDS) $(ARGS)

.PHONY: lint
lint: .venv/ready ## style, format, types, layers, the English of docstrings, and what it all weighs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --num-workers=auto
	$(BIN)/lint-imports
	$(BIN)/python -m bench.wording
	$(BIN)/python -m bench.weight

.PHONY: format
format: .venv/ready ## put the code in order
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

.PHONY: bench
bench: .venv/ready ## measure, and compare with the goals (ARGS=quick, ARGS="ingest rewards", ARGS=--list)
	$(BIN)/python -m bench $(ARGS)

.PHONY: numbers
numbers: .venv/ready ## write bench/pages/numbers.md anew from what was measured (make bench ARGS=--write measures first)
	$(BIN)/python -m bench.numbers

# The rivals of `make bench`. A line that does not install leaves the others: the measurement says so.
.PHONY: .venv-rivals
.venv-rivals: .venv-rivals/ready

.venv-rivals/ready: bench/rivals/requirements.txt
	@test -n "$(UV)" || { echo 'make .venv-rivals needs uv: pip install uv' >&2; exit 1; }
	@uv venv --quiet --clear --python 3.11 $(@D)
	@grep -v '^#' $< | while read -r rival; do \
	    $(install) "$$rival" || echo "did not install: $$rival" >&2; \
	done
	@touch $@

.PHONY: phoenix
phoenix: .venv/ready .venv-phoenix/ready ## what a span costs here and in Arize Phoenix, one after the other
	PHOENIX=.venv-phoenix/bin/phoenix $(BIN)/python -m bench.phoenix $(ARGS)

.PHONY: erasure-bench
erasure-bench: .venv/ready ## erase one user of 10 million events, while a server takes events in
	$(BIN)/python -m bench.erasure $(ARGS)

.PHONY: console-bench
console-bench: .venv/ready ## visit each page of the console over 10 million events (ARGS="--events 500000")
	$(BIN)/python -m bench.console $(ARGS)

.PHONY: import-formats
import-formats: .venv/ready ## read a log of 100 MB of each format: how fast, and in how much memory
	$(BIN)/python -m bench.import_formats $(ARGS)

.PHONY: gate-study
gate-study: .venv/ready ## simulate how often the gate errs, and passes what is good (ARGS="--samples 20000")
	$(BIN)/python -m bench.gate_study $(ARGS)

.PHONY: simulator-study
simulator-study: .venv/ready ## compare rewards with what the simulator knows, over many sessions and seeds
	$(BIN)/python -m bench.simulator_truth $(ARGS)

.PHONY: rates-study
rates-study: .venv/ready ## simulate how often the intervals of corrected rates hold the truth
	$(BIN)/python -m bench.rates_study $(ARGS)

.PHONY: blame-study
blame-study: .venv/ready ## compare line_survival with git blame on a real history (REPOSITORY=path ARGS="--edits 300")
	$(BIN)/python -m bench.blame_study $(REPOSITORY) $(ARGS)

.PHONY: harbor-study
harbor-study: DATA = harbor-study
harbor-study: .venv/ready ## try Harbor tasks of others here, one by one (TASKS="dir dir" DATA=dir): verified, or why not
	$(BIN)/python -m bench.harbor_study $(TASKS) --data $(DATA) $(ARGS)

.PHONY: mining-study
mining-study: .venv/ready ## mine tasks from real repositories, with a kill, and lint them (REPOSITORIES="dir …" ARGS="--tasks 10")
	$(BIN)/python -m bench.mining_study $(REPOSITORIES) $(ARGS)

.PHONY: reward-hacks
reward-hacks: .venv/ready ## play policies that pad and cut corners: none may beat honest work (ARGS=--write for the page)
	$(BIN)/python -m bench.reward_hacks $(ARGS)

.PHONY: plots
plots: .venv/ready ## draw the plots of the pages on rewards anew, from the functions themselves
	$(BIN)/python -m bench.plots $(ARGS)

.PHONY: screenshots
screenshots: .venv/ready ## take the pictures of docs/console.md anew, from simulated sessions
	$(BIN)/python -m bench.screenshots $(ARGS)

.PHONY: docs
docs: .venv/ready ## write docs/reference from the code, and the types for TypeScript anew
	$(BIN)/python -m bench.reference
	$(BIN)/python -m bench.typescript_types
	$(BIN)/python -m bench.typescript_rules
	$(BIN)/python -m bench.hook_rules

.PHONY: schema
schema: .venv/ready ## write migrations/schema.sql anew from the tables
	$(BIN)/python -m bench.schema_script

.PHONY: mutation
mutation: .venv/ready ## how many small faults the tests notice in five central modules (ARGS="--samples 40")
	$(BIN)/python -m bench.mutation $(ARGS)

.PHONY: release
release: .venv/ready ## say what a person has to decide before a release; when all is decided, tag it
	$(BIN)/python -m bench.release

.PHONY: lock
lock: ## renew requirements.lock from pyproject.toml (ARGS=--upgrade for newer versions)
	@test -n "$(UV)" || { echo 'make lock needs uv: pip install uv' >&2; exit 1; }
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --group dev --all-extras \
	    --no-header --no-annotate --no-emit-index-url $(ARGS) -o requirements.lock pyproject.toml

.PHONY: clean
clean: ## remove what these verbs made; data directories stay
	rm -rf clients/typescript/node_modules clients/typescript/build clients/typescript/dist
	rm -rf .harnesses .venv .venv-exporters .venv-phoenix .venv-rivals .venv-trl .venv-verl .venv-vllm .jars dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find bench examples jobs migrations platform tests -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The environments: exactly the lock, then this checkout, editable. Those of trainers have more.

clients/typescript/node_modules/ready: clients/typescript/package-lock.json
	@npm --prefix $(<D) ci --no-audit --no-fund --ignore-scripts
	@touch $@

ifdef UV
venv = uv venv --quiet --python "$$python" $(@D)
install = uv pip install --quiet --python $(@D)/bin/python
else
venv = "$$python" -m venv $(@D)
# An environment that uv once made has no pip yet.
install = { $(@D)/bin/python -m pip --version || $(@D)/bin/python -m ensurepip; } >/dev/null 2>&1 && \
    $(@D)/bin/python -m pip install --quiet --disable-pip-version-check
endif

.venv/ready .venv-trl/ready .venv-verl/ready: %/ready: %/locked pyproject.toml
	@$(install) --no-deps --no-build-isolation --editable .
	@touch $@

.venv-trl/ready .venv-verl/ready: .venv-%/ready: .venv-%/pinned
.venv-trl/pinned .venv-verl/pinned: .venv-%/pinned: .venv-%/locked tests/study/trainers/requirements-%.txt
	@$(install) -r tests/study/trainers/requirements-$*.txt
	@touch $@

# Not Penstock's: they only send to it.
.venv-exporters/ready: tests/study/otlp/requirements-exporters.txt
	@test -n "$(UV)" || { echo 'make exporters needs uv: pip install uv' >&2; exit 1; }
	@uv venv --quiet --clear --python 3.11 $(@D)
	@$(install) -r tests/study/otlp/requirements-exporters.txt
	@touch $@

.venv-phoenix/ready: bench/requirements-phoenix.txt
	@test -n "$(UV)" || { echo 'make phoenix needs uv: pip install uv' >&2; exit 1; }
	@uv venv --quiet --clear --python 3.11 $(@D)
	@$(install) -r bench/requirements-phoenix.txt
	@touch $@

# Not Penstock's: it is only asked over HTTP. Its wheel names a PyTorch that is not on PyPI.
.venv-vllm/ready: tests/study/fleet/vllm_requirements.txt tests/study/fleet/vllm_overrides.txt
	@test -n "$(UV)" || { echo 'make engines needs uv: pip install uv' >&2; exit 1; }
	@uv venv --quiet --clear --python 3.12 $(@D)
	@$(install) -r tests/study/fleet/vllm_requirements.txt --override tests/study/fleet/vllm_overrides.txt
	@touch $@

# Asks for the base interpreter, since the active one may live in the .venv that goes.
.venv/locked .venv-trl/locked .venv-verl/locked: requirements.lock
	@for candidate in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	    python=$$("$$candidate" -c 'import sys; sys.version_info >= (3, 11) and print(sys._base_executable)' 2>/dev/null); \
	    test -z "$$python" || break; \
	done; \
	test -n "$$python" || { \
	    echo 'Penstock needs Python 3.11 or newer and found none. Install it, or name it: make PYTHON=/path/to/python3' >&2; \
	    exit 1; }; \
	echo "Setting up $(@D) with $$python"; \
	rm -rf $(@D) && $(venv)
	@$(install) --require-hashes -r requirements.lock
	@touch $@
