"""Kernels of every generator against numpy on each platform, the features they are made for, and what is refused."""

import warnings
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import truth_applications
import truth_patterns
from truth import UNTOUCHED, rolled
from truth_applications import DIRECTIONS, SHARES, equilibrium, inside, laplacian, streamed
from truth_patterns import INTS, OPERATIONS, UPDATES, pattern, repeated, started

from perflex.errors import TagError
from perflex.features import kernel_feature_values
from support.building import built
from uipick import ALL_GENERATORS, KernelCollection
from uipick.generators.grids import CORRECTIONS, PIRK_IMPLEMENTATIONS, STAGES, STEP, radau_iia

KERNELS = truth_patterns.KERNELS | truth_applications.KERNELS
TOLERANCES = {"float32": 1e-5, "float64": 1e-11}


def rows():
    for reference, lines in KERNELS.items():
        for number, tags in enumerate(lines):
            yield pytest.param(reference, tags, id=tags, marks=[pytest.mark.slow] if number else [])


def truths(reference, tags):
    for kernel in KernelCollection(ALL_GENERATORS).generate_kernels(tags.split()):
        arguments = SimpleNamespace(generator=kernel.generator, sizes=kernel.sizes, **kernel.arguments)
        yield kernel, reference(arguments, np.random.default_rng(20))


@pytest.mark.parametrize(("reference", "tags"), list(rows()))
def test_results_are_numpy_s(run, reference, tags):
    for kernel, truth in truths(reference, tags):
        found, wanted = run(rolled(kernel.kernel), kernel.sizes, **truth.inputs), np.asarray(truth.result)
        if found.dtype.kind == "i":
            np.testing.assert_array_equal(found, wanted.reshape(found.shape))
        else:
            rtol = truth.rtol or TOLERANCES[found.dtype.name]
            # Sums nearly cancel in places.
            atol = rtol * min(1.0, np.abs(wanted).max())
            np.testing.assert_allclose(found, wanted.reshape(found.shape), rtol=rtol, atol=atol, err_msg=kernel.name)


@pytest.mark.parametrize(("reference", "tags"), list(rows()))
def test_features_are_those_promised(reference, tags):
    for kernel, truth in truths(reference, tags):
        found = kernel_feature_values(list(truth.features), kernel, kernel.sizes, 1)
        assert found == truth.features, kernel.name


def test_every_generator_is_run():
    run = {tags.split()[0] for lines in KERNELS.values() for tags in lines}
    plain = {generator.name for generator in ALL_GENERATORS if not generator.name.endswith(("_mem", "_core"))}
    # An empty kernel has no results.
    assert plain - run == {"empty"}


@pytest.mark.parametrize("operation", [*truth_patterns.FLOATS, *INTS])
def test_more_steps_of_a_chain_are_more_operations(one, operation):
    dtype = "float64" if operation in truth_patterns.FLOATS else "int64"
    tags = (f"operation:{operation}", f"dtype:{dtype}", "lsize_0:8", "chains:3", "nitems:16")
    feature = f"f_op_{dtype}_{operation}"
    few, many = (
        kernel_feature_values([feature], kernel, kernel.sizes, 1)[feature]
        for kernel in (one("op_chain", *tags, f"m:{m}") for m in (5, 9))
    )
    assert many - few == 4 * 3 * 16


def test_an_unrolled_pattern(one, run):
    tags = ("dtype:float32", "groups_fit:True", "lid_stride_1:32", "nvars:16", "nelements:1024", "m:128")
    kernel = one("flops_div_pattern", *tags)
    wanted = pattern(SimpleNamespace(generator="flops_div_pattern", **kernel.arguments), None).result
    assert len(np.unique(wanted)) == 2
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes), wanted)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "dtype"), [
    *product(sorted({*UPDATES} - {"bit", "shift"}), ("float32", "float64")),
    *product(("add", "mul", "madd", "bit"), ["int64"]),
])  # fmt: skip
def test_values_of_patterns_stay_harmless_for_any_number_of_iterations(operation, dtype):
    item = np.arange(1024)
    x = started(operation, item % 16, item // 16, 32, dtype)
    with np.errstate(all="raise"):
        for _ in range(4):
            x = repeated(operation, x, 250)
            magnitudes = np.abs(x)
            assert ((magnitudes == 0) | (magnitudes > 1e-5)).all()
            assert magnitudes.max() < 2048


@pytest.mark.parametrize("name", truth_patterns.FLOATS)
def test_values_of_chains_stay_harmless(name):
    """Denormal, infinite or undefined values would take another time than usual ones."""
    values = np.arange(1.0, 1002.0)
    for _ in range(300):
        values = OPERATIONS[name](values)
    assert np.isfinite(values).all()
    assert (np.abs(values[values != 0]) > 1e-30).all()


def test_empty_is_launched(one, contexts):
    import pyopencl as cl

    kernel = one("empty", "ngroups:16")
    for context in contexts:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            event, outputs = kernel.kernel.executor(context)(cl.CommandQueue(context), **kernel.sizes)
        event.wait()
        assert outputs == ()


def test_programs_of_several_launches_can_be_timed(one, default_device):
    from perflex.timing.launch.opencl import OpenCLBackend

    backend = OpenCLBackend(default_device)
    kernel = one("launches", "dtype:float32", "stages:2", "ngroups:16")
    runnable = built(backend, kernel.kernel, dict(kernel.sizes), kernel.name)
    assert all(time > 0 for time in runnable.run(3).seconds)
    assert runnable.read("result")[-1] == 16 * 256 - 1
    backend.close()


def test_the_directions_and_weights_are_a_lattice():
    corners_and_axes = {c for c in product((-1, 0, 1), repeat=3) if np.count_nonzero(c) != 2}
    assert {tuple(map(int, c)) for c in DIRECTIONS} == corners_and_axes
    assert SHARES.sum() == pytest.approx(1)
    second = np.einsum("q,qi,qj->ij", SHARES, DIRECTIONS, DIRECTIONS)
    np.testing.assert_allclose(second, np.eye(3) / 3, atol=1e-15)


@pytest.mark.slow
def test_collisions_conserve_mass_and_momentum_and_leave_an_equilibrium(one, run, random):
    tags = ("collide:bgk", "dtype:float64", "lsize_0:8", "lsize_1:4", "nx:8", "ny:4", "nz:4")
    kernel, shares = one("lbm_d3q15", *tags), SHARES[:, None, None, None]
    f = shares * (1 + 0.2 * random.random((15, 6, 6, 10)))
    before, after = streamed(f), inside(run(kernel.kernel, kernel.sizes, f=f), 1)
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after.sum(axis=0), before.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(DIRECTIONS.T @ after.reshape(15, -1), DIRECTIONS.T @ before.reshape(15, -1), atol=1e-15)
    moving = shares * (1 + 0.01 * DIRECTIONS @ [1, 2, 3])[:, None, None, None]
    steady = equilibrium(np.broadcast_to(moving, (15, 6, 6, 10)))
    np.testing.assert_allclose(inside(run(kernel.kernel, kernel.sizes, f=steady), 1), inside(steady, 1), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("radius", [1, 4])
def test_a_wave_that_finite_differences_solve_exactly(one, run, radius):
    """(x - t/4)^2 + 2 (y + t/4)^2 + z solves the wave equation with c = 1/16 in grid and time steps."""
    tags = (f"radius:{radius}", "speed:constant", "variant:plain", "dtype:float64", "lsize_0:8", "lsize_1:4")
    kernel = one("wave3d", *tags, "nx:8", "ny:4", "nz:4")
    z, y, x = np.meshgrid(*(np.arange(n + 2.0 * radius) for n in (4, 4, 8)), indexing="ij")
    old, u, new = ((x - t / 4) ** 2 + 2 * (y + t / 4) ** 2 + z for t in (-1, 0, 1))
    found = run(kernel.kernel, kernel.sizes, u=u, old=old)
    np.testing.assert_allclose(inside(found, radius), inside(new, radius), rtol=1e-13)


def test_radau_iia_is_the_textbook_s_with_two_stages_and_meets_the_order_conditions_with_four():
    matrix, nodes = radau_iia(2)
    np.testing.assert_allclose(matrix, [[5 / 12, -1 / 12], [3 / 4, 1 / 4]], rtol=1e-13)
    np.testing.assert_allclose(nodes, [1 / 3, 1], rtol=1e-13)
    matrix, nodes = radau_iia(STAGES)
    np.testing.assert_allclose(nodes, [0.0885879595127, 0.4094668644407, 0.7876594617608, 1], rtol=1e-11)
    for power in range(1, CORRECTIONS + 2):
        np.testing.assert_allclose(matrix[-1] @ nodes ** (power - 1), 1 / power, rtol=1e-12)
    for power in range(1, STAGES + 1):
        np.testing.assert_allclose(matrix @ nodes ** (power - 1), nodes**power / power, rtol=1e-11)


@pytest.mark.slow
def test_a_time_step_of_both_implementations_solves_the_heat_equation(one, run, random):
    """Heat3D is linear: its solution after one step is the exponential of the matrix of F times the step size."""
    linalg = pytest.importorskip("scipy.linalg")
    start = np.pad(random.random((2, 2, 4)), 1)
    columns = []
    for place in np.ndindex(2, 2, 4):
        unit = np.zeros((4, 4, 6))
        unit[tuple(index + 1 for index in place)] = 1
        columns.append(laplacian(unit, 1).ravel() / 16)
    exact = linalg.expm(STEP * np.array(columns).T) @ inside(start, 1).ravel()
    for implementation in PIRK_IMPLEMENTATIONS:
        # Order 7: what is left of the series in (step size times matrix), whose norm is below 0.4, is below 1e-7.
        np.testing.assert_allclose(inside(_time_step(one, run, implementation, start), 1).ravel(), exact, atol=1e-7)


def _time_step(one, run, implementation, start):
    """One time step, by as many launches of each kernel as the implementation says."""
    launches = dict.fromkeys(PIRK_IMPLEMENTATIONS[implementation], 0)
    tags = ("problem:heat3d", "radius:1", "dtype:float64", "lsize_0:4", "lsize_1:2", "nx:4", "ny:2", "nz:2")

    def launch(name, **inputs):
        launches[name] += 1
        kernel = one("pirk", f"kernel:{name}", *tags)
        found = run(kernel.kernel, kernel.sizes, **inputs)
        return np.where(found == UNTOUCHED, 0.0, found)

    stage = np.array([start] * STAGES)
    if implementation == "A":
        for _ in range(CORRECTIONS):
            stage = launch("lc", f=launch("rhs", stage=stage), y=start)
        end = launch("up", dy=launch("app", f=launch("rhs", stage=stage)), y=start)
    else:
        for _ in range(CORRECTIONS):
            stage = launch("rhs_lc", stage=stage, y=start)
        end = launch("rhs_app_up", stage=stage, y=start)
    assert launches == PIRK_IMPLEMENTATIONS[implementation]
    return end


REFUSED = {
    "matmul_sq groups_fit:True n:100": "groups_fit:True needs n % lsize_0 == 0 and n % lsize_1 == 0",
    "matmul_sq prefetch:True lsize_0:8": "prefetch:True needs lsize_0 == lsize_1",
    "matmul_sq lsize_0:64 lsize_1:64": "lsize_0 . lsize_1 <= 1024",
    "matmul_rb groups_fit:True n:48 rows:4": "n % .rows . lsize. == 0 and n % .columns",
    "matmul_rb rows:8 columns:8 lsize:32": "32 KiB", "transpose groups_fit:True n:50": "n % lsize == 0",
    "transpose lsize:33": "not allowed for argument 'lsize'",
    "transpose dtype:float32 variant:naive lsize:4 rows:8 groups_fit:True n:16": "lsize % rows == 0",
    "gemv groups_fit:True m:1000": "m % lsize_0 == 0", "axpy groups_fit:True n:1000": "n % lsize_0 == 0",
    "dot groups_fit:True n:256": "ngroups . lsize_0", "dot lsize_0:1": "lsize_0 >= 2",
    "matmul_batch order:32 per_group:2": "per_group <= 1024",
    "matmul_batch prefetch:True per_group:1": "prefetch:True needs per_group > 1",
    "nbody groups_fit:True n:100": "n % lsize_0 == 0",
    "dg_diff dtype:float32 variant:u_prefetch lsize_0:32": "variant == 'plain' or lsize_0 == lsize_1",
    "dg_diff dtype:float32 nelements:100 groups_fit:True": "nelements % lsize_0 == 0",
    "dg_diff dtype:float32 nunit_nodes:20 groups_fit:True": "nunit_nodes % lsize_1 == 0",
    "dg_diff dtype:float32 lsize_0:64 lsize_1:64": "<= 1024",
    "dg_diff dtype:float32 variant:transposed": "not allowed for argument 'variant'",
    "dg_diff_mem variant:plain keep:uUpreLD": "keep names access tags that the variant has",
    "fdiff groups_fit:True n:100": "n % .tile - 2. == 0", "conv2d filter_size:4": "odd integers from 1 to 31",
    "conv2d tile_x:9": "integers from 1 to 8",
    "conv2d groups_fit:True lsize_1:16 tile_y:3 ny:32": "ny % .lsize_1 . tile_y. == 0",
    "conv2d local:True tile_x:8 tile_y:8 lsize_0:16 lsize_1:16 dtype:float64 filter_size:3 groups_fit:False": "32 KiB",
    "conv2d lsize_0:64 lsize_1:32": "<= 1024",
    "conv2d_mem local:True tile_x:1 tile_y:1 groups_fit:False keep:outST": "stores alone need groups_fit:True",
    "gmem_pattern groups_fit:True lid_stride_1:8": "access the same element",
    "gmem_pattern groups_fit:True nelements:1000": "multiple of the larger gid stride",
    "gmem_pattern groups_fit:False gid_stride_0:16": "groups_fit:False needs gid strides of 0",
    "gmem_load lid_stride_0:33": "integers from 1 to 32", "gmem_load m:6": "m % chains == 0",
    "gmem_load m:16 lid_stride_0:32 nelements:1000": "nelements % .m . lid_stride_0. == 0",
    "gmem_load groups_fit:False": "not allowed",
    "gmem_store m:4 lid_stride_0:1 nelements:516": "nelements % .lsize_0 . m . lid_stride_0. == 0",
    "gmem_copy width:3": "allowed are",
    "gmem_copy width:4 nelements:1022 groups_fit:False": "nelements % .width. == 0",
    "gmem_reuse by:items afr:16 lsize_0:256": "by:items needs lsize_0 . afr <= 1024",
    "gmem_reuse afr:1": "integers from 2 to 1024",
    "gmem_uniform m:6": "m % chains == 0",
    "gmem_working_set working_set:1000": "working_set % .lsize_0 . lid_stride_0 . chains. == 0",
    "gmem_working_set groups_fit:False": "not allowed",
    "gmem_gather lsize_0:48": "nitems % lsize_0 == 0",
    "loop_sum lsize_0:48": "nitems % lsize_0 == 0",
    "op_map lsize_0:48": "nitems % lsize_0 == 0",
    "op_chain lsize_0:48": "nitems % lsize_0 == 0",
    "op_chain operation:exp dtype:int32": "operation in .*'floordiv'.* if dtype in",
    "grid_scale lsize_0:48 along:rows": "nx % .lsize_0 if along == 'rows' else lsize_1. == 0",
    "lmem_exchange halo:8 lsize_0:4": "halo <= lsize_0",
    "lmem_load lsize_0:256 lid_stride_0:32 dtype:float32": "2 . chains . lsize_0 . lid_stride_0 elements in at most 32",
    "lmem_load m:7": "m % chains == 0", "lmem_broadcast lsize_0:2 chains:2": "lsize_0 >= 2 . chains",
    "launches stages:17": "integers from 1 to 16", "small_groups nitems:100 lsize_0:16": "nitems % lsize_0 == 0",
    "small_groups lsize_0:2048": "integers from 1 to 1024", "overlap_madd m:2 chains:4": "chains <= m",
    "stencil3d points:7 variant:tile lsize_2:2": "variant:tile needs lsize_2 == 1",
    "stencil3d points:19 variant:column": "neighbours along the axes only",
    "stencil3d points:27 variant:tile lsize_0:256 lsize_1:4 nx:256 dtype:float64 ny:32 nz:4": "in 32 KiB",
    "stencil3d points:7 variant:plain lsize_0:32 lsize_1:32 lsize_2:2": "lsize_2 <= 1024",
    "stencil3d points:7 variant:plain nx:64 ny:32 nz:3 chunk:2": "nz % .lsize_2 . chunk. == 0",
    "stencil3d points:8": "value '8' is not allowed", "stencil3d chunk:0": "integers from 1 to 256",
    "stencil3d_mem points:7 variant:plain keep:uDLD": "access tags that the variant has",
    "stencil3d_mem points:7 variant:plain keep:vST_uCLD": "one or more of uCLD, .* in this order",
    "stencil3d_mem points:7 variant:plain keep:uCLD_uCLD": "in this order",
    "gsrb variant:stride2 groups_fit:True chunk:1 nx:12 ny:4 nz:4 lsize_0:4 lsize_1:4": "nx % .lsize_0 . .2 if",
    "gsrb variant:stride2 groups_fit:False chunk:1 nx:9 ny:4 nz:4": "variant:stride2 needs nx % 2 == 0",
    "pirk kernel:rhs problem:heat3d radius:2": "heat3d needs radius == 1",
}  # fmt: skip


@pytest.mark.parametrize("tags", REFUSED)
def test_what_cannot_be_made_is_refused_with_the_cause(tags):
    with pytest.raises(TagError, match=REFUSED[tags]):
        KernelCollection(ALL_GENERATORS).generate_kernels(tags.split())
