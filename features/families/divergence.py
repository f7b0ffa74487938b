"""Divergence: ``f_diverged_<dtype>_<op>``, operations that sub-groups execute with some of their work-items only.

A sub-group executes a statement if the condition holds for any of its work-items, and both sides of an if/else where
its work-items differ. ``f_op_...`` and accesses that count per sub-group are counted so; this feature says how much of
it is done by sub-groups of which other work-items wait: because of a condition, a remainder, or loops of different
lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.features.counting.counts import counts_of
from perflex.features.families.feature import FeatureDefaults
from perflex.features.scop.words import read_operation
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.scop import Scop, Statement
    from perflex.features.target import Target

_PREFIX = "f_diverged_"


@dataclass(frozen=True)
class DivergenceFeature(FeatureDefaults):
    """Operations of one kind and type, counted once per sub-group that executes them with idle work-items."""

    dtype: str
    kind: str

    @property
    def identifier(self) -> str:
        """The identifier in model strings."""
        return f"{_PREFIX}{self.dtype}_{self.kind}"

    @property
    def unit(self) -> str:
        """What is counted."""
        return "diverged sub-group operation"

    def count(self, scop: Scop, sub_group_size: int) -> QuasiPolynomial:
        """Return the symbolic count."""
        return counts_of(scop).diverged_total(self.kind, self.dtype, sub_group_size)

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the count at the given sizes."""
        scop.check_sizes(sizes)
        return self.count(scop, target.sub_group_size).evaluate(sizes)

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of operations that not all work-items of a work-group execute alike."""
        unequal = [statement for statement in scop.statements if statement.operations and _differs(scop, statement)]
        kinds = {(operation.dtype, operation.kind) for statement in unequal for operation in statement.operations}
        return [f"{_PREFIX}{dtype}_{kind}" for dtype, kind in sorted(kinds)]


def _differs(scop: Scop, statement: Statement) -> bool:
    """Return whether work-items of one work-group differ in what they execute of a statement."""
    launch = scop.launches[statement.launch]
    first, kinds = len(launch.groups), isl.dim_type
    with ISL_LOCK:
        domain = statement.domain.intersect_params(scop.assumptions.params())
        alike = domain.project_out(kinds.set, first, len(launch.items)).insert_dims(kinds.set, first, len(launch.items))
        for axis, extent in enumerate(launch.items):
            alike = alike.lower_bound_val(kinds.set, first + axis, isl.Val(0))
            alike = alike.upper_bound_val(kinds.set, first + axis, isl.Val(extent - 1))
        return not alike.is_subset(domain)


class DivergenceFamily:
    """Reads ``f_diverged_...``."""

    def parse(self, identifier: str) -> DivergenceFeature | None:
        """Return the feature of an identifier that starts with ``f_diverged_``.

        Raises
        ------
        UnknownFeatureError
            The type or operation is unknown.
        """
        if not identifier.startswith(_PREFIX):
            return None
        return DivergenceFeature(*read_operation(identifier, _PREFIX))

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        return tuple(f"{_PREFIX}{dtype}_{kind}" for dtype in ("float32", "float64") for kind in ("add", "mul", "madd"))
