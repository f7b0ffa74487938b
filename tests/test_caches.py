"""Caches of other packages: where they go when home is no place for them, and entries that cannot be read."""

import os
import pickle
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from platformdirs import user_cache_path

import perflex.caches as caches_module
from perflex.caches import cache_folder

KERNEL = Path(__file__).parents[1] / "examples" / "matmul.py"
# Kernels are described, and a child process offers devices.
USE = """
from perflex.features import extract_scop
from perflex import list_devices
import importlib.util
found = importlib.util.spec_from_file_location("matmul", {kernel!r})
module = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
scop = extract_scop(module.naive())
problems = [info.reason for info in list_devices() if not info.usable]
print(len(list_devices()), problems, flush=True)
"""
FIRST = {"uipick": "import uipick, loopy", "pyopencl": "import pyopencl, perflex"}
MOVED = ("HOME", "XDG_CACHE_HOME", "PERFLEX_OWN_CACHE", "POCL_CACHE_DIR", "PERFLEX_STORE", "CUPY_CACHE_DIR")


def environment(temporary, **given):
    temporary.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in (*MOVED, "MPLCONFIGDIR")}
    return kept | {"TMPDIR": str(temporary)} | given


def run(script, variables):
    words = [sys.executable, "-c", script]
    return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture
def below_a_file(tmp_path):
    # Root may write anywhere, but not below a file.
    file = tmp_path / "file"
    file.write_text("")
    return file / "home"


@pytest.fixture(scope="module")
def with_home(tmp_path_factory):
    """What the script prints where all is well."""
    home = tmp_path_factory.mktemp("home")
    done = run(USE.format(kernel=str(KERNEL)), environment(home / "temporary", HOME=str(home)))
    assert "PerflexWarning" not in done.stderr
    return done.stdout


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_kernels_and_devices_without_a_home(first, with_home, below_a_file, tmp_path):
    script = f"{first}\n{USE.format(kernel=str(KERNEL))}"
    without = run(script, environment(tmp_path / "temporary", HOME=str(below_a_file)))
    assert without.returncode == 0, without.stderr
    # The same devices work, in child processes.
    assert without.stdout == with_home
    warned = [line for line in without.stderr.splitlines() if "PerflexWarning" in line]
    assert len(warned) == 1
    assert f"the home folder {below_a_file} does not exist; caches of loopy, pyopencl and PoCL" in warned[0]
    assert "set HOME or XDG_CACHE_HOME to a folder that can be written" in warned[0]


HOMES = {
    "missing": lambda path: {"HOME": str(path / "missing")},
    "cache below a file": lambda path: {"HOME": str(path), "XDG_CACHE_HOME": str(path / "file" / "cache")},
    "cache below /proc": lambda path: {"HOME": str(path), "XDG_CACHE_HOME": "/proc/none/cache"},
    "loopy's a file": lambda path: {"HOME": str(path), "XDG_CACHE_HOME": str(path / "broken")},
    "relative": lambda _: {"HOME": "~"},
}


# One without a home, one without a cache, and one that can keep a store.
QUICK_HOMES = {"missing", "cache below a file", "loopy's a file"}


@pytest.mark.machine
@pytest.mark.parametrize(
    "home", [pytest.param(home, marks=() if home in QUICK_HOMES else pytest.mark.slow) for home in HOMES]
)
def test_a_command_without_a_cache_warns_once_and_leaves_nothing_there(home, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "pytools").write_text("")
    variables = environment(tmp_path / "temporary", **HOMES[home](tmp_path))
    words = [sys.executable, "-m", "perflex", "features", f"{KERNEL}:naive", "n=256"]
    done = subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "f_mem_footprint_array:a" in done.stdout
    assert done.stderr.count("warning: ") == 1
    assert not (tmp_path / "missing").exists()
    assert not (tmp_path / "~").exists()
    # It has a place, which is found again, and is nobody else's.
    (place,) = (tmp_path / "temporary").glob("perflex-*")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert list((place / "xdg_cache_home" / "pytools").glob("*.sqlite"))
    # The store stays where it can.
    moved = home != "loopy's a file"
    assert (place / "perflex_own_cache" / "store.sqlite").exists() == moved
    assert (tmp_path / "broken" / "perflex" / "store.sqlite").exists() != moved


@pytest.mark.machine
def test_a_folder_that_others_may_write_is_not_used(below_a_file, tmp_path):
    temporary = tmp_path / "temporary"
    (temporary / f"perflex-{os.geteuid()}").mkdir(parents=True)
    (temporary / f"perflex-{os.geteuid()}").chmod(0o777)
    script = "import os, perflex; print(os.environ['XDG_CACHE_HOME'])"
    done = run(script, environment(temporary, HOME=str(below_a_file)))
    place = Path(done.stdout.strip()).parent
    assert place.parent == temporary
    assert place.name != f"perflex-{os.geteuid()}"
    assert not place.exists()  # it ends with the process


@pytest.mark.machine
def test_without_any_folder_there_is_one_error(below_a_file, tmp_path):
    script = """
import tempfile
def nowhere(): raise FileNotFoundError(2, "No usable temporary directory")
tempfile.gettempdir = nowhere
import perflex
try:
    from perflex.features import extract_scop
except perflex.PerflexError as error:
    print(error)
"""
    done = run(script, environment(tmp_path, HOME=str(below_a_file)))
    assert done.returncode == 0, done.stderr
    assert "and no temporary folder either; set XDG_CACHE_HOME to a folder of yours" in done.stdout


def test_own_files_are_where_platformdirs_says(monkeypatch, tmp_path):
    monkeypatch.delenv("PERFLEX_OWN_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert caches_module._cache_home() / "perflex" == user_cache_path("perflex") == cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caches_module._cache_home() / "perflex" == user_cache_path("perflex") == cache_folder()


LAUNCH = """
import sys
sys.path.insert(0, {tests!r})
import loopy as lp, numpy as np
from perflex.features import extract_scop
from perflex.timing.launch.plan import plan_launch
kernel = lp.make_kernel("{{[i]: 0<=i<n}}", "b[i] = 2*a[i]", assumptions="n>=1", lang_version=(2018, 2))
kernel = lp.add_dtypes(kernel, {{"a": np.float32}})
kernel = lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")
extract_scop(kernel)
print(plan_launch(kernel, {api!r}).source)
"""


def stale(how):
    """What stands in an entry that cannot be read any more."""
    if how == "module":
        return b"cperflex.a_module_of_the_past\nSomething\n."
    if how == "class":
        return b"cperflex.errors\nSomethingOfThePast\n."
    return pickle.dumps(list(range(100)))[:-20]


CASES = [("opencl", "module"), ("cuda", "class"), ("opencl", "cut")]


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.parametrize(("api", "how"), CASES)
def test_stale_entries_are_made_again(api, how, tmp_path):
    variables = environment(tmp_path / "temporary", HOME=str(tmp_path), PERFLEX_STORE="off")
    script = LAUNCH.format(tests=str(Path(__file__).parent), api=api)
    fresh = run(script, variables)
    assert fresh.returncode == 0, fresh.stderr
    files = list((tmp_path / ".cache" / "pytools").glob("*.sqlite"))

    def rows_of(statement):
        rows = 0
        for file in files:
            with closing(sqlite3.connect(file)) as connection, connection:
                done = connection.execute(statement, (stale(how),))
                rows += done.rowcount if statement.startswith("UPDATE") else len(done.fetchall())
        return rows

    # What was preprocessed, scheduled and generated.
    assert rows_of("UPDATE dict SET key_value = ?") >= 3
    again = run(script, variables)
    assert again.returncode == 0, again.stderr
    assert again.stdout == fresh.stdout
    # They were written anew.
    assert rows_of("SELECT 1 FROM dict WHERE key_value = ?") == 0


@pytest.mark.machine
@pytest.mark.slow
def test_a_cache_that_takes_nothing_is_done_without(tmp_path):
    variables = environment(tmp_path / "temporary", HOME=str(tmp_path), PERFLEX_STORE="off")
    script = LAUNCH.format(tests=str(Path(__file__).parent), api="opencl")
    full = (
        "from pytools.persistent_dict import WriteOncePersistentDict as D\nimport sqlite3\n"
        "def full(*_, **__): raise sqlite3.OperationalError('database or disk is full')\nD.store = full\n"
    )
    assert run(full + script, variables).stdout == run(script, variables).stdout != ""
