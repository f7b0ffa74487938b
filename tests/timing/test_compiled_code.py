"""Machine code of kernels that are built and not run: on every CPU runtime whose binaries are understood."""

from types import SimpleNamespace

import loopy as lp
import pytest

from perflex.errors import DeviceError, FeatureError
from perflex.features import Target, extract_scop, kernel_feature_values, parse_feature
from perflex.testing import FakeDevice
from perflex.timing.compiled_code import compiled_code
from perflex.timing.results import MeasurementFailure

pytestmark = pytest.mark.slow


def kernel_of(dtype, width, instruction="y[i] = 3*x[i] + y[i]"):
    """Return an instruction for each element in work-groups of a width."""
    arguments = [lp.GlobalArg("x, y", dtype, shape="n"), ...]
    assumed = f"n >= {width} and n mod {width} = 0"
    kernel = lp.make_kernel("{[i]: 0<=i<n}", instruction, arguments, assumptions=assumed, lang_version=(2018, 2))
    return lp.split_iname(kernel, "i", width, outer_tag="g.0", inner_tag="l.0")


def feature(name, kernel, n, code):
    scop = extract_scop(kernel)
    return float(parse_feature(f"f_code_{name}").value(scop, scop.checked({"n": n}), Target(code=code)))


@pytest.fixture(params=["intel", "portable"])
def cpu(request, real_devices):
    found = [one for one in real_devices if one.kind == "cpu" and request.param in one.platform.lower()]
    if not found:
        pytest.skip(f"no CPU runtime of {request.param}")
    return found[0]


def sized(kernel, n):
    """Return what a `SizedKernel` is to timing."""
    return [SimpleNamespace(kernel=kernel, translation_unit=kernel, sizes={"n": n}, label="kernel", group="kernel")]


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float64", 8)])
def test_wide_groups_become_vectors(cpu, dtype, size):
    kernel, n = kernel_of(dtype, 64), 4096
    (code,) = compiled_code(sized(kernel, n), cpu)
    assert not isinstance(code, MeasurementFailure)
    # Each element is computed once, in whatever lanes the processor has.
    lanes = feature("lanes", kernel, n, code)
    assert lanes in {16 / size, 32 / size, 64 / size}
    assert feature(f"packed_{dtype}", kernel, n, code) in {n / lanes, 2 * n / lanes}
    assert feature(f"scalar_{dtype}", kernel, n, code) == 0
    assert feature("cycles", kernel, n, code) > 0
    # Twice the elements in twice the groups take twice the cycles.
    assert feature("cycles", kernel, 2 * n, code) == pytest.approx(2 * feature("cycles", kernel, n, code))
    # Groups of one work-item stay scalar.
    kernel = kernel_of(dtype, 1)
    (code,) = compiled_code(sized(kernel, n), cpu)
    assert [feature(name, kernel, n, code) for name in ("lanes", f"packed_{dtype}")] == [1, 0]
    assert feature(f"scalar_{dtype}", kernel, n, code) in {n, 2 * n}


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float64", 8)])
def test_calls_are_told_apart(cpu, dtype, size):
    if "intel" not in cpu.platform.lower():
        pytest.skip("only Intel's runtime calls functions of vectors")
    kernel, n = kernel_of(dtype, 64, "y[i] = exp(x[i])"), 4096
    (code,) = compiled_code(sized(kernel, n), cpu)
    # A call takes a vector of 64 B, or of 32 B on cores without AVX-512.
    assert feature("calls_exp", kernel, n, code) in {n * size / 64, n * size / 32}
    assert [feature(f"calls_{kind}", kernel, n, code) for kind in ("log", "trig", "tanh", "pow")] == [0] * 4


def test_code_is_kept(cpu, monkeypatch, tmp_path):
    monkeypatch.setenv("PERFLEX_STORE", str(tmp_path / "store.sqlite"))
    jobs = sized(kernel_of("float32", 32), 1024)
    (first,) = compiled_code(jobs, cpu)

    def refuse(*_):
        pytest.fail("it was built again")

    monkeypatch.setattr("perflex.timing.isolation.backend.IsolatedBackend.code", refuse)
    assert compiled_code(jobs, cpu) == [first]


@pytest.mark.machine
def test_what_builds_nothing_says_so():
    kernel = kernel_of("float32", 32)
    with pytest.raises(DeviceError, match="builds no machine code"):
        compiled_code(sized(kernel, 64), FakeDevice({}))
    with pytest.raises(FeatureError, match="known only of kernels built for a device"):
        kernel_feature_values(["f_code_cycles"], kernel, {"n": 64})
