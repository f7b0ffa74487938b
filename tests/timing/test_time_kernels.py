import numpy as np
import pytest

from perflex import Device, MeasurementFailure, Timing, TimingOptions, source_kernel, time_kernel, time_kernels
from perflex.errors import CalibrationError, MeasurementError, UnsupportedKernelError
from perflex.features import SizedKernel
from perflex.testing import FakeDevice
from perflex.timing.key import measurement_key
from perflex.timing.launch.request import launch_request
from perflex.timing.launch.source_plan import compile_plan_of, plan_of

GATHER = """
__kernel void gather(__global float *y, __global const float *x, __global const int *at, int n)
{
  y[get_global_id(0)] = 2 * x[at[get_global_id(0)]];
}
"""
QUICK = TimingOptions(trials=5, min_trials=5)
N = 1 << 14
CPU = Device("P", "V", "D", "1", global_memory_bytes=1 << 30, max_allocation_bytes=1 << 30, max_work_group_size=4096)


def gather(**more):
    stated = {"x": "n"}
    return source_kernel(GATHER, "gather", local=64, global_size="n", stated=stated, language="opencl", **more)


def arrays(n=N):
    at = np.random.default_rng(0).permutation(n).astype(np.int32)
    return {"x": np.arange(n, dtype=np.float32), "at": at}


def law(label, sizes):
    if sizes["n"] == 7:
        msg = f"{label}: does not build"
        raise MeasurementError(msg, kernel=label)
    return 1e-6 * sizes["n"]


def test_kernels_are_timed_side_by_side_and_fail_alone():
    told = []
    found = time_kernels(
        [(gather(), {"n": n}) for n in (64, 7, 128)], FakeDevice(law), progress=lambda *step: told.append(step)
    )
    assert [type(one) for one in found] == [Timing, MeasurementFailure, Timing]
    assert [one.label for one in found] == ["gather(n=64)", "gather(n=7)", "gather(n=128)"]
    assert [one.seconds for one in found.timings] == pytest.approx([64e-6, 128e-6])
    assert found.failures[0].reason == "gather(n=7): does not build"
    assert told[-1][:2] == (6, 6)


def test_a_device_of_ones_own_takes_no_data_and_has_no_caches():
    device = FakeDevice(law)
    with pytest.raises(MeasurementError, match="runs no kernels, which could take data; leave out arrays"):
        time_kernel(gather(), {"n": 64}, device, arrays=arrays(64))
    with pytest.raises(MeasurementError, match="nothing is known of this device's caches"):
        time_kernel(gather(), {"n": 64}, device, TimingOptions(caches="cold"))
    with pytest.raises(CalibrationError, match="tells no results; leave out answer"):
        time_kernel(gather(), {"n": 64}, device, answer={"y": np.zeros(64)})


def test_data_have_buffers_of_their_own_and_decide_nothing_more():
    made_up = launch_request(SizedKernel(gather(), {"n": 64}, "k"), CPU)
    assert made_up.by_data
    given = made_up.with_data(arrays(64))
    assert not given.by_data
    assert given.slots["y"] == made_up.slots["y"]
    assert {name for name in given.slots if given.slots[name] != made_up.slots[name]} == {"x", "at"}
    assert (given.given()["at"] == arrays(64)["at"]).all()
    # Longer ones are cut, in the order of memory.
    turned = np.asfortranarray(np.arange(128, dtype=np.float32).reshape(2, 64))
    assert (made_up.with_data({**arrays(64), "x": turned}).data["x"][:4] == [0, 64, 1, 65]).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"z": np.zeros(64)}, "there is no array z; it has y, x, at"),
        ({"x": np.zeros(64)}, "array x has 64 elements of float64; give at least 64 of float32"),
        ({"x": np.zeros(63, np.float32)}, "array x has 63 elements of float32; give at least 64"),
        ({"at": np.zeros(64, np.int32)}, "those of x would be made up; give all arrays that it reads"),
    ],
)
def test_data_that_do_not_fit(given, words):
    with pytest.raises(MeasurementError, match=words):
        launch_request(SizedKernel(gather(), {"n": 64}, "k"), CPU).with_data(given)


def test_options_of_the_compiler_are_the_kernels():
    plain, fast = gather(), gather(options=["-cl-fast-relaxed-math"])
    jobs = [SizedKernel(kernel, {"n": 64}, "k") for kernel in (plain, fast)]
    assert plan_of(jobs[1], "opencl").options == ("-cl-fast-relaxed-math",)
    assert "--use_fast_math" in compile_plan_of(jobs[1], "nvrtc")[0].options
    keys = [measurement_key(job, CPU, QUICK) for job in jobs]
    assert keys[0].kernel != keys[1].kernel
    with pytest.raises(MeasurementError, match="nvrtc has no option like -cl-opt-disable of opencl; leave it out"):
        compile_plan_of(SizedKernel(gather(options=["-cl-opt-disable"]), {"n": 64}, "k"), "nvrtc")
    with pytest.raises(UnsupportedKernelError, match="stated with defines and folders, not as option -DN=3"):
        gather(options=["-DN=3"])


def test_cold_caches_are_another_condition():
    job = SizedKernel(gather(), {"n": 64}, "k")
    warm, cold = (measurement_key(job, CPU, TimingOptions(caches=each)) for each in ("warm", "cold"))
    assert cold.conditions == f"{warm.conditions} caches=cold"
    with pytest.raises(MeasurementError, match="caches are 'warm' or 'cold' when a launch begins, not 'hot'"):
        TimingOptions(caches="hot")


# on devices


@pytest.mark.parametrize("isolate", [True, False])
def test_a_gather_is_timed_with_its_data_and_compared(default_device, isolate):
    options, data = TimingOptions(trials=5, min_trials=5, isolate=isolate), arrays()
    right = {"y": 2 * data["x"][data["at"]]}
    given = {"arrays": data, "answer": right}
    assert time_kernel(gather(), {"n": N}, default_device, options, **given).seconds > 0
    with pytest.raises(MeasurementError, match=r"gather\(n=16384\): y differs by .* from the answer") as caught:
        time_kernel(gather(), {"n": N}, default_device, options, arrays=data, answer={"y": right["y"] + 100})
    assert caught.value.context["kind"] == "wrong result"
    # The same buffers' made-up data are as before.
    both = [(gather(), {"n": N}), (gather(options=["-cl-mad-enable"]), {"n": N})]
    assert len(time_kernels(both, default_device, options, arrays=data, answer=True).timings) == 2
    with pytest.raises(MeasurementError, match="no kernel has an array z; there are y, x, at"):
        time_kernels(both, default_device, options, arrays={"z": data["x"]})


def test_caches_are_cold(default_device):
    for options in (TimingOptions(trials=5, min_trials=5, caches="cold", isolate=each) for each in (True, False)):
        found = time_kernel(gather(), {"n": N}, default_device, options, arrays=arrays())
        assert found.seconds > 0
        assert found.launches >= 1
