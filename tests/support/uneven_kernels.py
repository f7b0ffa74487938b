"""Kernels whose statements run in parts of the grid, each as a Scop and, work-item by work-item, as numpy arrays."""

from dataclasses import dataclass
from math import prod

import islpy as isl
import numpy as np

from perflex.features import Access, Array, Launch, Loop, QuasiPolynomial, Scop, Statement
from support.places import Places

DTYPES = {4: "float32", 8: "float64"}


@dataclass(frozen=True)
class Part:
    """A statement: conditions, loops as (name, extent), and accesses as (array, direction, index along each axis).

    Conditions and indices are Python expressions in g0, g1, .., l0, l1, .. and loops; ``==`` and ``%`` are allowed.
    """

    conditions: tuple[str, ...]
    accesses: tuple[tuple[str, str, tuple[str, ...]], ...]
    loops: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class UnevenKernel:
    """A launch of a hand-written kernel."""

    name: str
    groups: tuple[int, ...]
    items: tuple[int, ...]
    arrays: dict[str, tuple[int, ...]]
    parts: tuple[Part, ...]
    itemsize: int = 8
    ordered: bool = False  # whether statements and their loops come in a stated order

    def scop(self):
        """Return it as perflex reads it."""
        places = Places()
        statements = tuple(self._statement(number, part, places) for number, part in enumerate(self.parts))
        groups, loops = map(QuasiPolynomial.constant, self.groups), (Loop(**loop) for loop in places.loops)
        launch, arrays = Launch(tuple(groups), self.items, loops=tuple(loops)), map(self._array, self.arrays)
        return Scop(self.name, (), isl.Set("{ : }"), (launch,), tuple(arrays), statements)

    def strides(self, array):
        shape = self.arrays[array]
        return [prod(shape[axis + 1 :]) for axis in range(len(shape))]

    def _array(self, name):
        shape, strides = self.arrays[name], self.strides(name)
        constant = QuasiPolynomial.constant
        return Array(name, "global", DTYPES[self.itemsize], tuple(map(constant, shape)), tuple(map(constant, strides)))

    def _statement(self, number, part, places):
        names = [*self.axes(), *(loop for loop, _ in part.loops)]
        where = f"[{', '.join(names)}]"
        limits = [f"0 <= {axis} < {extent}" for axis, extent in {**self.axes(), **dict(part.loops)}.items()]
        limits += [condition.replace("==", "=") for condition in part.conditions]
        accesses = tuple(
            Access(array, direction, isl.Map(f"{{ {where} -> [{', '.join(index)}] }}"), text=f"{array}[{index}]")
            for array, direction, index in part.accesses
        )
        domain = isl.Set(f"{{ {where} : {' and '.join(limits)} }}")
        place = places.at(number, *(step for loop, _ in part.loops for step in (loop, 0)))
        order = tuple(place["order"]) if self.ordered else ()
        return Statement(f"s{number}", domain, accesses, loops=tuple(place["loops"]), order=order)

    def axes(self):
        """Return the extent of each group and local axis."""
        found = {f"g{axis}": extent for axis, extent in enumerate(self.groups)}
        return found | {f"l{axis}": extent for axis, extent in enumerate(self.items)}

    def points(self, part):
        """Return values of shape (work-groups, iterations, work-items) that broadcast, and which points run."""
        numbers = np.unravel_index(np.arange(prod(self.groups)), self.groups, order="F")
        lanes = np.unravel_index(np.arange(prod(self.items)), self.items, order="F")
        extents = [extent for _, extent in part.loops]
        steps = np.unravel_index(np.arange(prod(extents)), extents) if extents else ()
        values = {f"g{axis}": column[:, None, None] for axis, column in enumerate(numbers)}
        values |= {f"l{axis}": column[None, None, :] for axis, column in enumerate(lanes)}
        values |= {name: column[None, :, None] for (name, _), column in zip(part.loops, steps, strict=True)}
        runs = np.ones((prod(self.groups), prod(extents), prod(self.items)), dtype=bool)
        for condition in part.conditions:
            # Conditions are this file's own texts, which chained comparisons of arrays are not among.
            runs &= eval(condition, {}, values)
        return values, runs

    def addresses(self, array, index, values):
        """Return byte addresses in an array."""
        parts = [stride * eval(text, {}, values) for stride, text in zip(self.strides(array), index, strict=True)]
        return np.asarray(sum(parts)) * self.itemsize


def _axis(kernel_items, axis):
    return f"{kernel_items[axis]}*g{axis} + l{axis}"


def ragged_stencil(extents, items, reach, *, box=False, itemsize=8):
    """B = stencil of A on a grid of `extents`; the guard leaves out a border of `reach` points."""
    dims = len(extents)
    shape = tuple(-(-extent // 32) * 32 if axis == 0 else extent for axis, extent in enumerate(extents))[::-1]
    index = [_axis(items, axis) for axis in range(dims)]
    spans = zip(index, extents, strict=True)
    conditions = [text for i, n in spans for text in (f"{i} >= {reach}", f"{i} < {n - reach}")]
    steps = range(-reach, reach + 1)
    if box:
        offsets = [tuple(int(s) for s in place) for place in np.ndindex(*(2 * reach + 1,) * dims)]
        offsets = [tuple(s - reach for s in place) for place in offsets]
    else:
        offsets = list(
            dict.fromkeys(tuple(s if a == b else 0 for b in range(dims)) for a in range(dims) for s in steps)
        )
    loads = tuple(
        ("A", "load", tuple(f"{i} + {o}" for i, o in zip(index, offset, strict=True))[::-1]) for offset in offsets
    )
    part = Part(tuple(conditions), (*loads, ("B", "store", tuple(index[::-1]))))
    groups = tuple(-(-n // width) for n, width in zip(extents, items, strict=True))
    kind = "box" if box else "star"
    name = f"{kind} r={reach} {'x'.join(map(str, extents))} by {'x'.join(map(str, items))}"
    return UnevenKernel(name, groups, items, {"A": shape, "B": shape}, (part,), itemsize)


def sweep(offsets, domain, items):
    """B[z, y, x] from A at offsets, where work-groups of the x-y plane go through all z."""
    reach = max(max(map(abs, offset)) for offset in offsets)
    x, y = (_axis(items, axis) for axis in range(2))
    ordered = sorted(offsets, key=lambda offset: offset[::-1])
    loads = [("A", "load", (f"z + {k + reach}", f"{y} + {j + reach}", f"{x} + {i + reach}")) for i, j, k in ordered]
    store = ("B", "store", (f"z + {reach}", f"{y} + {reach}", f"{x} + {reach}"))
    shape = tuple(extent + 2 * reach for extent in reversed(domain))
    groups = (domain[0] // items[0], domain[1] // items[1])
    part = Part((), (*loads, store), (("z", domain[2]),))
    return UnevenKernel("sweep", groups, items, {"A": shape, "B": shape}, (part,), ordered=True)


def ragged_vector(n, width, surplus=0):
    """y = x of n elements, with so many work-groups more than are needed."""
    i = f"{width}*g0 + l0"
    part = Part((f"{i} < {n}",), (("x", "load", (i,)), ("y", "store", (i,))))
    groups = (-(-n // width) + surplus,)
    return UnevenKernel(f"vector n={n} surplus={surplus}", groups, (width,), {"x": (n,), "y": (n,)}, (part,))


def triangle(n, items, *, upper=True):
    """b[j, i] = a[j, i] + v[i] where i <= j (or i >= j)."""
    i, j = (_axis(items, axis) for axis in range(2))
    accesses = (("a", "load", (j, i)), ("v", "load", (i,)), ("b", "store", (j, i)))
    part = Part((f"{i} <= {j}" if upper else f"{i} >= {j}",), accesses)
    groups = (n // items[0], n // items[1])
    name = f"triangle {'i<=j' if upper else 'i>=j'} n={n}"
    return UnevenKernel(name, groups, items, {"a": (n, n), "v": (n,), "b": (n, n)}, (part,))


def triangular_loop(n, width, depth):
    """y[i] sums a[k, i] over k with width*k <= i: work-groups at the end do more."""
    i = f"{width}*g0 + l0"
    part = Part((f"{n // depth}*k <= {i}",), (("a", "load", ("k", i)), ("y", "store", (i,))), (("k", depth),))
    return UnevenKernel(f"triangular loop n={n}", (n // width,), (width,), {"a": (depth, n), "y": (n,)}, (part,))


def halves(groups, items, axis, at):
    """c = a up to a position of an axis of the grid, and d = b, with a wide halo, beyond."""
    index = tuple(_axis(items, a) for a in range(len(groups)))[::-1]
    shape = tuple(g * width for g, width in zip(groups, items, strict=True))[::-1]
    beyond = tuple(f"{text} + 2" if place == 0 else text for place, text in enumerate(index))
    tall = (shape[0] + 2, *shape[1:])
    parts = (
        Part((f"g{axis} < {at}",), (("a", "load", index), ("c", "store", index))),
        Part((f"g{axis} >= {at}",), (("b", "load", index), ("b", "load", beyond), ("d", "store", index))),
    )
    arrays = {"a": shape, "b": tall, "c": shape, "d": shape}
    return UnevenKernel(f"halves of axis {axis} at {at} of {groups[axis]}", groups, items, arrays, parts)


def with_border(groups, items, axis, *, only=False):
    """b = a everywhere (unless `only`), and at the lower end of an axis b = c + d as well."""
    index = tuple(_axis(items, a) for a in range(len(groups)))[::-1]
    shape = tuple(g * width for g, width in zip(groups, items, strict=True))[::-1]
    border = Part((f"{_axis(items, axis)} == 0",), (("c", "load", index), ("d", "load", index), ("b", "store", index)))
    inner = Part((), (("a", "load", index), ("b", "store", index)))
    name = f"border of axis {axis}{' only' if only else ''} of {groups}"
    return UnevenKernel(name, groups, items, dict.fromkeys("abcd", shape), (border,) if only else (inner, border))


def checkerboard(groups, items, colours=2):
    """b = a in work-groups of one colour, b = c + d in those of another."""
    index = (_axis(items, 1), _axis(items, 0))
    shape = (groups[1] * items[1], groups[0] * items[0])
    parts = (
        Part((f"(g0 + g1) % {colours} == 0",), (("a", "load", index), ("b", "store", index))),
        Part((f"(g0 + g1) % {colours} == 1",), (("c", "load", index), ("d", "load", index), ("b", "store", index))),
    )
    return UnevenKernel(f"checkerboard {colours} colours {groups}", groups, items, dict.fromkeys("abcd", shape), parts)


def strided(groups, width, stride, every):
    """y = x[stride*i] in every so many-th work-group."""
    i = f"{width}*g0 + l0"
    part = Part((f"g0 % {every} == 0",), (("x", "load", (f"{stride}*({i})",)), ("y", "store", (i,))))
    n = groups * width
    name = f"stride {stride}, every {every} of {groups}"
    return UnevenKernel(name, (groups,), (width,), {"x": (stride * n,), "y": (n,)}, (part,))


def product_of_matrices(n, side):
    """c[i, j] sums a[i, k] * b[k, j], one element for each work-item."""
    i, j = f"{side}*g1 + l1", f"{side}*g0 + l0"
    loads = Part((), (("a", "load", (i, "k")), ("b", "load", ("k", j))), (("k", n),))
    put = Part((), (("c", "store", (i, j)),))
    arrays = dict.fromkeys("abc", (n, n))
    return UnevenKernel(f"product of matrices n={n}", (n // side, n // side), (side, side), arrays, (loads, put))
