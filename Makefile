# Set-up with pip and venv only. `make help` lists the targets.
.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
VENV ?= .venv
BIN := $(VENV)/bin
MODEL ?= smollm2-135m-instruct
# Processes that share the tests; 0: none, pytest runs them itself.
TEST_WORKERS ?= 2
PYTEST_ARGS ?=

# The stamp's name holds a digest of what decides the environment: editing one of these files makes
# the next run install again, touching one does not.
STAMP := $(VENV)/.setup-$(shell cat pyproject.toml constraints.txt | cksum | cut -d ' ' -f 1)

# Not from the environment: processes that tests start would compile what they import, again and again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup check format lint types imports quick test model demo fmt stubs lock audit docs docs-config chart clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create the environment (once; later runs reuse it)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Pilotfish needs Python 3.11 or newer, and $(PYTHON) is not. Name another: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@rm -f $(VENV)/.setup-*
	@touch $@

check: format lint types imports ## Formatting, lint, types, import rules

format: $(STAMP)
	$(BIN)/ruff format --check --quiet

lint: $(STAMP)
	$(BIN)/ruff check --quiet

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

quick: $(STAMP) ## Unit tests without models, processes and browsers: a minute
	$(BIN)/pytest tests/unit --quick --quiet -n $(TEST_WORKERS) $(PYTEST_ARGS)

model: $(STAMP)
	@$(BIN)/pilotfish models pull $(MODEL)

test: $(STAMP) model ## Set up, pull the model, run every test that this machine can
	$(BIN)/pytest -n $(TEST_WORKERS) $(PYTEST_ARGS)

demo: $(STAMP) ## Set up, start the services, the same prompts plain and speculative
	@$(BIN)/pilotfish demo

fmt: $(STAMP) ## Format, and mend what lint can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

stubs: $(STAMP) ## Generate the gRPC stubs from protos/
	$(BIN)/python scripts/generate_stubs.py

# uv resolves like pip and writes every file's hash without downloading any. Torch's is that of the registry's build.
LOCK = $(BIN)/uv pip compile --generate-hashes --python-version 3.11 --no-config --no-annotate --custom-compile-command 'make lock' --quiet
DEPLOYED = --constraint constraints.txt --python-platform x86_64-manylinux_2_28

lock: $(STAMP) ## Write the lock files: what a deployment needs, with hashes
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	$(LOCK) pyproject.toml --extra engine --extra ray --output-file requirements.lock $(DEPLOYED)
	$(LOCK) pyproject.toml --extra router --output-file docker/router-requirements.txt $(DEPLOYED)
	$(LOCK) docker/build-requirements.in --output-file docker/build-requirements.txt

audit: $(STAMP) ## Look for known vulnerabilities in requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip-audit==2.10.1
	$(BIN)/python scripts/audit.py

docs: $(STAMP) ## Build the documentation as a site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'build/site/index.html'

docs-config: $(STAMP) ## Generate docs/configuration.md from pilotfish/config
	$(BIN)/python scripts/configuration_reference.py

chart: $(STAMP) ## Write what is derived from the Helm chart: README, schema, k8s/
	$(BIN)/python scripts/helm_chart.py

clean: ## Remove the environment and every build product (keeps downloaded models)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache ./*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
