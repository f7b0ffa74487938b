"""What a CPU executes, by vectors of work-items and one by one: ``f_simd_<what>_<width>[_<nesting>]``.

Runtimes for CPUs let the work-items of a work-group run one after the other, those along axis 0 in vectors. What cannot
go in vectors costs many times as much: work-groups that are narrower than a vector along axis 0, gathers, and for
compilers that vectorise innermost loops only all that is in a sequential loop. So each kind of work is counted apart by

* its width: ``wide`` in whole vectors of the target's sub-group size, ``narrow`` for work-items that fill none;
* its nesting: ``loop`` in a sequential loop that a work-item runs through on its own; ``short`` in such loops of at
  most 32 iterations, whose number the compiler knows; ``straight`` elsewhere, also where the source writes a loop out.

=============================  =====================================================================================
``arith int idiv``             operations: floating point, integers, and division and remainder of integers
``div sqrt rsqrt exp log sin`` those that take many cycles; ``sin`` is also cos and tan, ``exp log`` their like
``tanh pow call``              ... and all other functions
``load_uniform load_unit``     loads of which all lanes get one element, and of neighbours (wide)
``load_apart``                 elements that are gathered; of narrow work-items in loops, those that do not follow one
                               another from one iteration to the next
``load``                       all loads of narrow work-items in straight code
``store_unit store_apart``     likewise; a store to one element by all lanes is as one to neighbours; also ``store``
``private``                    accesses of arrays of the work-item's own
``chain``                      operations in loops that wait for one another (of variables in one loop, the longest),
                               but for the first 32 each time the loop is entered: they overlap with what was before;
                               a sum, shift or the like of integers waits a quarter as long as others, and counts so
``iteration entry``            of loops that are not unrolled: their iterations, and how often they begin
``address guard``              integer instructions for addresses, and conditions tested
``item barrier``               work-items begun and barriers met
=============================  =====================================================================================

Operations, loads and stores have a nesting, the others have none. Wide operations count registers of 4 bytes per lane:
two for 8-byte elements.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.counting.counts import counts_of
from perflex.features.families.feature import FeatureDefaults, NamedFamily
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.simd.places import NESTINGS, WIDTHS, executing
from perflex.features.simd.work import work_of
from perflex.isl import ISL_LOCK

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.simd.places import Width
    from perflex.features.simd.work import Work
    from perflex.features.target import Target

# Bytes of a lane of a register; wider elements take several registers.
_LANE_BYTES = 4

_FUNCTIONS = {
    **dict.fromkeys(("exp", "exp2", "exp10", "expm1"), "exp"),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), "log"),
    **dict.fromkeys(("sin", "cos", "tan", "sinpi", "cospi"), "sin"),
    **{name: name for name in ("div", "sqrt", "rsqrt", "tanh", "pow")},
}
_SIMPLE = {
    "add",
    "mul",
    "madd",
    "fma",
    "min",
    "max",
    "abs",
    "cmp",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "conj",
    "atomic",
    "convert",
}
_OPERATIONS = ("arith", "int", "idiv", *dict.fromkeys(_FUNCTIONS.values()), "call")
_ACCESSES = {
    **{
        ("wide", nesting): ("load_uniform", "load_unit", "load_apart", "store_unit", "store_apart")
        for nesting in NESTINGS
    },
    ("narrow", "straight"): ("load", "store"),
    **{("narrow", nesting): ("load_unit", "load_apart", "store_unit", "store_apart") for nesting in ("short", "loop")},
}
_PLAIN = ("private", "chain", "iteration", "entry", "address", "guard", "item", "barrier")


def _identifiers() -> list[str]:
    nested = [
        f"f_simd_{what}_{width}_{nesting}"
        for (width, nesting), accesses in _ACCESSES.items()
        for what in (*_OPERATIONS, *accesses)
    ]
    return [*nested, *(f"f_simd_{what}_{width}" for what in _PLAIN for width in WIDTHS)]


def _operation_class(kind: str, dtype: str) -> str:
    if np.dtype(dtype).kind in "iub":
        return "idiv" if kind in {"div", "floordiv", "mod"} else "int"
    return "arith" if kind in _SIMPLE else _FUNCTIONS.get(kind, "call")


def _named(work: Work, width: Width) -> str:
    """Return the identifier of what counts some work that vectors, or work-items alone, execute."""
    what = work.kind[0]
    if what in _PLAIN:
        return f"f_simd_{what}_{width}"
    if what == "op":
        return f"f_simd_{_operation_class(*work.kind[1:])}_{width}_{work.nesting}"
    lane, loop = work.kind[1:]
    if width == "narrow" and work.nesting == "straight":
        return f"f_simd_{what}_narrow_straight"
    pattern = lane if width == "wide" else loop
    # One element again and again stays in a register, or is a store like others.
    if pattern == "uniform" and (width == "narrow" or what == "store"):
        pattern = "unit"
    return f"f_simd_{what}_{pattern}_{width}_{work.nesting}"


def _each(work: Work, width: Width, lanes: int) -> int:
    """Return what one execution counts: the registers or elements of a vector, one of a work-item."""
    if width == "narrow" or work.kind[0] not in {"op", "load", "store", "private"}:
        return 1
    if work.kind[0] in {"load", "store"} and work.kind[1] != "unit":
        # A store of all lanes to one element is one.
        return lanes if work.kind[1] == "apart" else 1
    return max(1, work.itemsize // _LANE_BYTES)


@dataclass(frozen=True)
class SimdFeature(FeatureDefaults):
    """Work of one kind at one place."""

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        if "_apart_wide" in self.identifier:
            return "element"
        return "vector operation" if "_wide" in self.identifier else "work-item operation"

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the count at the given sizes, over all launches."""
        scop.check_sizes(sizes)
        terms = _terms(scop, target.sub_group_size).get(self.identifier, {})
        total: Any = 0.0
        for variables in terms.values():
            # Chains of several variables in one loop run beside each other; other work has one variable.
            each = [
                np.asarray(QuasiPolynomial.total(parts).evaluate(sizes), dtype=float) for parts in variables.values()
            ]
            total = total + np.maximum(0.0, np.max(np.broadcast_arrays(*each), axis=0))
        return total if np.ndim(total) else float(total)

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features that the kernel has where vectors are narrow enough, and where they are not."""
        found = {_named(work, width) for work in work_of(scop) for width in WIDTHS}
        return [name for name in IDENTIFIERS if name in found]


# Counts by identifier, then by loop and variable for chains.
_Terms = dict[str, dict[str, dict[str, list[QuasiPolynomial]]]]


def _terms(scop: Scop, lanes: int) -> _Terms:
    def compute() -> _Terms:
        found: _Terms = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        for work in work_of(scop):
            for width in WIDTHS:
                count = _count(scop, work, width, lanes)
                if count is not None and not count.is_zero:
                    loop, variable = (
                        (f"{work.launch} {work.kind[1]}", work.kind[2]) if work.kind[0] == "chain" else ("", "")
                    )
                    found[_named(work, width)][loop][variable].append(count * (work.times * _each(work, width, lanes)))
        counts_of(scop).keep()
        return {name: {loop: dict(each) for loop, each in loops.items()} for name, loops in found.items()}

    return scop.derived("simd terms", lanes, compute)


def _count(scop: Scop, work: Work, width: Width, lanes: int) -> QuasiPolynomial | None:
    """Return how many vectors, or work-items that fill none, execute something; None if the launch has none."""
    launch = scop.launches[work.launch]
    with ISL_LOCK:
        domain = executing(work.domain, launch, width, lanes)
    if domain is None:
        return None
    counts = counts_of(scop)
    return counts.executions(domain, work.launch, None)


IDENTIFIERS = tuple(_identifiers())
SIMD_FAMILY = NamedFamily(IDENTIFIERS, SimdFeature)
