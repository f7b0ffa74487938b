#!/bin/sh
# Lints the sources and type checks the installed wheel of build/package, as a user's type checker sees it: check.sh VENV
set -eu
bin=$(cd "$1" && pwd)/bin
top=$(pwd)
python=$top/build/package/venv/bin/python

"$bin/ruff" check .
"$bin/ruff" format --check .

cd "$top/build/package"
"$bin/mypy" --config-file "$top/pyproject.toml" --cache-dir "$top/.mypy_cache" --python-executable "$python" \
    -p perflex -p uipick
# The floors and shelves of the house, in the wheel: the checkout has no folder perflex/features.
PYTHONPATH=$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))") \
    "$bin/lint-imports" --config "$top/pyproject.toml" --no-cache
