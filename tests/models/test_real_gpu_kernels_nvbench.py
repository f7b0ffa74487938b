"""Kernels of the nvbench data: values against numpy on a CPU device, counts against enumeration, launch shapes."""

from __future__ import annotations

import gzip
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from perflex.features import Scop, Target, extract_scop, parse_feature
from tests.bench.real_gpus_parts import histograms, nvbench, nvbench_chains, nvbench_kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Run = Callable[..., dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def run() -> Run:
    """Run a kernel on a CPU device by loopy's own executor; arrays that are only stored begin with zeros."""
    cl = pytest.importorskip("pyopencl")
    platforms = [one for one in cl.get_platforms() if one.name != "Oclgrind" and one.get_devices()]
    if not platforms:
        pytest.skip("no OpenCL platform on this machine")
    context = cl.Context([platforms[0].get_devices()[0]])

    def launch(kernel: Any, sizes: Mapping[str, int], **arrays: np.ndarray) -> dict[str, np.ndarray]:
        queue = cl.CommandQueue(context)
        outputs = [one.name for one in kernel.default_entrypoint.args if getattr(one, "is_output", False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, results = kernel.executor(context)(queue, **arrays, **sizes)
        return dict(zip(outputs, map(np.asarray, results), strict=True))

    return launch


def numbers(*shape: int, dtype: type = np.uint32, most: int = 1000) -> np.ndarray:
    return np.random.default_rng(3).integers(0, most, shape).astype(dtype)


def convolved(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return clamped sums of products around each element; axes of the mask are the first ones of the image."""
    padded = np.pad(image, [(extent // 2, extent // 2) for extent in mask.shape] + [(0, 0)] * (image.ndim - mask.ndim))
    total = np.zeros(image.shape)
    for place in np.ndindex(mask.shape):
        part = tuple(slice(first, first + extent) for first, extent in zip(place, image.shape, strict=False))
        total += mask[place] * padded[part]
    return np.clip(total, 0, 1)


@pytest.mark.machine
@pytest.mark.parametrize("strided", [False, True])
def test_array_add(run: Run, strided: bool) -> None:
    a, b = numbers(37, 37, dtype=np.float32), numbers(37, 37, dtype=np.float32)[::-1].copy()
    np.testing.assert_array_equal(run(nvbench_kernels.array_add(strided=strided), {"n": 37}, a=a, b=b)["c"], a + b)


@pytest.mark.machine
def test_rgb_to_gray(run: Run) -> None:
    rgb = numbers(21, 21, 3, dtype=np.uint8, most=256)
    gray = run(nvbench_kernels.rgb_to_gray(), {"n": 21}, rgb=rgb)["gray"]
    exact = rgb @ np.array([0.21, 0.71, 0.07])
    # In single precision, a sum next to a whole number may fall to either side of it.
    assert ((gray == np.floor(exact)) | (np.abs(exact - np.round(exact)) < 1e-4)).all()


@pytest.mark.machine
@pytest.mark.parametrize("kind", ["guarded", "unguarded", "tiled", "halo"])
def test_conv1d(run: Run, kind: str) -> None:
    n, w, b = 150, 5, 64
    x, mask = np.random.default_rng(5).uniform(-1, 1, n).astype(np.float32), np.float32([0.3, -0.2, 0.5, 0.1, 0.4])
    kernels = {"tiled": nvbench_kernels.conv1d_tiled, "halo": nvbench_kernels.conv1d_halo_global}
    if kind in kernels:
        found = run(kernels[kind](b, w), {"n": n}, x=x, mask=mask)["y"]
    else:
        kernel = nvbench_kernels.conv1d_plain(b, guarded=kind == "guarded")
        found = run(kernel, {"n": n, "w": w}, x=x, mask=mask)["y"]
    np.testing.assert_allclose(found[:n], convolved(x, mask), atol=1e-6)


@pytest.mark.machine
@pytest.mark.parametrize("tiled", [False, True])
def test_conv2d(run: Run, tiled: bool) -> None:
    n, c, w = 29, 2, 5
    random = np.random.default_rng(7)
    x, mask = random.uniform(-1, 1, (n, n, c)).astype(np.float32), random.uniform(-1, 1, (w, w)).astype(np.float32)
    if tiled:
        found = run(nvbench_kernels.conv2d_tiled(16, w), {"n": n, "c": c}, x=x, mask=mask)["y"]
    else:
        found = run(nvbench_kernels.conv2d_plain(16), {"n": n, "w": w, "c": c}, x=x, mask=mask)["y"]
    np.testing.assert_allclose(found, convolved(x, mask), atol=1e-5)


@pytest.mark.machine
@pytest.mark.parametrize("kernel", [nvbench_kernels.matmul_naive, nvbench_kernels.matmul_tiled])
def test_matmul(run: Run, kernel: Callable[[int], Any]) -> None:
    a, b = numbers(21, 21), numbers(21, 21).T.copy()
    np.testing.assert_array_equal(run(kernel(8), {"n": 21}, a=a, b=b)["c"], a @ b)


@pytest.mark.machine
@pytest.mark.parametrize("kernel", [nvbench_kernels.matvec_naive, nvbench_kernels.matvec_shared])
def test_matvec(run: Run, kernel: Callable[[int], Any]) -> None:
    a, x = numbers(75, 75), numbers(75)
    np.testing.assert_array_equal(run(kernel(32), {"n": 75}, a=a, x=x)["y"][:75], a @ x)


# The others rely on the lanes of a warp being in step.
@pytest.mark.machine
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_chains_of_reductions(run: Run, number: int) -> None:
    n = 3 * 512 * 512 // 2
    x = numbers(n)
    expected, launched = int(x.sum(dtype=np.uint32)), 0
    for kernel, sizes, times in nvbench_chains.reduction_launches(number, n):
        if kernel.default_entrypoint.name.startswith("reduction"):
            x = run(kernel, sizes, x=x)["y"]
            launched += times
    assert x.shape == (1,)
    assert x[0] == expected
    assert launched == (3 if number <= 3 else 2)


@pytest.mark.machine
@pytest.mark.parametrize("name", sorted(nvbench_chains.SCANS))
@pytest.mark.parametrize("n", [300, 9000])
def test_chains_of_scans(run: Run, name: str, n: int) -> None:
    def scanned(x: np.ndarray) -> np.ndarray:
        results = run(nvbench_chains.SCANS[name][0](), {"n": len(x)}, x=x)
        y, totals = results["y"], results["totals"]
        if len(totals) > 1:
            kernel = nvbench_chains.add_totals(nvbench_chains.SCANS[name][1])
            y = run(kernel, {"n": len(x)}, y=y, totals=scanned(totals))["y"]
        return y

    x = numbers(n)
    np.testing.assert_array_equal(scanned(x), np.cumsum(x, dtype=np.uint32))


@pytest.mark.parametrize("b", [32, 64])
def test_histograms_count_each_element_once(b: int) -> None:
    n = 100 * b - 7
    groups, steps = 100, {}
    for name in ("histogram_global", "histogram_shared"):
        scop = getattr(histograms, name)(b)
        for space in ("global", "local"):
            steps[name, space] = parse_feature(f"f_atomic_{space}").value(scop, {"n": n}, Target(32))
    assert steps["histogram_global", "global"] == steps["histogram_shared", "local"] == n
    # All bins of all work-groups, 32 different ones at a time.
    assert steps["histogram_shared", "global"] == groups * histograms.BINS // 32
    assert steps["histogram_global", "local"] == 0


HEADER = (
    "device,kernel,sweep,n,mask_width,channels,bins,block_x,block_y,grid_x,grid_y,shared_bytes,launches,time_s,"
    "spread_rel,time_warm_s,samples,repeat"
)
LINES = """
RTX 3060,array_add_strided,size,40,,,,16,16,3,3,0,1,1e-4,0,1e-4,9,0
RTX 3060,rgb_to_gray,size,40,,,,16,16,3,3,0,1,1e-4,0,1e-4,9,0
RTX 3060,conv1d_global_mask,size,8192,5,,,512,1,16,1,0,1,1e-4,0,1e-4,9,0
RTX 3060,conv1d_global_mask,size,64,5,,,512,1,1,1,0,1,1e-5,0,1e-5,9,0
RTX 3060,conv1d_tiled,block,8192,5,,,64,1,128,1,272,1,1e-4,0,1e-4,9,0
RTX 3060,conv1d_tiled,block,8192,5,,,64,1,128,1,272,1,1e-4,0,1e-4,9,1
RTX 3060,conv2d_tiled,mask,100,5,1,,16,16,9,9,1024,1,1e-4,0,1e-4,9,0
RTX 3060 Ti,matmul_tiled,block,100,,,,8,8,13,13,512,1,1e-4,0,1e-4,9,0
RTX 3060 Ti,matmul_tiled_double,size,100,,,,16,16,13,7,3072,1,1e-4,0,1e-4,9,0
RTX 3060 Ti,matvec_shared,block,100,,,,32,1,4,1,128,1,1e-4,0,1e-4,9,0
RTX 3060 Ti,histogram_shared,block,1000,,,512,64,1,16,1,2048,1,1e-4,0,1e-4,9,0
RTX 3060 Ti,reduction_4,size,1100000,,,,512,1,1075,1,2048,3,1e-4,0,,9,0
RTX 3060 Ti,scan_three_phase,size,20000,,,,512,1,5,1,16384,3,1e-4,0,,9,0
"""


def test_rows_have_the_launch_shapes_that_the_data_states(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "nvbench.csv.gz", "wt", encoding="utf-8") as file:
        file.write(f"{HEADER}\n{LINES.strip()}\n")
    stated = [line.split(",") for line in LINES.split("\n") if line and "size,64" not in line and line[-1] == "0"]
    found = list(nvbench.rows(tmp_path))
    assert [row.program for row in found] == [line[1] for line in stated]
    assert {row.machine for row in found} == {"RTX-3060", "RTX-3060-Ti"}
    assert len({row.label for row in found}) == len(found)
    for row, line in zip(found, stated, strict=True):
        own = [(kernel, sizes) for kernel, sizes, _ in row.launches if _name(kernel) not in {"fill", "copy"}]
        assert len(own) == int(line[12]), row.label
        scop, sizes = extract_scop(own[0][0]), own[0][1]
        (launch,) = scop.launches
        groups = [int(extent.evaluate(sizes)) for extent in launch.groups]
        assert [*groups, 1][:2] == [int(line[9]), int(line[10])], row.label
        assert [*launch.items, 1][:2] == [int(line[7]), int(line[8])], row.label
        local = sum(4 * int(np.prod([e.evaluate(sizes) for e in a.shape])) for a in scop.arrays if a.space == "local")
        assert local == int(line[11]), row.label


def _name(kernel: Any) -> str:
    return kernel.name if isinstance(kernel, Scop) else kernel.default_entrypoint.name


def test_double_precision_clamp() -> None:
    plain = nvbench_kernels.conv2d_plain(16)
    counted = nvbench_kernels.counted(plain, constant_mask=True)
    sizes = {"n": 32, "w": 3, "c": 2}
    for kind, times in {"min": 1, "max": 1, "convert": 2}.items():
        value = parse_feature(f"f_op_float64_{kind}").value(counted, sizes, Target(32))
        assert value == times * 2 * 32 * 32 / 32
    assert "mask" in {array.name for array in extract_scop(plain).arrays}
    assert "mask" not in {array.name for array in counted.arrays}
