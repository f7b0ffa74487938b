"""Instruction features ``f_inst_...`` of the instruction roofline, symbolic in the sizes (Ding and Williams)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.families.feature import FeatureDefaults, NamedFamily
from perflex.features.instructions.instructions import INSTRUCTION_CLASSES, instructions_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

_WARP = "sub-group instruction"
INSTRUCTION_FEATURES = {
    **{f"f_inst_{kind}": _WARP for kind in INSTRUCTION_CLASSES},
    "f_inst_total": _WARP,
    "f_inst_thread": "work-item instruction",
    "f_inst_predication": "1",
}


@dataclass(frozen=True)
class InstructionFeature(FeatureDefaults):
    """Executed instructions of a class, or what follows from them.

    ``f_inst_total`` is the sum of all classes, ``f_inst_thread`` the same sum over work-items, and
    ``f_inst_predication`` the share of work-items that are active in an executed instruction: 1 without guards and
    partial sub-groups, 0.5 where all is done in a branch that every other work-item takes. Branches whose condition
    depends on data count for all work-items, and so do all in kernels annotated with ``branches="both"``.
    """

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return INSTRUCTION_FEATURES[self.identifier]

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes, over all launches of the kernel."""
        scop.check_sizes(sizes)
        size = target.sub_group_size
        if self.identifier != "f_inst_predication":
            return self.count(scop, size, register_reuse=target.register_reuse).evaluate(sizes)
        threads, places = (
            InstructionFeature(name).count(scop, size, register_reuse=target.register_reuse).evaluate(sizes)
            for name in ("f_inst_thread", "f_inst_total")
        )
        # Thread predication (Ding and Williams): work-item instructions over the lanes of all issued instructions.
        places = places * size
        # Where nothing runs, nothing is predicated.
        share = np.where(places > 0, threads / np.maximum(places, 1), 1.0)
        return share if np.ndim(places) else float(share)

    def count(self, scop: Scop, sub_group_size: int, *, register_reuse: bool = True) -> QuasiPolynomial:
        """Return the symbolic count; the predication is a ratio of two and has none."""
        whose = None if self.identifier == "f_inst_thread" else sub_group_size
        by_class = instructions_of(scop, whose, register_reuse=register_reuse)
        if self.identifier in {"f_inst_total", "f_inst_thread"}:
            return QuasiPolynomial.total(by_class.values())
        return by_class[self.identifier.removeprefix("f_inst_")]

    def counts_class(self, kind: str) -> bool:
        """Return whether instructions of a class are among those that it counts."""
        return self.identifier in {f"f_inst_{kind}", "f_inst_total", "f_inst_thread"}

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of this family that the kernel has."""
        by_class = instructions_of(scop, None)
        there = {f"f_inst_{kind}" for kind, count in by_class.items() if not count.is_zero}
        return [
            name
            for name in INSTRUCTION_FEATURES
            if name in there or name.removeprefix("f_inst_") not in INSTRUCTION_CLASSES
        ]


INSTRUCTION_FAMILY = NamedFamily(INSTRUCTION_FEATURES, InstructionFeature)
