#!/bin/sh
# Creates the project's Python environment from requirements.lock: setup_venv.sh PYTHON VENV. Touches nothing outside the
# project.
set -eu
python=$1
venv=$2
# A cache of our own, always: it is removed below, and nobody else's may be.
UV_CACHE_DIR=$(pwd)/.venv-cache
TMPDIR=$UV_CACHE_DIR/tmp
export UV_CACHE_DIR TMPDIR UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=hardlink
mkdir -p "$TMPDIR"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "perflex needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..." >&2
    exit 1
}
# uv with the machine's own Python, in the version of the lock, whatever the PATH has.
"$python" -m venv --clear "$venv" || {
    echo "cannot create $venv: this Python lacks venv or pip (Debian, Ubuntu: apt install python3-venv)" >&2
    exit 1
}
"$venv/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check "$(grep '^uv==' requirements.lock)"
uv="$venv/bin/uv pip install -q --no-config --no-deps --python $venv/bin/python"
$uv --requirement requirements.lock
$uv --no-build-isolation --editable .
# Packages are hard-linked from the cache, so that removing it costs nothing and keeps the folder small.
rm -rf "$UV_CACHE_DIR"

"$venv/bin/python" - <<'PYTHON'
from importlib import metadata

import islpy

if not hasattr(islpy.Set, "card"):
    raise SystemExit("this environment's islpy cannot count; remove .venv and run make again")
if "islpy" in {d.metadata["Name"] for d in metadata.distributions()}:
    raise SystemExit("plain islpy was installed beside islpy-barvinok; remove .venv and run make again")
PYTHON
