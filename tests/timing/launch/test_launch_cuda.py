"""Kernels as CUDA C++ have the values that they have as OpenCL, and what goes wrong on a GPU is one clear error."""

from dataclasses import replace

import loopy as lp
import numpy as np
import pytest

from perflex import TimingOptions
from perflex.devices.cuda import load_cupy
from perflex.errors import DeviceError, MeasurementError, MissingExtraError
from perflex.features import SizedKernel
from perflex.timing.launch.backend import backend_of
from perflex.timing.launch.cuda import CudaBackend
from perflex.timing.launch.plan import plan_launch
from perflex.timing.measuring import measure
from support.building import built
from support.cuda_for_tests import drop_cupy, fake_cupy, fake_gpu, state
from uipick import ALL_GENERATORS, KernelCollection

__all__ = ["fake_cupy", "fake_gpu"]

VERSION = (2018, 2)


def vector(body, name="vector", **dtypes):
    kernel = lp.make_kernel("{[i]: 0<=i<n}", body, assumptions="n>=1", lang_version=VERSION, name=name)
    kernel = lp.add_dtypes(kernel, dtypes)
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


def good(name="good", factor=2.0):
    return vector(f"b[i] = {factor}*a[i]", name, a=np.float32, b=np.float32)


@pytest.fixture
def cuda(fake_gpu):
    opened = CudaBackend(fake_gpu)
    yield opened
    opened.close()
    assert not state().allocated


@pytest.fixture
def opencl(default_device):
    opened = backend_of(default_device)
    yield opened
    opened.close()


def outputs(runnable):
    runnable.run(2)
    return {name: runnable.read(name) for name, (slot, _) in runnable._request.slots.items() if slot.role != "in"}


def agree(kernel, sizes, cuda, opencl):
    expected = outputs(built(opencl, kernel, sizes, "x"))
    found = outputs(built(cuda, kernel, sizes, "x"))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        tolerance = 2e-5 if values.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(found[name], values, rtol=tolerance, atol=tolerance * np.abs(values).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "tags",
    [
        "matmul_sq dtype:float32 prefetch:True groups_fit:False n:37 lsize_0:8 lsize_1:8",  # barriers, guards
        "dot dtype:float64 ngroups:4 lsize_0:64 groups_fit:False n:1000",  # two device programs
        "gmem_triad dtype:float64 lsize_0:32 width:4 groups_fit:True nelements:4096",  # vectors CUDA has not
        "iops_bit_pattern groups_fit:True lsize_0:16 lsize_1:16 nvars:32 nelements:65536 m:64",
    ],
)
def test_generated_kernels_compute_what_they_do_in_opencl(tags, cuda, opencl):
    kernel = KernelCollection(ALL_GENERATORS).generate_kernels(tags.split())[0]
    agree(kernel.kernel, dict(kernel.sizes), cuda, opencl)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "dtypes"),
    [
        ("b[i] = fmax(sqrt(a[i]), cos(a[i])) + a[i]**2 + abs(a[i] - 1)", {"a": np.float32, "b": np.float32}),
        ("b[i] = fmin(exp(a[i]), rsqrt(a[i])) + a[i]**3", {"a": np.float64, "b": np.float64}),
        ("b[i] = a[i] * ((i - 5) // 3) + (i - 7) % 4", {"a": np.int32, "b": np.int32}),
        ("b[i] = a[i] + 1.5", {"a": np.int64, "b": np.float64}),
    ],
)
def test_functions_and_types_mean_the_same(body, dtypes, cuda, opencl):
    agree(vector(body, **dtypes), {"n": 77}, cuda, opencl)


def test_results_are_of_the_same_data(cuda, opencl):
    kernels = [vector("b[i] = b[i] + 2*a[i]", **dict.fromkeys(order, np.float32)) for order in ("ab", "ba")]
    found = [built(where, kernel, {"n": 77}, "x").results() for where in (cuda, opencl) for kernel in kernels]
    assert [list(each) for each in found] == [["b"]] * 4
    for each in found[1:]:
        np.testing.assert_allclose(each["b"], found[0]["b"], rtol=1e-6)


def test_words_of_cpp_are_no_names():
    plan = plan_launch(vector("new[i] = 2*class[i]", "delete", **{"new": np.float32, "class": np.float32}), "cuda")
    assert [program.name for program in plan.programs] == ["delete_"]
    assert plan.programs[0].argument_names[0] in {"new", "class", "n"}
    for word in (" new[", " class[", " delete("):
        assert word not in plan.source


def test_a_kernel_for_cuda_runs_through_opencl(opencl):
    kernel = lp.make_kernel(
        "{[i]: 0<=i<n}", "b[i] = sin(a[i])", assumptions="n>=1", lang_version=VERSION, target=lp.CudaTarget()
    )
    kernel = lp.split_iname(lp.add_dtypes(kernel, {"a": np.float32}), "i", 32, outer_tag="g.0", inner_tag="l.0")
    runnable = built(opencl, kernel, {"n": 64}, "x")
    runnable.run(1)
    np.testing.assert_allclose(runnable.read("b"), np.sin(runnable.read("a")), rtol=1e-5)


def test_launches_wait_for_one_another_while_the_stream_is_held(cuda):
    runnable = built(cuda, good(), {"n": 64}, "x")
    state().launches.clear()
    runnable.run(1)
    assert state().launches == ["good"]  # may load code, which a held stream would not allow
    times = runnable.run(900).seconds
    assert len(times) == 900
    assert min(times) > 0
    held = [place for place, name in enumerate(state().launches) if name == "perflex_hold"]
    assert len(held) == 3
    assert max(np.diff([*held, len(state().launches)])) == 401


def test_launches_that_did_not_wait_for_the_host_are_taken_again(cuda, monkeypatch):
    runnable = built(cuda, good(), {"n": 64}, "x")
    runnable.run(1)
    state().launches.clear()
    monkeypatch.setattr(state(), "impatient", 2)
    assert len(runnable.run(3).seconds) == 3
    assert state().launches == ["perflex_hold", "good", "good", "good"] * 3
    monkeypatch.setattr(state(), "impatient", 5)
    with pytest.raises(MeasurementError, match="x: the host took too long to enqueue 3 launches, 5 times"):
        runnable.run(3)
    assert len(runnable.run(3).seconds) == 3


@pytest.mark.parametrize("body", ["b[i] = 2*a[i]", "a[i] = a[i] + 1"])
def test_caches_are_written_over_before_each_launch(body, cuda, monkeypatch):
    swept, sweep = [], cuda._context.sweep

    def counted():
        enqueue = sweep()  # memory is allocated before the stream is held
        return lambda: (swept.append(1), enqueue())

    monkeypatch.setattr(cuda._context, "sweep", counted)
    dtypes = {name: np.float32 for name in ("a", "b") if f"{name}[" in body}
    runnable = built(cuda, vector(body, **dtypes), {"n": 64}, "x")
    assert len(runnable.run(3).seconds) == 3
    assert not swept
    for launches in (1, 5):
        assert min(runnable.run(launches, cold=True).seconds) > 0
    assert len(swept) == 6


def test_the_current_device_stays_the_users(fake_gpu, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    monkeypatch.setattr(state(), "device", 0)
    state().used.clear()
    backend = CudaBackend(replace(fake_gpu, ordinal=1))
    runnable = built(backend, good(), {"n": 64}, "x")
    runnable.run(1)
    runnable.run(3)
    assert backend.responds()
    backend.close()
    assert state().device == 0
    assert state().used == {1}


def unknown_function(_):
    yield "10_unknown", "inline __device__ float twice(float x) { return absent(x); }"


def test_compilers_message_is_kept(cuda):
    kernel = lp.register_preamble_generators(good(), [unknown_function])
    with pytest.raises(MeasurementError, match=r"x: does not build on NVIDIA H100.*error: .absent. was not declared"):
        built(cuda, kernel, {"n": 64}, "x")
    assert built(cuda, good(), {"n": 64}, "y").run(1)


def test_local_memory_and_grids_beyond_the_device_are_refused_with_numbers(fake_gpu):
    backend = CudaBackend(fake_gpu)
    tile = lp.make_kernel(
        "{[g,i,j]: 0<=g<n and 0<=i,j<128}", "<> t[i] = a[g,i] {id=w}\nb[g,j] = t[127-j] {dep=w}", lang_version=VERSION
    )
    tile = lp.set_temporary_address_space(lp.add_dtypes(tile, {"a": np.float64}), "t", "local")
    tile = lp.tag_inames(tile, "g:g.0, i:l.0, j:l.0")
    assert built(backend, tile, {"n": 2}, "x").run(1)
    small = CudaBackend(replace(fake_gpu, local_memory_bytes=1000))
    with pytest.raises(MeasurementError, match=r"x: needs 1024 B of local memory, .* allows 1000 B"):
        built(small, tile, {"n": 2}, "x")
    tall = lp.make_kernel("{[i,j]: 0<=i<32 and 0<=j<n}", "b[j,i] = 1.0", assumptions="n>=1", lang_version=VERSION)
    tall = lp.split_iname(lp.add_dtypes(tall, {"b": np.float32}), "i", 32, outer_tag="g.0", inner_tag="l.0")
    tall = lp.tag_inames(tall, "j:g.1")
    with pytest.raises(MeasurementError, match=r"70000 work-groups on axis 1, .* allows 65535 work-groups"):
        built(backend, tall, {"n": 70000}, "x")


def test_what_a_kernel_lacks_is_its_own_failure(cuda, monkeypatch):
    def fails(match, kernel, n):
        with pytest.raises(MeasurementError, match=match) as caught:
            built(cuda, kernel, {"n": n}, "x").run(1)
        return caught.value.context.get("kind")

    assert fails(r"x: needs more registers .* too many resources", good("greedy"), 64) == "prepare"
    monkeypatch.setenv("FAKE_CUDA_ROOM", "100000")
    assert fails(r"x: the device has no room for a buffer of 400000 B", good(), 100000) == "memory"
    monkeypatch.setenv("FAKE_CUDA_REGISTERS", "255")
    wide = lp.make_kernel("{[i]: 0<=i<n}", "b[i] = 2.5", assumptions="n>=1", lang_version=VERSION)
    wide = lp.split_iname(lp.add_dtypes(wide, {"b": np.float32}), "i", 512, outer_tag="g.0", inner_tag="l.0")
    assert fails(r"512 work-items, .* allows 256 .* 255 registers per work-item", wide, 512) is None
    assert built(cuda, good(), {"n": 64}, "y").run(1)


def test_an_illegal_access_loses_the_device_of_this_process(fake_gpu):
    backend = CudaBackend(fake_gpu)
    bad = built(backend, good("astray"), {"n": 64}, "x")
    fine = built(backend, good(), {"n": 64}, "y")
    with pytest.raises(MeasurementError, match=r"x: the launch failed \(cudaErrorIllegalAddress"):
        bad.run(1)
    assert not backend.responds()
    with pytest.raises(DeviceError, match=r"lost to this process since x .*isolate=True"):
        fine.run(1)
    with pytest.raises(DeviceError, match="lost to this process"):
        built(backend, good(factor=5.0), {"n": 64}, "z")


@pytest.mark.slow
def test_in_a_process_of_their_own_bad_kernels_fail_alone(fake_gpu):
    kernels = [good("one"), good("astray"), good("two"), good("greedy"), good("three")]
    jobs = [SizedKernel(kernel, {"n": 64}, kernel.default_entrypoint.name) for kernel in kernels]
    options = TimingOptions(trials=3, min_trials=2, limit_s=0.5, warmups=0)
    outcomes = {outcome.label: outcome for outcome in measure(jobs, fake_gpu, options)}
    kinds = {name: getattr(outcome, "kind", "timed") for name, outcome in outcomes.items()}
    assert kinds == dict.fromkeys(("one", "two", "three"), "timed") | {"astray": "run", "greedy": "prepare"}
    assert "illegal memory access" in outcomes["astray"].reason


def test_cupy_is_an_extra_that_loads_and_goes_with_the_driver(fake_cupy, tmp_path, monkeypatch):
    for driver, message in (
        ("0", "finds no NVIDIA driver"),
        ("12040", r"is made for CUDA 13\.0, the driver supports CUDA 12\.4; .*pip install cupy-cuda12x"),
    ):
        monkeypatch.setenv("FAKE_CUDA_DRIVER", driver)
        with pytest.raises(DeviceError, match=message):
            load_cupy()
    drop_cupy()
    (tmp_path / "cupy.py").write_text("raise ImportError('\\n====\\nlibcudart.so.11: cannot open shared object\\n')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DeviceError, match=r"does not load: libcudart\.so\.11: cannot open") as caught:
        load_cupy()
    assert "\n" not in caught.value.message
    drop_cupy()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"CuPy, which is not installed: pip install 'perflex\[cuda\]'"):
        load_cupy()


@pytest.mark.gpu
def test_kernels_compute_on_a_gpu_what_they_do_on_the_cpu(cuda_device, opencl):
    backend = backend_of(cuda_device)
    tags = "matmul_sq dtype:float32 prefetch:True groups_fit:False n:37 lsize_0:8 lsize_1:8"
    kernel = KernelCollection(ALL_GENERATORS).generate_kernels(tags.split())[0]
    agree(kernel.kernel, dict(kernel.sizes), backend, opencl)
    assert all(0 < seconds < 1 for seconds in built(backend, good(), {"n": 1 << 20}, "x").run(20).seconds)
