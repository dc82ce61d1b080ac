# `make help` lists the targets. They call cmake, ctest, pytest and scripts/, each of which also works by itself.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/bash
PYTHON ?= python3
JOBS ?= $(shell nproc)
# The oldest version that compiles this C++20; Debian 12 and Ubuntu 24.04 both have it.
CLANG_VERSION ?= 16
# The commit that `make test` and `make check` compare with, or `everything`. Empty: where the branch left main.
BASE ?=
# Options of scripts/gpu_suite.py, e.g. --sanitizer.
GPU_FLAGS ?=
# How many processes `make torture` kills, and its random seed; empty: a new seed for each run.
KILLS ?= 100000
SEED ?=
# How many processes `make torture-python` kills.
PYTHON_KILLS ?= 500
# Minutes that `make torture-mixed` runs.
MINUTES ?= 60
# Seconds that `make fuzz` runs each fuzzer.
FUZZ_SECONDS ?= 600
# The workload that `make bench` runs; by default each directory of benchmarks/. The workload `python` is not
# compiled.
WORKLOAD ?= $(filter-out support,$(patsubst benchmarks/%/,%,$(wildcard benchmarks/*/)))

# $(call step,NAME,COMMAND) prints a headline, runs the command, and names the step if it fails.
step = @echo "== $(1)"; { $(2); } || { status=$$?; echo "make: the step '$(1)' failed (status $$status)" >&2; exit $$status; }
# Empty without a Python that can run the package.
demo_has_python = $(shell $(PYTHON) -c 'import sys; sys.version_info >= (3, 10) and print("yes")' 2>/dev/null)
compiled_workloads = $(filter-out python,$(WORKLOAD))
# The thread sanitizer of GCC 13 and older fails under the wide address randomisation of new kernels.
plain_addresses := $(shell setarch -R true 2>/dev/null && echo setarch -R)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install missing packages, and the Python tools in .venv
	$(call step,setup,scripts/setup.sh)

.PHONY: packages
packages: ## install missing packages only
	$(call step,packages,scripts/setup.sh --no-venv)

.PHONY: build
build: setup ## build everything for daily work in build/dev
	$(call step,build dev,$(PYTHON) scripts/build.py dev)

.PHONY: demo
demo: ## map over all devices in C++ and in Python; a worker is killed, and nothing is lost
	$(call step,packages,scripts/setup.sh --demo)
	$(call step,build,$(PYTHON) scripts/build.py release drover_cli pool_map $(if $(demo_has_python),drover_python \
	  -D DROVER_BUILD_PYTHON=ON -D Python_EXECUTABLE=$(CURDIR)/.venv/bin/python))
	$(call step,drover devices,build/release/cli/drover devices)
	$(call step,pool_map in C++,build/release/examples/cpp/pool_map/pool_map)
	$(if $(demo_has_python),$(call step,pool_map in Python,\
	  PYTHONPATH=build/release/python .venv/bin/python examples/python/pool_map.py),\
	  @echo "skipping pool_map in Python: it needs Python 3.10 or newer")

.PHONY: test
test: ## required before a change lands: gates, sanitizers, model, torture, fuzzers, wheel, Python
	@$(PYTHON) scripts/steps.py test --base "$(BASE)" --clang $(CLANG_VERSION)

.PHONY: check
check: ## daily loop: quick gates, build, clang-tidy of changed code, tests of changed code
	@$(PYTHON) scripts/steps.py check --base "$(BASE)" --clang $(CLANG_VERSION)

.PHONY: test-all
test-all: ## nightly, skips nothing: no batches, clang-tidy and sanitizers everywhere, longer torture
	@$(PYTHON) scripts/steps.py test-all --clang $(CLANG_VERSION)

.PHONY: test-dev
test-dev: build ## build and run the C++ tests
	$(call step,test dev,$(PYTHON) scripts/run_tests.py build/dev)

.PHONY: test-asan
test-asan: packages ## run the C++ tests under the address, leak and (library only) undefined-behaviour sanitizers
	$(call step,build asan,$(PYTHON) scripts/build.py asan)
	$(call step,test asan,$(PYTHON) scripts/run_tests.py build/asan)

.PHONY: test-tsan
test-tsan: packages ## run the C++ tests under the thread sanitizer
	$(call step,build tsan,$(plain_addresses) $(PYTHON) scripts/build.py tsan)
	$(call step,test tsan,$(plain_addresses) $(PYTHON) scripts/run_tests.py build/tsan --leave-out torture)

.PHONY: test-clang
test-clang: ## build with clang in build/clang and run the C++ tests
	$(call step,packages,scripts/setup.sh --no-venv --with clang-$(CLANG_VERSION))
	$(call step,build clang,cmake --preset dev -B build/clang -DDROVER_BUILD_PYTHON=OFF \
	  -DCMAKE_CXX_COMPILER=clang++-$(CLANG_VERSION) && \
	  cmake --build build/clang)
	$(call step,test clang,ctest --test-dir build/clang -j $(JOBS) --output-on-failure --no-tests=error)

.PHONY: test-python
test-python: build ## run the tests of the Python package, the scripts, the installed library and the tool
	$(call step,pytest,$(PYTHON) scripts/run_pytest.py)

.PHONY: wheel
wheel: setup ## build the wheel of the Python package in build/wheel
	$(call step,wheel,.venv/bin/python -m pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir build/wheel \
	  --config-settings=build-dir=build/wheel/cmake)

.PHONY: test-wheel
test-wheel: wheel ## install the wheel in a fresh environment and use it
	$(call step,test wheel,.venv/bin/pytest -q tests/install/test_wheel.py)

.PHONY: build-fuzz
build-fuzz: ## build the fuzzers with clang
	$(call step,packages,scripts/setup.sh --no-venv --with clang-$(CLANG_VERSION) --with libclang-rt-$(CLANG_VERSION)-dev)
	$(call step,build fuzz,$(PYTHON) scripts/build.py fuzz -D CMAKE_CXX_COMPILER=clang++-$(CLANG_VERSION))

.PHONY: test-fuzz
test-fuzz: build-fuzz ## run each fuzzer for a few seconds
	$(call step,fuzz,$(PYTHON) scripts/fuzz.py --seconds 5)

.PHONY: fuzz
fuzz: build-fuzz ## run each fuzzer for FUZZ_SECONDS (600)
	$(call step,fuzz,$(PYTHON) scripts/fuzz.py --seconds $(FUZZ_SECONDS))

.PHONY: torture
torture: packages ## kill KILLS (100000) producers, consumers and lock holders at random moments; SEED=n repeats a run
	$(call step,build torture,$(PYTHON) scripts/build.py release torture)
	$(call step,torture,build/release/tests/torture/torture --kills $(KILLS) $(if $(SEED),--seed $(SEED)))

.PHONY: torture-python
torture-python: build ## kill PYTHON_KILLS (500) processes of Python programs at random moments; SEED=n repeats a run
	$(call step,torture python,DROVER_PYTHON_KILLS=$(PYTHON_KILLS) DROVER_PYTHON_SEED=$(or $(SEED),0) \
	  .venv/bin/pytest -q -s tests/python/test_kills.py)

.PHONY: torture-mixed
torture-mixed: build ## kill and stop all processes of programs that use everything for MINUTES (60); SEED=n repeats a run
	$(call step,torture mixed,PYTHONPATH=build/dev/python .venv/bin/python tests/python/mixed_storm.py \
	  --minutes $(MINUTES) --seed $(or $(SEED),0))

.PHONY: lint
lint: setup ## run the static gates: format, tidy, layers, sizes, documentation, commits
	$(call step,lint,$(PYTHON) scripts/lint.py --base "$(or $(BASE),everything)")

.PHONY: format
format: setup ## format C++ and Python
	$(call step,format,$(PYTHON) scripts/lint.py --fix)

.PHONY: docs
docs: ## generate the reference in build/docs/html; check links and tables of the pages
	$(call step,packages,scripts/setup.sh --no-venv --with doxygen)
	$(call step,docs,$(PYTHON) scripts/lint.py --only doxygen --only docs)

define bench_compiled
$(call step,build release,cmake --preset release && \
  cmake --build --preset release --target $(addprefix bench_,$(compiled_workloads)))
@for workload in $(compiled_workloads); do \
  echo "== bench $$workload"; \
  build/release/benchmarks/bench_$$workload --json build/bench/$$workload.json || \
    { status=$$?; echo "make: the benchmark $$workload failed (status $$status)" >&2; exit $$status; }; \
done
endef

define bench_python
$(call step,build release with Python,cmake --preset release -DDROVER_BUILD_PYTHON=ON \
  -DPython_EXECUTABLE=$(CURDIR)/.venv/bin/python && \
  cmake --build --preset release --target drover_python drover_cli)
@for program in queue pipe pool start weight tensor; do \
  echo "== bench python $$program"; \
  PYTHONPATH=$(CURDIR)/build/release/python .venv/bin/python benchmarks/python/$${program}_main.py \
    --json build/bench/python_$$program.json || \
    { status=$$?; echo "make: the benchmark python $$program failed (status $$status)" >&2; exit $$status; }; \
done
endef

.PHONY: bench
bench: ## run all benchmarks, or WORKLOAD=name; results go to build/bench/<workload>.json
	$(call step,packages,scripts/setup.sh $(if $(filter python,$(WORKLOAD)),,--no-venv) --benchmarks)
	@mkdir -p build/bench
	$(if $(compiled_workloads),$(bench_compiled))
	$(if $(filter python,$(WORKLOAD)),$(bench_python))

.PHONY: gpu
gpu: ## run everything that needs a GPU; GPU_FLAGS=--sanitizer adds compute-sanitizer
	@$(PYTHON) scripts/gpu_suite.py $(GPU_FLAGS)

.PHONY: bundle
bundle: setup ## fill .deps/ for a machine without a network
	$(call step,bundle,$(PYTHON) scripts/bundle_deps.py)

.PHONY: clean
clean: ## remove all build outputs; keep .venv and .deps
	@rm -rf build
