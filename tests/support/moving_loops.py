"""Random kernels of a CPU whose loops begin where outer loops say: tiles, windows, segments, bands, triangles.

Each is a description from which the kernel is written in two forms: loops that begin where they do, or at 0 with the
shift in the subscripts.
"""

import random
import re
from dataclasses import dataclass, field

from .ecm_kernels import loopy_kernel


@dataclass(frozen=True)
class MovingLoop:
    """A loop; bounds are affine expressions of the size and outer loops, the last iteration is below all of `stops`."""

    name: str
    starts: tuple[str, ...]
    stops: tuple[str, ...]
    shift: str = ""  # what the loop begins with in the main; nothing where that is 0


@dataclass(frozen=True)
class MovingKernel:
    """A kernel with one statement in its innermost loop."""

    kind: str
    n: int  # value of the size
    loops: tuple[MovingLoop, ...]
    store: str  # what is stored, such as ``y[i]``
    loads: tuple[str, ...]  # what is loaded for it
    shapes: dict[str, str] = field(hash=False)
    update: bool = False  # whether the stored element is loaded before

    def loopy(self, *, shifted):
        """Return the kernel, with loops that begin at 0 and the shift in the subscripts if `shifted`."""
        moved = {loop.name: f"({loop.shift} + {loop.name})" for loop in self.loops if shifted and loop.shift}

        def text(expression):
            # Shifts may have loops in them that are shifted themselves.
            for name in reversed([loop.name for loop in self.loops]):
                if name in moved:
                    expression = re.sub(rf"\b{name}\b", moved[name], expression)
            return expression

        bounds = []
        for loop in self.loops:
            index = text(loop.name)
            bounds += [f"{text(start)} <= {index}" for start in loop.starts]
            bounds += [f"{index} < {text(stop)}" for stop in loop.stops]
        order = ",".join(loop.name for loop in self.loops)
        domain = f"{{[{order}]: {' and '.join(bounds)}}}"
        store, loads = text(self.store), [text(load) for load in self.loads]
        options = f"{{id=u, dep=, inames={order.replace(',', ':')}}}"
        code = f"{store} = {' + '.join([store, *loads] if self.update else loads)} {options}"
        return loopy_kernel(domain, code, self.shapes, order)


def random_moving_kernel(seed):
    """Return a kernel of any kind."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    return rng.choice(_KINDS)(rng)


def _whole(name, first=0, last=0):
    return MovingLoop(name, (str(first),), (f"n-{last}" if last else "n",))


def _tiles(rng, names, n, first, last):
    """Return loops over tiles and in them, with absolute indices that stop at the array's end."""
    outer, inner = [], []
    for name in names:
        tile = rng.choice([4, 8, 12, 16, 20, 32, 60])
        begin = f"{tile}*{name}o"
        outer.append(MovingLoop(f"{name}o", ("0",), (str(-(-(n - last) // tile)),)))
        inner.append(
            MovingLoop(name, (str(first), begin) if first else (begin,), (f"n-{last}", f"{begin}+{tile}"), begin)
        )
    return outer, inner


def _offsets(rng, axes, radius):
    return sorted({tuple(rng.randint(-radius, radius) for _ in range(axes)) for _ in range(rng.randint(1, 5))})


def _at(array, names, offsets):
    return f"{array}[{', '.join(f'{name}{step:+d}' for name, step in zip(names, offsets, strict=True))}]"


def _tiled_stencil(rng):
    n, radius = rng.randint(90, 210), rng.choice([1, 1, 2])
    outer, inner = _tiles(rng, "ji", n, radius, radius)
    rng.shuffle(outer)
    loads = [_at("a", "ji", offset) for offset in _offsets(rng, 2, radius)]
    return MovingKernel("tiled stencil", n, (*outer, *inner), "b[j,i]", tuple(loads), {"a": "(n,n)", "b": "(n,n)"})


def _tiled_columns(rng):
    n, radius = rng.randint(90, 210), rng.choice([1, 2])
    (outer,), (inner,) = _tiles(rng, "i", n, radius, radius)
    loads = [_at("a", "ji", offset) for offset in _offsets(rng, 2, radius)]
    loops = (outer, _whole("j", radius, radius), inner)
    return MovingKernel("columns", n, loops, "b[j,i]", tuple(loads), {"a": "(n,n)", "b": "(n,n)"})


def _tiled_space(rng):
    n = rng.randint(28, 44)
    outer, inner = _tiles(rng, "ji", n, 1, 1)
    loads = [_at("a", "kji", offset) for offset in _offsets(rng, 3, 1)]
    loops = (*outer, _whole("k", 1, 1), *inner)
    return MovingKernel("tiled space", n, loops, "b[k,j,i]", tuple(loads), {"a": "(n,n,n)", "b": "(n,n,n)"})


def _transposition(rng):
    n = rng.randint(90, 250)
    outer, inner = _tiles(rng, "ji", n, 0, 0)
    return MovingKernel(
        "tiled transposition", n, (*outer, *inner), "b[j,i]", ("a[i,j]",), {"a": "(n,n)", "b": "(n,n)"}
    )  # fmt: skip


def _product(rng):
    n = rng.randint(36, 60)
    (outer,), (inner,) = _tiles(rng, rng.choice("kj"), n, 0, 0)
    loops = [outer, *(inner if name == inner.name else _whole(name) for name in rng.choice(["ikj", "ijk", "kij"]))]
    return MovingKernel(
        "tiled product", n, tuple(loops), "c[i,j]", ("a[i,k]", "b[k,j]"), dict.fromkeys("cab", "(n,n)"), update=True
    )  # fmt: skip


def _segments(rng):
    n, width = rng.randint(60, 900), rng.choice([5, 16, 33, 64])
    skip = width + rng.choice([0, 0, 3, 40])
    loops = [_whole("i"), MovingLoop("j", (f"{skip}*i",), (f"{skip}*i+{width}",), f"{skip}*i")]
    shapes = {"y": "(n)", "x": f"({skip}*n+{width})"}
    if rng.random() < 0.5:
        loops.insert(rng.randint(0, 1), MovingLoop("t", ("0",), (str(rng.randint(2, 5)),)))
    return MovingKernel("segments", n, tuple(loops), "y[i]", ("x[j]",), shapes, update=True)


def _windows(rng):
    n, step = rng.randint(60, 300), rng.choice([1, 1, 2, 5, 16])
    width = rng.choice([20, 64, 150, 400])
    loads = ["x[j]", *(["h[j]"] if rng.random() < 0.5 else [])]
    size = f"({step}*n+{width})"
    begin = f"{step}*i"
    loops = (_whole("i"), MovingLoop("j", (begin,), (f"{begin}+{width}",), begin))
    return MovingKernel("windows", n, loops, "y[i]", tuple(loads), {"y": "(n)", "x": size, "h": size}, update=True)


def _convolution(rng):
    n, width = rng.randint(100, 300), rng.choice([20, 64, 150])
    loops = (_whole("i"), MovingLoop("j", ("i",), (f"i+{width}",), "i"))
    shapes = {"y": "(n)", "x": f"(n+{width})", "h": f"({width})"}
    return MovingKernel("convolution", n, loops, "y[i]", ("x[j]", "h[j-i]"), shapes, update=True)


def _rows_of_windows(rng):
    n, width = rng.randint(60, 150), rng.choice([8, 20, 40])
    shapes = {"b": "(n,n)", "a": f"(n,n+{width})"}
    loops = (_whole("r"), _whole("i"), MovingLoop("j", ("i",), (f"i+{width}",), "i"))
    return MovingKernel("rows of windows", n, loops, "b[r,i]", ("a[r,j]",), shapes, update=True)


def _columns_of_windows(rng):
    n, width = rng.randint(30, 60), rng.choice([4, 8, 12])
    shapes = {"b": "(n,n)", "a": f"(n+{width},n)"}
    loops = (_whole("i"), MovingLoop("j", ("i",), (f"i+{width}",), "i"), _whole("r"))
    return MovingKernel("columns of windows", n, loops, "b[i,r]", ("a[j,r]",), shapes, update=True)


def _band(rng):
    n, below, above = rng.randint(120, 400), rng.randint(0, 40), rng.randint(4, 60)
    shift = f"i-{below}"
    inner = MovingLoop("j", ("0", shift) if below else (shift,), ("n", f"i+{above}"), shift)
    matrix = rng.choice(["a[i,j]", "a[j,i]", f"a[i,j-i+{below}]"])
    shapes = {"y": "(n)", "x": "(n)", "a": f"(n,{below + above})" if "-i" in matrix else "(n,n)"}
    return MovingKernel("band", n, (_whole("i"), inner), "y[i]", (matrix, "x[j]"), shapes, update=True)


def _triangle(rng):
    n = rng.randint(100, 230)
    shift = rng.choice(["i", "i+1"])
    loops = (_whole("i"), MovingLoop("j", (shift,), ("n",), shift))
    matrix = rng.choice(["a[i,j]", "a[j,i]"])
    if rng.random() < 0.5:
        store = "b[i,j]" if matrix == "a[j,i]" else "b[j,i]"
        return MovingKernel("triangle", n, loops, store, (matrix,), {"b": "(n,n)", "a": "(n,n)"})
    shapes = {"y": "(n)", "a": "(n,n)", "x": "(n)"}
    return MovingKernel("triangle", n, loops, "y[i]", (matrix, "x[j]"), shapes, update=True)


def _triangular_product(rng):
    n = rng.randint(36, 60)
    loops = {"i": _whole("i"), "k": MovingLoop("k", ("i",), ("n",), "i"), "j": _whole("j")}
    order = rng.choice(["ikj", "ijk"])
    return MovingKernel(
        "triangular product", n, tuple(loops[name] for name in order), "c[i,j]", ("a[i,k]", "b[k,j]"),
        dict.fromkeys("cab", "(n,n)"), update=True,
    )  # fmt: skip


def _skewed_time(rng):
    n, steps = rng.randint(300, 2500), rng.randint(3, 9)
    loops = (MovingLoop("t", ("0",), (str(steps),)), MovingLoop("i", ("t",), ("n+t",), "t"))
    shapes = {"b": "(n+2)", "a": "(n+2)"}
    return MovingKernel("skewed time", n, loops, "b[i-t]", ("a[i-t]", "a[i-t+2]"), shapes)


_KINDS = (
    _tiled_stencil, _tiled_stencil, _tiled_columns, _tiled_space, _transposition, _product, _segments, _windows,
    _convolution, _rows_of_windows, _columns_of_windows, _band, _triangle, _triangular_product, _skewed_time,
)  # fmt: skip
