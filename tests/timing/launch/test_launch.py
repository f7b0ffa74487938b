import sys
import tempfile
from dataclasses import replace
from threading import Thread
from unittest.mock import Mock

import loopy as lp
import numpy as np
import pytest

from perflex.errors import MeasurementError, MissingSizeError
from perflex.features import SizedKernel
from perflex.timing.launch.buffers import BufferPool, BufferSlot, OpenCLMemory, assign_slots, sample_data
from perflex.timing.launch.opencl import OpenCLBackend
from perflex.timing.launch.plan import _silenced, plan_launch
from perflex.timing.launch.request import check_limits, launch_request, size_launch
from sample_kernels import matmul
from support.building import built
from support.launched_kernels import two_programs
from uipick import ALL_GENERATORS, KernelCollection

VERSION = (2018, 2)


def vector(instructions, **dtypes):
    kernel = lp.make_kernel("{[i]: 0<=i<n}", instructions, assumptions="n>=1", lang_version=VERSION, name="vector")
    kernel = lp.add_dtypes(kernel, dtypes)
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


@pytest.fixture
def backends(real_devices):
    opened = [OpenCLBackend(device) for device in real_devices]
    yield opened
    for backend in opened:
        backend.close()


@pytest.fixture
def backend(default_device):
    opened = OpenCLBackend(default_device)
    yield opened
    opened.close()


def test_programs_of_one_kernel_run_in_order(backends):
    kernel = two_programs()
    assert len(plan_launch(kernel).programs) == 2
    for backend in backends:
        runnable = built(backend, kernel, {"n": 1000}, "twice")
        assert runnable.run(1).seconds[0] > 0
        a, b = runnable.read("a"), runnable.read("b")
        np.testing.assert_allclose(b, (a + a[::-1]) / 2, rtol=1e-6)


def test_scalars_have_their_type_and_updated_arrays_are_restored(backend):
    kernel = vector("b[i] = alpha*a[i] + m", a=np.float64, b=np.float64, alpha=np.float64, m=np.int64)
    runnable = built(backend, kernel, {"n": 50, "m": 7, "alpha": 3}, "scalars")
    runnable.run(1)
    np.testing.assert_allclose(runnable.read("b"), 3 * runnable.read("a") + 7)
    with pytest.raises(MeasurementError, match=r"alpha = 1e\+300 does not fit .* float32"):
        built(
            backend,
            vector("b[i] = alpha*a[i]", a=np.float32, b=np.float32, alpha=np.float32),
            {"n": 8, "alpha": 1e300},
            "x",
        )
    runnable = built(backend, vector("a[i] = 2*a[i] + b[i]", a=np.float32, b=np.float32), {"n": 100}, "update")
    runnable.run(5)
    start = (runnable.read("a") - runnable.read("b")) / 2
    assert 0.4999 < start.min() < start.max() < 1.5001


def test_arrays_with_gaps_have_room_for_their_last_element():
    kernel = lp.make_kernel(
        "{[i,j]: 0<=i<n and 0<=j<m}",
        "b[i,j] = a[i,j]",
        [
            lp.GlobalArg("a", np.float32, shape="n,m", strides="3,5*n"),
            lp.GlobalArg("b", np.float32, shape="n,m", order="F"),
            lp.ValueArg("n,m", np.int32),
        ],
        lang_version=VERSION,
    )
    lengths = size_launch(plan_launch(kernel), {"n": 10, "m": 4}, "gaps").lengths
    assert lengths == {"a": 1 + 9 * 3 + 3 * 50, "b": 40}


@pytest.mark.parametrize("wrong", [16.5, float("nan"), float("inf"), "16", None, True, 2**63])
def test_sizes_are_whole_numbers(wrong):
    plan = plan_launch(vector("b[i] = x*a[i]", a=np.float32, b=np.float32, x=np.float32))
    with pytest.raises(MissingSizeError, match=r"size n must be a whole number below 2\*\*63"):
        size_launch(plan, {"n": wrong, "x": 0.5}, "vector")
    # Neither scalars nor what the kernel does not have are sizes.
    whole = size_launch(plan, {"n": 64.0, "x": 0.5, "other": wrong}, "vector")
    assert replace(whole, sizes={}) == replace(size_launch(plan, {"n": 64, "x": 0.5}, "vector"), sizes={})
    assert whole.scalars["x"] == 0.5
    with pytest.raises(MeasurementError, match=r"vector: x must be a number, such as 0.75, not "):
        size_launch(plan, {"n": 64, "x": {None: None, True: 1j}.get(wrong, "16")}, "vector")
    with pytest.raises(MeasurementError, match=r"huge: n = 4294967296 does not fit .* int32"):
        size_launch(plan, {"n": 1 << 32, "x": 0.5}, "huge")
    with pytest.raises(MeasurementError, match=r"'n': 100.* violate .*mod 16"):
        size_launch(plan_launch(matmul(prefetch=False)), {"n": 100}, "odd")


def test_missing_sizes_are_all_named(backend):
    kernel = vector("b[i] = a[i] + m", a=np.float32, b=np.float32, m=np.int32)
    with pytest.raises(MissingSizeError, match=r"size parameter m, n; given: \{'k': 3\}") as caught:
        built(backend, kernel, {"k": 3}, "some kernel")
    assert caught.value.parameters == ("m", "n")


def test_compilers_message_is_kept(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kernel = vector("b[i] = a[i]", a=np.float32, b=np.float32)
    kernel = lp.register_preamble_generators(kernel, [broken_preamble])
    with pytest.raises(MeasurementError, match=r"broken code: does not build .*nonsense") as caught:
        built(backend, kernel, {"n": 64}, "broken code")
    assert "\n" not in caught.value.message
    assert "nonsense" in str(caught.value.log)
    assert list(tmp_path.glob("*.cl")) == []


def broken_preamble(info):
    yield "broken", "nonsense_type x;"


def test_what_loopy_does_not_translate_is_a_measurement_error(monkeypatch):
    kernel = lp.make_kernel(
        "{[t,i,j]: 0<=t<3 and 0<=i,j<n}",
        """
        for t
            ... gbarrier {id=top}
            b[i] = c[i] + t {id=first, dep=top}
            ... gbarrier {id=bar, dep=first}
            a[j] = b[n-1-j] {id=second, dep=bar}
        end
        """,
        [lp.GlobalArg("a,b,c", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        lang_version=VERSION,
        name="steps",
    )
    kernel = lp.tag_inames(kernel, {"i": "g.0", "j": "g.0"})
    for api in ("opencl", "cuda"):
        with pytest.raises(MeasurementError, match="'steps' loops over 't' around its launches"):
            plan_launch(kernel, api)
    untyped = lp.make_kernel("{[i]: 0<=i<n}", "b[i] = a[i]", lang_version=VERSION, name="untyped")
    with pytest.raises(MeasurementError, match="cannot generate OpenCL code for kernel 'untyped'"):
        plan_launch(untyped)
    monkeypatch.setattr(lp, "generate_code_v2", lambda _: [].is_equal)
    with pytest.raises(MeasurementError, match="kernel 'vector': AttributeError: 'list' object"):
        plan_launch(vector("b[i] = a[i]", a=np.float32, b=np.float32))


def test_prints_of_other_threads_are_not_swallowed(capsys):
    with _silenced():
        sys.stdout.write("loopy's")
        other = Thread(target=sys.stdout.write, args=["another's"])
        other.start()
        other.join()
    assert capsys.readouterr().out == "another's"


def test_limits_of_the_device_are_checked_with_numbers(default_device):
    tags = ["matmul_sq", "dtype:float32", "prefetch:True", "lsize_0:16", "lsize_1:16", "groups_fit:True", "n:64"]
    (tiled,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    request = size_launch(plan_launch(tiled.kernel), {"n": 64}, "x")
    assert request.local_bytes == 2 * 16 * 16 * 4
    array = 64 * 64 * 4
    roomy = replace(
        default_device,
        local_memory_bytes=2048,
        max_work_group_size=256,
        max_work_item_sizes=(16, 16, 1),
        max_allocation_bytes=array,
        global_memory_bytes=3 * array,
    )
    check_limits(request, roomy)
    for change, numbers in (
        ({"local_memory_bytes": 2047}, "2048 B of local memory.* 2047 B"),
        ({"max_work_group_size": 255}, "work-group of 256 .* 255 work-items"),
        ({"max_work_item_sizes": (256, 8, 1)}, "16 work-items on axis 1.* 8 "),
        ({"max_allocation_bytes": array - 1}, f"array a of {array} B.* {array - 1} B"),
        ({"global_memory_bytes": 3 * array - 1}, f"{3 * array} B of device memory.* {3 * array - 1} B"),
    ):
        with pytest.raises(MeasurementError, match=numbers):
            check_limits(request, replace(roomy, **change))


def test_double_precision_needs_a_device_that_has_it(default_device):
    without = replace(default_device, double_precision=False)
    kernel = vector("b[i] = 2*a[i]", a=np.float64, b=np.float64)
    assert launch_request(SizedKernel(kernel, {"n": 64}, "x"), default_device).label == "x"
    with pytest.raises(MeasurementError, match=r"x: computes in double precision, which .* does not have; use float32"):
        launch_request(SizedKernel(kernel, {"n": 64}, "x"), without)
    single = vector("b[i] = 2*a[i]", a=np.float32, b=np.float32)
    assert launch_request(SizedKernel(single, {"n": 64}, "x"), without).label == "x"


def test_a_driver_that_does_not_tell_what_it_built_fails_for_one_kernel(backend, monkeypatch):
    import pyopencl

    error = pyopencl.RuntimeError("get_work_group_info failed: OUT_OF_RESOURCES")
    monkeypatch.setattr(OpenCLBackend, "_most_items", Mock(side_effect=error))
    with pytest.raises(MeasurementError, match=r"^x: .* does not tell what it built \(.*OUT_OF_RESOURCES"):
        built(backend, matmul(prefetch=False), {"n": 16}, "x")


def test_times_that_run_backwards_are_an_error(backend, monkeypatch):
    runnable = built(backend, matmul(prefetch=False), {"n": 16}, "x")
    first, last = (Mock(**{"profile.start": begin, "profile.end": begin + 1}) for begin in (10, 5))
    monkeypatch.setattr(runnable, "_launch", lambda *_, **__: (first, last))
    with pytest.raises(MeasurementError, match="x: the driver's event times run backwards"):
        runnable.run(2)


def test_one_source_is_built_once(backend):
    kernel = vector("b[i] = a[i]", a=np.float32, b=np.float32)
    first = built(backend, kernel, {"n": 64}, "small")
    second = built(backend, kernel, {"n": 128}, "large")
    assert len(backend._programs) == 1
    second.run(1)
    first.run(1)
    np.testing.assert_array_equal(second.read("a")[:64], first.read("a"))


def test_arrays_of_a_kernel_never_share_a_slot():
    kernel = vector("c[i] = a[i] + b[i]\nd[i] = d[i] + a[i]", **dict.fromkeys("abcd", np.float32))
    slots = assign_slots(list(plan_launch(kernel).arrays.values()))
    flat = [slot for pair in slots.values() for slot in pair if slot]
    assert len(flat) == len(set(flat)) == 5
    assert slots["a"][0].role == slots["b"][0].role == "in"
    assert slots["c"][0].role == "out"
    assert slots["d"][0].role == "both"
    assert slots["d"][1] is not None
    assert slots["d"][1].role == "in"


def test_pool_keeps_to_its_budget(backend):
    pool = BufferPool(OpenCLMemory(backend._context, backend._queue), budget_bytes=3000)
    slots = [BufferSlot("in", "<f4", i) for i in range(4)]
    kept = pool.buffers({slots[0]: 1000, slots[1]: 1000}, "x")
    assert pool.buffers({slots[0]: 500}, "x")[slots[0]] is kept[slots[0]]
    pool.buffers({slots[2]: 1000}, "x")
    assert pool.held_bytes == 3000
    pool.buffers({slots[3]: 1000}, "x")
    assert pool.held_bytes == 3000
    assert slots[1] not in pool._buffers  # the longest unused
    # What one kernel needs is there at the same time, whatever the budget.
    assert len(pool.buffers({slots[0]: 4000, slots[1]: 4000}, "x")) == 2
    pool.free_all()
    assert pool.held_bytes == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64, np.int32, np.uint8])
def test_sample_data_is_deterministic_and_tame(dtype):
    data = sample_data(np.dtype(dtype), 1000, seed=3)
    np.testing.assert_array_equal(data, sample_data(np.dtype(dtype), 1000, seed=3))
    assert data.dtype == dtype
    assert data.real.min() >= 0.5
    assert data.real.max() <= 1.5
    if np.dtype(dtype).kind == "f":
        assert not np.array_equal(data, sample_data(np.dtype(dtype), 1000, seed=4))
