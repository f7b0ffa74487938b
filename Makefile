# perflex: everything lives in this folder; nothing outside it is touched.
#   make demo   set up, then run the main job on an OpenCL device
#   make test   set up, then run the tests that are the same on each machine: two minutes on two cores
#   make test-machine  the tests that need a device, a clock, signals or other programs; says what it leaves out and why
#   make test-all   all tests, with the long ones: 14 minutes on two cores
#   make check  build wheel and sdist, check what they hold, use the wheel; lint and type check
#   make docs   build the documentation in docs/_build/html; notebooks are shown as they are written
#   make docs-run   likewise, and run the notebooks, which measure
#   make lock   take the newest version of every package into requirements.lock; then run all of the above
#   make linkcheck  ask every external address of the documentation for an answer; needs the internet
#   make release-check  install the wheel and the newest packages with pip, and run the demo there
# .ci/run is what every change must pass: setup, demo, test, check, docs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= demo-out
# Processes that tests are spread over.
JOBS ?= 2
# Of Python's hashes: nothing may depend on it.
HASH_SEED ?= 0

# Compilers and loopy keep caches; theirs stay in the project folder, too.
export XDG_CACHE_HOME := $(CURDIR)/$(VENV)/user-cache
# So does bytecode, whatever the shell says of it: tests start many processes, which would compile all that they import.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/bytecode
# Libraries that add in parallel add in another order each time.
PYTEST := env -u COLUMNS PYTHONHASHSEED=$(HASH_SEED) OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TZ=UTC LC_ALL=C.UTF-8 \
	TERM=dumb NO_COLOR=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
SPHINX := $(BIN)/python -m sphinx -q

.PHONY: setup demo test test-slow test-machine test-all check package docs docs-run linkcheck lock release-check clean
setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock .ci/setup_venv.sh
	@sh .ci/setup_venv.sh "$(PYTHON)" "$(VENV)"
	@touch $@

demo: $(STAMP)
	$(BIN)/perflex demo --out $(OUT)

test: $(STAMP)
	$(PYTEST) -m "not slow and not machine"

test-slow: $(STAMP)
	$(PYTEST) -m "slow and not machine"

test-machine: $(STAMP)
	$(PYTEST) -m "machine and not slow"

test-all: test test-slow $(STAMP)
	$(PYTEST) -m machine

package: $(STAMP)
	@sh .ci/package.sh "$(VENV)"

check: package
	@sh .ci/check.sh "$(VENV)"

docs: $(STAMP)
	$(SPHINX) -b html -W --keep-going -j 2 docs docs/_build/html

# One notebook at a time: they measure.
docs-run: $(STAMP)
	$(SPHINX) -b html -W --keep-going -E -D nb_execution_mode=force docs docs/_build/html

linkcheck: $(STAMP)
	$(SPHINX) -b linkcheck docs docs/_build/linkcheck

lock: $(STAMP)
	$(BIN)/uv pip compile -q --upgrade --universal --python-version 3.11 --no-annotate --no-header \
		--group dev --extra cpu pyproject.toml -o requirements.lock

release-check: package
	@sh .ci/release.sh

clean:
	rm -rf docs/_build docs/reference/generated $(VENV) .venv-* build dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis perflex.egg-info
