"""The kernels of PIRK methods against numpy, and a time step of both implementations against the exact solution."""

from __future__ import annotations

import numpy as np
import pytest
from test_values_wave import inside, laplacian

from perflex.errors import TagError
from uipick import ALL_GENERATORS, KernelCollection
from uipick.generators.grids import CORRECTIONS, PIRK_IMPLEMENTATIONS, STAGES, STEP, radau_iia

SIZES = (8, 4, 6)  # nx, ny, nz


def kernel_of(one, kernel, problem, radius, sizes=SIZES, **arguments):
    given = {"kernel": kernel, "problem": problem, "radius": radius, "dtype": "float64", "lsize_0": 4, "lsize_1": 2}
    given |= dict(zip(("nx", "ny", "nz"), sizes, strict=True)) | arguments
    return one("pirk", *(f"{name}:{value}" for name, value in given.items()))


def right_hand_side(stage, problem, radius, prev, speed):
    if problem == "heat3d":
        return laplacian(stage, radius) / 16
    applied = inside(speed, radius) * laplacian(stage, radius)
    return 2 * inside(stage, radius) - inside(prev, radius) + applied


def test_radau_iia_with_two_stages_is_the_textbook_s() -> None:
    matrix, nodes = radau_iia(2)
    np.testing.assert_allclose(matrix, [[5 / 12, -1 / 12], [3 / 4, 1 / 4]], rtol=1e-13)
    np.testing.assert_allclose(nodes, [1 / 3, 1], rtol=1e-13)


def test_radau_iia_with_four_stages_meets_the_order_conditions() -> None:
    matrix, nodes = radau_iia(STAGES)
    np.testing.assert_allclose(nodes, [0.0885879595127, 0.4094668644407, 0.7876594617608, 1], rtol=1e-11)
    for power in range(1, CORRECTIONS + 2):
        np.testing.assert_allclose(matrix[-1] @ nodes ** (power - 1), 1 / power, rtol=1e-12)
    for power in range(1, STAGES + 1):
        np.testing.assert_allclose(matrix @ nodes ** (power - 1), nodes**power / power, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "radius"), [("heat3d", 1), ("wave3d", 2), ("wave3d", 4)])
def test_each_kernel_is_what_its_equation_says(one, run, random, problem, radius) -> None:
    shape = tuple(size + 2 * radius for size in reversed(SIZES))
    f, stage = random.random((2, STAGES, *shape))
    y, dy, prev, speed = random.random((4, *shape))
    matrix, _ = radau_iia(STAGES)
    extra = {"prev": prev, "speed": speed} if problem == "wave3d" else {}
    values = np.array([right_hand_side(one_stage, problem, radius, prev, speed) for one_stage in stage])
    old, stored = inside(y, radius), np.array([inside(one_stage, radius) for one_stage in f])
    expected = {
        "rhs": ({"stage": stage, **extra}, values),
        "lc": ({"f": f, "y": y}, old + STEP * np.tensordot(matrix, stored, 1)),
        "app": ({"f": f}, np.tensordot(matrix[-1], stored, 1)),
        "up": ({"dy": dy, "y": y}, old + STEP * inside(dy, radius)),
        "rhs_lc": ({"stage": stage, "y": y, **extra}, old + STEP * np.tensordot(matrix, values, 1)),
        "rhs_app_up": ({"stage": stage, "y": y, **extra}, old + STEP * np.tensordot(matrix[-1], values, 1)),
    }
    for name, (inputs, result) in expected.items():
        kernel = kernel_of(one, name, problem, radius, chunk=3 if name == "rhs_lc" else 1)
        found = run(kernel.kernel, kernel.sizes, **inputs)
        within = found[(..., *(slice(radius, -radius),) * 3)]
        np.testing.assert_allclose(within, result, rtol=1e-11, atol=1e-12, err_msg=name)
        assert np.count_nonzero(found == -77) == found.size - within.size  # halos stay


@pytest.mark.slow
def test_a_time_step_of_both_implementations_solves_the_heat_equation(one, run, random) -> None:
    """Heat3D is linear: its solution after one step is the exponential of the matrix of F times the step size."""
    linalg = pytest.importorskip("scipy.linalg")
    sizes = (4, 2, 2)
    shape = tuple(size + 2 for size in reversed(sizes))
    start = np.pad(random.random(tuple(reversed(sizes))), 1)
    columns = []
    for place in np.ndindex(2, 2, 4):
        unit = np.zeros(shape)
        unit[tuple(index + 1 for index in place)] = 1
        columns.append(laplacian(unit, 1).ravel() / 16)
    exact = linalg.expm(STEP * np.array(columns).T) @ inside(start, 1).ravel()
    ends = {}
    for implementation in PIRK_IMPLEMENTATIONS:
        ends[implementation] = inside(_time_step(one, run, implementation, sizes, start), 1).ravel()
        # Order 7: what is left of the series in (step size times matrix), whose norm is below 0.4, is below 1e-7.
        np.testing.assert_allclose(ends[implementation], exact, atol=1e-7)
    np.testing.assert_allclose(ends["A"], ends["F"], rtol=1e-13)


def _time_step(one, run, implementation, sizes, start):
    """One time step, by as many launches of each kernel as the implementation says."""
    launches = dict.fromkeys(PIRK_IMPLEMENTATIONS[implementation], 0)

    def launch(name, **inputs):
        launches[name] += 1
        kernel = kernel_of(one, name, "heat3d", 1, sizes=sizes)
        found = run(kernel.kernel, kernel.sizes, **inputs)
        return np.where(found == -77, 0.0, found)

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


def test_the_heat_equation_has_a_radius_of_one() -> None:
    with pytest.raises(TagError, match="heat3d needs radius:1"):
        KernelCollection(ALL_GENERATORS).generate_kernels(["pirk", "kernel:rhs", "problem:heat3d", "radius:2"])
