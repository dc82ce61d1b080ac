# The front door: `make help` lists what it can do. Targets call cmake, ctest, pytest and scripts/; each of those
# works by itself too.

.DEFAULT_GOAL := help
.NOTPARALLEL:
SHELL := /bin/bash
PYTHON ?= python3
JOBS ?= $(shell nproc)
# The oldest that reads this C++20; Debian 12 and Ubuntu 24.04 both have it.
CLANG_VERSION ?= 16
# What `make test` and `make check` compare the change with: a commit, or `everything`. The main branch if empty.
BASE ?=
# Options of scripts/gpu_suite.py, e.g. --sanitizer.
GPU_FLAGS ?=
# How many processes `make torture` kills, and the seed of its random numbers; another one each time if not given.
KILLS ?= 100000
SEED ?=
# The same for `make torture-python`.
PYTHON_KILLS ?= 500
# How long `make fuzz` runs each fuzzer.
FUZZ_SECONDS ?= 600
# What `make bench` runs: one workload, or all that have a folder. Those of `python` are programs of Python.
WORKLOAD ?= $(filter-out support,$(patsubst benchmarks/%/,%,$(wildcard benchmarks/*/)))

# $(call step,NAME,COMMAND): runs a command with a headline and says which step failed.
step = @echo "== $(1)"; { $(2); } || { status=$$?; echo "make: the step '$(1)' failed (status $$status)" >&2; exit $$status; }
# Empty where there is no Python for the package.
demo_has_python = $(shell $(PYTHON) -c 'import sys; sys.version_info >= (3, 10) and print("yes")' 2>/dev/null)
compiled_workloads = $(filter-out python,$(WORKLOAD))
# Thread sanitizers of GCC 13 and older cannot live with the wide address randomisation of new kernels.
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
build: setup ## build everything for daily work, in build/dev
	$(call step,build dev,$(PYTHON) scripts/build.py dev)

.PHONY: demo
demo: ## the main job, in C++ and in Python: a map on all devices, in which a worker is killed and nothing is lost
	$(call step,packages,scripts/setup.sh --demo)
	$(call step,build,$(PYTHON) scripts/build.py release drover_cli pool_map $(if $(demo_has_python),drover_python \
	  -D DROVER_BUILD_PYTHON=ON -D Python_EXECUTABLE=$(CURDIR)/.venv/bin/python))
	$(call step,drover devices,build/release/cli/drover devices)
	$(call step,pool_map in C++,build/release/examples/cpp/pool_map/pool_map)
	$(if $(demo_has_python),$(call step,pool_map in Python,\
	  PYTHONPATH=build/release/python .venv/bin/python examples/python/pool_map.py),\
	  @echo "pool_map in Python is left out: it needs Python 3.10 or newer")

.PHONY: test
test: ## what must pass before a change lands: gates, sanitizers, model, torture, fuzzers, wheel, Python
	@$(PYTHON) scripts/steps.py test --base "$(BASE)" --clang $(CLANG_VERSION)

.PHONY: check
check: ## for daily work: quick gates, tidy of what changed, build, the tests of what changed
	@$(PYTHON) scripts/steps.py check --base "$(BASE)" --clang $(CLANG_VERSION)

.PHONY: test-all
test-all: ## everything and nothing skipped, for the night: no batches, all of tidy, sanitizers everywhere, longer torture
	@$(PYTHON) scripts/steps.py test-all --clang $(CLANG_VERSION)

.PHONY: test-dev
test-dev: build ## build and run the C++ tests
	$(call step,test dev,$(PYTHON) scripts/run_tests.py build/dev)

.PHONY: test-asan
test-asan: packages ## the C++ tests under the address and leak sanitizers; the library under the undefined-behaviour one too
	$(call step,build asan,$(PYTHON) scripts/build.py asan)
	$(call step,test asan,$(PYTHON) scripts/run_tests.py build/asan)

.PHONY: test-tsan
test-tsan: packages ## the C++ tests under the thread sanitizer
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
test-python: build ## the tests of the Python package, the scripts, the installed library and the tool
	$(call step,pytest,$(PYTHON) scripts/run_pytest.py)

.PHONY: wheel
wheel: setup ## the Python package as one file, in build/wheel
	$(call step,wheel,.venv/bin/python -m pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir build/wheel \
	  --config-settings=build-dir=build/wheel/cmake)

.PHONY: test-wheel
test-wheel: wheel ## install the wheel in an environment of its own, and use it there
	$(call step,test wheel,.venv/bin/pytest -q tests/install/test_wheel.py)

.PHONY: build-fuzz
build-fuzz: ## build the fuzzers, with clang
	$(call step,packages,scripts/setup.sh --no-venv --with clang-$(CLANG_VERSION) --with libclang-rt-$(CLANG_VERSION)-dev)
	$(call step,build fuzz,$(PYTHON) scripts/build.py fuzz -D CMAKE_CXX_COMPILER=clang++-$(CLANG_VERSION))

.PHONY: test-fuzz
test-fuzz: build-fuzz ## every fuzzer for a few seconds
	$(call step,fuzz,$(PYTHON) scripts/fuzz.py --seconds 5)

.PHONY: fuzz
fuzz: build-fuzz ## every fuzzer for FUZZ_SECONDS (600)
	$(call step,fuzz,$(PYTHON) scripts/fuzz.py --seconds $(FUZZ_SECONDS))

.PHONY: torture
torture: packages ## kill KILLS (100000) producers, consumers and lock holders at random moments; SEED=n repeats a run
	$(call step,build torture,$(PYTHON) scripts/build.py release torture)
	$(call step,torture,build/release/tests/torture/torture --kills $(KILLS) $(if $(SEED),--seed $(SEED)))

.PHONY: torture-python
torture-python: build ## kill PYTHON_KILLS (500) workers and processes of Python programs at random; SEED=n repeats a run
	$(call step,torture python,DROVER_PYTHON_KILLS=$(PYTHON_KILLS) DROVER_PYTHON_SEED=$(or $(SEED),0) \
	  .venv/bin/pytest -q -s tests/python/test_kills.py)

.PHONY: lint
lint: setup ## every gate that needs no running program: format, tidy, layers, sizes, documentation
	$(call step,lint,$(PYTHON) scripts/lint.py --base "$(or $(BASE),everything)")

.PHONY: format
format: setup ## rewrite C++ and Python as the formatters want them
	$(call step,format,$(PYTHON) scripts/lint.py --fix)

.PHONY: docs
docs: ## the reference of the public headers in build/docs/html; checks links and tables of the pages
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
@for program in queue pipe pool start tensor; do \
  echo "== bench python $$program"; \
  PYTHONPATH=$(CURDIR)/build/release/python .venv/bin/python benchmarks/python/$${program}_main.py \
    --json build/bench/python_$$program.json || \
    { status=$$?; echo "make: the benchmark python $$program failed (status $$status)" >&2; exit $$status; }; \
done
endef

.PHONY: bench
bench: ## run benchmarks: all, or WORKLOAD=name; results in build/bench/<workload>.json
	$(call step,packages,scripts/setup.sh $(if $(filter python,$(WORKLOAD)),,--no-venv) --benchmarks)
	@mkdir -p build/bench
	$(if $(compiled_workloads),$(bench_compiled))
	$(if $(filter python,$(WORKLOAD)),$(bench_python))

.PHONY: gpu
gpu: ## everything that needs a GPU, on any machine with one; GPU_FLAGS=--sanitizer for compute-sanitizer
	@$(PYTHON) scripts/gpu_suite.py $(GPU_FLAGS)

.PHONY: bundle
bundle: setup ## fill .deps/ for a machine without a network
	$(call step,bundle,$(PYTHON) scripts/bundle_deps.py)

.PHONY: clean
clean: ## remove everything that was built; .venv and .deps stay
	@rm -rf build
