"""Random kernels whose loops begin at the work-item, at the work-group or at an outer loop.

Bands, triangles, windows (also clipped to the array), segments, tiles with absolute indices, steps of two, and nests of
these; one or two axes of work-items; a reduction, or statements of which a condition leaves out some iterations.
"""

import random
from dataclasses import dataclass

import loopy as lp
import numpy as np
from loopy.diagnostic import LoopyError

from .mended_loopy import mend

_BOUNDS = (
    "{o} <= {v} < {o} + {c}", "{o} <= {v} < {o} + {c}", "{o} <= {v} < n",
    "{o} - {c} <= {v} <= {o} + {c} and 0 <= {v} < n", "{c}*{o} <= {v} < {c}*{o} + {d}",
    "{c}*{o} <= {v} < {c}*{o} + {c} and {v} < n", "1 <= {v} and {c}*{o} <= {v} < {c}*{o} + {c}",
    "{o} <= 2*{v} < {o} + 2*{c}", "0 <= {v} <= {o}", "{o} + {p} <= {v} < {o} + {p} + {c}",
    "{o} <= {v} and {p} <= {v} and {v} < n + {c}", "{o} <= {v} < {o} + 2*{c} and ({v} + {o}) mod 2 = 0",
    "{d} - {o} <= {v} < n + {d} - {o}", "0 <= {v} < {c}",
)  # fmt: skip
_CONDITIONS = ("{v} > {o}", "{v} % 2 == 0", "{v} < {o} + 2", "{v} + {o} < n")


@dataclass(frozen=True)
class ShiftedKernel:
    """A kernel at a size, its work-groups, and the text that it was made from."""

    kernel: lp.TranslationUnit
    sizes: dict[str, int]
    groups: tuple[int, ...]
    text: str
    plain: bool  # Whether no compiler keeps a value in a register that another iteration needs

    def __repr__(self):
        return f"{self.text}\nat {self.sizes}"


def make_shifted_kernel(seed):
    """Return the kernel of a seed, drawing again while loopy refuses."""
    mend()
    choices = random.Random(seed)  # noqa: S311 - not for secrets
    while True:
        try:
            drawn = _draw(choices)
            lp.generate_code_v2(drawn.kernel)
        except (LoopyError, NotImplementedError):  # the latter for bounds that it cannot print
            continue
        return drawn


def _draw(choices):
    axes = ["i", "q"][: choices.choice((1, 1, 1, 2))]
    loops = ["j", "k", "l"][: choices.choice((1, 1, 2, 2, 3))]
    n = choices.randint(5, 20 if len(loops) > 2 else 40)
    bounds = [f"0 <= {axis} < n" for axis in axes]
    for depth, loop in enumerate(loops):
        around = [*axes, *loops[:depth]]
        # The loop next to it more often than others.
        outer, other = choices.choice([*around, around[-1]]), choices.choice(around)
        form = choices.choice(_BOUNDS)
        bounds.append(form.format(v=loop, o=outer, p=other, c=choices.randint(2, 5), d=choices.randint(2, 9)))
    innermost, names = loops[-1], [*axes, *loops]
    subscripts = [
        f"{innermost} + {choices.randint(0, 3)}*{choices.choice(names)} + 60000",
        f"{choices.choice((1, 2, 3))}*{innermost} - {choices.choice(names[:-1])} + {choices.randint(60000, 60050)}",
    ]
    element = " + ".join(f"{factor}*{axis}" for factor, axis in zip((1, 64), axes, strict=False))
    conditional = choices.random() < 0.3
    text = f"y[{element}] = sum(({', '.join(loops)}), x[{subscripts[0]}]*w[{subscripts[1]}])"
    if conditional:
        condition = choices.choice(_CONDITIONS).format(v=innermost, o=choices.choice(names[:-1]))
        inames = f"inames={':'.join(names)}"
        text = f"""y[{element}] = y[{element}] + u[{subscripts[0]}] {{id=first, {inames}}}
if {condition}
    z[{element}] = z[{element}] + x[{subscripts[1]}]*w[{subscripts[0]}] {{dep=first, {inames}}}
end"""
    domain = f"{{[{', '.join(names)}]: {' and '.join(bounds)}}}"
    arrays = [lp.GlobalArg(name, np.float32, shape=(1_000_000,)) for name in "yzuxw" if f"{name}[" in text]
    kernel = lp.make_kernel(
        domain, text, [*arrays, lp.ValueArg("n", np.int32)], assumptions="5 <= n <= 1000", lang_version=(2018, 2),
        name="shifted",
    )  # fmt: skip
    extents = (choices.choice((8, 16, 32, 64)),) if len(axes) == 1 else choices.choice(((8, 4), (4, 4), (16, 2)))
    for number, (axis, extent) in enumerate(zip(axes, extents, strict=True)):
        kernel = lp.split_iname(kernel, axis, extent, outer_tag=f"g.{number}", inner_tag=f"l.{number}")
    kernel = lp.prioritize_loops(kernel, ",".join(loops))
    groups = tuple(-(-n // extent) for extent in extents)
    shown = "\n".join([domain, text, f"work-groups of {extents}"])
    return ShiftedKernel(kernel, {"n": n}, groups, shown, plain=not conditional and len(loops) == 1)
