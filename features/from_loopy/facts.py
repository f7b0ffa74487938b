"""What is known of a loopy kernel beside its text: types, strides, and where conditions hold."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loopy.diagnostic import LoopyError
from loopy.kernel.array import ArrayBase, SeparateArrayArrayDimTag, get_strides
from loopy.kernel.data import AddressSpace
from loopy.symbolic import condition_to_set, get_dependencies

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.generated import AsGenerated, CTypes
from perflex.features.from_loopy.terms import all_numbers_are_integers, method_of
from perflex.features.scop.words import DTYPES
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.features.annotation import CountingOptions
    from perflex.features.from_loopy.trips import TripCounts


@dataclass(frozen=True)
class Mask:
    """Which instances of an instruction do something, or take a branch."""

    conditions: tuple[Any, ...] = ()  # isl sets that all hold there, in loopy's names
    guarded: bool = False  # Whether a condition that is not among them may skip it
    lanes: int = 1  # Elements of the vectors it works on; 1 for scalars

    def within(self, other: Mask) -> Mask:
        """Return the instances that are in both."""
        return replace(self, conditions=self.conditions + other.conditions, guarded=self.guarded or other.guarded)


@dataclass(frozen=True)
class ElementType:
    """Type of an array's elements, or of an expression's value."""

    name: str  # numpy name of a scalar, or of each component of a vector
    lanes: int = 1  # Components that are computed: 1 for scalars, 3 for a vector of three
    width: int = 1  # Components that are stored: 1 for scalars, 4 for a vector of three


class KernelTypes:
    """Types of a preprocessed kernel's expressions and kinds of its names; the same for all its instructions."""

    def __init__(self, kernel: Any, callables: Any) -> None:
        self._kernel = kernel
        self._callables = callables
        self._generated = AsGenerated(kernel, callables)
        self._reader = CTypes(kernel, callables)
        self._of_dtype: dict[Any, ElementType] = {}

    def assigned(self, insn: Any) -> Any:
        """Return what an instruction assigns as the generated code has it: numbers with types, and casts."""
        with self._generating(insn.expression):
            return self._generated.assigned(insn)

    def generated(self, expr: Any, context: str | None = None) -> Any:
        """Return a condition as the generated code has it, or (context ``"i"``) a subscript."""
        with self._generating(expr):
            return self._generated.rec(expr, context)

    @contextmanager
    def _generating(self, expr: Any) -> Iterator[None]:
        try:
            yield
        except (LoopyError, RuntimeError, AttributeError) as error:
            reason = str(error).strip().splitlines()[:1] or [type(error).__name__]
            msg = (
                f"loopy cannot generate code for {expr} in kernel {self._kernel.name!r} ({reason[0]}); declare its "
                "names as arguments, give arrays element types (lp.add_dtypes(kernel, {'x': np.float32})), register "
                "its functions with lp.register_callable, and give its numbers a type, e.g. np.float32(0.5)"
            )
            raise UnsupportedKernelError(msg, kernel=self._kernel.name) from error

    def dtype_of(self, expr: Any) -> tuple[str, int]:
        """Return the name of the element type that C computes an expression in, and the elements of its vectors."""
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
        """Return the element type of a numpy dtype; vectors have equal, unpadded fields ``s0, s1, ...``."""
        if dtype not in self._of_dtype:
            found, problem = ElementType(str(dtype)), ""
            if dtype.fields is not None:
                # loopy's vectors are structures whose fields have one type; some are padded to four components.
                kind, *others = {field[0] for field in dtype.fields.values()}
                names = [name for name in dtype.names if not name.startswith("padding")]
                if others or kind.fields is not None or not {"s0", names[0]} <= set(dtype.fields):
                    problem = f"is a structure ({dtype}); give each of its fields an array of its own"
                found = ElementType(str(kind), len(names), int(dtype.itemsize // kind.itemsize))
            if not problem and found.name not in DTYPES:
                problem = f"has the element type {found.name}, which has no features; use one of {', '.join(DTYPES)}"
            if problem:
                msg = f"{what} {problem}"
                raise UnsupportedKernelError(msg, kernel=self._kernel.name)
            self._of_dtype[dtype] = found
        return self._of_dtype[dtype]

    def is_array(self, name: str) -> bool:
        """Whether a name is an array, as opposed to a scalar, loop variable or size."""
        variable = self._kernel.arg_dict.get(name) or self._kernel.temporary_variables.get(name)
        # A private array without axes is a register; a global or local one is memory that is accessed.
        return isinstance(variable, ArrayBase) and (
            bool(variable.shape) or variable.address_space != AddressSpace.PRIVATE
        )

    def function_name(self, name: str) -> str:
        """Return a function's own name: loopy numbers a function's versions for different types."""
        return str(getattr(self._callables.get(name), "name", name))


def strides_of(variable: Any, kernel_name: str) -> tuple[Any, ...]:
    """Return the stride of each axis of an array, loopy expressions in elements (components of vectors)."""
    if any(isinstance(tag, SeparateArrayArrayDimTag) for tag in variable.dim_tags or ()):
        msg = (
            f"kernel {kernel_name!r}: array {variable.name!r} has an axis that is spread over several arguments "
            "(sep), which has no stride; make it an axis in memory, or several arrays"
        )
        raise UnsupportedKernelError(msg, kernel=kernel_name, array=variable.name)
    return tuple(get_strides(variable)) if variable.shape else ()


@dataclass(frozen=True)
class KernelFacts:
    """What making a kernel's statements needs to know of it."""

    kernel: Any  # A preprocessed loopy kernel
    types: KernelTypes  # Types of its expressions and kinds of its names
    parameters: tuple[str, ...]  # Size parameters, in the order of the Scop
    options: CountingOptions  # What the user stated about it
    trips: TripCounts  # Stated trip counts of loops whose bounds depend on data

    def refuse(self, message: str, **context: object) -> UnsupportedKernelError:
        """Return the error of something that cannot be described."""
        return UnsupportedKernelError(f"kernel {self.kernel.name!r}: {message}", kernel=self.kernel.name, **context)

    def branches(self, condition: Any, space: Any) -> tuple[Mask, Mask]:
        """Return where a condition holds, and where it does not."""
        method = method_of(condition)
        if method == "map_logical_not":
            holds, fails = self.branches(condition.child, space)
            return fails, holds
        # A loop that starts anywhere is described as starting at 0, where the condition may hold or not.
        decided = not get_dependencies(condition) & self.trips.displaced and all_numbers_are_integers(condition)
        known = condition_to_set(space, condition) if decided else None
        if known is not None:
            return Mask((known,)), Mask((isl.Set.universe(space).subtract(known),))
        unknown = joined = Mask(guarded=True)
        if method not in {"map_logical_and", "map_logical_or"}:
            return unknown, unknown
        # Of what is joined with what depends on data, the rest still says where it is certainly decided.
        side = int(method == "map_logical_or")
        parts = [self.branches(child, space)[side] for child in condition.children]
        joined = Mask(tuple(one for part in parts for one in part.conditions), any(part.guarded for part in parts))
        return (unknown, joined) if side else (joined, unknown)
