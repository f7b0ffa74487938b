"""Global memory accesses of a loopy kernel, in the order in which they are executed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopy.kernel.data import AddressSpace, ArrayArg
from loopy.kernel.instruction import Assignment, BarrierInstruction, LegacyStringInstructionTag, NoOpInstruction
from loopy.schedule import CallKernel, EnterLoop, LeaveLoop, RunInstruction
from loopy.symbolic import CombineMapper, IdentityMapper, TaggedVariable, get_dependencies
from pymbolic.primitives import LogicalNot, Subscript

from perflex.errors import UnsupportedKernelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import loopy as lp
    from pymbolic.primitives import Expression, If, Variable


@dataclass(frozen=True)
class Access:
    """One access in the text of a kernel."""

    array: str
    tags: frozenset[str]
    is_store: bool
    # The subscript expression, with its tags.
    expression: Expression
    within_inames: frozenset[str]
    # Conditions under which it is executed.
    predicates: frozenset[Expression]
    # The sequential loops around it, outermost first.
    nest: tuple[str, ...]
    # Number of the launch that it belongs to, from 0.
    launch: int

    def __str__(self) -> str:
        return f"{'store' if self.is_store else 'load'} {self.expression}"


class _Loads(CombineMapper):  # type: ignore[misc]
    """Collects (subscript, conditions) of the arrays' loads in an expression."""

    def __init__(self, arrays: frozenset[str]) -> None:
        super().__init__()
        self._arrays = arrays
        self._conditions: tuple[Expression, ...] = ()

    def combine(self, values: Iterable[list[object]]) -> list[object]:
        return [load for value in values for load in value]

    def map_constant(self, _expr: Expression) -> list[object]:
        return []

    # Leaves of pymbolic's and loopy's expressions; none is a load.
    map_variable = map_tagged_variable = map_function_symbol = map_constant
    map_resolved_function = map_type_annotation = map_constant

    def map_subscript(self, expr: Subscript) -> list[object]:
        # Loads in the subscript come first: the place depends on them.
        inner: list[object] = self.rec(expr.index_tuple)
        if expr.aggregate.name in self._arrays:
            return [*inner, (expr, frozenset(self._conditions))]
        return inner

    def map_if(self, expr: If) -> list[object]:
        found: list[object] = self.rec(expr.condition)
        outside = self._conditions
        for condition, branch in ((expr.condition, expr.then), (LogicalNot(expr.condition), expr.else_)):
            self._conditions = (*outside, condition)
            found = [*found, *self.rec(branch)]
        self._conditions = outside
        return found

    def map_tuple(self, expr: tuple[Expression, ...]) -> list[object]:
        return self.combine([self.rec(part) for part in expr])


def require_one_entry_point(kernel: lp.TranslationUnit, action: str) -> None:
    """Raise an `UnsupportedKernelError` unless a program has one entry point; `action` is what needs that."""
    if len(kernel.entrypoints) != 1:
        names = ", ".join(sorted(kernel.entrypoints))
        msg = f"{action} takes a kernel with one entry point, not {names or 'none'}; choose one"
        raise UnsupportedKernelError(msg, kernel=names)


def global_arrays(kernel: lp.LoopKernel) -> frozenset[str]:
    """Return the names of the arrays in global memory."""
    arguments = [a.name for a in kernel.args if isinstance(a, ArrayArg) and a.address_space == AddressSpace.GLOBAL]
    temporaries = [t.name for t in kernel.temporary_variables.values() if t.address_space == AddressSpace.GLOBAL]
    return frozenset([*arguments, *temporaries])


def _executed(kernel: lp.LoopKernel) -> Iterator[tuple[lp.InstructionBase, tuple[str, ...], int]]:
    """Yield the instructions of a linearized kernel, each with the loops around it and its launch's number."""
    nest: list[str] = []
    launch = -1
    for item in kernel.linearization:
        if isinstance(item, CallKernel):
            launch += 1
        elif isinstance(item, EnterLoop):
            nest.append(item.iname)
        elif isinstance(item, LeaveLoop):
            nest.remove(item.iname)
        elif isinstance(item, RunInstruction):
            yield kernel.id_to_insn[item.insn_id], tuple(nest), launch


def global_accesses(kernel: lp.LoopKernel) -> list[Access]:
    """Return every global access of a linearized kernel, in order of execution."""
    return [access for found in _executed(kernel) for access in _of_instruction(kernel, *found)]


def launch_instructions(kernel: lp.LoopKernel, launch: int) -> frozenset[str]:
    """Return the ids of the instructions of one launch of a linearized kernel."""
    return frozenset(insn.id for insn, _, number in _executed(kernel) if number == launch)


def check_one_launch(kernel: lp.LoopKernel, kept: Sequence[Access]) -> int:
    """Return the number of the launch that all kept accesses belong to."""
    if len({access.launch for access in kept}) > 1:
        listed = "; ".join(f"{access} in launch {access.launch}" for access in kept)
        msg = f"the kept accesses of {kernel.name!r} belong to several launches ({listed}); keep those of one"
        raise UnsupportedKernelError(msg, kernel=kernel.name)
    for access in kept:
        if not access.is_store and access.array in kernel.temporary_variables and kept[0].launch > 0:
            msg = f"{access} in {kernel.name!r} loads what an earlier launch computed; remove {access.array!r}"
            raise UnsupportedKernelError(msg, kernel=kernel.name, access=str(access))
    return kept[0].launch


def _of_instruction(
    kernel: lp.LoopKernel, insn: lp.InstructionBase, nest: tuple[str, ...], launch: int
) -> Iterator[Access]:
    if isinstance(insn, (BarrierInstruction, NoOpInstruction)):
        return
    if not isinstance(insn, Assignment):
        msg = f"instruction {insn.id!r} of {kernel.name!r} is not a plain assignment; work removal knows no other"
        raise UnsupportedKernelError(msg, kernel=kernel.name, instruction=insn.id)
    arrays, target = global_arrays(kernel), insn.assignee
    loads = _Loads(arrays)
    found = [(*load, False) for part in (insn.expression, *insn.predicates) for load in loads(part)]
    if isinstance(target, Subscript):
        found += [(*load, False) for load in loads(target.index_tuple)]
        found += [(target, frozenset(), True)] if target.aggregate.name in arrays else []
    for place, conditions, is_store in found:
        array = place.aggregate
        tags = array.tags if isinstance(array, TaggedVariable) else ()
        yield Access(
            array=array.name,
            tags=frozenset(tag.value for tag in tags if isinstance(tag, LegacyStringInstructionTag)),
            is_store=is_store,
            expression=place,
            within_inames=insn.within_inames,
            predicates=insn.predicates | conditions,
            nest=nest,
            launch=launch,
        )


def check_regular(kernel: lp.LoopKernel, access: Access) -> None:
    """Check that place and conditions of an access depend on loops and sizes only."""
    allowed = kernel.all_inames() | kernel.outer_params()
    for expression in (*access.expression.index_tuple, *access.predicates):
        data = get_dependencies(expression) - allowed
        if data:
            msg = (
                f"{access} in {kernel.name!r} depends on {', '.join(sorted(data))}: an indirect access cannot be kept; "
                f"name {access.array!r} in remove_vars"
            )
            raise UnsupportedKernelError(msg, kernel=kernel.name, access=str(access))


class _Tagger(IdentityMapper):  # type: ignore[misc]
    def __init__(self, tags: Mapping[str, str]) -> None:
        super().__init__()
        self._tags = tags

    def map_variable(self, expr: Variable) -> Expression:
        if expr.name in self._tags:
            return TaggedVariable(expr.name, frozenset({LegacyStringInstructionTag(self._tags[expr.name])}))
        return expr


def tag_accesses(
    kernel: lp.TranslationUnit, loads: Mapping[str, str] | None = None, stores: Mapping[str, str] | None = None
) -> lp.TranslationUnit:
    """Put an access tag on every access to the given arrays.

    Done after all transformations, since ``add_prefetch`` drops the tags written in instructions.

    Parameters
    ----------
    kernel
        A kernel with one entry point.
    loads, stores
        Access tag by array.

    Returns
    -------
    lp.TranslationUnit
        The kernel with the tags; what else it does is unchanged.

    Raises
    ------
    UnsupportedKernelError
        The kernel has no such array, or several entry points.
    """
    require_one_entry_point(kernel, "tagging accesses")
    loop_kernel = kernel.default_entrypoint
    known = {*loop_kernel.arg_dict, *loop_kernel.temporary_variables}
    for name in (*(loads or {}), *(stores or {})):
        if name not in known:
            msg = f"kernel {loop_kernel.name!r} has no array {name!r}; it has {', '.join(sorted(known))}"
            raise UnsupportedKernelError(msg, kernel=loop_kernel.name)
    load, store = _Tagger(loads or {}), _Tagger(stores or {})
    instructions = [
        insn.copy(expression=load(insn.expression), assignee=store(insn.assignee))
        if isinstance(insn, Assignment)
        else insn
        for insn in loop_kernel.instructions
    ]
    return kernel.with_kernel(loop_kernel.copy(instructions=instructions))
