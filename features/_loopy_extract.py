"""From a loopy translation unit to a Scop."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from perflex.errors import UnsupportedKernelError
from perflex.features._isl import isl
from perflex.features._loopy_expression import ExpressionReader, RawAccess
from perflex.features._loopy_polynomial import affine_in_parameters, parameter_space, polynomial_in_parameters
from perflex.features._quasipolynomial import QuasiPolynomial
from perflex.features._scop import Access, Array, Barrier, Launch, Operation, Scop, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["extract_scop"]

_remembered: WeakKeyDictionary[Any, Scop] = WeakKeyDictionary()


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
    if kernel in _remembered:
        return _remembered[kernel]
    scop = _Extraction(*_linearized(kernel)).scop()
    _remembered[kernel] = scop
    return scop


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
            kernel = lp.get_one_linearized_kernel(t_unit[name], t_unit.callables_table)
        except (lp.diagnostic.LoopyError, RuntimeError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            msg = f"loopy cannot schedule kernel {name!r}: {first}"
            raise UnsupportedKernelError(msg, kernel=name) from error
    return kernel, t_unit.callables_table


@dataclass(frozen=True)
class _Place:
    """Where an instruction or barrier stands in the linearization."""

    launch: int
    loops: tuple[str, ...]
    schedule: tuple[int | str, ...]


@dataclass
class _Program:
    """The linearization, read once."""

    instructions: list[tuple[str, _Place]] = field(default_factory=list)
    barriers: list[tuple[str, str | None, _Place]] = field(default_factory=list)
    launches: list[tuple[frozenset[str], tuple[str, ...]]] = field(default_factory=list)


def _read_linearization(linearization: Sequence[Any]) -> _Program:
    from loopy.schedule import Barrier as BarrierItem
    from loopy.schedule import CallKernel, EnterLoop, LeaveLoop, ReturnFromKernel, RunInstruction

    program = _Program()
    loops: list[str] = []
    counters = [0]
    inside: list[str] | None = None
    host_loops: tuple[str, ...] = ()
    for item in linearization:
        place = _Place(len(program.launches), tuple(loops), _position(counters, loops))
        if isinstance(item, CallKernel):
            inside, host_loops = [], tuple(loops)
        elif isinstance(item, ReturnFromKernel):
            program.launches.append((frozenset(inside or ()), host_loops))
            inside = None
        elif isinstance(item, EnterLoop):
            loops.append(item.iname)
            counters.append(0)
        elif isinstance(item, LeaveLoop):
            loops.pop()
            counters.pop()
            counters[-1] += 1
        elif isinstance(item, RunInstruction):
            counters[-1] += 1
            if inside is not None:
                inside.append(item.insn_id)
                program.instructions.append((item.insn_id, place))
        elif isinstance(item, BarrierItem):
            counters[-1] += 1
            if inside is not None:
                program.barriers.append((item.synchronization_kind, item.originating_insn_id, place))
    return program


def _position(counters: Sequence[int], loops: Sequence[str]) -> tuple[int | str, ...]:
    position: list[int | str] = [counters[0]]
    for loop, counter in zip(loops, counters[1:], strict=True):
        position += [loop, counter]
    return tuple(position)


class _Extraction:
    def __init__(self, kernel: Any, callables: Any) -> None:
        from loopy.type_inference import TypeReader

        self.kernel = kernel
        self.callables = callables
        self.program = _read_linearization(kernel.linearization)
        self.parameters = tuple(sorted(kernel.outer_params()))
        self.assumptions = isl.Set.from_basic_set(kernel.assumptions)
        self.launches = [self._launch(ids, host) for ids, host in self.program.launches]
        self.type_reader = TypeReader(kernel, callables)
        self.domains: dict[tuple[frozenset[str], tuple[str, ...], int], tuple[Any, Any]] = {}
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
            domain = self._projected(frozenset(host_loops))
            repeats = QuasiPolynomial(domain.intersect_params(self.assumptions.params()).card())
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

    # domains

    def _projected(self, inames: frozenset[str]) -> Any:
        domain = isl.Set.from_basic_set(self.kernel.get_inames_domain(inames))
        kinds = isl.dim_type
        for i in range(domain.dim(kinds.set) - 1, -1, -1):
            if domain.get_dim_name(kinds.set, i) not in inames:
                domain = domain.project_out(kinds.set, i, 1)
        return domain

    def _axes(self, inames: Iterable[str]) -> tuple[dict[int, str], dict[int, str], set[str]]:
        from loopy.kernel.data import GroupInameTag, LocalInameTag

        groups, items, sequential = {}, {}, set()
        for iname in inames:
            tags = self.kernel.inames[iname].tags
            group = next((tag for tag in tags if isinstance(tag, GroupInameTag)), None)
            item = next((tag for tag in tags if isinstance(tag, LocalInameTag)), None)
            if group is not None:
                groups[group.axis] = iname
            elif item is not None:
                items[item.axis] = iname
            else:
                sequential.add(iname)
        return groups, items, sequential

    def _domain(self, inames: frozenset[str], place: _Place, *, all_items: bool = False) -> tuple[Any, Any]:
        """Return (instances over [gid.., lid.., sequential..], the same space named after loopy's inames)."""
        key = (inames, (*place.loops, str(all_items)), place.launch)
        if key not in self.domains:
            self.domains[key] = self._make_domain(inames, place, all_items=all_items)
        return self.domains[key]

    def _make_domain(self, inames: frozenset[str], place: _Place, *, all_items: bool) -> tuple[Any, Any]:
        launch, group_exprs = self.launches[place.launch]
        groups, items, sequential = self._axes(inames)
        if all_items:
            items = {}
        loops = [loop for loop in place.loops if loop in sequential]
        loops += sorted(sequential - set(loops))
        source: list[str] = []
        target: list[str] = []
        missing_groups: list[tuple[int, Any]] = []
        missing_items: list[tuple[int, int]] = []
        for axis in range(len(launch.groups)):
            target.append(f"gid{axis}")
            source.append(groups.get(axis, f"_gid{axis}"))
            if axis not in groups:
                missing_groups.append((len(target) - 1, group_exprs[axis]))
        for axis, extent in enumerate(launch.items):
            target.append(f"lid{axis}")
            source.append(items.get(axis, f"_lid{axis}"))
            if axis not in items:
                missing_items.append((len(target) - 1, extent))
        taken = set(target)
        target += [loop if loop not in taken else f"{loop}_" for loop in loops]
        source += loops
        raw = isl.Set.from_basic_set(self.kernel.get_inames_domain(inames))
        raw_names = [raw.get_dim_name(isl.dim_type.set, i) for i in range(raw.dim(isl.dim_type.set))]
        ranges = [f"0 <= {source[position]} < {extent}" for position, extent in missing_items]
        text = f"{{ [{', '.join(raw_names)}] -> [{', '.join(source)}] : {' and '.join(ranges) or 'true'} }}"
        named = raw.apply(isl.Map(text)).coalesce()
        named = named.align_params(self.assumptions.get_space())
        for position, expr in missing_groups:
            named = self._bounded(named, position, expr)
        named = _canonical_params(named.intersect_params(self.assumptions), self.parameters)
        domain = named
        for position, name in enumerate(target):
            domain = domain.set_dim_name(isl.dim_type.set, position, name)
        for position, name in enumerate(source):
            named = named.set_dim_name(isl.dim_type.set, position, name)
        return domain, named.get_space()

    def _bounded(self, domain: Any, position: int, extent: Any) -> Any:
        kinds = isl.dim_type
        space = domain.get_space()
        limit = affine_in_parameters(extent, self.parameters).add_dims(kinds.in_, space.dim(kinds.set))
        coordinate = isl.PwAff.var_on_domain(isl.LocalSpace.from_space(space), kinds.set, position)
        below = coordinate.align_params(limit.get_space()).lt_set(limit)
        return domain.lower_bound_val(kinds.set, position, isl.Val(0)).intersect(below)

    # statements and barriers

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
        return ExpressionReader(self._dtype_of, self._is_array, self.kernel.name, insn_id)

    def _statement(self, insn_id: str, place: _Place) -> Statement | None:
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
        )

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
        return Access(raw.array, direction, _canonical_params(relation, self.parameters), raw.tag, raw.text)

    def _barrier(self, kind: str, origin: str | None, place: _Place) -> Barrier:
        if origin is not None and origin in self.kernel.id_to_insn:
            inames = self.kernel.id_to_insn[origin].within_inames
        else:
            inames = self._neighbour_inames(place)
        groups, _, _ = self._axes(inames)
        kept = frozenset(groups.values()) | frozenset(place.loops)
        domain, _ = self._domain(kept, place, all_items=True)
        return Barrier(kind, domain, place.launch)

    def _neighbour_inames(self, place: _Place) -> frozenset[str]:
        """Inames of an instruction in the same loops: it says which group axes bound those loops."""
        for insn_id, other in self.program.instructions:
            if other.launch == place.launch and other.loops[: len(place.loops)] == place.loops:
                return frozenset(self.kernel.id_to_insn[insn_id].within_inames)
        return frozenset(place.loops)


def _canonical_params(isl_object: Any, parameters: tuple[str, ...]) -> Any:
    """Give every object the same parameters in the same order, so that equal things compare equal."""
    return isl_object.align_params(parameter_space(parameters))
