# make run               builds and tells a story           make test    lint, types, layers, tests
# make lint              the checks alone                   make bench   speed on this machine

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find src/gristmill/native -type f 2>/dev/null)
BUILD_TOOLS := "scikit-build-core>=0.10" "nanobind>=2.4" "cmake>=3.18" ninja
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

PROMPT ?= Once upon a time
MODEL ?=
ARGS ?= -n 400

export CMAKE_BUILD_PARALLEL_LEVEL ?= 2

.PHONY: run test lint bench clean

run: $(VENV)/.built
	@$(BIN)/gristmill generate $(if $(MODEL),-m "$(MODEL)") -p "$(PROMPT)" $(ARGS)

test: $(VENV)/.tested-with lint
	$(BIN)/python -m pytest

lint: $(VENV)/.tested-with
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.tested-with
	$(BIN)/gristmill bench machine
	$(BIN)/python benchmarks/kernels.py

$(VENV)/.tools:
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(BUILD_TOOLS)
	@touch $@

# The package is installed in place: Python files are read from src, the C++ is built again when it changes.
$(VENV)/.built: $(VENV)/.tools $(SOURCES)
	$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.tested-with: $(VENV)/.built
	$(PIP) --no-build-isolation --editable ".[test]"
	@touch $@

clean:
	rm -rf build $(VENV)
