# Everything that a person or CI runs. Each target sets up what it needs.

PYTHON ?= $(firstword $(foreach version,3.11 3.12 3.13,$(shell command -v python$(version))) python3)
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed

# Older releases of TensorFlow, of which the oldest has no wheels for Python 3.13, and the part of
# the tests that runs on each: what touches TensorFlow's internals, budgets, whole small steps.
VERSIONS := 2.18 2.20
VERSION_PYTHON ?= $(firstword $(foreach version,3.11 3.12,$(shell command -v python$(version))) python3)
VERSION_TESTS := $(wildcard tests/plugin) tests/runtime tests/models tests/test_budget.py \
	tests/test_cli_budget.py tests/test_entry.py tests/test_io.py tests/graph/test_functiondef.py \
	tests/graph/test_graphdef.py tests/buffers/test_assignment.py tests/costs/test_estimator_parity.py \
	tests/passes/test_pass_contract.py tests/passes/test_ordering_meaning.py \
	tests/passes/test_recomputation_meaning.py tests/passes/test_rematerialization_meaning.py

# Many tests wait for processes that they have started: one worker more than cores on two cores.
WORKERS := -n 3 --dist worksteal

.PHONY: help setup lint types test test-slow test-exhaustive test-cluster test-versions test-gpu demo benchmark benchmark-gpu fuzz mutations docs clean \
	$(VERSIONS:%=test-tensorflow-%)

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

setup: $(SETUP)  ## make the virtual environment in .venv

$(SETUP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install -qq --editable '.[dev]'
	touch $(SETUP)

lint: $(SETUP)  ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(SETUP)  ## mypy, strict
	$(BIN)/mypy

test: lint types  ## lint, types and the test suite
	$(BIN)/python -m pytest -m 'not slow and not exhaustive' $(WORKERS)

test-slow: $(SETUP)  ## the tests that take minutes
	$(BIN)/python -m pytest -m 'slow and not cluster and not exhaustive' $(WORKERS)

test-exhaustive: $(SETUP)  ## the same on large models, and longer runs, for most of an hour
	$(BIN)/python -m pytest -m exhaustive $(WORKERS)

test-cluster: $(SETUP)  ## fleets on a cluster of three nodes, which wants the machine for itself
	$(BIN)/python -m pytest -m cluster

test-versions: $(VERSIONS:%=test-tensorflow-%)  ## part of the tests on older releases of TensorFlow

$(VERSIONS:%=test-tensorflow-%): test-tensorflow-%: .venv-tf%/.installed
	.venv-tf$*/bin/python -m pytest -m 'not slow and not exhaustive' -n 2 $(VERSION_TESTS)

$(VERSIONS:%=.venv-tf%/.installed): .venv-tf%/.installed: pyproject.toml
	test -x .venv-tf$*/bin/python || $(VERSION_PYTHON) -m venv .venv-tf$*
	.venv-tf$*/bin/python -m pip install --quiet --upgrade pip
	.venv-tf$*/bin/python -m pip install -qq --editable '.[tools]' 'tensorflow==$*.*'
	touch $@

demo: $(SETUP)  ## real ResNet50 training that runs out of memory, and runs to the end rewritten
	$(BIN)/memopt demo

benchmark: $(SETUP)  ## the tables of the README
	$(BIN)/python benchmarks/recomputation_speed.py
	$(BIN)/python benchmarks/level_speed.py
	$(BIN)/python benchmarks/sums_peaks.py
	$(BIN)/python benchmarks/swapping_peaks.py
	$(BIN)/python benchmarks/measured_peaks.py
	$(BIN)/python benchmarks/buffer_peaks.py
	$(BIN)/python benchmarks/budget_peaks.py
	$(BIN)/python benchmarks/fission.py
	$(BIN)/python benchmarks/recompute_grad_peaks.py
	$(BIN)/python benchmarks/largest_batch.py
	$(BIN)/python benchmarks/fitting.py --unchanged
	$(BIN)/python benchmarks/planning_speed.py
	$(BIN)/python benchmarks/planning_graphs.py
	$(BIN)/python benchmarks/step_instances.py
	$(BIN)/python benchmarks/keras_default.py
	$(BIN)/python benchmarks/kernel_memory.py
	$(BIN)/python benchmarks/kernel_times.py
	$(BIN)/python benchmarks/layer_kernels.py
	$(BIN)/python benchmarks/truth.py
	$(BIN)/python benchmarks/xla.py
	$(BIN)/python benchmarks/saved_models.py
	$(BIN)/python benchmarks/fleet.py --ray 1 2
	$(BIN)/python benchmarks/search_workers.py --ray 2
	$(BIN)/python benchmarks/report_page.py

benchmark-gpu: $(SETUP)  ## what is measured on a GPU
	$(BIN)/python -m pip install -qq 'tensorflow[and-cuda]'
	$(BIN)/python benchmarks/gpu.py --xla no --parts trainings swaps kernels

test-gpu: $(SETUP)  ## the tests that need an NVIDIA GPU
	$(BIN)/python -m pip install -qq 'tensorflow[and-cuda]'
	$(BIN)/python -m pytest -m gpu

N ?= 1000
FILES ?= 100

fuzz: $(SETUP)  ## random programs (N=1000) and damaged files (FILES=100); what fails is kept as a case
	$(BIN)/python benchmarks/fuzz.py --programs $(N) --files $(FILES)

mutations: $(SETUP)  ## change the core in sixty places, one at a time; count what the tests notice
	$(BIN)/python benchmarks/mutations.py

docs: .venv-docs/.installed  ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

.venv-docs/.installed: pyproject.toml
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --upgrade pip
	.venv-docs/bin/python -m pip install -qq $$($(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	touch $@

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .venv-docs site $(VERSIONS:%=.venv-tf%) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
