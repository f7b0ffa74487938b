"""The fixture ``perflex_cost`` in tests of a user's, which run in a process of their own or beside others."""

import sys
from subprocess import run

import pytest

from perflex.__main__ import main
from support.source_kernels import AXPY

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from perflex import source_kernel

WORD = "axpy.cl:axpy<<<n/128,128>>>"

@pytest.mark.parametrize("n", [1024, 4194304])
def test_ratio(perflex_cost, n):
    perflex_cost(WORD, {"n": n}, machine="V100", holds="time<=1.03, dram_bytes<=1")

def test_several(perflex_cost):
    for items in (64, 128):
        with open("axpy.cl") as file:
            kernel = source_kernel(file.read(), "axpy", local=[items], global_size=["n"], language="opencl")
        perflex_cost(kernel, {"n": 65536}, machine="V100")

def test_absolute(perflex_cost):
    perflex_cost(WORD, {"n": 4194304}, "V100", holds="time<=1ms, exact")
"""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """What the plug-in loads, loaded before: runs in this process forget what they load, and would load it twice."""
    folder = tmp_path_factory.mktemp("loaded")
    file, baseline = folder / "axpy.cl", folder / "baseline.yaml"
    file.write_text(AXPY)
    for more in (("--update",), ()):
        words = f"{file}:axpy<<<n/128,128>>>", "-m", "V100", "n=1024", "time<=1.03, dram_bytes<=1, exact"
        assert main(["gate", *words, "--baseline", str(baseline), *more]) == 0
    return {name for name in sys.modules if name.startswith("perflex.")}


@pytest.fixture
def tests(loaded, pytester):
    pytester.makepyfile(test_cost=TESTS)
    pytester.path.joinpath("axpy.cl").write_text(AXPY)
    yield pytester
    assert {name for name in sys.modules if name.startswith("perflex.")} == loaded


def test_baselines(tests):
    found = tests.runpytest_inprocess("-p", "no:cacheprovider")
    found.assert_outcomes(passed=1, failed=3)
    found.stdout.fnmatch_lines(
        ["*there is no baseline *perflex-baseline.yaml; make it with pytest --perflex-update 'test_cost.py::*"]
    )
    tests.runpytest_inprocess("--perflex-update").assert_outcomes(passed=4)
    baseline = tests.path / "perflex-baseline.yaml"
    text = baseline.read_text()
    for name in ("test_cost.py::test_ratio[1024]", "test_cost.py::test_several", "test_cost.py::test_several (2)"):
        assert f"- kernel: {name}\n" in text
    tests.runpytest_inprocess().assert_outcomes(passed=4)
    tests.path.joinpath("axpy.cl").write_text(AXPY.replace("x[i]", "x[16 * i]"))
    found = tests.runpytest_inprocess("-k", "ratio")
    found.assert_outcomes(failed=2)
    # The gate's table, and no traceback.
    found.stdout.fnmatch_lines(["kernel * condition * verdict *", "*n=4194304*time<=1.03*broken*"])
    assert "pytest_plugin.py" not in found.stdout.str()
    # In another order, the file is the same.
    tests.path.joinpath("axpy.cl").write_text(AXPY)
    tests.runpytest_inprocess("--perflex-update", "-k", "several or 4194304").assert_outcomes(passed=2)
    assert baseline.read_text() == text


@pytest.mark.slow
def test_processes_write_one_baseline(tests):
    tests.runpytest_subprocess("--perflex-update", "-n2").assert_outcomes(passed=4)
    assert tests.path.joinpath("perflex-baseline.yaml").read_text().count("- kernel:") == 4


def test_it_costs_nothing_where_it_is_not_used():
    loaded = "import sys, perflex.pytest_plugin; print({'loopy', 'numpy', 'yaml', 'typer'} & {*sys.modules})"
    assert run([sys.executable, "-c", loaded], capture_output=True, check=True).stdout == b"set()\n"
