"""Arithmetic features: ``f_op_<dtype>_<op>``, per sub-group (paper Sections 5 and 6.1.2)."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import UnknownFeatureError
from perflex.features.counting.counts import counts_of
from perflex.features.families.feature import Amount

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.scop import Scop

__all__ = ["DTYPES", "OPERATIONS", "OperationFamily", "OperationFeature", "operation_of_function"]

DTYPES = (
    "float16", "float32", "float64", "complex64", "complex128",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip

OPERATIONS = (
    "add", "mul", "madd", "div", "floordiv", "mod", "pow", "min", "max", "abs", "cmp", "bit", "shift", "atomic",
    "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "fma",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "sinpi", "cospi", "hypot", "erf", "erfc", "floor", "ceil", "round", "trunc", "sign", "fmod", "conj",
)  # fmt: skip


# A function that is none of the above, e.g. a user's own.
_CALL = re.compile(r"call:[A-Za-z_]\w*")


def operation_of_function(name: str) -> str:
    """Return what a call of a function is called as an operation: its name, or ``call:NAME`` for unknown ones."""
    return name if name in OPERATIONS else f"call:{name}"


@dataclass(frozen=True)
class OperationFeature:
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

    def value(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Any:
        """Return the count at the given sizes."""
        scop.check_sizes(sizes)
        return self.count(scop, sub_group_size).evaluate(sizes)

    def matches(self, scop: Scop, sizes: Sizes) -> bool:  # noqa: ARG002 - protocol
        """Return whether any statement has such an operation."""
        return self.identifier in self.inventory(scop)

    def inventory(self, scop: Scop) -> list[str]:
        """Return the operation features the kernel contains."""
        kinds = {(op.dtype, op.kind) for statement in scop.statements for op in statement.operations}
        return [f"f_op_{dtype}_{kind}" for dtype, kind in sorted(kinds)]

    def amount(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Amount | None:  # noqa: ARG002 - protocol
        """Return operations per sub-group operation."""
        return Amount(float(sub_group_size), "op")


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
        dtype, _, kind = identifier.removeprefix("f_op_").partition("_")
        for what, word, known in (("element type", dtype, DTYPES), ("operation", kind, OPERATIONS)):
            if word not in known and not (what == "operation" and _CALL.fullmatch(word)):
                near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
                hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
                msg = f"feature {identifier!r} names an unknown {what} {word!r}; {hint}"
                raise UnknownFeatureError(msg, feature=identifier, suggestions=tuple(near))
        return OperationFeature(dtype, kind)

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        return tuple(f"f_op_{dtype}_{kind}" for dtype in ("float32", "float64", "int32") for kind in OPERATIONS)
