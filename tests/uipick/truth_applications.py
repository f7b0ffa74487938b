"""Matrices, vectors, particles, images and grids: tags of small kernels, and what they compute."""

from itertools import product
from math import factorial

import numpy as np
from truth import UNTOUCHED, Truth

from uipick.generators.grids import STAGES, STEP, radau_iia


def matmul(a, random):
    left, right = random.random((2, a.n, a.n)).astype(a.dtype)
    near = np.arange(a.n)
    if a.generator == "matmul_sq_core":  # work-groups go on in the places of the first `confined`
        near = near // a.lsize_0 % a.confined * a.lsize_0 + near % a.lsize_0
    return Truth({"a": left, "b": right}, left[near] @ right[:, near])


def matmul_sq_mem(a, random):
    """Each work-item sums what it loads: with prefetching, one element of each tile."""
    left, right = random.random((2, a.n, a.n))
    i, j = np.indices((a.n, a.n))
    steps = range(0, a.n, 16)
    if a.prefetch:
        sums = {"a": sum(left[i, k + j % 16] for k in steps), "b": sum(right[k + i % 16, j] for k in steps)}
    else:
        sums = {"a": left.sum(axis=1)[:, None], "b": right.sum(axis=0)}
    inputs = {name: array for name, array in (("a", left), ("b", right)) if f"{name}LD" in a.keep}
    return Truth(inputs, np.zeros((a.n, a.n)) + sum(sums[name] for name in inputs))


def matmul_batch(a, random):
    left, right = random.random((2, a.nbatch, a.order, a.order))
    return Truth({"a": left, "b": right}, left @ right)


def transpose(a, random):
    source = random.random((a.n, a.n)).astype(a.dtype)
    return Truth({"a": source}, source.T)


def gemv(a, random):
    matrix, x = random.random((a.n, a.m)), random.random(a.m)
    return Truth({"a": np.asarray(matrix, order="F" if a.layout == "columns" else "C"), "x": x}, matrix @ x)


def axpy(a, random):
    x = random.random(a.n)
    return Truth({"x": x}, 0.5 * x + UNTOUCHED)


def dot(a, random):
    x, y = random.random((2, a.n)).astype(a.dtype)
    return Truth({"x": x, "y": y}, [x.astype(float) @ y])


def nbody(a, random):
    body = (0.5 + random.random((4, a.n))).astype(a.dtype)
    distance = body[:3, None, :] - body[:3, :, None]
    pull = body[3] / ((distance**2).sum(axis=0) + 0.0625**2) ** 1.5
    return Truth({"body": body}, (pull * distance).sum(axis=2), rtol=1e-3 if a.dtype == "float32" else 1e-10)


def dg_diff(a, random):
    matrices = random.random((a.nmatrices, a.nunit_nodes, a.nunit_nodes)).astype(a.dtype)
    u = random.random((a.nelements, a.nunit_nodes)).astype(a.dtype)
    given = np.asfortranarray(u) if a.variant.endswith("transposed") else u
    return Truth({"diff_mat": matrices, "u": given}, np.einsum("mij,kj->mki", matrices, u))


def fdiff(a, random):
    u = random.random((a.n + 2, a.n + 2)).astype(a.dtype)
    inner = u[1:-1, 1:-1]
    return Truth({"u": u}, u[:-2, 1:-1] + u[1:-1, :-2] - 4 * inner + u[1:-1, 2:] + u[2:, 1:-1])


def conv2d(a, random):
    side = a.filter_size
    image = random.random((a.ny + side - 1, a.nx + side - 1)).astype(a.dtype)
    weights = random.random((side, side)).astype(a.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(image, (side, side))
    return Truth({"image": image, "filter": weights}, np.einsum("yxab,ab->yx", windows, weights))


# Grids: arrays have halos, which results leave as they are; axes are (z,) y and x.
WEIGHTS = (0.5, 0.0625, 0.03125, 0.015625, 0.0078125)


def with_halo(values, radius):
    """Return what an output array holds, of which leading axes have no halo."""
    space = 3 if values.ndim > 2 else 2
    return np.pad(values, [(0, 0)] * (values.ndim - space) + [(radius, radius)] * space, constant_values=UNTOUCHED)


def inside(array, radius):
    return array[(..., *(slice(radius, -radius),) * 3)]


def grid(a, random, radius, *more):
    """Return a random array on the grid with its halo."""
    extents = (a.nz, a.ny, a.nx) if hasattr(a, "nz") else (a.ny, a.nx)
    return random.random((*more, *(extent + 2 * radius for extent in extents))).astype(a.dtype)


def neighbour(u, radius, steps):
    """Return an array moved by steps along x, y (and z), on the interior points."""
    return u[tuple(slice(radius + s, n - radius + s) for s, n in zip(reversed(steps), u.shape, strict=True))]


def swept(u, radius, groups):
    """Return the sum over groups of neighbours with one weight each."""
    sums = [sum(neighbour(u, radius, steps) for steps in group) for group in groups]
    return sum(weight * total for weight, total in zip(WEIGHTS, sums, strict=False))


def cube(radius, dimensions):
    return list(product(range(-radius, radius + 1), repeat=dimensions))


def stencil2d(a, random):
    square, radius = cube(a.radius, 2), a.radius
    if a.shape == "star":
        groups = [[(x, y) for x, y in square if abs(x) + abs(y) == d and not (x and y)] for d in range(radius + 1)]
    else:
        groups = [[(0, 0)], [(x, y) for x, y in square if bool(x) != bool(y)], [(x, y) for x, y in square if x and y]]
    u = grid(a, random, radius)
    return Truth({"u": u}, with_halo(swept(u, radius, groups), radius))


def stencil3d(a, random):
    radius = 4 if a.points == 25 else 1
    if a.points in (7, 25):
        stars = [p for p in cube(radius, 3) if np.count_nonzero(p) <= 1]
        groups = [[p for p in stars if max(map(abs, p)) == distance] for distance in range(radius + 1)]
    else:
        groups = [[p for p in cube(1, 3) if sum(s * s for s in p) == d] for d in range(3 if a.points == 19 else 4)]
    assert sum(map(len, groups)) == a.points
    u = grid(a, random, radius)
    return Truth({"u": u}, with_halo(swept(u, radius, groups), radius))


def stencil3d_mem(a, random):
    """Each work-item sums what it loads for its chunk of planes."""
    axes = {"uCLD": [], "uXLD": [0], "uYLD": [1], "uZLD": [2]}
    wanted = [axes[tag] for tag in a.keep.split("_") if tag in axes]
    steps = [
        s for s in cube(1, 3) if np.flatnonzero(s).tolist() in wanted or ("uDLD" in a.keep and np.count_nonzero(s) == 2)
    ]
    u = grid(a, random, 1)
    planes = sum(neighbour(u, 1, s) for s in steps)
    return Truth({"u": u}, np.array([planes[k : k + a.chunk].sum(axis=0) for k in range(0, a.nz, a.chunk)]))


def second_derivative(radius):
    """Return weights of u(x - radius), ..., u(x + radius), from the Taylor series."""
    steps = np.arange(-radius, radius + 1)
    series = np.array([steps**p / factorial(p) for p in range(2 * radius + 1)])
    return np.linalg.solve(series, np.arange(2 * radius + 1) == 2)


def laplacian(u, radius):
    steps = [
        tuple(step if axis == moved else 0 for axis in range(3))
        for moved in range(3)
        for step in range(-radius, radius + 1)
    ]
    weights = [*second_derivative(radius)] * 3
    return sum(weight * neighbour(u, radius, step) for weight, step in zip(weights, steps, strict=True))


def wave3d(a, random):
    u, old, speed = grid(a, random, a.radius, 3)
    inputs = {"u": u, "old": old} | ({"speed": speed} if a.speed == "array" else {})
    applied = inside(speed, a.radius) if a.speed == "array" else 1 / 16
    result = 2 * inside(u, a.radius) - inside(old, a.radius) + applied * laplacian(u, a.radius)
    return Truth(inputs, with_halo(result, a.radius))


def gsrb(a, random):
    u, f = grid(a, random, 1, 2)
    centre = inside(u, 1)
    neighbours = sum(neighbour(u, 1, s) for s in cube(1, 3) if np.count_nonzero(s) == 1)
    k, j, i = np.indices(centre.shape)
    smoothed = np.where((i + j + k) % 2 == a.colour, centre + (inside(f, 1) + neighbours - 6 * centre) / 8, centre)
    inputs = {"u": u, "f": f}
    if a.variant == "fp":
        plane, j, i = np.indices((2, a.ny, a.nx))
        # Plane p stands for planes k of the grid with (k + colour) mod 2 = p.
        inputs["mask"] = ((i + j + plane) % 2 == 0).astype(np.float64)
    return Truth(inputs, with_halo(smoothed, 1))


# Half of the lattice's directions in the kernel's order; each is followed by its opposite, which comes first there.
FORWARD = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (1, 1, -1), (1, -1, 1), (-1, 1, 1)]
DIRECTIONS = np.array([(0, 0, 0), *(np.multiply(sign, c) for c in FORWARD for sign in (-1, 1))])
SHARES = np.array([{0: 2 / 9, 1: 1 / 9, 3: 1 / 72}[np.count_nonzero(c)] for c in DIRECTIONS])


def streamed(f):
    """Return each cell's values from the cells that the directions come from."""
    moved = [np.roll(values, c[::-1], axis=(0, 1, 2)) for values, c in zip(f, DIRECTIONS, strict=True)]
    return inside(np.array(moved), 1)


def equilibrium(f):
    rho = f.sum(axis=0)
    velocity = np.einsum("qi,qzyx->izyx", DIRECTIONS, f) / rho
    along = np.einsum("qi,izyx->qzyx", DIRECTIONS, velocity)
    square = (velocity**2).sum(axis=0)
    return SHARES[:, None, None, None] * rho * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)


def lbm_d3q15(a, random):
    f = (SHARES[:, None, None, None] * (1 + 0.2 * grid(a, random, 1, 15))).astype(a.dtype)
    result = streamed(f.astype(float))
    if a.collide == "bgk":
        result = (result + equilibrium(result)) / 2
    return Truth({"f": f}, with_halo(result, 1))


def pirk(a, random):
    """What the equation of each kernel of a PIRK method says."""
    matrix, _ = radau_iia(STAGES)
    f, stage = grid(a, random, a.radius, 2, STAGES)
    y, dy, prev, speed = grid(a, random, a.radius, 4)
    extra = {"prev": prev, "speed": speed} if a.problem == "wave3d" else {}

    def right_hand_side(at):
        if a.problem == "heat3d":
            return laplacian(at, a.radius) / 16
        return 2 * inside(at, a.radius) - inside(prev, a.radius) + inside(speed, a.radius) * laplacian(at, a.radius)

    values, old = np.array([right_hand_side(at) for at in stage]), inside(y, a.radius)
    inputs, result = {
        "rhs": ({"stage": stage, **extra}, values),
        "lc": ({"f": f, "y": y}, old + STEP * np.tensordot(matrix, inside(f, a.radius), 1)),
        "app": ({"f": f}, np.tensordot(matrix[-1], inside(f, a.radius), 1)),
        "up": ({"dy": dy, "y": y}, old + STEP * inside(dy, a.radius)),
        "rhs_lc": ({"stage": stage, "y": y, **extra}, old + STEP * np.tensordot(matrix, values, 1)),
        "rhs_app_up": ({"stage": stage, "y": y, **extra}, old + STEP * np.tensordot(matrix[-1], values, 1)),
    }[a.kernel]
    return Truth(inputs, with_halo(result, a.radius))


SPACE = "dtype:float64 lsize_0:8 lsize_1:4"
KERNELS = {
    matmul: [
        "matmul_sq dtype:float64 prefetch:True,False groups_fit:True lsize_0:8 lsize_1:8 n:24",
        "matmul_sq dtype:float64 prefetch:True,False groups_fit:False lsize_0:16 lsize_1:16 n:5,37",
        "matmul_sq dtype:float32 prefetch:False groups_fit:True lsize_0:32 lsize_1:4 n:32",
        "matmul_sq_core dtype:float64 prefetch:True,False groups_fit:True confined:2 lsize_0:8 lsize_1:8 n:40",
        "matmul_sq_core dtype:float64 prefetch:True,False groups_fit:False confined:2 lsize_0:8 lsize_1:8 n:37",
        "matmul_rb dtype:float64 rows:4 columns:2 lsize:16 groups_fit:True n:64",
        "matmul_rb dtype:float64 rows:2 columns:4 lsize:4 groups_fit:False n:3,33",
    ],
    matmul_sq_mem: [
        "matmul_sq_mem dtype:float64 prefetch:True,False groups_fit:True n:48 keep:aLD,bLD_cST",
        "matmul_sq_mem dtype:float64 prefetch:True,False groups_fit:True n:48 keep:cST,aLD_bLD_cST",
    ],
    matmul_batch: [
        "matmul_batch dtype:float64 order:4 per_group:8 prefetch:True,False groups_fit:True nbatch:24",
        "matmul_batch dtype:float64 order:3 per_group:4 prefetch:True,False groups_fit:False nbatch:1,9",
    ],
    transpose: [
        "transpose dtype:float32 variant:naive,tiled,padded lsize:5 groups_fit:True n:15",
        "transpose dtype:float32 variant:naive,tiled,padded lsize:16 groups_fit:False n:3,37",
        "transpose dtype:float32 variant:naive lsize:8 rows:4 groups_fit:True n:16",
        "transpose dtype:float32 variant:tiled,padded lsize:8 rows:4 groups_fit:False n:21",
    ],
    gemv: [
        "gemv dtype:float64 layout:rows,columns prefetch:True,False groups_fit:True lsize_0:32 n:64 m:96",
        "gemv dtype:float64 layout:rows,columns prefetch:True,False groups_fit:False lsize_0:32 n:37 m:50",
        "gemv dtype:float64 layout:rows,columns prefetch:True groups_fit:False lsize_0:32 n:3,100 m:1,100",
    ],
    axpy: [f"axpy dtype:float64 lsize_0:64 {more}" for more in ("groups_fit:True n:128", "groups_fit:False n:1,100")],
    dot: [
        "dot dtype:float32,float64 groups_fit:True lsize_0:16 ngroups:100 n:3200",
        "dot dtype:float32,float64 groups_fit:False lsize_0:12 ngroups:5 n:7,1000",
        "dot dtype:float64 groups_fit:False lsize_0:2 ngroups:2 n:1",
    ],
    nbody: [
        "nbody dtype:float32,float64 prefetch:True,False groups_fit:True lsize_0:32 n:64",
        "nbody dtype:float64 prefetch:True,False groups_fit:False lsize_0:32 n:5,75",
    ],
    dg_diff: [
        "dg_diff dtype:float64 groups_fit:True lsize_0:8 lsize_1:8 nmatrices:2 nunit_nodes:8 nelements:24",
        "dg_diff dtype:float64 groups_fit:False lsize_0:16 lsize_1:16 nmatrices:3 nunit_nodes:35 nelements:1,21",
        "dg_diff dtype:float32 variant:plain groups_fit:True lsize_0:32 lsize_1:4 nunit_nodes:12 nelements:64",
    ],
    fdiff: [
        "fdiff dtype:float32,float64 tile:6 groups_fit:True n:12",
        "fdiff dtype:float64 tile:18 groups_fit:True n:32", "fdiff dtype:float64 tile:16,32 groups_fit:False n:1,33",
    ],
    conv2d: [f"conv2d local:True,False lsize_0:8 lsize_1:4 {more}" for more in (
        "dtype:float64 filter_size:3 tile_x:2 tile_y:3 groups_fit:True nx:16 ny:12",
        "dtype:float64 filter_size:5 tile_x:2 tile_y:3 groups_fit:False nx:21 ny:13",
        "dtype:float32 filter_size:15 tile_x:1 tile_y:1 groups_fit:False nx:5 ny:30",
        "dtype:float64 filter_size:1,3 tile_x:1 tile_y:2 groups_fit:False nx:1 ny:1",
    )],
    stencil2d: [
        "stencil2d dtype:float64 shape:star,box radius:1 groups_fit:True nx:32 ny:16",
        "stencil2d dtype:float32 shape:star,box radius:3 groups_fit:False nx:19 ny:33",
        "stencil2d dtype:float64 shape:star radius:4 groups_fit:False nx:1 ny:2",
    ],
    stencil3d: [f"stencil3d {SPACE} {more}" for more in (
        "points:7,19,27 variant:plain lsize_2:2 chunk:1 groups_fit:True nx:16 ny:8 nz:6",
        "points:7,25,27 variant:tile lsize_2:1 chunk:3 groups_fit:True nx:8 ny:8 nz:6",
        "points:7,19,27 variant:plain lsize_2:2 chunk:3 groups_fit:False nx:19 ny:5 nz:11",
        "points:25 variant:column lsize_2:2 chunk:3 groups_fit:False nx:19 ny:5 nz:11",
        "points:7,25,27 variant:tile lsize_2:1 chunk:4 groups_fit:False nx:5 ny:9 nz:3",
    )],
    stencil3d_mem: [
        f"stencil3d_mem {SPACE} points:19 variant:plain lsize_2:2 chunk:2 groups_fit:False nx:9 ny:6 nz:5 keep:{keep}"
        for keep in ("uCLD_uXLD_uYLD_uZLD_uDLD", "uCLD", "uXLD_uYLD", "uZLD", "uDLD")
    ],
    wave3d: [f"wave3d {SPACE} {more}" for more in (
        "radius:1 variant:plain speed:constant,array groups_fit:True chunk:2 lsize_2:1 nx:16 ny:8 nz:4",
        "radius:2 variant:column speed:constant,array groups_fit:False chunk:3 lsize_2:2 nx:9 ny:5 nz:7",
        "radius:3 variant:tile speed:constant,array groups_fit:False chunk:3 lsize_2:1 nx:9 ny:5 nz:7",
        "radius:4 variant:plain speed:array groups_fit:False chunk:1 lsize_2:1 nx:3 ny:1 nz:1",
    )],
    gsrb: [f"gsrb dtype:float64 lsize_0:4 lsize_1:4 {more}" for more in (
        "variant:stride2 groups_fit:True chunk:2 colour:0 nx:16 ny:4 nz:4",
        "variant:stride2 groups_fit:False chunk:3 colour:1 nx:10 ny:5 nz:7",
        "variant:fp,branch groups_fit:False chunk:3 colour:0,1 nx:9 ny:5 nz:7",
    )],
    lbm_d3q15: [f"lbm_d3q15 lsize_0:8 lsize_1:4 collide:none,bgk {more}" for more in (
        "dtype:float32 groups_fit:True chunk:2 lsize_2:2 nx:16 ny:8 nz:4",
        "dtype:float64 groups_fit:False chunk:3 lsize_2:1 nx:9 ny:5 nz:7",
    )],
    pirk: [
        f"pirk dtype:float64 lsize_0:4 lsize_1:2 nx:8 ny:4 nz:6 kernel:{kernel} {more}"
        for more in ("problem:heat3d radius:1", "problem:wave3d radius:2,4")
        for kernel in ("rhs,lc,app,up,rhs_app_up", "rhs_lc chunk:3")
    ],
}  # fmt: skip
