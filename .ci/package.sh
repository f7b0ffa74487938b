#!/bin/sh
# Builds wheel and sdist into build/package and checks what they hold; installs the wheel into a fresh environment beside
# them and uses it: package.sh VENV. Dependencies are those of VENV.
set -eu
venv=$(cd "$1" && pwd)
top=$(pwd)
bin=$venv/bin
box=$top/build/package

# build/lib and the list of sources keep files that were deleted since.
rm -rf "$top/build" "$top/perflex.egg-info/SOURCES.txt"
"$bin/uv" build -q --no-config --no-build-isolation --python "$bin/python" --out-dir "$box" .
"$bin/python" -m twine check --strict "$box"/perflex-*.whl "$box"/perflex-*.tar.gz
"$bin/python" -m venv --without-pip "$box/venv"
"$bin/uv" pip install -q --no-config --no-deps --no-cache --python "$box/venv/bin/python" "$box"/perflex-*.whl

"$bin/python" - "$box" <<'PYTHON'
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

box = Path(sys.argv[1])
tracked = set(subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines())
[sdist] = box.glob("perflex-*.tar.gz")
packed = {name.partition("/")[2] for name in tarfile.open(sdist).getnames()}
made = {"PKG-INFO", "setup.cfg"}
folders = {str(folder) for name in tracked for folder in Path(name).parents}
extra = {n for n in packed - tracked - made - folders - {""} if not n.startswith("perflex.egg-info")}
if tracked - packed or extra:
    raise SystemExit(f"the sdist lacks {sorted(tracked - packed)} and has besides {sorted(extra)}")

[wheel] = box.glob("perflex-*.whl")
packed = set(zipfile.ZipFile(wheel).namelist())
wanted = {f"{name}/{file}" for name in ("perflex", "uipick") for file in ("py.typed", "__init__.pyi")}
for name in tracked:
    room, _, rest = name.partition("/")
    if rest and room in {"perflex", "uipick"}:
        wanted.add(name)
    elif rest and room in {"features", "models", "calib_data"}:
        wanted.add(f"perflex/{name}")
foreign = {name.split("/")[0] for name in packed} - {"perflex", "uipick"}
foreign = sorted(name for name in foreign if not name.endswith(".dist-info"))
if wanted - packed or foreign:
    raise SystemExit(f"the wheel lacks {sorted(wanted - packed)} and has at its top level {foreign}")

# The wheel's own packages come first.
[site] = box.glob("venv/lib/python*/site-packages")
(site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
PYTHON

cp -r "$top/examples" "$box/examples"
cd "$box"
PERFLEX_STORE=$box/store.sqlite
export PERFLEX_STORE
"$box/venv/bin/perflex" --version
"$box/venv/bin/perflex" features examples/matmul.py:naive n=1056 | grep f_op_float32_madd
