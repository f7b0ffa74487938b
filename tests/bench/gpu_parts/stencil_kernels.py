"""The 25-point star stencil in every work-group shape of Ernst et al., Equation 6, with thread folding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import loopy as lp

__all__ = ["FOLDINGS", "Shape", "shapes", "star25"]

WORK_ITEMS = 1024
RADIUS = 4
# Points that each work-item computes along y and z, by the paper's names.
FOLDINGS = {"none": (1, 1), "2y": (2, 1), "2z": (1, 2)}
_WEIGHTS = (0.5, 0.0625, 0.03125, 0.015625, 0.0078125)


@dataclass(frozen=True)
class Shape:
    """A work-group's extents, and how many points each work-item computes along y or z."""

    x: int
    y: int
    z: int
    folding: str = "none"

    def __str__(self) -> str:
        return f"{self.x} x {self.y} x {self.z}" + ("" if self.folding == "none" else f", {self.folding}")


def shapes(work_items: int = WORK_ITEMS) -> list[Shape]:
    """Return all shapes of Equation 6: powers of two, x and y up to 1024, z up to 64; with each folding."""
    powers = [2**exponent for exponent in range(11)]
    found = [(x, y, work_items // (x * y)) for x in powers for y in powers if work_items % (x * y) == 0]
    return [Shape(*extents, folding) for folding in FOLDINGS for extents in found if 1 <= extents[2] <= 64]


def star25(shape: Shape) -> lp.TranslationUnit:
    """Return the kernel, in double precision; arrays have nx, ny and nz points and a halo of 4 on either side.

    With folding, a work-item's points are neighbours, and it loads what lies in their own column once: that is what
    a compiler makes of a loop over them. ny and nz are even.

    Source: Ernst et al., Analytical Performance Estimation during Code Generation on Modern GPUs, Section 5.2.
    """
    import loopy as lp
    import numpy as np

    import perflex.isl  # noqa: F401 - mends what loopy misses

    fold_y, fold_z = FOLDINGS[shape.folding]
    points, axis = max(fold_y, fold_z), "y" if fold_y > 1 else "z"
    column = points + 2 * RADIUS
    outer = (
        f"{{[gx, gy, gz, lx, ly, lz]: 0 <= lx < {shape.x} and 0 <= ly < {shape.y} and 0 <= lz < {shape.z} "
        f"and 0 <= gx and 0 <= gy and 0 <= gz and {_place('x', shape.x, 1)} < nx "
        f"and {_place('y', shape.y, fold_y)} < ny and {_place('z', shape.z, fold_z)} < nz}}"
    )
    domains = [
        outer,
        f"{{[p]: 0 <= p < {points}}}",
        f"{{[c]: 0 <= c < {column}}}",
    ]
    places = {"x": _place("x", shape.x, 1), "y": _place("y", shape.y, fold_y), "z": _place("z", shape.z, fold_z)}
    if points > 1:
        load = _element("u", places, {axis: "c"})
        body = ["for c", f"column[c] = {load}", "end", "for p", *_update(places, axis), "end"]
    else:
        body = _update(places, "")
    data: list[object] = [
        lp.GlobalArg("u", np.float64, shape="nz + 8, ny + 8, nx + 8", is_input=True, is_output=False),
        lp.GlobalArg("v", np.float64, shape="nz + 8, ny + 8, nx + 8", is_input=False, is_output=True),
        lp.ValueArg("nx, ny, nz", np.int32),
    ]
    if points > 1:
        private = lp.AddressSpace.PRIVATE
        data.append(lp.TemporaryVariable("column", np.float64, shape=(column,), address_space=private))
    kernel = lp.make_kernel(
        domains if points > 1 else domains[:1],
        "\n".join(["for gz, gy, gx, lz, ly, lx", *body, "end"]),
        data,
        name="star25",
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=True,
    )
    kernel = lp.assume(kernel, "nx >= 1 and ny >= 2 and nz >= 2 and ny mod 2 = 0 and nz mod 2 = 0")
    kernel = lp.tag_inames(kernel, "gx:g.0, gy:g.1, gz:g.2, lx:l.0, ly:l.1, lz:l.2")
    return lp.tag_inames(kernel, {"p": "unr", "c": "unr"}) if points > 1 else kernel


def _place(axis: str, extent: int, fold: int) -> str:
    """Return a work-item's first point along an axis."""
    return f"{extent * fold}*g{axis} + {fold}*l{axis}" if fold > 1 else f"{extent}*g{axis} + l{axis}"


def _element(array: str, places: dict[str, str], steps: dict[str, str]) -> str:
    """Return an element; steps are from the halo's edge, RADIUS along the axes that are not named."""
    return f"{array}[{', '.join(f'{places[axis]} + {steps.get(axis, RADIUS)}' for axis in 'zyx')}]"


def _update(places: dict[str, str], axis: str) -> list[str]:
    """Return the instruction for one point; along `axis`, if any, values come from the column."""
    own = {axis: f"p + {RADIUS}"} if axis else {}
    terms = []
    for distance, weight in enumerate(_WEIGHTS):
        values = []
        for other in "xyz":
            for sign in (-1, 1) if distance else (1,):
                step = RADIUS + sign * distance
                if other == axis:
                    values.append(f"column[p + {step}]")
                else:
                    values.append(_element("u", places, {**own, other: str(step)}))
        if not distance:
            values = ["column[p + 4]" if axis else values[0]]
        terms.append(f"{weight!r}*({' + '.join(values)})")
    return [f"{_element('v', places, own)} = {' + '.join(terms)}"]
