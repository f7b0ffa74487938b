"""Kernels of the data sets of GPUs' times: values against numpy, counts by hand, launch shapes against the data's."""

import csv
import gzip
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from perflex.features import Scop, Target, extract_scop, parse_feature
from tests.bench.real_gpus_parts import gpuperf, histograms, nvbench, nvbench_chains
from tests.bench.real_gpus_parts import nvbench_kernels as kernels

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "gpu_kernels"


@pytest.fixture(scope="session")
def run(contexts):
    """Run a kernel on a CPU device by loopy's own executor; arrays that are only stored begin with zeros."""
    import pyopencl as cl
    import pyopencl.array as cla

    def launch(kernel, sizes, **arrays):
        queue = cl.CommandQueue(contexts[0])
        there = {
            argument.name: cla.to_device(queue, arrays.get(argument.name, zeros(argument, sizes)))
            for argument in kernel.default_entrypoint.args
            if hasattr(argument, "shape")
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel.executor(contexts[0])(queue, **there, **sizes)
        return {name: array.get() for name, array in there.items()}

    return launch


def zeros(argument, sizes):
    from pymbolic import evaluate

    shape = tuple(int(evaluate(extent, dict(sizes))) for extent in argument.shape)
    return np.zeros(shape, argument.dtype.numpy_dtype)


def whole(*shape, dtype=np.uint32, most=1000):
    return np.random.default_rng(3).integers(0, most, shape).astype(dtype)


def real(*shape, seed=5):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def convolved(image, mask):
    """Return clamped sums of products around each element; axes of the mask are the first ones of the image."""
    padded = np.pad(image, [(extent // 2, extent // 2) for extent in mask.shape] + [(0, 0)] * (image.ndim - mask.ndim))
    total = np.zeros(image.shape)
    for place in np.ndindex(mask.shape):
        part = tuple(slice(first, first + extent) for first, extent in zip(place, image.shape, strict=False))
        total += mask[place] * padded[part]
    return np.clip(total, 0, 1)


def correlated(a):
    """Return the outputs of a convolution in an image; what is not computed is 0, as before."""
    windows = np.lib.stride_tricks.sliding_window_view(a["img"].astype(np.float64), a["mask"].shape)
    return np.pad(np.einsum("ijkl,kl->ij", windows, a["mask"]), (0, len(a["mask"]) - 1))


def divergent(a):
    return a["A"] + a["B"] + np.where(np.arange(len(a["A"])) % 2 < 1, 0.0001 * sum(range(128)), 0)


def tiles_summed(values):
    return values.astype(np.float64).reshape(-1, 512).sum(axis=1)


LINES, SQUARE, TILES, THOUSAND = (
    {"A": real(*shape), "B": real(*shape, seed=7)} for shape in ((300,), (40, 40), (64, 64), (1024,))
)
FLOATS = {name.lower(): array for name, array in SQUARE.items()}
SIGNAL = {"x": real(150), "mask": np.float32([0.3, -0.2, 0.5, 0.1, 0.4])}
IMAGE = {"x": real(29, 29, 2), "mask": real(5, 5, seed=7)}
MATRICES, ROWS = {"a": whole(21, 21), "b": whole(21, 21).T.copy()}, {"a": whole(75, 75), "x": whole(75)}


def smooth(a):
    return convolved(a["x"], a["mask"])


def added(a):
    return a["a"] + a["b"]


def product(a):
    left, right = a.values()
    return left @ right


# Kernel, sizes that leave work-groups partly idle where it has guards, inputs, the output and its reference.
CASES = {
    "array_add": (partial(kernels.array_add, strided=False), {"n": 40}, FLOATS, "c", added),
    "array_add_strided": (partial(kernels.array_add, strided=True), {"n": 40}, FLOATS, "c", added),
    "conv1d": (partial(kernels.conv1d_plain, 64, guarded=True), {"n": 150, "w": 5}, SIGNAL, "y", smooth),
    "conv1d_unguarded": (partial(kernels.conv1d_plain, 64, guarded=False), {"n": 150, "w": 5}, SIGNAL, "y", smooth),
    "conv1d_tiled": (partial(kernels.conv1d_tiled, 64, 5), {"n": 150}, SIGNAL, "y", smooth),
    "conv1d_halo": (partial(kernels.conv1d_halo_global, 64, 5), {"n": 150}, SIGNAL, "y", smooth),
    "conv2d": (partial(kernels.conv2d_plain, 16), {"n": 29, "w": 5, "c": 2}, IMAGE, "y", smooth),
    "conv2d_tiled": (partial(kernels.conv2d_tiled, 16, 5), {"n": 29, "c": 2}, IMAGE, "y", smooth),
    "matmul": (partial(kernels.matmul_naive, 8), {"n": 21}, MATRICES, "c", product),
    "matmul_by_tiles": (partial(kernels.matmul_tiled, 8), {"n": 21}, MATRICES, "c", product),
    "matvec": (partial(kernels.matvec_naive, 32), {"n": 75}, ROWS, "y", product),
    "matvec_shared": (partial(kernels.matvec_shared, 32), {"n": 75}, ROWS, "y", product),
    "vector_add": (None, {"n": 300}, LINES, "C", lambda a: a["A"] + a["B"]),
    "saxpy": (None, {"n": 300}, LINES, "C", lambda a: 2 * a["A"] + a["B"]),
    "vector_add_divergent": (None, {"n": 300}, LINES, "C", divergent),
    "strided_copy_8": (None, {"n": 300}, {"A": real(2400)}, "C",
        lambda a: np.where(np.arange(2400) % 8 < 1, a["A"], 0)),
    "gather_constant_index": (None, {"n": 300}, LINES | {"idx": whole(300, dtype=np.int32, most=9)}, "B",
        lambda a: a["A"][a["idx"]]),
    "naive_transpose": (None, {"n": 40}, SQUARE, "B", lambda a: a["A"].T),
    "shared_transpose": (None, {"n": 64}, TILES, "B", lambda a: a["A"].T),
    "reduce_sum": (None, {"n": 1024}, THOUSAND, "out", lambda a: tiles_summed(a["A"])),
    "dot_product": (None, {"n": 1024}, THOUSAND, "out", lambda a: tiles_summed(a["A"] * a["B"])),
    "conv2d_3x3": (None, {"n": 40}, {"img": real(40, 40), "mask": real(3, 3, seed=7)}, "out", correlated),
    "conv2d_7x7": (None, {"n": 40}, {"img": real(40, 40), "mask": real(7, 7, seed=7)}, "out", correlated),
    "matmul_naive": (None, {"n": 40}, SQUARE, "C", product),
    **{
        name: (None, {"n": 64}, TILES, "C", product)
        for name in ("matmul_tiled", "tiled16", "microtile2x2", "microtile4x1")
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_values(name, run):
    make, sizes, given, output, reference = CASES[name]
    found = run(make() if make else gpuperf.programs()[name], sizes, **given)[output]
    expected = reference(given)
    # What lies beyond the end of an array, for whole work-groups, is not looked at.
    np.testing.assert_allclose(found[: len(expected)], expected, rtol=2e-4, atol=2e-5)


def test_rgb_to_gray(run):
    rgb = whole(21, 21, 3, dtype=np.uint8, most=256)
    gray = run(kernels.rgb_to_gray(), {"n": 21}, rgb=rgb)["gray"]
    exact = rgb @ np.array([0.21, 0.71, 0.07])
    # In single precision, a sum next to a whole number may fall to either side of it.
    assert ((gray == np.floor(exact)) | (np.abs(exact - np.round(exact)) < 1e-4)).all()


# The others rely on the lanes of a warp being in step.
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_chains_of_reductions(run, number):
    n = 3 * 512 * 512 // 2
    x = whole(n)
    expected, launched = int(x.sum(dtype=np.uint32)), 0
    for kernel, sizes, times in nvbench_chains.reduction_launches(number, n):
        if kernel.default_entrypoint.name.startswith("reduction"):
            x = run(kernel, sizes, x=x)["y"]
            launched += times
    assert x.tolist() == [expected]
    assert launched == (3 if number <= 3 else 2)


@pytest.mark.parametrize("name", sorted(nvbench_chains.SCANS))
@pytest.mark.parametrize("n", [300, 9000])
def test_chains_of_scans(run, name, n):
    def scanned(x):
        results = run(nvbench_chains.SCANS[name][0](), {"n": len(x)}, x=x)
        y, totals = results["y"], results["totals"]
        if len(totals) > 1:
            kernel = nvbench_chains.add_totals(nvbench_chains.SCANS[name][1])
            y = run(kernel, {"n": len(x)}, y=y, totals=scanned(totals))["y"]
        return y

    x = whole(n)
    np.testing.assert_array_equal(scanned(x), np.cumsum(x, dtype=np.uint32))


@pytest.mark.parametrize("b", [32, 64])
def test_histograms_count_each_element_once(b):
    n, updates = 100 * b - 7, parse_feature("f_op_uint32_atomic")
    assert updates.value(histograms.histogram_global(b), {"n": n}, Target(1)) == n
    # All bins of all 100 work-groups are added to those in global memory.
    assert updates.value(histograms.histogram_shared(b), {"n": n}, Target(1)) == n + 100 * histograms.BINS


def test_updates_of_one_address():
    # 256 work-items of a work-group update a bin in local memory each, then a bin of their own in global memory.
    updates = parse_feature("f_op_uint32_atomic")
    assert updates.value(histograms.histogram(), {"n": 512}, Target()) == 2 * 2 * 8
    assert updates.value(histograms.atomic_hotspot(), {"n": 512, "iters": 50}, Target()) == 16 * 50


def test_double_precision_clamp():
    plain = kernels.conv2d_plain(16)
    counted = kernels.counted(plain, constant_mask=True)
    sizes = {"n": 32, "w": 3, "c": 2}
    for kind, times in {"min": 1, "max": 1, "convert": 2}.items():
        value = parse_feature(f"f_op_float64_{kind}").value(counted, sizes, Target(32))
        assert value == times * 2 * 32 * 32 / 32
    spaces = [{array.name: array.space for array in scop.arrays}["mask"] for scop in (extract_scop(plain), counted)]
    assert spaces == ["global", "constant"]
    # Its width is a size, so that compilers do not know where an element lies: one load in each iteration.
    loads = parse_feature("f_inst_ldst_constant").value(counted, {"n": 32, "w": 1, "c": 2}, Target(32))
    assert loads == 2 * 32 * 32 / 32


NVBENCH = """
device,kernel,sweep,n,mask_width,channels,bins,block_x,block_y,grid_x,grid_y,shared_bytes,launches,time_s,repeat
RTX 3060,array_add_strided,size,40,,,,16,16,3,3,0,1,1e-4,0
RTX 3060,rgb_to_gray,size,40,,,,16,16,3,3,0,1,1e-4,0
RTX 3060,conv1d_global_mask,size,8192,5,,,512,1,16,1,0,1,1e-4,0
RTX 3060,conv1d_global_mask,size,64,5,,,512,1,1,1,0,1,1e-5,0
RTX 3060,conv1d_tiled,block,8192,5,,,64,1,128,1,272,1,1e-4,0
RTX 3060,conv1d_tiled,block,8192,5,,,64,1,128,1,272,1,1e-4,1
RTX 3060,conv2d_tiled,mask,100,5,1,,16,16,9,9,1024,1,1e-4,0
RTX 3060 Ti,matmul_tiled,block,100,,,,8,8,13,13,512,1,1e-4,0
RTX 3060 Ti,matmul_tiled_double,size,100,,,,16,16,13,7,3072,1,1e-4,0
RTX 3060 Ti,matvec_shared,block,100,,,,32,1,4,1,128,1,1e-4,0
RTX 3060 Ti,histogram_shared,block,1000,,,512,64,1,16,1,2048,1,1e-4,0
RTX 3060 Ti,reduction_4,size,1100000,,,,512,1,1075,1,2048,3,1e-4,0
RTX 3060 Ti,scan_three_phase,size,20000,,,,512,1,5,1,16384,3,1e-4,0
""".lstrip()


def test_rows_have_the_launch_shapes_that_the_data_states(tmp_path):
    with gzip.open(tmp_path / "nvbench.csv.gz", "wt", encoding="utf-8") as file:
        file.write(NVBENCH)
    # The one of 64 elements is an anomaly of the data, the repeated one is there once.
    stated = [line for line in csv.DictReader(NVBENCH.splitlines()) if line["n"] != "64" and line["repeat"] == "0"]
    found = list(nvbench.rows(tmp_path))
    assert [row.program for row in found] == [line["kernel"] for line in stated]
    assert {row.machine for row in found} == {"RTX-3060", "RTX-3060-Ti"}
    assert len({row.label for row in found}) == len(found)
    for row, line in zip(found, stated, strict=True):
        own = [(extract_scop(kernel), sizes) for kernel, sizes, _ in row.launches]
        own = [(scop, sizes) for scop, sizes in own if scop.name not in {"fill", "copy"}]
        assert len(own) == int(line["launches"]), row.label
        scop, sizes = own[0]
        (launch,) = scop.launches
        groups = [int(extent.evaluate(sizes)) for extent in launch.groups]
        assert [*groups, 1][:2] == [int(line["grid_x"]), int(line["grid_y"])], row.label
        assert [*launch.items, 1][:2] == [int(line["block_x"]), int(line["block_y"])], row.label
        local = sum(4 * int(np.prod([e.evaluate(sizes) for e in a.shape])) for a in scop.arrays if a.space == "local")
        assert local == int(line["shared_bytes"]), row.label


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "rows"),
    [("gpuperf/gpuperf.csv", gpuperf.rows), ("sgemm_variants/sgemm_a100.csv", gpuperf.rows_of_products)],
)
def test_grids_are_those_of_the_data(file, rows):
    if not (DATA / file).is_file():
        pytest.skip("needs the data of gpu_kernels beside the project, in shared/data")
    with (DATA / file).open(newline="") as stream:
        lines = [line for line in csv.DictReader(stream) if line["kernel"] != "shared_broadcast_one_block"]
    for row, line in zip(rows((DATA / file).parent), lines, strict=True):
        kernel, sizes, _ = row.launches[0]
        scop = kernel if isinstance(kernel, Scop) else extract_scop(kernel)
        assert int(scop.launches[0].group_count.evaluate(sizes)) == int(line["grid_x"]) * int(line["grid_y"]), row.label
        assert scop.launches[0].group_size == int(line["block_x"]) * int(line["block_y"]), row.label
