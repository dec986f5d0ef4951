# For a fresh machine with Python 3.11 or later, make and pip: `make demo`, `make test`; `make help` lists the rest.
# `PYTHON=` names an interpreter, `VENV=` another place for the environment, `ARGS=` is passed on.

# The first that runs and is new enough; asked, for a shim may be there and fail when it is called.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Modules are compiled when they are first imported, most of them never: half a minute less.
INSTALL := $(PIP) install --quiet --no-compile --constraint constraints.txt

# Some hundred processes of the tests import the package, which each would compile for itself: 0.2 s of a processor.
export PYTHONDONTWRITEBYTECODE :=

# A worker for each core, but eight at most, as each holds all frameworks; each with one thread, as more only wait.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal
# What a change breaks first, by a minute of tests: after the suite on toyad, the core, the questions and one plugin;
# without a compiler for each structure.
QUICK := --ignore=tests/hooks/test_cond_structures.py tests/dispatch tests/trees tests/hooks tests/gradients tests/autograd_plugin \
	tests/torch_plugin/test_torch_query.py tests/jax_plugin/test_jax_query.py tests/conformance/test_scenario.py

.PHONY: help demo test quick lint format types unit coverage docs support plugins plugin-mutants adoption mutants mutate fuzz lines matrix libraries stress cuda-record bench bench-check \
	bench-pennylane-env bench-peers-env hooks clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-22s%s\n", $$1, $$2}'

demo: $(VENV)/.demo ## one model under every framework, side by side
	$(BIN)/python -m adprotocol demo $(ARGS)

# Lint, types and pages take one core each, the tests all of them.
test: $(VENV)/.dev ## all that has to pass
	$(MAKE) --jobs=2 --output-sync=target lint types docs
	$(MAKE) unit

quick: lint ## lint, the suite on toyad, and the tests that a change breaks first
	$(PYTEST) -q -x tests/conformance/test_suite.py
	$(PYTEST) -q $(QUICK) $(ARGS)

lint: $(VENV)/.dev ## ruff: rules and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev ## mypy, strict; what a user's checkers make of the public types is tested in tests/typing
	$(BIN)/mypy
	$(BIN)/mypy examples/co2
	$(BIN)/mypy examples/neutral/neutral
	$(BIN)/mypy examples/solver_layer/solver_layer

unit: $(VENV)/.dev ## the tests
	$(PYTEST) $(ARGS)

coverage: $(VENV)/.dev ## the tests, with the floor of pyproject.toml for what they reach
	$(PYTEST) --cov --cov-report=term:skip-covered $(ARGS)

docs: $(VENV)/.dev ## the pages, into docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

support: $(VENV)/.dev ## the conformance suite on each plugin, and the record of its results that the pages show
	$(BIN)/python docs/support.py
	$(BIN)/python docs/pictures.py

plugins: $(VENV)/.dev ## the plugins in examples/plugins: tests, conformance suite and record, each in an environment of its own
	$(BIN)/python examples/plugins/run.py $(ARGS)

plugin-mutants: $(VENV)/.dev ## one of these plugins, broken on purpose, after `make plugins`: PLUGIN=mlx ARGS="--quick patch/*"
	build/plugins/$(or $(PLUGIN),mlx)/bin/python examples/plugins/$(or $(PLUGIN),mlx)/mutants.py $(ARGS)

adoption: $(VENV)/.dev ## released libraries, changed to use this package: their tests before and after
	$(BIN)/python examples/adoption/run.py $(ARGS)

mutants: $(VENV)/.dev ## whether each scenario of the suite notices a plugin that is wrong on purpose
	$(BIN)/python -m pytest -n 0 -q tests/conformance/test_mutants.py $(ARGS)

mutate: $(VENV)/.dev ## random mutants of the library against the tests nearest to each: N=100 SEED=1
	cd tests && OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m mutate $(or $(N),100) --seed $(or $(SEED),1) $(ARGS)

fuzz: $(VENV)/.dev ## generated programs against an oracle: N=10000 SEED=1, FRAMEWORK=jax for one, ARGS='--stress 60' for both
	cd tests && $(abspath $(BIN))/python -m fuzz $(or $(N),300) --seed $(or $(SEED),1) $(FRAMEWORK:%=--framework %) $(ARGS)

lines: $(VENV)/.dev ## the size of each part, beside its budget
	cd tests && $(abspath $(BIN))/python -m lines

matrix: $(VENV)/.dev ## oldest and newest release of each framework, an environment for each: POINT=floors-autograd for one, ARGS=--all
	cd tests && $(abspath $(BIN))/python -m matrix $(POINT) $(ARGS)

libraries: .venv-libraries/.made ## programs of other libraries with our calls in them, in an environment of its own
	OMP_NUM_THREADS=1 .venv-libraries/bin/python -m pytest -q tests/libraries tests/jax_plugin/test_jax_custom_rules.py $(ARGS)

.venv-libraries/.made: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-libraries
	.venv-libraries/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[all]' --group test --group libraries
	touch $@

stress: $(VENV)/.dev ## threads, tasks and processes at once, each result checked: SECONDS=60 SEED=0
	cd tests && $(abspath $(BIN))/python -m fuzz 0 --stress $(or $(SECONDS),60) --seed $(or $(SEED),0) $(ARGS)

cuda-record: $(VENV)/.dev ## on a machine with a CUDA device: its tests and the conformance suite, for the page on accelerators
	$(BIN)/python benchmarks/gpu_record.py

bench: $(VENV)/.dev ## the benchmarks: ARGS='query branch' for some, ARGS=--write for the table of the site and the record
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-check: $(VENV)/.dev ## what costs more than in the record, beyond the noise
	$(BIN)/python benchmarks/check.py

# Without it `make bench` says that its rows are skipped.
bench-pennylane-env: ## PennyLane, for the benchmarks, in an environment of its own
	$(PYTHON) -m venv .venv-pennylane
	.venv-pennylane/bin/python -m pip install --quiet --disable-pip-version-check pennylane autograd jax --editable .

# geomstats imports a function that NumPy 2.4 has no more.
bench-peers-env: ## Keras, POT, geomstats and DeepXDE, likewise
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check keras pot geomstats deepxde 'numpy<2.4' \
		"$$(grep '^torch==' constraints.txt)" --editable .

hooks: $(VENV)/.dev ## run .pre-commit-config.yaml before each commit
	$(INSTALL) --group hooks
	$(BIN)/pre-commit install

$(VENV)/.venv:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or later found. Name one: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) pip
	touch $@

$(VENV)/.demo: $(VENV)/.venv pyproject.toml constraints.txt
	$(INSTALL) --editable '.[all]'
	touch $@

# All in one go, of which those of the demo are a part.
$(VENV)/.dev: $(VENV)/.venv pyproject.toml constraints.txt
	$(INSTALL) --editable '.[all]' --group test --group lint --group docs --group bench
	touch $(VENV)/.demo $@

clean: ## remove the environment and what was built
	rm -rf $(VENV) docs/_build docs/generated .pytest_cache .mypy_cache .ruff_cache .coverage
