"""Kernels of the data sets of GPUs' times: values against numpy, counts against Oclgrind and the data's grids."""

from __future__ import annotations

import gzip
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from perflex import load_machine
from perflex.features import Scop, Target, extract_scop, parse_feature
from tests.bench.real_gpus_parts import gpuperf, histograms, neusight, sgemm, simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from tests.bench.real_gpus_parts.rows import MeasuredRow

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "gpu_kernels"
FOLDERS = {
    "gpuperf": gpuperf,
    "sgemm_variants": sgemm,
    "neusight": neusight,
    "simulated_gpu": simulated,
}
ARRAYS = dict[str, Any]


def tiles_summed(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float64).reshape(-1, 512).sum(axis=1)


def divergent(a: ARRAYS) -> NDArray[Any]:
    extra = np.where(np.arange(len(a["A"])) % 2 < 1, 0.0001 * sum(range(128)), 0)
    return a["A"] + a["B"] + extra


def correlated(image: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), mask.shape)
    return np.asarray(np.einsum("ijkl,kl->ij", windows, mask))


def in_edge(outputs: NDArray[Any], n: int) -> NDArray[Any]:
    """Outputs of a convolution in an n by n image; what is not computed is 0, as the executor leaves it."""
    return np.pad(outputs, (0, n - len(outputs)))


def erf(x: NDArray[Any]) -> NDArray[Any]:
    from scipy.special import erf as of

    return np.asarray(of(x))


S = 1.25
POINTWISE: Mapping[str, Callable[[ARRAYS], NDArray[Any]]] = {
    "add": lambda a: a["a"] + a["b"],
    "mul": lambda a: a["a"] * a["b"],
    "div": lambda a: a["a"] / a["b"],
    "pow": lambda a: a["a"] ** a["b"],
    "addu": lambda a: a["a"] + S,
    "mulu": lambda a: a["a"] * S,
    "divu": lambda a: a["a"] * S,
    "powu": lambda a: a["a"] ** S,
    "relu": lambda a: np.maximum(a["a"], 0),
    "gelu": lambda a: a["a"] / 2 * (1 + erf(a["a"] / np.sqrt(2))),
    "tanh": lambda a: np.tanh(a["a"]),
}
# Sizes that leave work-groups partly idle where a kernel has guards, the output, and its reference.
CASES: dict[str, tuple[Any, dict[str, int], str, Callable[[ARRAYS], NDArray[Any]]]] = {
    "vector_add": (gpuperf, {"n": 300}, "C", lambda a: a["A"] + a["B"]),
    "saxpy": (gpuperf, {"n": 300}, "C", lambda a: 2 * a["A"] + a["B"]),
    "vector_add_divergent": (gpuperf, {"n": 300}, "C", divergent),
    "strided_copy_8": (gpuperf, {"n": 300}, "C", lambda a: np.where(np.arange(2400) % 8 < 1, a["A"], 0)),
    "gather_constant_index": (gpuperf, {"n": 300}, "B", lambda a: a["A"][a["idx"]]),
    "naive_transpose": (gpuperf, {"n": 40}, "B", lambda a: a["A"].T),
    "shared_transpose": (gpuperf, {"n": 64}, "B", lambda a: a["A"].T),
    "reduce_sum": (gpuperf, {"n": 1024}, "out", lambda a: tiles_summed(a["A"])),
    "dot_product": (gpuperf, {"n": 1024}, "out", lambda a: tiles_summed(a["A"] * a["B"])),
    "conv2d_3x3": (gpuperf, {"n": 40}, "out", lambda a: in_edge(correlated(a["img"], a["mask"]), 40)),
    "conv2d_7x7": (gpuperf, {"n": 40}, "out", lambda a: in_edge(correlated(a["img"], a["mask"]), 40)),
    "matmul_naive": (gpuperf, {"n": 40}, "C", lambda a: a["A"] @ a["B"]),
    "matmul_tiled": (gpuperf, {"n": 64}, "C", lambda a: a["A"] @ a["B"]),
    "naive": (sgemm, {"n": 40}, "C", lambda a: a["A"] @ a["B"]),
    **{
        name: (sgemm, {"n": 64}, "c", lambda a: a["a"] @ a["b"]) for name in ("tiled16", "microtile2x2", "microtile4x1")
    },
    **{name: (neusight, {"n": 200}, "out", reference) for name, reference in POINTWISE.items()},
}


@cache
def kernels(module: Any) -> dict[str, Any]:
    return dict(module.programs())


def inputs(kernel: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Random inputs; an index is inside."""
    from pymbolic import evaluate

    random = np.random.default_rng(5)
    found: dict[str, Any] = {}
    for argument in kernel.default_entrypoint.args:
        if not hasattr(argument, "shape"):
            if argument.name not in sizes:
                found[argument.name] = S
            continue
        shape = tuple(int(evaluate(extent, dict(sizes))) for extent in argument.shape)
        dtype = argument.dtype.numpy_dtype
        if argument.name in kernel.default_entrypoint.get_written_variables():
            found[argument.name] = np.zeros(shape, dtype)
        elif dtype.kind == "i":
            found[argument.name] = random.integers(0, 9, shape).astype(dtype)
        else:
            found[argument.name] = (0.5 + random.random(shape)).astype(dtype)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_values(name: str, contexts: list[Any]) -> None:
    import pyopencl as cl
    import pyopencl.array as cla
    from loopy.diagnostic import ParameterFinderWarning

    module, sizes, output, reference = CASES[name]
    kernel = kernels(module)[name]
    given = inputs(kernel, sizes)
    expected = reference(given)
    queue = cl.CommandQueue(contexts[0])
    arrays = {key: cla.to_device(queue, one) if isinstance(one, np.ndarray) else one for key, one in given.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        # Sizes are given, so whether loopy could find them from the arrays' shapes does not matter.
        warnings.simplefilter("ignore", ParameterFinderWarning)
        kernel.executor(contexts[0])(queue, **sizes, **arrays)
    np.testing.assert_allclose(arrays[output].get(), expected, rtol=2e-4, atol=2e-5)


def test_vectors_change_no_bytes_and_operations() -> None:
    sizes, plain, counted = {"n": 200}, extract_scop(kernels(neusight)["add"]), neusight.kernel_of("add")
    for identifier in ("f_op_float32_add", "f_mem_access_global_load"):
        feature = parse_feature(identifier)
        assert feature.value(counted, sizes, Target()) == feature.value(plain, sizes, Target()), identifier


def test_element_wise_operators_move_16_bytes_with_an_instruction() -> None:
    scop, target = neusight.kernel_of("add"), Target(32, load_machine("V100"))
    sizes = {"n": 128 * 1000}
    sub_groups = 4 * 1000
    expected = {"f_inst_ldst_global": 3, "f_l1_wavefronts": 12, "f_txn_global": 48}
    for identifier, each in expected.items():
        assert parse_feature(identifier).value(scop, sizes, target) == each * sub_groups


def test_updates_of_one_address() -> None:
    # 256 work-items of a work-group update a bin in local memory each, then a bin of their own in global memory.
    scop = histograms.histogram()
    assert parse_feature("f_op_uint32_atomic").value(scop, {"n": 512}, Target()) == 2 * 2 * 8
    hotspot = histograms.atomic_hotspot()
    assert parse_feature("f_op_uint32_atomic").value(hotspot, {"n": 512, "iters": 50}, Target()) == 16 * 50


def rows_of(folder: str, module: Any) -> list[MeasuredRow]:
    if not (DATA / folder).is_dir():
        pytest.skip("needs the data of gpu_kernels beside the project, in shared/data")
    return list(module.rows(DATA / folder))


@pytest.mark.machine
@pytest.mark.slow
def test_grids_are_those_of_the_data() -> None:
    import csv

    for folder, module in (("gpuperf", gpuperf), ("sgemm_variants", sgemm)):
        found = rows_of(folder, module)
        (path,) = (path for path in (DATA / folder).glob("*.csv") if "counters" not in path.name)
        with path.open(newline="") as stream:
            lines = [line for line in csv.DictReader(stream) if line["kernel"] != "shared_broadcast_one_block"]
        for row, line in zip(found, lines, strict=True):
            kernel, sizes, _ = row.launches[0]
            scop = kernel if isinstance(kernel, Scop) else extract_scop(kernel)
            groups = int(scop.launches[0].group_count.evaluate(sizes))
            assert groups == int(line["grid_x"]) * int(line["grid_y"]), row.label
            assert scop.launches[0].group_size == int(line["block_x"]) * int(line["block_y"]), row.label


@pytest.mark.machine
@pytest.mark.slow
def test_grids_of_operators_are_those_of_the_data() -> None:
    import csv

    found = iter(rows_of("neusight", neusight))
    with gzip.open(DATA / "neusight" / "vector_ops.csv.gz", "rt", newline="") as stream:
        for line in csv.DictReader(stream):
            if line["op"] not in neusight.ELEMENTWISE:
                continue
            row = next(found)
            scop, sizes, launches = row.launches[0]
            groups = int(scop.launches[0].group_count.evaluate(sizes))
            assert groups == int(line["grid_x"]), row.label
            assert scop.launches[0].group_size == int(line["block_x"]) * int(line["block_y"])
            assert launches == int(line["launches"])
