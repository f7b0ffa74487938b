#!/bin/sh
# Before a release: uses the wheel of build/package as a user does who has only pip and takes the newest packages, which
# may have changed since requirements.lock. Measures on a device.
set -eu
top=$(pwd)
wheel=$(echo "$top"/build/package/perflex-*.whl)

# Outside the repository, with its environment out of reach.
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
python3 -m venv "$box/venv"
cd "$box"
unset PYTHONPATH
PERFLEX_STORE=$box/store.sqlite
export PERFLEX_STORE
"$box/venv/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check "$wheel[cpu]"

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
