"""What a loopy kernel says of types, names and conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.terms import all_numbers_are_integers, is_number
from perflex.features.scop.words import DTYPES
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Callable

    from perflex.features.annotation import CountingOptions
    from perflex.features.from_loopy.trips import TripCounts
    from perflex.features.from_loopy.work import RawAccess


@dataclass(frozen=True)
class ElementType:
    """Type of an array's elements, or of an expression's value.

    Attributes
    ----------
    name
        numpy name of a scalar, or of each component of a vector.
    lanes
        Components that are computed: 1 for scalars, 3 for a vector of three.
    width
        Components that are stored: 1 for scalars, 4 for a vector of three.
    """

    name: str
    lanes: int = 1
    width: int = 1

    @classmethod
    def of(cls, dtype: Any, what: str) -> ElementType:
        """Return the type of a numpy dtype; vectors have equal, unpadded fields ``s0, s1, ...``.

        Raises
        ------
        UnsupportedKernelError
            It is a structure.
        """
        if dtype.fields is None:
            return cls(str(dtype))
        # loopy's vectors are structures whose fields have one type; some are padded to four components.
        kinds = {field[0] for field in dtype.fields.values()}
        names = [name for name in dtype.names if not name.startswith("padding")]
        if len(kinds) != 1 or next(iter(kinds)).fields is not None or not {"s0", names[0]} <= set(dtype.fields):
            msg = f"{what} is a structure ({dtype}); give each of its fields an array of its own"
            raise UnsupportedKernelError(msg)
        (kind,) = kinds
        return cls(str(kind), len(names), int(dtype.itemsize // kind.itemsize))


class KernelTypes:
    """Types of a preprocessed kernel's expressions and kinds of its names; the same for all its instructions."""

    def __init__(self, kernel: Any, callables: Any) -> None:
        from perflex.features.from_loopy.generated import AsGenerated, CTypes

        self._kernel = kernel
        self._callables = callables
        self._generated = AsGenerated(kernel, callables)
        self._reader = CTypes(kernel, callables)
        self._of_dtype: dict[Any, ElementType] = {}
        self._arrays: dict[str, bool] = {}

    def assigned(self, insn: Any) -> Any:
        """Return what an instruction assigns as the generated code has it: numbers with types, and all casts.

        Raises
        ------
        UnsupportedKernelError
            loopy cannot generate code for it.
        """
        return self._as_generated(insn.expression, lambda: self._generated.assigned(insn))

    def condition(self, expr: Any) -> Any:
        """Return a condition of an instruction as the generated code has it; raises as `assigned`."""
        return self._as_generated(expr, lambda: self._generated.rec(expr, None))

    def index(self, expr: Any) -> Any:
        """Return arithmetic of subscripts as the generated code has it; raises as `assigned`."""
        return self._as_generated(expr, lambda: self._generated.rec(expr, "i"))

    def _as_generated(self, expr: Any, generate: Callable[[], Any]) -> Any:
        from loopy.diagnostic import LoopyError

        try:
            return generate()
        except (LoopyError, RuntimeError, AttributeError) as error:
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            msg = (
                f"loopy cannot generate code for {expr} in kernel {self._kernel.name!r} ({reason[0]}); declare its "
                "names as arguments, give arrays element types (lp.add_dtypes(kernel, {'x': np.float32})), register "
                "its functions with lp.register_callable, and give its numbers a type, e.g. np.float32(0.5)"
            )
            raise UnsupportedKernelError(msg, kernel=self._kernel.name) from error

    def common_dtype(self, *operands: Any) -> str:
        """Return the name of the element type that C converts operands to before it computes with them."""
        from pymbolic.primitives import Sum

        return self.dtype_of(Sum(operands))[0]

    def dtype_of(self, expr: Any) -> tuple[str, int]:
        """Return the name of the element type that C computes an expression in, and the elements of its vectors."""
        from loopy.diagnostic import LoopyError

        try:
            dtype = self._reader(expr).numpy_dtype
        except (LoopyError, AttributeError) as error:  # the latter for unknown functions and the like
            msg = (
                f"the type of {expr} in kernel {self._kernel.name!r} is not known; declare its names as arguments, and "
                "register its functions with lp.register_callable"
            )
            raise UnsupportedKernelError(msg, kernel=self._kernel.name) from error
        found = self.element(dtype, f"{expr} in kernel {self._kernel.name!r}")
        return found.name, found.lanes

    def element(self, dtype: Any, what: str) -> ElementType:
        """Return the element type of a numpy dtype."""
        if dtype not in self._of_dtype:
            found = ElementType.of(dtype, what)
            if found.name not in DTYPES:
                msg = f"{what} has the element type {found.name}, which has no features; use one of {', '.join(DTYPES)}"
                raise UnsupportedKernelError(msg, kernel=self._kernel.name)
            self._of_dtype[dtype] = found
        return self._of_dtype[dtype]

    def is_array(self, name: str) -> bool:
        """Whether a name is an array, as opposed to a scalar, loop variable or size."""
        if name not in self._arrays:
            self._arrays[name] = self._is_array(name)
        return self._arrays[name]

    def _is_array(self, name: str) -> bool:
        from loopy.kernel.array import ArrayBase
        from loopy.kernel.data import AddressSpace

        # A private array without axes is a register; a global or local one is memory that is accessed.
        variable = self._kernel.arg_dict.get(name) or self._kernel.temporary_variables.get(name)
        if not isinstance(variable, ArrayBase):
            return False
        return bool(variable.shape) or variable.address_space != AddressSpace.PRIVATE

    def function_name(self, name: str) -> str:
        """Return a function's own name: loopy numbers a function's versions for different types."""
        return str(getattr(self._callables.get(name), "name", name))

    def address(self, access: RawAccess) -> Any:
        """Return the expression that the generated code computes an access's address from, in elements."""
        from loopy.symbolic import simplify_using_aff

        strides = strides_of(self._kernel.get_var_descriptor(access.array), self._kernel.name)
        total: Any = 0
        # strict=False: a component of a vector has one index more than loopy has strides.
        for stride, index in zip(strides, access.indices, strict=False):
            total = total + stride * index
        # loopy simplifies subscripts with the same function: terms that cancel there cost nothing.
        return total if is_number(total) else self.index(simplify_using_aff(self._kernel, total))


def strides_of(variable: Any, kernel_name: str) -> tuple[Any, ...]:
    """Return the stride of each axis of an array, loopy expressions in elements (components of vectors).

    Raises
    ------
    UnsupportedKernelError
        An axis has none: it is spread over several arguments.
    """
    from loopy.kernel.array import SeparateArrayArrayDimTag, get_strides

    if not variable.shape:
        return ()
    if any(isinstance(tag, SeparateArrayArrayDimTag) for tag in variable.dim_tags or ()):
        msg = (
            f"kernel {kernel_name!r}: array {variable.name!r} has an axis that is spread over several arguments "
            "(sep), which has no stride; make it an axis in memory, or several arrays"
        )
        raise UnsupportedKernelError(msg, kernel=kernel_name, array=variable.name)
    strides: tuple[Any, ...] = get_strides(variable)
    return strides


@dataclass(frozen=True)
class Branch:
    """Instances that take a branch.

    Attributes
    ----------
    conditions
        isl sets that all hold there, in loopy's names.
    guarded
        Whether something else, which is not known, decides as well.
    """

    conditions: tuple[Any, ...] = ()
    guarded: bool = False


@dataclass(frozen=True)
class KernelFacts:
    """What making a kernel's statements needs to know of it.

    Attributes
    ----------
    kernel
        A preprocessed loopy kernel.
    types
        Types of its expressions and kinds of its names.
    parameters
        Size parameters, in the order of the Scop.
    options
        How it is counted, and what the user stated about it.
    trips
        Stated trip counts of loops whose bounds depend on data.
    """

    kernel: Any
    types: KernelTypes
    parameters: tuple[str, ...]
    options: CountingOptions
    trips: TripCounts

    def branches(self, condition: Any, space: Any) -> tuple[Branch, Branch]:
        """Return where a condition holds, and where it does not.

        Parameters
        ----------
        condition
            A loopy expression.
        space
            isl space of the instruction's instances, with loopy's names.
        """
        if self.options.branches == "both":
            return Branch(guarded=True), Branch(guarded=True)
        method = getattr(condition, "mapper_method", None)
        if method == "map_logical_not":
            holds, fails = self.branches(condition.child, space)
            return fails, holds
        known = self._where_it_holds(condition, space)
        if known is not None:
            return Branch((known,)), Branch((isl.Set.universe(space).subtract(known),))
        # Of what is joined with what depends on data, the rest still says where it is certainly decided.
        if method in {"map_logical_and", "map_logical_or"}:
            parts = [self.branches(child, space) for child in condition.children]
            decided = int(method == "map_logical_or")
            joined = Branch(
                tuple(one for part in parts for one in part[decided].conditions),
                any(part[decided].guarded for part in parts),
            )
            return (Branch(guarded=True), joined) if decided else (joined, Branch(guarded=True))
        return Branch(guarded=True), Branch(guarded=True)

    def _where_it_holds(self, condition: Any, space: Any) -> Any:
        """Return the set where an affine condition holds; None if it is not affine."""
        from loopy.symbolic import condition_to_set, get_dependencies

        # A loop that starts anywhere is described as starting at 0, where the condition may hold or not.
        if get_dependencies(condition) & self.trips.displaced or not all_numbers_are_integers(condition):
            return None
        return condition_to_set(space, condition)
