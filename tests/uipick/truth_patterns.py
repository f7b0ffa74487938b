"""Patterns of memory accesses, arithmetic and launches: tags of small kernels, and what they compute."""

from itertools import cycle

import numpy as np
from truth import UNTOUCHED, Truth, places

# Offsets of the earlier values, and the update.
UPDATES = {
    "add": ((13, 11), np.add), "mul": ((13, 11), np.multiply), "madd": ((13, 11), np.add),
    "div": ((13, 14), np.divide), "bit": ((0, 13, 11), lambda own, x, y: own ^ (x & y)), "shift": ((13,), lambda x: x),
    "sqrt": ((13,), np.sqrt), "rsqrt": ((13,), lambda x: 1 / np.sqrt(x)), "exp": ((13,), lambda x: np.exp(-x)),
    "sin": ((13,), np.sin), "cos": ((13,), np.cos),
}  # fmt: skip


def started(operation, i, j, nvars, dtype="float64"):
    """Return the variables of a pattern before its first round, for work-items (i, j)."""
    item, odd = i + 16 * j, (i + j) % 2
    sign, one = 1 - 2 * odd, 0 * item + 1
    if operation in {"add", "madd"}:
        values = [item + 1, item, -one, -item - 1, -item, one]
    elif operation == "mul":
        values = [sign, -sign, one, sign, one]
    elif operation == "div":
        b, a = 8.0 * one, np.where(odd, 4.0, 2.0)
        values = [a, b, b / a, 1 / a, 1 / b, a / b]
    else:
        first = 0 if operation in {"bit", "shift", "cos", "exp"} else 1
        values = [(item + v) % 37 if operation == "exp" else item + v + first for v in range(nvars)]
    return [np.asarray(values[v % len(values)]).astype(dtype) for v in range(nvars)]


def repeated(operation, x, rounds):
    offsets, function = UPDATES[operation]
    for _ in range(rounds):
        for v in range(len(x)):
            x[v] = function(*(x[(v - back) % len(x)] for back in offsets))
    return x


def pattern(a, _):
    kind, operation, _ = a.generator.split("_")
    rows, columns = a.nelements // a.lid_stride_1, a.lid_stride_1
    x = started(operation, *places(rows, columns), a.nvars, a.dtype if kind == "iops" else "float64")
    result = np.full(a.nelements, UNTOUCHED, x[0].dtype)
    result[: rows * columns] = sum(repeated(operation, x, a.m)).ravel()
    return Truth({}, result, rtol=2e-5 if a.dtype == "float32" else 1e-12)


def flops_chain(a, _):
    i, j = places(a.nelements // a.lid_stride_1, a.lid_stride_1)
    item = (i + 16 * j).ravel()
    return Truth({}, sum(item + c + a.m * (1 + item % 2) for c in range(a.chains)))


OPERATIONS = {
    "add": lambda x: 1 - x, "mul": lambda x: x, "madd": lambda x: x + 1, "div": lambda x: 0.5 / x, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.sqrt, "exp": lambda x: np.exp(-x), "log": lambda x: np.log(x + 2),
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "min": lambda x: np.minimum(1 - x, 0.5),
    "max": lambda x: np.maximum(1 - x, 0.5), "abs": lambda x: np.abs(x - 1), "floordiv": lambda x: 1000000 // x,
    "mod": lambda x: (x + 1000000) % 997,
}  # fmt: skip
MAPS = {
    "madd": lambda x, y: x * y + x, "div": np.divide, "sqrt": lambda x, _: np.sqrt(x), "exp": lambda x, _: np.exp(x),
    "log": lambda x, _: np.log(x), "sin": lambda x, _: np.sin(x), "cos": lambda x, _: np.cos(x),
    "tanh": lambda x, _: np.tanh(x), "rsqrt": lambda x, _: 1 / np.sqrt(x), "pow": np.power, "min": np.minimum,
    "max": np.maximum, "abs": lambda x, _: np.abs(x),
}  # fmt: skip


def op_chain(a, _):
    values = (1 + np.arange(a.nitems)[:, None] % 997 + np.arange(a.chains)).astype(a.dtype)
    for _ in range(a.m):
        values = OPERATIONS[a.operation](values)
    return Truth({}, values.sum(axis=1), {"f_mem_access_tag:resST": a.nitems}, rtol=1e-4)


def op_map(a, random):
    x, y = 0.5 + random.random((2, a.nitems))
    arrays = {"x": x, "y": y} if a.operation in {"madd", "div", "pow", "min", "max"} else {"x": x}
    result = x
    for _ in range(a.applied):
        result = MAPS[a.operation](result, y)
    features = {
        f"f_op_float64_{a.operation}": a.applied * a.nitems,
        "f_mem_access_global_float64_lstrides:{0:1}": (len(arrays) + 1) * a.nitems,
    }
    return Truth(arrays, result, features, rtol=1e-10)


def gmem_pattern(a, random):
    inputs = random.random((a.n_arrays, a.nelements)).astype(a.dtype)
    large, small = max(a.lid_stride_0, a.lid_stride_1), min(a.lid_stride_0, a.lid_stride_1)
    j, i = np.indices((a.nelements // large, large // small))
    touched = np.zeros(a.nelements, bool)
    touched[large * j + small * i] = True
    features = {}
    if a.groups_fit:
        strides = f"lstrides:{{0:{a.lid_stride_0};1:{a.lid_stride_1}}}"
        features[f"f_mem_access_global_{a.dtype}_load_{strides}_afr:1"] = a.n_arrays * touched.sum()
    named = {f"in{number}": array for number, array in enumerate(inputs)}
    return Truth(named, np.where(touched, inputs.sum(axis=0), UNTOUCHED), features)


def gmem_load(a, random):
    items = a.nelements // a.m // a.lid_stride_0
    source = random.random((a.m // a.chains, a.chains, items, a.lid_stride_0)).astype(a.dtype)
    features = {
        f"f_mem_access_global_{a.dtype}_load_lstrides:{{0:{a.lid_stride_0}}}_afr:1": a.m * items,
        "f_mem_access_tag:inLD": a.m * items,
        f"f_mem_access_global_{a.dtype}_store_lstrides:{{0:1}}": items,
        f"f_op_{a.dtype}_add": (a.m + a.chains - 1) * items,
    }
    return Truth({"in0": source}, source[..., 0].sum(axis=(0, 1)), features)


def gmem_store(a, _):
    items = a.nelements // a.m // a.lid_stride_0
    result = np.full((a.m, items, a.lid_stride_0), float(UNTOUCHED))
    result[:, :, 0] = np.arange(items)
    return Truth(
        {}, result, {f"f_mem_access_global_{a.dtype}_store_lstrides:{{0:{a.lid_stride_0}}}_afr:1": a.m * items}
    )


def gmem_stream(a, random):
    x, y = random.random((2, a.nelements // a.width, a.width)[: 3 if a.width > 1 else 2]).astype(a.dtype)
    operation = a.generator.removeprefix("gmem_")
    result = {"copy": x, "scale": 3 * x, "add": x + y, "triad": x + 3 * y}[operation]
    inputs = {"a": x, "b": y} if operation in {"add", "triad"} else {"a": x}
    accesses = f"f_mem_access_global_{a.dtype}_lstrides:{{0:{a.width}}}_afr:1"
    return Truth(inputs, result, {accesses: (len(inputs) + 1) * a.nelements})


def gmem_reuse(a, random):
    items = a.nelements // a.m
    source = random.random((a.m // 4, 4, items)).astype(a.dtype)
    # Four chains start at the place among those that share the elements.
    result = source.sum(axis=(0, 1)) + 4 * np.arange(a.afr)[:, None]
    shared = "gstrides:{1:0}" if a.by == "groups" else "lstrides:{1:0}"
    loads = f"f_mem_access_global_{a.dtype}_load"
    return Truth(
        {"in0": source},
        result,
        dict.fromkeys((f"{loads}_lstrides:{{0:1}}_afr:{a.afr}", f"{loads}_{shared}"), result.size * a.m),
    )


def gmem_uniform(a, random):
    own = a.by == "groups"
    source = random.random((a.ngroups, a.m // a.chains, a.chains) if own else (a.m // a.chains, a.chains))
    source = source.astype(a.dtype)
    sums = np.atleast_1d(source.sum(axis=(-2, -1)))[:, None]
    start = a.chains * np.arange(a.lsize_0)
    ratio = a.lsize_0 if own else a.lsize_0 * a.ngroups
    # Uniform accesses are counted once for each sub-group, here of one work-item.
    loads = f"f_mem_access_global_{a.dtype}_load_lstrides:{{0:0}}"
    features = dict.fromkeys((loads, f"{loads}_afr:{ratio}"), a.m * a.ngroups * a.lsize_0)
    return Truth({"in0": source}, sums + start + np.zeros((a.ngroups, 1)), features)


def gmem_working_set(a, random):
    rows = a.working_set // (a.lsize_0 * a.lid_stride_0 * a.chains)
    shape = (rows, a.chains, a.lsize_0, a.lid_stride_0)
    source = random.random(shape if a.shared else (a.ngroups, *shape)).astype(a.dtype)
    sums = source[..., 0].sum(axis=(-3, -2))
    result = a.m * np.broadcast_to(sums, (a.ngroups, a.lsize_0)) + a.chains * np.arange(a.lsize_0)
    sharing = a.m * (a.ngroups if a.shared else 1)
    loads = f"f_mem_access_global_{a.dtype}_load_lstrides:{{0:{a.lid_stride_0}}}_afr:{sharing}"
    features = {loads: a.ngroups * a.lsize_0 * a.chains * rows * a.m, "f_sync_barrier_local": a.m}
    return Truth({"in0": source}, result, features)


def gmem_gather(a, random):
    source = random.random(a.window).astype(a.dtype)
    where = (a.spread * np.arange(a.nitems)[:, None] + a.step * np.arange(a.m)) % a.window
    return Truth({"in0": source}, source[where].sum(axis=1), {"f_mem_access_tag:inLD": a.nitems * a.m})


def grid_scale(a, random):
    shape = (a.ny, a.nx)
    inputs = {f"u{number}": random.random(shape) for number in range(a.n_arrays)}
    if a.store == "update":
        inputs["u0"] = np.full(shape, float(UNTOUCHED))
    result = 0.5 * sum(inputs.values())
    if a.store == "update":
        del inputs["u0"]
    points, stride = a.nx * a.ny, 1 if a.along == "rows" else a.nx
    features = {f"f_mem_access_global_float64_load_lstrides:{{0:{stride}}}": a.n_arrays * points}
    return Truth(inputs, result, features | dict.fromkeys(("f_mem_access_tag:u0LD", "f_mem_access_tag:vST"), points))


def loop_sum(a, random):
    columns, item = a.layout == "columns", a.factor == "item"
    x = random.random((a.m, a.nitems) if columns else (a.nitems, a.m))
    s = random.random(a.nitems if item else a.m)
    result = UNTOUCHED + ((x if columns else x.T) * (s if item else s[:, None])).sum(axis=0)
    stores = a.nitems * (a.m if a.sum_in == "global" else 1)
    return Truth({"a": x, "s": s}, result, {"f_mem_access_tag:yST": stores, "f_op_float64_madd": a.nitems * a.m})


def lmem_exchange(a, _):
    values = np.arange(a.lsize_0)[:, None] + np.arange(a.nvars, dtype=np.float64)
    tile = np.zeros(a.lsize_0 + a.halo)
    tile[a.halo :] = values[:, 0]
    for _ in range(a.m):
        tile[: a.lsize_0] = values[:, 0]
        values = tile[a.halo :, None] + values
    features = {"f_sync_barrier_local": 2 * a.m + 1, "f_mem_access_tag:xLD": a.ngroups * a.lsize_0 * a.m}
    return Truth({}, np.broadcast_to(values.sum(axis=1), (a.ngroups, a.lsize_0)), features)


def lmem_load(a, _):
    outer, inner = a.sizes["m_outer"], a.sizes["m_inner"]
    assert outer * inner * a.chains == a.m
    contents = np.arange(inner)[:, None] + np.arange(a.chains) + 1
    result = a.chains * np.arange(a.lsize_0) + outer * contents.sum() + np.zeros((a.ngroups, 1))
    local = f"lstrides:{{0:{a.lid_stride_0}}}"
    features = {
        f"f_mem_access_local_{a.dtype}_load_{local}": a.m * result.size,
        f"f_mem_access_local_{a.dtype}_store_{local}": inner * a.chains * result.size,
        f"f_op_{a.dtype}_add": (a.m + a.chains - 1) * result.size,
    }
    return Truth({}, result, features)


def lmem_broadcast(a, _):
    outer, inner = a.sizes["m_outer"], a.sizes["m_inner"]
    assert outer * inner * a.chains == a.m
    result = a.chains * np.arange(a.lsize_0) + outer * np.arange(inner * a.chains).sum() + np.zeros((a.ngroups, 1))
    loads = f"f_mem_access_local_{a.dtype}_load_lstrides:{{0:0}}"
    return Truth({}, result, {loads: a.m * result.size, "f_sync_barrier_local": 1})


def lmem_move(a, _):
    outer, inner = a.sizes["m_outer"], a.sizes["m_inner"]
    assert outer * inner == a.m
    # Large work-groups have fewer rows.
    assert inner == (2 if a.lsize_0 == 32 else 8)
    i, j = places(a.nelements // a.lid_stride_1, a.lid_stride_1, (a.lsize_0, a.lsize_1))
    return Truth({}, (i + a.lsize_0 * j + inner - 1).ravel())


def lmem_madd(a, _):
    i, j = places(a.nelements // a.lid_stride_1, a.lid_stride_1)
    column = a.depth // 16 * (16 * i + 16 * np.arange(16).sum())
    return Truth({}, (i + 16 * j + (column if a.m % 2 else 0)).ravel())


def overlap_ratio(a, random):
    assert a.sizes["m_outer"] * a.sizes["m_inner"] == a.m
    assert a.sizes["m_inner"] == min(a.m, 8)
    source = random.random(a.nelements)
    return Truth({"in0": source}, source)


def overlap_madd(a, random):
    n, matrices = a.n, dict(zip("ab", random.random((2, a.n, a.n)), strict=True))
    i, j = np.indices((n, n))
    x = [16.0 * (i % 16) + j % 16 + chain for chain in range(a.chains)]
    for k in range(n):
        row, column = matrices["a"][:, k : k + 1], matrices["b"][k : k + 1, :]
        values = {"uniform": [row], "unit": [column], "both": [row, column]}[a.load]
        for u in range(a.m):
            factor = row if u == 0 and a.load == "both" else 0.5
            addend = values[-1] if u == 0 else values[u % len(values)]
            x[u % a.chains] = x[u % a.chains] * factor + addend
    inputs = {name: matrices[name] for name in {"uniform": "a", "unit": "b", "both": "ab"}[a.load]}
    return Truth(inputs, sum(x))


def barrier_local(a, _):
    i, j = places(a.nelements // a.lid_stride_1, a.lid_stride_1)
    features = {
        "f_sync_barrier_local": a.m,
        "f_mem_access_tag:resST": a.nelements,
        "f_thread_groups": a.nelements // 256,
    }
    return Truth({}, (i + 16 * j).ravel(), features)


def launches(a, _):
    items = np.arange(a.ngroups * a.lsize_0).reshape(a.ngroups, a.lsize_0)
    return Truth({}, np.broadcast_to(items, (a.stages, *items.shape)), {"f_sync_kernel_launch": a.stages})


def small_groups(a, _):
    features = {"f_thread_groups": a.nitems // a.lsize_0, "f_mem_access_tag:resST": a.nitems}
    return Truth({}, np.arange(a.nitems), features)


GRID, FIT = "lid_stride_1:32", "groups_fit:True lid_stride_1:32 nelements:1024"
FLOATS, INTS = list(OPERATIONS)[:15], ["mul", "madd", "floordiv", "mod"]
# The first row of each is quick; of the others, `make test-all` runs what they say.
KERNELS = {
    pattern: [
        f"flops_div_pattern dtype:float32 {FIT} nvars:16 m:64",
        *(f"flops_{op}_pattern dtype:{dtype} {FIT} nvars:{nvars} m:{m}" for op, dtype, nvars, m in (
            ("add", "float32", 16, 64), ("mul", "float32", 16, 64), ("madd", "float32", 32, 64),
            ("div", "float64", 32, 128), ("sqrt", "float64", 16, 64), ("rsqrt", "float32", 32, 2),
            ("rsqrt", "float64", 16, 7), ("exp", "float32", 32, 3), ("exp", "float64", 16, 1),
            ("sin", "float32", 16, 3), ("cos", "float64", 16, 3),
        )),
        *(f"iops_{op}_pattern dtype:{dtype} {FIT} nvars:{nvars} m:64" for op, dtype, nvars in (
            ("add", "int32", 16), ("mul", "int32", 32), ("madd", "int32", 16), ("bit", "int32", 32),
            ("shift", "int64", 16),
        )),
        *(f"{name} groups_fit:False lid_stride_1:40 nvars:16 nelements:830 m:64" for name in (
            "flops_add_pattern dtype:float64", "iops_bit_pattern dtype:int32", "flops_exp_pattern dtype:float64",
        )),
    ],
    flops_chain: [f"flops_{op}_chain dtype:float32 {FIT} chains:1,3 m:100" for op in ("add", "madd")],
    op_chain: [
        f"op_chain operation:{operation} dtype:{dtype} lsize_0:8 chains:3 nitems:16 m:5"
        for operation, dtype in (*zip(FLOATS, cycle(("float32", "float64"))), *zip(INTS, cycle(("int32", "int64"))))
    ],
    op_map: [
        f"op_map operation:{operation} applied:{1 if operation == 'log' else 2} dtype:float64 lsize_0:8 nitems:24"
        for operation in MAPS
    ],
    gmem_pattern: [
        *(f"gmem_pattern dtype:float64 groups_fit:False n_arrays:1 lid_stride_0:{s0} lid_stride_1:{s1} nelements:{n}"
          for s0, s1, n in ((1, 40, 1700), (40, 1, 1700), (2, 60, 1000))),
        *(f"gmem_pattern dtype:float32 groups_fit:True n_arrays:3 lid_stride_0:{s0} lid_stride_1:{s1} nelements:{more}"
          for s0, s1, more in (
              (1, 64, "2048"), (2, 64, "4096"), (64, 1, "2048"), (3, 48, "1536"),
              (1, 16, "2048 gid_stride_0:512 gid_stride_1:256"), (1, 2048, "4096 lsize_0:256 lsize_1:1"),
          )),
    ],
    gmem_load: [
        "gmem_load dtype:float32 lsize_0:16 lid_stride_0:2 chains:16 nelements:1024 m:16",
        "gmem_load dtype:float64 lsize_0:16 lid_stride_0:32 chains:1 nelements:4608 m:3",
        "gmem_load dtype:float64 lsize_0:7 lid_stride_0:5 chains:2 nelements:420 m:4",
    ],
    gmem_store: [
        "gmem_store dtype:float32 lsize_0:7 lid_stride_0:3 nelements:126 m:2",
        "gmem_store dtype:float64 lsize_0:16 lid_stride_0:32 nelements:1024 m:1",
    ],
    gmem_stream: [
        "gmem_triad dtype:float32 lsize_0:64 width:4 groups_fit:True nelements:512",
        *(f"gmem_{operation} dtype:float32 lsize_0:64 width:{width} groups_fit:{fit} nelements:{n}"
          for operation in ("copy", "scale", "add", "triad")
          for width, fit, n in ((1, True, 512), (1, False, 501), (2, False, 74))),
        "gmem_copy dtype:float64 lsize_0:4 width:8,16 groups_fit:True nelements:512",
    ],
    gmem_reuse: [
        "gmem_reuse dtype:float64 lsize_0:16 by:groups,items afr:3 nelements:128 m:4",
        "gmem_reuse dtype:float32 lsize_0:7 by:groups,items afr:64 nelements:84 m:4",
    ],
    gmem_uniform: ["gmem_uniform dtype:float32 lsize_0:16 by:launch,groups chains:2 ngroups:3 m:8"],
    gmem_working_set: [
        f"gmem_working_set dtype:float64 shared:True,False ngroups:3 {more}" for more in (
            "lsize_0:16 lid_stride_0:1 chains:4 working_set:192 m:2",
            "lsize_0:64 lid_stride_0:4 chains:1 working_set:512 m:5",
        )
    ],
    gmem_gather: [f"gmem_gather dtype:float64 lsize_0:8 nitems:24 m:5 {more}"
                  for more in ("spread:1 step:33 window:64", "spread:17 step:3 window:50")],
    grid_scale: [f"grid_scale dtype:float64 store:stream,update {more}" for more in (
        "along:rows n_arrays:1 lsize_0:4 lsize_1:2 nx:8 ny:6", "along:columns n_arrays:2 lsize_0:2 lsize_1:4 nx:8 ny:6",
        "along:rows n_arrays:3 lsize_0:16 lsize_1:1 nx:32 ny:5",
    )],
    loop_sum: [
        f"loop_sum layout:columns,rows sum_in:private,global form:{form} dtype:float64 lsize_0:8 nitems:24 m:5"
        for form in ("plain", "overlap", "cut")
    ],
    lmem_exchange: [f"lmem_exchange dtype:float64 ngroups:3 m:5 {more}"
                    for more in ("nvars:3 halo:2 lsize_0:8", "nvars:1 halo:1 lsize_0:8", "nvars:2 halo:16 lsize_0:16")],
    lmem_load: [
        "lmem_load dtype:float32 lsize_0:64 lid_stride_0:32 chains:2 ngroups:3 m:12",
        "lmem_load dtype:float64 lsize_0:100 lid_stride_0:5 chains:3 ngroups:3 m:9",
        "lmem_load dtype:float64 lsize_0:16 lid_stride_0:3 chains:1 ngroups:3 m:21",
    ],
    lmem_broadcast: [f"lmem_broadcast dtype:float32 ngroups:3 {more}"
                     for more in ("lsize_0:16 chains:3 m:30", "lsize_0:64 chains:2 m:32", "lsize_0:7 chains:1 m:10")],
    lmem_move: [
        f"lmem_move dtype:float32 m:8,64,24 {GRID} nelements:1024",
        f"lmem_move dtype:float64 m:16 lsize_0:32 lsize_1:32 {GRID} nelements:1024",
    ],
    lmem_madd: [f"lmem_madd dtype:float32 m:2,3 depth:16,32 {GRID} nelements:1024"],
    overlap_ratio: [f"overlap_ratio dtype:float64 m:1,5,8,40 {GRID} nelements:512"],
    overlap_madd: [
        "overlap_madd dtype:float64 load:both m:5 chains:2 groups_fit:True n:32",
        "overlap_madd dtype:float64 load:uniform m:3 chains:2 groups_fit:False n:21",
        "overlap_madd dtype:float64 load:unit,both m:1 chains:1 groups_fit:False n:21",
    ],
    barrier_local: [f"barrier_local dtype:float32 m:3,64 {GRID} nelements:512"],
    launches: ["launches dtype:float64 lsize_0:16 stages:1,5 ngroups:3"],
    small_groups: [f"small_groups dtype:float32 {more}"
                   for more in ("lsize_0:5 nitems:5", "lsize_0:64 nitems:128", "lsize_0:1 nitems:33")],
}  # fmt: skip
