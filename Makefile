# Two commands for a fresh machine with Python 3.11, make and pip: `make demo`, `make test`.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test lint types unit docs support mutants bench bench-pennylane-env clean

demo: $(VENV)/.demo
	$(BIN)/python -m adprotocol demo

test: lint types unit docs

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/python -m pytest

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

# The conformance suite on each plugin, and the record of its results, from which `make docs` draws the support matrix.
support: $(VENV)/.dev
	$(BIN)/python docs/support.py

# Which scenarios of the conformance suite catch which plugin that is wrong on purpose.
mutants: $(VENV)/.dev
	cd tests/conformance && $(abspath $(BIN))/python -m mutants $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

# PennyLane in an environment of its own; without it `make bench` says that its rows are skipped.
bench-pennylane-env:
	$(PYTHON) -m venv .venv-pennylane
	.venv-pennylane/bin/python -m pip install --quiet --disable-pip-version-check pennylane autograd jax --editable .

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt pip
	touch $@

$(VENV)/.demo: $(VENV)/.venv pyproject.toml constraints.txt
	$(PIP) install --quiet --constraint constraints.txt --editable '.[all]'
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) install --quiet --constraint constraints.txt --group test --group lint --group docs --group bench
	touch $@

clean:
	rm -rf $(VENV) docs/_build docs/generated .pytest_cache .mypy_cache .ruff_cache
