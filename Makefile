# All that is needed: Python >= 3.11, make and a package registry. Every target makes its own environment in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
LOCK   := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
          --no-emit-index-url --no-header --quiet

.DEFAULT_GOAL := help
.PHONY: help env demo test check format lint types layers coverage bench proto lock schema clean

help:  ## what there is
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | awk -F: '{printf "  make %-10s%s\n", $$1, $$2}'

env: $(STAMP)  ## the environment in .venv, from the hashed lock

demo: $(STAMP)  ## a whole simulated node, a story on it, on this terminal
	@$(BIN)/gpu-reactor simulate

test: $(STAMP)  ## every test that this user can run (what needs root is named in one line when it is left out)
	@$(BIN)/python -m pytest

check: format lint types layers test  ## what CI runs

format: $(STAMP)  ## is everything formatted (make fix mends it)
	@$(BIN)/ruff format --check .

lint: $(STAMP)  ## ruff
	@$(BIN)/ruff check .

types: $(STAMP)  ## mypy --strict
	@$(BIN)/mypy

layers: $(STAMP)  ## who may import whom (contracts in pyproject.toml)
	@$(BIN)/lint-imports --no-cache

coverage: $(STAMP)  ## branch coverage of the tests
	@$(BIN)/coverage run -m pytest
	@$(BIN)/coverage report --skip-covered --show-missing

bench: $(STAMP)  ## medians and spreads beside a bare grpcio plugin
	@$(BIN)/python -m tests.bench

.PHONY: image
image: $(STAMP)  ## the agent's image on a Debian base, as an archive; prints its path (needs root, buildah, mmdebstrap)
	@$(BIN)/python -m tests.e2e.image

.PHONY: node node-demo bench-node e2e e2e-full
node: $(STAMP)  ## build the parts of real Kubernetes nodes into .node, once (needs Go; see docs/real-node.md)
	@$(BIN)/python -m tests.e2e.build

node-demo: $(STAMP)  ## the agent on a real Kubernetes node, a story on this terminal (needs root; Go, the first time)
	@$(BIN)/python -m tests.e2e.build 1.37
	@$(BIN)/python -m tests.e2e.demo 1.37

bench-node: $(STAMP)  ## what the agent takes on a real node, beside a careless plugin there (needs root; Go, the first time)
	@$(BIN)/python -m tests.e2e.build 1.37
	@$(BIN)/python -m tests.e2e.bench

e2e: node  ## the agent on real nodes (needs root); all but what only waits for minutes
	@$(BIN)/python -m tests.e2e -m "not long"

e2e-full: node  ## the same with the long windows
	@$(BIN)/python -m tests.e2e

.PHONY: fix
fix: $(STAMP)  ## format and mend what ruff can mend
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

proto: $(STAMP)  ## generate reactor/kubelet/_pb from proto/
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh proto/generate.sh

schema: $(STAMP)  ## generate what is published of the code: schemas in config/, pages in docs/
	@$(BIN)/python -m reactor.record.schema
	@$(BIN)/gpu-reactor check --print-schema > config/config.schema.json
	@$(BIN)/python -m reactor.cli.reference
	@$(BIN)/python -m reactor.status.metrics.page
	@$(BIN)/python -m tests.contract.table.page

lock:  ## resolve pyproject.toml anew into the hashed locks
	@test -x $(BIN)/uv || { $(PYTHON) -m venv $(VENV) && $(PIP) install uv; }
	@$(BIN)/$(LOCK) -o requirements.lock
	@$(BIN)/$(LOCK) --extra dev -o requirements-dev.lock

clean:  ## remove the environment and every cache
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
	find reactor tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The project itself is built without isolation: its build backend is in the lock like everything else.
$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "gpu-reactor needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making the environment in $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@
