# perflex: everything lives in this folder; nothing outside it is touched.
#   make demo   set up, then run the main job on an OpenCL device
#   make test   set up, then run the quick tests: at most five minutes on two cores
#   make test-all   the quick tests, then the slow ones
#   make check  set up, then lint and type check
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= demo-out
# Processes that tests are spread over.
JOBS ?= 2

# Compilers and loopy keep caches; theirs stay in the project folder, too.
export XDG_CACHE_HOME := $(CURDIR)/$(VENV)/user-cache
# So does bytecode, whatever the shell says of it: tests start many processes, which would compile all that they import.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/bytecode

.PHONY: setup demo test test-all check clean
setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt .ci/setup_venv.sh
	@sh .ci/setup_venv.sh "$(PYTHON)" "$(VENV)"
	@touch $@

demo: $(STAMP)
	$(BIN)/perflex demo --out $(OUT)

test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow"

test-all: test
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m slow

check: $(STAMP)
	@sh .ci/check.sh "$(VENV)"

clean:
	rm -rf $(VENV) .venv-cache build dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis perflex.egg-info
