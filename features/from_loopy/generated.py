"""Expressions with the types that loopy's code generation gives them, and the types that C computes them in.

loopy infers one type for an expression and writes code that may have another: a number takes the type of what it is
assigned to, passed to or compared with (``0.2*a[i]`` assigned to a float is ``0.2f * a[i]``), and casts stand only
where inferred types differ. Its own code generation is asked for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from loopy.codegen import UnvectorizableError
from loopy.diagnostic import LoopyError
from loopy.expression import VectorizabilityChecker, dtype_to_type_context
from loopy.kernel.array import ArrayBase, SeparateArrayArrayDimTag, get_strides
from loopy.kernel.data import AddressSpace, VectorizeTag
from loopy.kernel.instruction import CallInstruction
from loopy.symbolic import CombineMapper, TypeCast
from loopy.target.c.codegen.expression import ExpressionToCExpressionMapper
from loopy.type_inference import TypeReader
from loopy.types import NumpyType

from perflex.errors import UnsupportedKernelError
from perflex.features.lowering.arithmetic_types import common_type
from perflex.features.scop.words import DTYPES

_FLOATS = {"h": np.float16, "f": np.float32, "d": np.float64}


class _ByIdentity:
    # ``x*2`` and ``x*np.float32(2)`` are equal, but may differ in type.
    def get_cache_key(self, expr: Any, *args: Any, **kwargs: Any) -> tuple[object, ...]:
        self.__dict__.setdefault("_kept", {})[id(expr)] = expr  # so that no other gets its identity
        return id(expr), args, tuple(kwargs.items())


class _Inferred(_ByIdentity, TypeReader):  # type: ignore[misc]  # loopy has no type information
    pass


class _AsGenerated(_ByIdentity, ExpressionToCExpressionMapper):  # type: ignore[misc]
    """Rewrite expressions as loopy generates code of them: numbers have types, and each cast stands there."""

    # A number takes the type of what it is assigned to, passed to or compared with (``0.2*a[i]`` assigned to a float is
    # ``0.2f * a[i]``), and casts stand only where inferred types differ. The second argument of each method is loopy's
    # type context: "i", "f", "d", "b" or None; and "h" for half precision, in which loopy writes no numbers.

    def __init__(self, kernel: Any, callables: Any) -> None:
        # What the mapper takes of loopy's state of code generation.
        variables = (*kernel.args, *kernel.temporary_variables.values())
        state = SimpleNamespace(
            kernel=kernel, callables_table=callables, seen_dtypes=set(), var_subst_map={},
            allow_complex=any(one.dtype is not None and one.dtype.involves_complex() for one in variables),
        )  # fmt: skip
        super().__init__(state, type_inf_mapper=_Inferred(kernel, callables))

    def _context_of(self, dtype: Any) -> str | None:
        if isinstance(dtype, NumpyType) and dtype.numpy_dtype == np.float16:
            return "h"
        context: str | None = None if dtype is None else dtype_to_type_context(self.kernel.target, dtype)
        return context

    def assigned(self, insn: Any) -> Any:
        targets = [self.kernel.get_var_descriptor(name).dtype for name in insn.assignee_var_names()]
        if len(targets) == 1 and not isinstance(insn, CallInstruction):
            return self.rec(insn.expression, self._context_of(targets[0]), self.infer_type(insn.assignee))
        function = self.codegen_state.callables_table[insn.expression.function.name]
        # A tuple is assigned part by part; the parameters of other functions have the types that these declare.
        return self._call(insn.expression, function, targets if function.name == "make_tuple" else None)

    def _call(self, call: Any, function: Any, needed: list[Any] | None = None) -> Any:
        types = needed or [function.arg_id_to_dtype[position] for position in range(len(call.parameters))]
        written = zip(call.parameters, types, strict=True)
        return type(call)(call.function, tuple(self.rec(one, self._context_of(dtype), dtype) for one, dtype in written))

    def wrap_in_typecast(self, actual_type: Any, needed_type: Any, s: Any) -> Any:
        # loopy has no node for a cast to bool; of that nothing is counted.
        number = isinstance(needed_type, NumpyType) and issubclass(needed_type.numpy_dtype.type, np.number)
        return TypeCast(needed_type, s) if number and actual_type != needed_type else s

    def map_variable(self, expr: Any, _context: str | None) -> Any:
        return expr

    map_tagged_variable = map_subscript = map_linear_subscript = map_sub_array_ref = map_variable
    map_lookup = map_nan = map_group_hw_index = map_local_hw_index = map_variable

    def map_constant(self, expr: Any, type_context: str | None) -> Any:
        if isinstance(expr, (complex, np.complexfloating)):
            # loopy writes complex numbers without a type in single precision (COMPLEX_GUESS_LOGIC in its sources).
            return expr if isinstance(expr, np.generic) else np.complex64(expr)
        if not np.isfinite(expr):
            return np.float32(expr)  # INFINITY and NAN of OpenCL C are floats
        if isinstance(expr, (np.uint8, np.uint16)):
            return np.uint32(expr)  # C's suffix u
        if isinstance(expr, (np.integer, np.float16, np.float32, np.float64, np.bool_)):
            return expr
        if type_context in _FLOATS and not isinstance(expr, np.generic):
            return _FLOATS[type_context](expr)
        return super().map_constant(expr, type_context)

    def map_floor_div(self, expr: Any, _context: str | None) -> Any:
        return type(expr)(self.rec(expr.numerator, "i"), self.rec(expr.denominator, "i"))

    map_remainder = map_floor_div

    def _operands(self, expr: Any, parts: tuple[Any, ...], type_context: str | None) -> tuple[Any, ...]:
        """Return operands; complex ones of a complex result are converted to its inferred type."""
        inferred = self.infer_type(expr) if self.allow_complex and type_context != "i" else None
        if inferred is None or not inferred.is_complex():
            return tuple(self.rec(part, type_context) for part in parts)
        return tuple(
            self.rec(part, type_context, inferred if self.infer_type(part).is_complex() else None) for part in parts
        )

    def map_sum(self, expr: Any, type_context: str | None) -> Any:
        return type(expr)(self._operands(expr, expr.children, type_context))

    map_product = map_sum

    def map_quotient(self, expr: Any, type_context: str | None) -> Any:
        parts = expr.numerator, expr.denominator
        written = self._operands(expr, parts, type_context)
        # That of integers is one of floating-point numbers where such a number is needed.
        if type_context in _FLOATS and not any(self.infer_type(part).numpy_dtype.kind in "fc" for part in parts):
            written = tuple(TypeCast(_FLOATS[type_context], part) for part in written)
        return type(expr)(*written)

    def map_power(self, expr: Any, type_context: str | None) -> Any:
        base, exponent = self.rec(expr.base, type_context), self.rec(expr.exponent, type_context)
        # Generated as 1, as the base, as base*base, or as a call, which converts its base to the function's type.
        return type(expr)(base if exponent in {0, 1, 2} else TypeCast(self.infer_type(expr), base), exponent)

    def map_comparison(self, expr: Any, _context: str | None) -> Any:
        context = self._context_of(self.infer_type(expr.left - expr.right))
        return type(expr)(self.rec(expr.left, context), expr.operator, self.rec(expr.right, context))

    def map_call(self, expr: Any, type_context: str | None) -> Any:
        function = self.codegen_state.callables_table.get(getattr(expr.function, "name", None))
        if function is None or function.arg_id_to_dtype is None:
            return super(ExpressionToCExpressionMapper, self).map_call(expr, type_context)
        return self._call(expr, function)


class _CTypes(_ByIdentity, TypeReader):  # type: ignore[misc]
    """Types in which C computes expressions that `_AsGenerated` returned."""

    def combine(self, values: Iterable[Any]) -> Any:
        dtypes = [dtype for dtype_set in values for dtype in dtype_set]
        if not all(isinstance(dtype, NumpyType) for dtype in dtypes):
            return super().combine([[dtype] for dtype in dtypes])
        # A vector of three is a structure to numpy; its operations are on vectors, whatever the others are.
        vectors = [dtype for dtype in dtypes if dtype.numpy_dtype.fields is not None]
        if vectors or not dtypes:
            return vectors[:1]
        return [NumpyType(np.dtype(common_type(*(str(dtype.numpy_dtype) for dtype in dtypes))))]

    # Numbers have their types here, and casts say where the type of a quotient is not that of the integers.
    map_sum = map_product = CombineMapper.map_sum
    map_quotient = CombineMapper.map_quotient

    # The base of a power is cast to its type.
    def map_power(self, expr: Any) -> Any:
        return self.combine([self.rec(expr.base)])

    def map_bitwise_not(self, expr: Any) -> Any:
        return self.combine([self.rec(expr.child)])

    def map_left_shift(self, expr: Any) -> Any:
        return self.combine([self.rec(expr.shiftee)])

    map_right_shift = map_left_shift


@dataclass(frozen=True)
class ElementType:
    """Type of an array's elements, or of an expression's value."""

    name: str  # numpy's, of a scalar or of each component of a vector
    lanes: int = 1  # Components that are computed: 1 for scalars, 3 for a vector of three
    width: int = 1  # Components that are stored: 1 for scalars, 4 for a vector of three


class KernelFacts:
    """A preprocessed kernel, with types of its expressions and kinds of its names."""

    def __init__(self, kernel: Any, callables: Any, parameters: tuple[str, ...], displaced: frozenset[str]) -> None:
        # Its sizes in the order of the Scop, and those loops that are described as starting at 0.
        self.kernel, self._callables, self.parameters, self.displaced = kernel, callables, parameters, displaced
        self._generated, self._reader = _AsGenerated(kernel, callables), _CTypes(kernel, callables)
        self._of_dtype: dict[Any, ElementType] = {}

    def refuse(self, message: str, **context: object) -> UnsupportedKernelError:
        """Return the error of something that cannot be described."""
        return UnsupportedKernelError(f"kernel {self.kernel.name!r}: {message}", kernel=self.kernel.name, **context)

    def assigned(self, insn: Any) -> Any:
        """Return what an instruction assigns as the generated code has it: numbers with types, and casts."""
        return self._written(insn.expression, lambda: self._generated.assigned(insn))

    def vectorised(self, insn: Any) -> str:
        """Return the loop around an instruction that the generated code executes in vectors; empty if it has none."""
        loops = [name for name in insn.within_inames if self.kernel.inames[name].tags_of_type(VectorizeTag)]
        if len(loops) != 1 or len(insn.assignees) != 1 or insn.atomicity:
            return ""
        bounds = self.kernel.get_iname_bounds(loops[0])
        first, last = (
            {each.min_val().to_str(), each.max_val().to_str()}
            for each in (bounds.lower_bound_pw_aff, bounds.upper_bound_pw_aff)
        )
        # loopy writes out loops that do not begin at 0, and what it does not know in vectors.
        if first != {"0"} or len(last) > 1:
            return ""
        vectors = VectorizabilityChecker(self.kernel, loops[0], int(last.pop()) + 1)
        try:
            return loops[0] if vectors(insn.assignee) >= vectors(insn.expression) else ""
        except UnvectorizableError:
            return ""

    def generated(self, expr: Any, context: str | None = None) -> Any:
        """Return a condition as the generated code has it, or (context ``"i"``) a subscript."""
        return self._written(expr, lambda: self._generated.rec(expr, context))

    def _written(self, expr: Any, write: Callable[[], Any]) -> Any:
        try:
            return write()
        except (LoopyError, RuntimeError, AttributeError) as error:
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            msg = (
                f"loopy cannot generate code for {expr} in kernel {self.kernel.name!r} ({reason[0]}); declare its "
                "names as arguments, give arrays element types (lp.add_dtypes(kernel, {'x': np.float32})), register "
                "its functions with lp.register_callable, and give its numbers a type, e.g. np.float32(0.5)"
            )
            raise UnsupportedKernelError(msg, kernel=self.kernel.name) from error

    def dtype_of(self, expr: Any) -> tuple[str, int]:
        """Return the name of the element type that C computes an expression in, and the elements of its vectors."""
        try:
            dtype = self._reader(expr).numpy_dtype
        except (LoopyError, AttributeError) as error:  # the latter for unknown functions and the like
            msg = (
                f"the type of {expr} in kernel {self.kernel.name!r} is not known; declare its names as arguments, and "
                "register its functions with lp.register_callable"
            )
            raise UnsupportedKernelError(msg, kernel=self.kernel.name) from error
        found = self.element(dtype, f"{expr} in kernel {self.kernel.name!r}")
        return found.name, found.lanes

    def element(self, dtype: Any, what: str) -> ElementType:
        """Return the element type of a numpy dtype."""
        if dtype not in self._of_dtype:
            found, problem = ElementType(str(dtype)), ""
            if dtype.fields is not None:
                # loopy's vectors are structures whose fields s0, s1, ... have one type; some are padded to four.
                kind, *others = {field[0] for field in dtype.fields.values()}
                names = [name for name in dtype.names if not name.startswith("padding")]
                if others or kind.fields is not None or not {"s0", names[0]} <= set(dtype.fields):
                    problem = f"is a structure ({dtype}); give each of its fields an array of its own"
                found = ElementType(str(kind), len(names), int(dtype.itemsize // kind.itemsize))
            if not problem and found.name not in DTYPES:
                problem = f"has the element type {found.name}, which has no features; use one of {', '.join(DTYPES)}"
            if problem:
                msg = f"{what} {problem}"
                raise UnsupportedKernelError(msg, kernel=self.kernel.name)
            self._of_dtype[dtype] = found
        return self._of_dtype[dtype]

    def is_array(self, name: str) -> bool:
        """Whether a name is an array, as opposed to a scalar, loop variable or size."""
        variable = self.kernel.arg_dict.get(name) or self.kernel.temporary_variables.get(name)
        # A private array without axes is a register; a global or local one is memory that is accessed.
        return isinstance(variable, ArrayBase) and (
            bool(variable.shape) or variable.address_space != AddressSpace.PRIVATE
        )

    def function_name(self, name: str) -> str:
        """Return a function's own name: loopy numbers a function's versions for different types."""
        return str(getattr(self._callables.get(name), "name", name))

    def strides(self, variable: Any) -> tuple[Any, ...]:
        """Return the stride of each axis of an array, loopy expressions in elements (components of vectors)."""
        if any(isinstance(tag, SeparateArrayArrayDimTag) for tag in variable.dim_tags or ()):
            msg = (
                f"array {variable.name!r} has an axis that is spread over several arguments (sep), which has no "
                "stride; make it an axis in memory, or several arrays"
            )
            raise self.refuse(msg, array=variable.name)
        return tuple(get_strides(variable)) if variable.shape else ()
