"""Hand-written kernels for the data-volume estimators."""

from itertools import product
from math import prod

import islpy as isl

from perflex.features import Access, Array, Launch, Loop, QuasiPolynomial, Scop, Statement

DTYPES = {4: "float32", 8: "float64"}


def star(dims, reach):
    """Offsets (x, y, z) of a star."""
    found = [(0,) * dims]
    for axis in range(dims):
        found += [
            tuple(step if other == axis else 0 for other in range(dims)) for step in range(-reach, reach + 1) if step
        ]
    return found


def box(dims, reach):
    return list(product(range(-reach, reach + 1), repeat=dims))


def stencil(offsets, domain, items, *, fold=(1, 1, 1), shape=None, shift=None, itemsize=8):
    """B[x, y, z] from A at offsets; folded cells are unrolled, duplicate loads merged; sizes are in (x, y, z) order.

    Work-items outside the domain do nothing. `shift` is added to all subscripts.
    """
    dims = len(domain)
    fold, items = tuple(fold[:dims]), tuple(items[:dims])
    shape = tuple(shape or domain)
    shift = tuple(shift or (0,) * dims)
    groups = [-(-extent // (width * times)) for extent, width, times in zip(domain, items, fold, strict=True)]
    names = [f"g{axis}" for axis in range(dims)] + [f"l{axis}" for axis in range(dims)]
    where = f"[{', '.join(names)}]"
    limits = [f"0 <= g{a} < {groups[a]} and 0 <= l{a} < {items[a]}" for a in range(dims)]
    limits += [f"{fold[a]} * ({items[a]} g{a} + l{a}) < {domain[a]}" for a in range(dims)]
    cells = list(product(*(range(times) for times in fold)))
    loads = dict.fromkeys(
        tuple(c + o for c, o in zip(cell, offset, strict=True)) for cell in cells for offset in offsets
    )

    def access(array, direction, offset):
        index = [f"{fold[a]} * ({items[a]} g{a} + l{a}) + {offset[a] + shift[a]}" for a in reversed(range(dims))]
        return Access(array, direction, isl.Map(f"{{ {where} -> [{', '.join(index)}] }}"), text=f"{array}[{offset}]")

    accesses = [access("A", "load", offset) for offset in loads]
    accesses += [access("B", "store", cell) for cell in cells]
    return Scop(
        "stencil", (), isl.Set("{ : }"), (Launch(tuple(map(QuasiPolynomial.constant, groups)), items),),
        tuple(_array(name, shape, itemsize) for name in "AB"),
        (Statement("update", isl.Set(f"{{ {where} : {' and '.join(limits)} }}"), tuple(accesses)),),
    )  # fmt: skip


def _array(name, shape, itemsize):
    outer_first = tuple(reversed(shape))
    strides = [prod(outer_first[axis + 1 :]) for axis in range(len(shape))]
    return Array(
        name, "global", DTYPES[itemsize], tuple(map(QuasiPolynomial.constant, outer_first)),
        tuple(map(QuasiPolynomial.constant, strides)),
    )  # fmt: skip


def one_axis(domain, items, stride, itemsize):
    """A load of A[stride * (global x)] from work-groups along x."""
    width = items[0]
    where = "[g0, l0]"
    limits = f"0 <= g0 < {-(-domain // width)} and 0 <= l0 < {width}"
    relation = isl.Map(f"{{ {where} -> [{stride} * ({width} g0 + l0)] }}")
    return Scop(
        "strided", (), isl.Set("{ : }"), (Launch((QuasiPolynomial.constant(-(-domain // width)),), (width,)),),
        (_array("A", (max(stride, 1) * domain,), itemsize),),
        (Statement("load", isl.Set(f"{{ {where} : {limits} }}"), (Access("A", "load", relation, text="A[s*i]"),)),),
    )  # fmt: skip


def convolution(items, tile, *, size=4096, half=7):
    """Filter of (2 half + 1)^2 points through a tile in local memory, single precision.

    Work-items copy the tile with its halo in strides of the work-group, then compute tile[0] x tile[1] outputs spaced
    one work-group apart.
    """
    (bx, by), (tx, ty), side = items, tile, 2 * half + 1
    width, height = bx * tx + 2 * half, by * ty + 2 * half
    gx, gy = -(-size // (bx * tx)), -(-size // (by * ty))
    grid = f"0 <= g0 < {gx} and 0 <= g1 < {gy} and 0 <= l0 < {bx} and 0 <= l1 < {by}"
    copy = f"{grid} and 0 <= s and 0 <= t and l1 + {by} s < {height} and l0 + {bx} t < {width}"
    row, column = f"l1 + {by} s", f"l0 + {bx} t"
    source = f"{by * ty} g1 + {row}, {bx * tx} g0 + {column}"
    compute = f"{grid} and 0 <= u < {ty} and 0 <= v < {tx} and 0 <= a < {side} and 0 <= b < {side}"
    target = f"{by * ty} g1 + l1 + {by} u, {bx * tx} g0 + l0 + {bx} v"
    first = "[g0, g1, l0, l1, s, t]"
    second = "[g0, g1, l0, l1, u, v, a, b]"
    third = "[g0, g1, l0, l1, u, v]"

    def access(array, direction, where, index):
        return Access(array, direction, isl.Map(f"{{ {where} -> [{index}] }}"), text=f"{array}[{index}]")

    statements = (
        Statement(
            "copy",
            isl.Set(f"{{ {first} : {copy} }}"),
            (access("image", "load", first, source), access("tile", "store", first, f"{row}, {column}")),
            loops=(0, 1),
        ),
        Statement(
            "filter",
            isl.Set(f"{{ {second} : {compute} }}"),
            (access("tile", "load", second, f"l1 + {by} u + a, l0 + {bx} v + b"),),
            loops=(2, 3, 4, 5),
        ),
        Statement(
            "put",
            isl.Set(f"{{ {third} : {grid} and 0 <= u < {ty} and 0 <= v < {tx} }}"),
            (access("out", "store", third, target),),
            loops=(6, 7),
        ),
    )
    arrays = (
        _array("image", (size + 2 * half, size + 2 * half), 4),
        _array("out", (size, size), 4),
        Array(
            "tile", "local", "float32", (QuasiPolynomial.constant(height), QuasiPolynomial.constant(width)),
            (QuasiPolynomial.constant(width), QuasiPolynomial.constant(1)),
        ),
    )  # fmt: skip
    loops = tuple(Loop(name, None if number in {0, 2, 6} else number - 1) for number, name in enumerate("stuvabuv"))
    launch = Launch((QuasiPolynomial.constant(gx), QuasiPolynomial.constant(gy)), (bx, by), loops=loops)
    return Scop("convolution", (), isl.Set("{ : }"), (launch,), arrays, statements)
