# Everything that a person or CI runs. Each target sets up what it needs.

PYTHON ?= $(firstword $(foreach version,3.11 3.12 3.13,$(shell command -v python$(version))) python3)
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.installed

.PHONY: help setup lint types test test-slow demo benchmark clean

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
	$(BIN)/python -m pytest -m 'not slow' -n 2

test-slow: $(SETUP)  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

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
	$(BIN)/python benchmarks/recompute_grad_peaks.py
	$(BIN)/python benchmarks/largest_batch.py
	$(BIN)/python benchmarks/planning_speed.py

clean:  ## remove the environment and all caches
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
