# perflex: everything lives in this folder; nothing outside it is touched.
#   make demo   set up, then run the main job on an OpenCL device
#   make test   set up, then run the quick tests: at most five minutes on two cores
#   make test-all   the quick tests, then the slow ones
#   make test-slow  the slow tests; with MARKS="slow or platform" also the quick ones of devices and simulators
#   make check  set up, then lint and type check
#   make docs   set up, then build the documentation in docs/_build/html; runs its notebooks
#   make linkcheck  ask every external address of the documentation for an answer; needs the internet
#   make package    build wheel and sdist, check them, and run the demo from the wheel in a fresh environment
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= demo-out
# Processes that tests are spread over.
JOBS ?= 2
# Which tests test-slow runs.
MARKS ?= slow

# Compilers and loopy keep caches; theirs stay in the project folder, too.
export XDG_CACHE_HOME := $(CURDIR)/$(VENV)/user-cache
# So does bytecode, whatever the shell says of it: tests start many processes, which would compile all that they import.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/bytecode

.PHONY: setup demo test test-all test-slow check docs linkcheck package clean
setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt .ci/setup_venv.sh
	@sh .ci/setup_venv.sh "$(PYTHON)" "$(VENV)"
	@touch $@

demo: $(STAMP)
	$(BIN)/perflex demo --out $(OUT)

test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow"

test-all: test test-slow

test-slow: $(STAMP)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "$(MARKS)"

check: $(STAMP)
	@sh .ci/check.sh "$(VENV)"

# Notebooks run on the CPU device of the environment; nothing is fetched.
docs: $(STAMP)
	$(BIN)/python -m sphinx -q -b html -W --keep-going -j $(JOBS) docs docs/_build/html

linkcheck: $(STAMP)
	$(BIN)/python -m sphinx -q -b linkcheck -D nb_execution_mode=off docs docs/_build/linkcheck

package: $(STAMP)
	@sh .ci/package.sh "$(VENV)"

clean:
	rm -rf docs/_build docs/reference/generated $(VENV) .venv-* build dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis perflex.egg-info
