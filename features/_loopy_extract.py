"""From a loopy translation unit to a Scop."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any
from weakref import finalize

from perflex._islpy import isl
from perflex.errors import UnsupportedKernelError
from perflex.features._loopy_domains import DomainMaker, align_parameters
from perflex.features._loopy_expression import ExpressionReader, RawAccess
from perflex.features._loopy_linearization import Place, read_linearization
from perflex.features._loopy_polynomial import polynomial_in_parameters
from perflex.features._loopy_races import spare_race_check
from perflex.features._quasipolynomial import QuasiPolynomial
from perflex.features._remembered import kept_scop
from perflex.features._scop import Access, Array, Barrier, Launch, Operation, Recurrence, Scop, Statement

__all__ = ["extract_scop"]

# By identity, as long as the kernel lives: comparing kernels by value is slow.
_remembered: dict[int, Scop] = {}


def extract_scop(kernel: Any) -> Scop:
    """Describe a loopy kernel as a Scop.

    Parameters
    ----------
    kernel
        A loopy ``TranslationUnit`` with one entry point; it need not be preprocessed or scheduled. Calls
        to other loopy kernels are inlined.

    Returns
    -------
    Scop
        The description of what the generated code executes; remembered as long as `kernel` lives.

    Raises
    ------
    UnsupportedKernelError
        Something cannot be described exactly; the access, loop or instruction is named.
    """
    if isinstance(kernel, Scop):
        return kernel
    key = id(kernel)
    if key not in _remembered:
        _remembered[key] = kept_scop(kernel, lambda: _Extraction(*_linearized(kernel)).scop())
        finalize(kernel, _remembered.pop, key, None)
    return _remembered[key]


def _linearized(t_unit: Any) -> tuple[Any, Any]:
    """Return (scheduled kernel, callables table) of the single entry point."""
    import loopy as lp
    from loopy.kernel.function_interface import CallableKernel

    if not isinstance(t_unit, lp.TranslationUnit):
        msg = f"expected a loopy TranslationUnit or a Scop, got {type(t_unit).__name__}"
        raise UnsupportedKernelError(msg)
    if len(t_unit.entrypoints) != 1:
        names = ", ".join(sorted(t_unit.entrypoints)) or "none"
        msg = f"the translation unit has {len(t_unit.entrypoints)} entry points ({names}); use t_unit.with_entrypoints"
        raise UnsupportedKernelError(msg)
    (name,) = t_unit.entrypoints
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loopy's advice on scheduling is for its users, not for counting
        for callee, callable_ in list(t_unit.callables_table.items()):
            if callee != name and isinstance(callable_, CallableKernel):
                t_unit = lp.inline_callable_kernel(t_unit, callee)
        try:
            t_unit = lp.preprocess_program(t_unit)
            kernel = spare_race_check(t_unit[name], t_unit.callables_table)
            kernel = lp.get_one_linearized_kernel(kernel, t_unit.callables_table)
        except (lp.diagnostic.LoopyError, RuntimeError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            msg = f"loopy cannot schedule kernel {name!r}: {first}"
            raise UnsupportedKernelError(msg, kernel=name) from error
    return kernel, t_unit.callables_table


class _Extraction:
    def __init__(self, kernel: Any, callables: Any) -> None:
        from loopy.type_inference import TypeReader

        self.kernel = kernel
        self.callables = callables
        self.program = read_linearization(kernel.linearization)
        self.parameters = _size_parameters(kernel)
        self.assumptions = isl.Set.from_basic_set(kernel.assumptions)
        self.domains = DomainMaker(kernel, self.parameters)
        self.launches = [self._launch(ids, host) for ids, host in self.program.launches]
        self.type_reader = TypeReader(kernel, callables)
        self._check_parameters()

    def scop(self) -> Scop:
        statements = tuple(
            statement for statement in (self._statement(*entry) for entry in self.program.instructions) if statement
        )
        used = {access.array for statement in statements for access in statement.accesses}
        names = [name for name in (*self.kernel.arg_dict, *self.kernel.temporary_variables) if name in used]
        return Scop(
            name=self.kernel.name,
            parameters=self.parameters,
            assumptions=self.assumptions.params(),
            launches=tuple(launch for launch, _ in self.launches),
            arrays=tuple(self._array(name) for name in names),
            statements=statements,
            barriers=tuple(self._barrier(*entry) for entry in self.program.barriers),
        )

    def _refuse(self, message: str, **context: object) -> UnsupportedKernelError:
        return UnsupportedKernelError(f"kernel {self.kernel.name!r}: {message}", kernel=self.kernel.name, **context)

    def _check_parameters(self) -> None:
        from loopy.kernel.data import ValueArg

        for name in self.parameters:
            argument = self.kernel.arg_dict.get(name)
            if not isinstance(argument, ValueArg):
                loops = [
                    iname
                    for domain in self.kernel.domains
                    if name in domain.get_var_names(isl.dim_type.param)
                    for iname in domain.get_var_names(isl.dim_type.set)
                ]
                which = ", ".join(loops)
                msg = f"the trip count of loop {which} depends on the data ({name!r} is computed in the kernel)"
                raise self._refuse(msg, loop=loops[0] if loops else name)

    # launches and arrays

    def _launch(self, ids: frozenset[str], host_loops: tuple[str, ...]) -> tuple[Launch, Any]:
        groups, items = self.kernel.get_grid_sizes_for_insn_ids_as_exprs(ids, self.callables)
        if not all(isinstance(extent, int) for extent in items):
            msg = f"the work-group size {tuple(map(str, items))} is symbolic; fix it, e.g. with lp.fix_parameters"
            raise self._refuse(msg)
        repeats = QuasiPolynomial.constant(1)
        if host_loops:
            repeats = QuasiPolynomial(self.domains.trips(frozenset(host_loops)).card())
        launch = Launch(
            groups=tuple(self._simplified(extent) for extent in groups),
            items=tuple(int(extent) for extent in items),
            repeats=repeats,
        )
        return launch, groups

    def _simplified(self, expr: Any) -> QuasiPolynomial:
        polynomial = polynomial_in_parameters(expr, self.parameters).isl_object
        return QuasiPolynomial(polynomial.gist_params(self.assumptions.params()))

    def _array(self, name: str) -> Array:
        from loopy.kernel.array import get_strides
        from loopy.kernel.data import AddressSpace

        variable = self.kernel.get_var_descriptor(name)
        spaces = {AddressSpace.GLOBAL: "global", AddressSpace.LOCAL: "local", AddressSpace.PRIVATE: "private"}
        if variable.dim_tags is not None and any(not hasattr(tag, "stride") for tag in variable.dim_tags):
            msg = f"array {name!r} has a vector or separate-array axis, which has no stride"
            raise self._refuse(msg, array=name)
        strides = get_strides(variable) if variable.shape else ()
        return Array(
            name=name,
            space=spaces[variable.address_space],
            dtype=str(variable.dtype.numpy_dtype),
            shape=tuple(self._simplified(extent) for extent in variable.shape or ()),
            strides=tuple(self._simplified(stride) for stride in strides),
        )

    # statements and barriers

    def _domain(self, inames: frozenset[str], place: Place, *, all_items: bool = False) -> tuple[Any, Any]:
        launch, group_extents = self.launches[place.launch]
        return self.domains.domain(inames, place.loops, group_extents, launch.items, all_items=all_items)

    def _dtype_of(self, expr: Any) -> Any:
        return self.type_reader(expr).numpy_dtype

    def _is_array(self, name: str) -> bool:
        from loopy.kernel.array import ArrayBase

        variable = self.kernel.arg_dict.get(name) or self.kernel.temporary_variables.get(name)
        if not isinstance(variable, ArrayBase):
            return False
        return bool(variable.shape) or not self._is_private(variable)

    @staticmethod
    def _is_private(variable: Any) -> bool:
        from loopy.kernel.data import AddressSpace

        return bool(variable.address_space == AddressSpace.PRIVATE)

    def _reader(self, insn_id: str) -> ExpressionReader:
        return ExpressionReader(self._dtype_of, self._is_array, self._function_name, self.kernel.name, insn_id)

    def _function_name(self, name: str) -> str:
        return str(getattr(self.callables.get(name), "name", name))

    def _statement(self, insn_id: str, place: Place) -> Statement | None:
        from loopy.kernel.instruction import (
            BarrierInstruction,
            CInstruction,
            MultiAssignmentBase,
            NoOpInstruction,
        )

        insn = self.kernel.id_to_insn[insn_id]
        if isinstance(insn, (BarrierInstruction, NoOpInstruction)):
            return None
        if isinstance(insn, CInstruction) or not isinstance(insn, MultiAssignmentBase):
            msg = f"instruction {insn_id!r} is literal code ({type(insn).__name__}); what it executes is not known"
            raise self._refuse(msg, instruction=insn_id)
        loads, stores = self._reader(insn_id), self._reader(insn_id)
        loads.read(insn.expression)
        for assignee in insn.assignees:
            stores.read(assignee)
        for predicate in insn.predicates:
            loads.read(predicate)
        domain, named_space = self._domain(insn.within_inames, place)
        recurrence, assigns = self._private_update(insn, loads)
        accesses = [self._access(raw, "load", named_space, insn_id) for raw in loads.accesses]
        accesses += [self._access(raw, "store", named_space, insn_id) for raw in stores.accesses]
        return Statement(
            name=insn_id,
            domain=domain,
            accesses=tuple(accesses),
            operations=tuple(
                Operation(kind, dtype, count) for (kind, dtype), count in sorted(loads.operations.items())
            ),
            launch=place.launch,
            schedule=place.schedule,
            guarded=bool(insn.predicates) or loads.conditional,
            recurrence=recurrence,
            assigns=assigns,
        )

    def _private_update(self, insn: Any, reader: ExpressionReader) -> tuple[Recurrence | None, str]:
        """Return how the instruction updates a private scalar from its old value, or which one it sets afresh."""
        if len(insn.assignees) != 1 or getattr(insn.assignee, "mapper_method", "") != "map_variable":
            return None, ""
        name = str(insn.assignee.name)
        if self._is_array(name):
            return None, ""
        path = reader.path_from(insn.expression, name)
        if path is None:
            return None, name
        counted = sorted(Counter(path).items())
        return Recurrence(name, tuple(Operation(kind, dtype, count) for (kind, dtype), count in counted)), ""

    def _access(self, raw: RawAccess, direction: str, space: Any, insn_id: str) -> Access:
        from loopy.diagnostic import ExpressionToAffineConversionError
        from loopy.symbolic import guarded_pwaff_from_expr

        relation = isl.Map.from_domain(isl.Set.universe(space))
        try:
            for index in raw.indices:
                axis = isl.Map.from_pw_aff(guarded_pwaff_from_expr(space, index, frozenset()))
                relation = relation.flat_range_product(axis)
        except ExpressionToAffineConversionError:
            where = f"access {raw.text} in instruction {insn_id!r}"
            msg = f"{where}: subscript {index} is not quasi-affine in the loop variables"
            raise self._refuse(msg, access=raw.text) from None
        kinds = isl.dim_type
        for position in range(relation.dim(kinds.in_)):
            relation = relation.set_dim_id(kinds.in_, position, isl.Id(f"i{position}"))
        return Access(raw.array, direction, align_parameters(relation, self.parameters), raw.tag, raw.text)

    def _barrier(self, kind: str, origin: str | None, place: Place) -> Barrier:
        if origin is not None and origin in self.kernel.id_to_insn:
            inames = self.kernel.id_to_insn[origin].within_inames
        else:
            inames = self._neighbour_inames(place)
        groups, _, _ = self.domains.axes(inames)
        kept = frozenset(groups.values()) | frozenset(place.loops)
        domain, _ = self._domain(kept, place, all_items=True)
        return Barrier(kind, domain, place.launch, place.schedule)

    def _neighbour_inames(self, place: Place) -> frozenset[str]:
        """Inames of an instruction in the same loops: it says which group axes bound those loops."""
        for insn_id, other in self.program.instructions:
            if other.launch == place.launch and other.loops[: len(place.loops)] == place.loops:
                return frozenset(self.kernel.id_to_insn[insn_id].within_inames)
        return frozenset(place.loops)


def _size_parameters(kernel: Any) -> tuple[str, ...]:
    """Return the arguments that loop bounds, shapes, strides or subscripts depend on, sorted."""
    from loopy.kernel.array import ArrayBase
    from loopy.kernel.data import ValueArg
    from loopy.symbolic import DependencyMapper, get_dependencies

    names = set(kernel.outer_params())
    for variable in (*kernel.args, *kernel.temporary_variables.values()):
        if isinstance(variable, ArrayBase) and isinstance(variable.shape, tuple):
            strides = [tag.stride for tag in variable.dim_tags or () if hasattr(tag, "stride")]
            names |= get_dependencies((*variable.shape, *strides))
    subscripts = DependencyMapper(include_subscripts=True)
    for insn in kernel.instructions:
        for expr in (*getattr(insn, "assignees", ()), getattr(insn, "expression", None)):
            if expr is not None:
                for dependency in subscripts(expr):
                    if getattr(dependency, "mapper_method", "") == "map_subscript":
                        names |= get_dependencies(dependency.index)
    known = set(kernel.outer_params())
    return tuple(sorted(name for name in names if name in known or isinstance(kernel.arg_dict.get(name), ValueArg)))
