# Every target makes .venv itself on first use, and again when pyproject.toml or constraints.txt change.

PYTHON      ?= python3
# Two workers more than there are cores: tests also wait for disks, processes and each other.
WORKERS     ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# Tests of a group run in one worker: those of the page share a server and a browser.
PYTEST_ARGS ?= -n $(WORKERS) --ignore=tests/web
ARGS        ?=

BIN      := .venv/bin
READY    := .venv/.ready
COMPILED := .venv/.compiled
TOOLS    := .venv/tools/.ready
INSTALL  := -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup run demo test web check fix bench peers docs screenshots teeth sim faults clients long house lock dist smoke clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {line = sprintf("  make %-11s", $$1); n = split($$2, word, " "); \
	  for (i = 1; i <= n; i++) {if (length(line word[i]) > 78) {print line; line = sprintf("%18s", "")} line = line " " word[i]} \
	  print line}' Makefile

setup: $(READY) ## Make .venv with everything the other targets need, and install zsh, fish and Chromium if it can
	@tests/packages.sh zsh fish chromium

run: $(READY) ## Start the server on the workspace in .holdfast and print a link to its page (ARGS go to `holdfast serve`)
	@$(BIN)/holdfast serve --link $(ARGS)

demo: $(READY) ## Watch a fleet of agents share a workspace
	@$(BIN)/holdfast demo $(ARGS)

test: $(READY) ## Check, then run the tests on all cores (ARGS="-k name" picks some)
	@tests/packages.sh zsh fish
	@$(MAKE) --no-print-directory -j 2 check $(COMPILED)
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(ARGS)

web: $(READY) ## Test the page in a real browser (ARGS="-k name" picks some)
	@tests/packages.sh chromium
	$(BIN)/python -m pytest tests/web $(ARGS)

check: $(READY) ## Lint, formatting and types; changes no file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(READY) ## Repair lint and formatting in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## Run the benchmarks (ARGS go to them)
	$(BIN)/python -m tests.bench $(ARGS)

peers: $(READY) ## Run the same work on Holdfast, Redis, PostgreSQL, NATS, etcd, huey and SQLite (ARGS=Redis picks some)
	@tests/packages.sh redis-server etcd-server || true # what is missing is named in the report
	@$(BIN)/python $(INSTALL) --require-hashes -r locks/peers.txt || true
	$(BIN)/python -m tests.peers $(ARGS)

docs: $(READY) ## Build the documents as a site into site/, and follow its links
	@$(BIN)/python $(INSTALL) --require-hashes -r locks/docs.txt
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --clean
	@$(BIN)/python -m tests.docs.site site
	@echo "look at it: python3 -m http.server -b 127.0.0.1 -d site (a page opened from the disk has no search)"

screenshots: $(READY) ## Photograph every view of the page into docs/images
	@tests/packages.sh chromium
	$(BIN)/python -m tests.web.screenshots $(ARGS)

teeth: $(READY) ## Break the source on purpose and see that the tests notice (goes on where it stopped)
	$(BIN)/python -m tests.teeth $(ARGS)

sim: $(READY) ## Attack a simulated cluster (SEED=7 shows one run, SEEDS=20000 tries many)
	@SEED=$(SEED) SEEDS=$(SEEDS) FIRST=$(FIRST) $(BIN)/python -m tests.simulation

faults: $(READY) ## Kill, pause and cut off real engines under three nodes that write (ARGS=postgres or jetstream)
	$(BIN)/python -m tests.faults $(ARGS)

clients: $(READY) ## Drive real agent clients from npm with a stand-in for the model (ARGS="claude codex" picks some); needs Node
	@tests/packages.sh bubblewrap
	$(BIN)/python -m tests.clients $(ARGS)

long: $(READY) $(TOOLS) ## What is too long for `test`: every kind, and the figures of a release in slices (goes on where it stopped)
	$(BIN)/python -m tests.long $(ARGS)

house: $(READY) ## Print the figures of the source: modules, lines, importers, layers, what one claim walks through
	@$(BIN)/python -m tests.architecture.house

lock: $(READY) $(TOOLS) ## Pin every package that make installs with its digests, by the versions in constraints.txt
	@$(BIN)/python -m tests.release.lock

dist: $(READY) $(TOOLS) ## Build the wheel and the source archive twice, compare and check them, and leave them in dist/
	@$(BIN)/python -m tests.release.dist

smoke: $(READY) ## Install the wheel of dist/ into clean environments and try each face and extra (ARGS="server mcp" picks some)
	@$(BIN)/python -m tests.release.smoke $(ARGS)

clean: ## Remove caches and build output; keeps .venv
	rm -rf build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .teeth .long $(COMPILED)
	find src tests -name __pycache__ -prune -exec rm -rf {} +

# pytest compiles each test file in its own way. Every worker would do that for itself; once, beside the checks, is enough.
$(COMPILED): $(READY)
	@out=$$(env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --collect-only -qq 2>&1) || { echo "$$out"; exit 1; }
	@touch $@

# Each package is one whose digest is in locks/ (`make lock`). The project itself is built by the setuptools among them.
$(READY): pyproject.toml locks/dev.txt
	@test -x $(BIN)/pip || $(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Holdfast needs Python 3.11 or newer; name one with: make PYTHON=python3.11")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "installing into .venv"
	@$(BIN)/python $(INSTALL) --require-hashes -r locks/dev.txt
	@$(BIN)/python $(INSTALL) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src # an editable install does not, and a call would compile what it loads
	@touch $@

# What only a release needs, apart from the rest: pip-audit brings a pip of its own.
$(TOOLS): locks/tools.txt
	@$(PYTHON) -m venv .venv/tools
	@.venv/tools/bin/python $(INSTALL) --require-hashes -r locks/tools.txt
	@touch $@
