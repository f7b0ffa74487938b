#!/bin/sh
# Builds wheel and sdist, checks them, and uses the wheel as a user does who has only pip: package.sh VENV
# Takes about three minutes; needs the package index.
set -eu
venv=$(cd "$1" && pwd)
top=$(pwd)
bin=$venv/bin
uv=uv
[ -x "$bin/uv" ] && uv=$bin/uv
dist=$top/build/package
UV_CACHE_DIR=$dist/cache
export UV_CACHE_DIR UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=hardlink

# build/lib and the list of sources keep files that were deleted since.
rm -rf "$top/build" "$top/perflex.egg-info/SOURCES.txt"
"$uv" build -q --out-dir "$dist" .
"$bin/python" -m twine check --strict "$dist"/perflex-*.whl "$dist"/perflex-*.tar.gz

"$bin/python" - "$dist" <<'PYTHON'
import subprocess
import sys
import tarfile
from pathlib import Path

[sdist] = Path(sys.argv[1]).glob("perflex-*.tar.gz")
packed = {name.partition("/")[2] for name in tarfile.open(sdist).getnames()}
tracked = set(subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines())
made = {"PKG-INFO", "setup.cfg"}
folders = {str(folder) for name in tracked for folder in Path(name).parents}
extra = {n for n in packed - tracked - made - folders - {""} if not n.startswith("perflex.egg-info")}
if tracked - packed or extra:
    raise SystemExit(f"the sdist lacks {sorted(tracked - packed)} and has besides {sorted(extra)}")
PYTHON

# Outside the repository, with its environment out of reach.
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
"$bin/python" -m venv "$box/venv"
cd "$box"
unset PYTHONPATH
PERFLEX_STORE=$box/store.sqlite
export PERFLEX_STORE
"$box/venv/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check "$(echo "$dist"/perflex-*.whl)[cpu]"
"$box/venv/bin/perflex" --version

# loopy asks for plain islpy, which shadows islpy-barvinok. Where that happens, the command that perflex names repairs it.
cp -r "$top/examples" .
if ! "$box/venv/bin/perflex" features examples/matmul.py:naive n=1056 >features.txt 2>error.txt; then
    cat error.txt
    [ "$(wc -l <error.txt)" = 1 ]
    sh -c "$(sed 's/.*repair it with: //' error.txt)"
    "$box/venv/bin/perflex" features examples/matmul.py:naive n=1056 >features.txt
fi
grep -q 'f_op_float32_madd' features.txt
"$box/venv/bin/python" -m pip check
"$box/venv/bin/perflex" demo --sizes 64,96 --trials 5 --accept-noise --out demo
[ -s demo/table.csv ] && [ -s demo/calibration.yaml ]
