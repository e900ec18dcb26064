# make run               builds and tells a story           make test    lint, types, layers, tests
# make lint              the checks alone                   make bench   speed on this machine
# make sanitize          native code under AddressSanitizer and UndefinedBehaviorSanitizer (gcc; builds for minutes)
# make emulate-amx       kernels of Intel's AMX on a processor with AVX-512 and bfloat16 that has none (builds for minutes)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find src/gristmill/native -type f 2>/dev/null)
BUILD_TOOLS := "scikit-build-core>=0.10" "nanobind>=2.4" "cmake>=3.18" ninja
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

PROMPT ?= Once upon a time
MODEL ?=
ARGS ?= -n 400

export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell getconf _NPROCESSORS_ONLN)

.PHONY: run test lint bench sanitize emulate-amx clean

run: $(VENV)/.built
	@$(BIN)/gristmill generate $(if $(MODEL),-m "$(MODEL)") -p "$(PROMPT)" $(ARGS)

# Most tests leave one core or another idle: several processes share them out. Those that measure time come after.
test: $(VENV)/.tested-with lint
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal -m "not alone"
	$(BIN)/python -m pytest -m alone

lint: $(VENV)/.tested-with
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.tested-with
	$(BIN)/gristmill bench machine
	$(BIN)/python benchmarks/kernels.py

# In environments of their own, which find everything but gristmill in the usual one.
define own_environment
	$(PYTHON) -m venv $(1)/venv
	$(BIN)/python -c "import sys; print(*(p for p in sys.path if p.endswith('site-packages')), sep='\n')" \
	  > $$(echo $(1)/venv/lib/python3*/site-packages)/usual.pth
	$(1)/venv/bin/python -m pip install --quiet --no-build-isolation --no-deps -C build-dir=$(1)/native $(2) .
endef

SANITIZED := build/sanitize
SANITIZED_TESTS ?= $(addprefix tests/ops/test_,kernels.py attention.py sampling.py memory.py lazy.py) \
  $(addprefix tests/formats/test_,dequantize.py quantize.py) tests/tokenizer/test_tokenizer_special.py

sanitize: $(VENV)/.tested-with
	$(call own_environment,$(SANITIZED),-C cmake.build-type=RelWithDebInfo -C cmake.define.GRISTMILL_SANITIZE=ON)
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	  $(SANITIZED)/venv/bin/python -m pytest $(SANITIZED_TESTS) \
	  $(addprefix --deselect tests/ops/test_memory.py::test_,memory_of_weights_goes_with_them \
	    weights_waste_no_huge_pages)  # freed memory waits in quarantine

EMULATED := build/emulate-amx

emulate-amx: $(VENV)/.tested-with
	$(call own_environment,$(EMULATED),-C cmake.define.GRISTMILL_EMULATE_AMX=ON)
	GRISTMILL_ISA=amx $(EMULATED)/venv/bin/python -m pytest -k amx $(addprefix tests/ops/test_,kernels.py attention.py lazy.py)

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
