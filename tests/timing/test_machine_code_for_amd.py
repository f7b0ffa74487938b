"""Code for AMD's GPUs by the clang that is here: of OpenCL C, CUDA C, HIP and loopy, without a GPU."""

import loopy as lp
import pytest

from perflex import Calibration, machine_code, source_kernel, with_code
from perflex.errors import EnvironmentSetupError
from perflex.features import Target
from perflex.timing import machine_code as module
from perflex.timing.results import MeasurementFailure

pytestmark = pytest.mark.machine

SCALED = "__global__ void scaled(float *x, int n) { x[blockIdx.x * blockDim.x + threadIdx.x] *= %s; }"
SUMS = """
template <int N> __global__ void __launch_bounds__(128) sums(float4 *x, float *y) {
  __shared__ float tile[N];
  float4 mine = x[blockIdx.x * blockDim.x + threadIdx.x];
  float sum = mine.x + mine.w + sqrtf(mine.y) + __ldg(y + 3);
  for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(0xffffffff, sum, by);
  if (threadIdx.x % 32 == 0) tile[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(y, tile[0] + tile[1]);
}"""
PRIVATE = """
__kernel void private_array(__global float *x, const int n) {
  float mine[64];
#pragma unroll 1
  for (int k = 0; k < 64; k++) mine[k] = x[get_global_id(0) + k];
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < 64; k++) sum += mine[63 - k] * k;
  x[get_global_id(0)] = sum;
}"""
MACHINES = ("MI50", "MI210", "MI300X", "W6600", "W7800")


def scaled(by, **more):
    return source_kernel(SCALED % by, "scaled", local=64, groups="n/64", **more), {"n": 256}


@pytest.fixture(autouse=True)
def _empty_store(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFLEX_STORE", str(tmp_path / "store.sqlite"))
    try:
        module.amd_compiler("gfx906")
    except EnvironmentSetupError as missing:
        pytest.skip(missing.message)


@pytest.mark.parametrize("machine", MACHINES)
def test_each_language_is_compiled(machine):
    arguments = [lp.GlobalArg("y", "float32", shape="n"), ...]
    kernel = lp.make_kernel("{[i]: 0<=i<n}", "y[i] = exp(y[i])", arguments, lang_version=(2018, 2))
    kernel = lp.split_iname(kernel, "i", 128, outer_tag="g.0", inner_tag="l.0")
    sums = source_kernel(SUMS, "sums<64>", local=64, groups=8)
    opencl = source_kernel(PRIVATE, "private_array", local=64, groups="n/64")
    found = machine_code(
        [
            scaled("2.0f"),
            scaled("hipBlockDim_x", language="hip"),
            (kernel, {"n": 1024}),
            (sums, {}),
            (opencl, {"n": 512}),
        ],
        machine,
    )
    assert not [one.reason for one in found if isinstance(one, MeasurementFailure)]
    built = [Target(code=one).built for one in found]
    assert all(0 < one.registers < 64 for one in built)
    assert [one.local_bytes for one in built] == [0, 0, 0, 256, 0]
    # An array that loops go through is memory; nothing is spilt.
    assert [one.private_bytes >= 256 for one in built] == [False, False, False, False, True]
    assert [one.spill_bytes for one in built] == [0] * 5
    assert found[2][0].gpu.groups == (8,)


def test_same_code_errors_and_the_cache(monkeypatch):
    given = [scaled("2.0f"), scaled("(1.0f + 1.0f)"), scaled("(__nanosleep(3), 1.0f)"), scaled("3.0f")]
    first, equal, failed, other = machine_code(given, "MI50")
    assert first[0].digest == equal[0].digest != other[0].digest
    assert "does not compile for gfx906" in failed.reason
    assert "__nanosleep" in failed.reason
    monkeypatch.setattr("perflex.timing.machine_code.RemoteProcess", lambda: pytest.fail("it was compiled before"))
    assert machine_code([scaled("2.0f")], "MI50") == [first]


@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_variants_are_predicted_by_their_code():
    variants = {f"by {number}": scaled(f"{number}.0f")[0] for number in (2, 3)}
    found = with_code(variants, Calibration.load("general_gpu"), 2, {"n": 25600}, machine="W6600")
    assert sorted(found.code) == [0, 1]
    assert all(one.resources.registers > 0 for one in found.code.values())
