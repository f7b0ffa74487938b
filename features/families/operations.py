"""Arithmetic features: ``f_op_<dtype>_<op>``, per sub-group (paper Sections 5 and 6.1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.features.counting.counts import counts_of
from perflex.features.families.feature import Amount, FeatureDefaults
from perflex.features.scop.words import OPERATIONS, read_operation

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target


@dataclass(frozen=True)
class OperationFeature(FeatureDefaults):
    """Executed operations of one kind and type, counted once per sub-group."""

    dtype: str
    kind: str

    @property
    def identifier(self) -> str:
        """The identifier in model strings."""
        return f"f_op_{self.dtype}_{self.kind}"

    @property
    def unit(self) -> str:
        """What is counted."""
        return "sub-group operation"

    def count(self, scop: Scop, sub_group_size: int) -> QuasiPolynomial:
        """Return the symbolic count."""
        return counts_of(scop).operation_total(self.kind, self.dtype, sub_group_size)

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the count at the given sizes."""
        scop.check_sizes(sizes)
        return self.count(scop, target.sub_group_size).evaluate(sizes)

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the operation features the kernel contains."""
        kinds = {(op.dtype, op.kind) for statement in scop.statements for op in statement.operations}
        return [f"f_op_{dtype}_{kind}" for dtype, kind in sorted(kinds)]

    def amount(self, _scop: Scop, _sizes: Sizes, target: Target, /) -> Amount | None:
        """Return operations per sub-group operation."""
        return Amount(float(target.sub_group_size), "op")


class OperationFamily:
    """Reads ``f_op_...``."""

    def parse(self, identifier: str) -> OperationFeature | None:
        """Return the feature of an identifier that starts with ``f_op_``.

        Raises
        ------
        UnknownFeatureError
            The type or operation is unknown.
        """
        if not identifier.startswith("f_op_"):
            return None
        return OperationFeature(*read_operation(identifier))

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        return tuple(f"f_op_{dtype}_{kind}" for dtype in ("float32", "float64", "int32") for kind in OPERATIONS)
