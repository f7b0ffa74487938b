#!/bin/sh
# Lints the sources and type checks the installed wheel, as a user's type checker sees it: check.sh VENV
set -eu
venv=$(cd "$1" && pwd)
top=$(pwd)
bin=$venv/bin
uv=uv
[ -x "$bin/uv" ] && uv=$bin/uv
box=$top/build/check
UV_CACHE_DIR=$box/cache
TMPDIR=$box/tmp
export UV_CACHE_DIR TMPDIR UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=hardlink

"$bin/ruff" check .
"$bin/ruff" format --check .

# build/lib keeps files that were deleted since, and setuptools would pack them.
rm -rf "$top/build"
mkdir -p "$box/empty" "$TMPDIR"
"$uv" build -q --wheel --out-dir "$box/dist" .
"$uv" venv -q --no-config --python "$bin/python" "$box/venv"
"$uv" pip install -q --no-deps --python "$box/venv/bin/python" "$box"/dist/perflex-*.whl

# Dependencies come from the project's environment; the wheel's own packages come first.
"$bin/python" - "$box" <<'PYTHON'
import sys
import sysconfig
import zipfile
from pathlib import Path

box = Path(sys.argv[1])
[site] = box.glob("venv/lib/python*/site-packages")
(site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
[wheel] = box.glob("dist/perflex-*.whl")
packed = set(zipfile.ZipFile(wheel).namelist())
wanted = {f"{name}/{file}" for name in ("perflex", "uipick") for file in ("py.typed", "__init__.pyi")}
for folder in ("models", "calib_data"):
    wanted |= {f"perflex/{path}" for path in map(str, Path(folder).rglob("*.yaml"))}
missing = sorted(wanted - packed)
foreign = sorted({name.split("/")[0] for name in packed} - {"perflex", "uipick"})
foreign = [name for name in foreign if not name.endswith(".dist-info")]
if missing or foreign:
    raise SystemExit(f"the wheel lacks {missing} and has at its top level {foreign}")
PYTHON

cd "$box/empty"
"$bin/mypy" --config-file "$top/pyproject.toml" --cache-dir "$top/.mypy_cache" \
    --python-executable "$box/venv/bin/python" -p perflex -p uipick

# The floors and shelves of the house, in the wheel: the checkout has no folder perflex/features.
PYTHONPATH=$("$box/venv/bin/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))") \
    "$bin/lint-imports" --config "$top/pyproject.toml" --no-cache
