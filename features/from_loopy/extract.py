"""From a loopy translation unit to a Scop."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from weakref import finalize

from perflex.errors import UnsupportedKernelError
from perflex.features.annotation import AnnotatedKernel, CountingOptions
from perflex.features.from_loopy.cycles import cause_of
from perflex.features.from_loopy.domains import DomainMaker, Instances, assumptions_on
from perflex.features.from_loopy.facts import KernelFacts, KernelTypes, TripCounts, strides_of
from perflex.features.from_loopy.statement import Place, StatementMaker, read_linearization
from perflex.features.from_loopy.subscript import AccessMaker
from perflex.features.from_loopy.terms import operands, polynomial_in_parameters, require_short_strides
from perflex.features.kept import keep_scop, kept_scop, scop_key
from perflex.features.polynomials.cardinality import TooManyOperationsError, card
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Array, Barrier, Launch, Scop
from perflex.features.scop.words import loop_name
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# By identity, as long as the kernel lives: comparing kernels by value is slow.
_scops: dict[tuple[int, CountingOptions], Scop] = {}
_DEFAULT_OPTIONS = CountingOptions()
# What loopy lets through besides its own errors, for kernels that cannot be scheduled.
_SCHEDULING_FAILURES = (RuntimeError, isl.Error, LookupError, AttributeError, ValueError, TypeError, AssertionError)


@runtime_checkable
class Described(Protocol):
    """A kernel that describes itself, such as one in OpenCL C."""

    def scop(self, sizes: Mapping[str, Any] | None = None) -> Scop:
        """Return its description, which may hold for some sizes only."""
        ...


def extract_scop(kernel: Any, sizes: Mapping[str, Any] | None = None) -> Scop:
    """Describe a kernel as a Scop.

    Parameters
    ----------
    kernel
        A loopy ``TranslationUnit`` with one entry point; it need not be preprocessed or scheduled. Calls
        to other loopy kernels are inlined. Or one that the user annotated (`annotate`), one of `source_kernel`, a
        measurement kernel, or a Scop.
    sizes
        Values of its sizes, if they are known: kernels from source code may need them.

    Returns
    -------
    Scop
        The description of what the generated code executes; the same object as long as `kernel` lives.

    Raises
    ------
    UnsupportedKernelError
        Something cannot be described exactly; the access, loop or instruction is named.
    """
    kernel = getattr(kernel, "kernel", kernel)  # of a measurement kernel
    if isinstance(kernel, Scop):
        return kernel
    if isinstance(kernel, Described):
        return kernel.scop(sizes)
    options = _DEFAULT_OPTIONS
    if isinstance(kernel, AnnotatedKernel):
        kernel, options = kernel.translation_unit, kernel.options
    key = id(kernel), options
    if key not in _scops:
        _scops[key] = _from_store_or_extracted(kernel, options)
        # A later kernel may get the same id: the entry goes with this one.
        finalize(kernel, _scops.pop, key, None)
    return _scops[key]


def _from_store_or_extracted(kernel: Any, options: CountingOptions) -> Scop:
    # The options' repr is the same in every process; their hash is not, since Python salts the hashes of strings.
    key = scop_key(kernel, repr(options))
    scop = None if key is None else kept_scop(key)
    if scop is None:
        scop = _extracted(kernel, options)
        if key is not None:
            keep_scop(key, scop)
    return scop


def _extracted(kernel: Any, options: CountingOptions) -> Scop:
    with ISL_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loopy's advice is for its users, not for counting
        return _Extraction(*_linearized(kernel), options).scop()


def _linearized(t_unit: Any) -> tuple[Any, Any]:
    """Return (scheduled kernel, callables table) of the single entry point."""
    import loopy as lp
    from loopy.kernel.function_interface import CallableKernel
    from pytools.graph import CycleError

    name = _only_entry(t_unit)
    given = t_unit
    try:
        # Inlined, a callee's accesses have subscripts in the caller's arrays and loops, which is what is counted.
        for callee, callable_ in list(t_unit.callables_table.items()):
            if callee != name and isinstance(callable_, CallableKernel):
                t_unit = lp.inline_callable_kernel(t_unit, callee)
        # This realizes reductions: accumulators and their updates are instructions, as in the generated code.
        t_unit = lp.preprocess_program(t_unit)
        # Variables of realized reductions get their types when code is generated, and so here.
        if any(variable.dtype is None for variable in t_unit[name].temporary_variables.values()):
            t_unit = lp.infer_unknown_types(t_unit, expect_completion=True)
        kernel = t_unit[name]
        # A missing global barrier is found when code is generated; loopy's check takes a millisecond per pair of
        # instructions. With insert_gbarriers loopy does not check but inserts.
        if not kernel.options.insert_gbarriers:
            kernel = kernel.copy(options=kernel.options.copy(disable_global_barriers=True))
        kernel = lp.get_one_linearized_kernel(kernel, t_unit.callables_table)
    except (lp.diagnostic.LoopyError, CycleError, *_SCHEDULING_FAILURES) as error:
        require_short_strides(t_unit[name])
        # Names of the kernel as its author knows it come first.
        msg = f"loopy cannot schedule kernel {name!r}: {cause_of(error, given[name], t_unit[name])}"
        raise UnsupportedKernelError(msg, kernel=name) from error
    return kernel, t_unit.callables_table


def _only_entry(t_unit: Any) -> str:
    """Return the name of a translation unit's single entry point."""
    import loopy as lp

    if not isinstance(t_unit, lp.TranslationUnit):
        msg = f"expected a loopy TranslationUnit or a Scop, got {type(t_unit).__name__}"
        if isinstance(t_unit, lp.LoopKernel):
            msg += f"; give the whole translation unit, such as t_unit.with_entrypoints({t_unit.name!r})"
        if isinstance(t_unit, (str, Path)):
            msg += f"; source code is given with source_kernel(path, name), so give source_kernel({str(t_unit)!r}, ...)"
        raise UnsupportedKernelError(msg)
    if len(t_unit.entrypoints) != 1:
        names = ", ".join(sorted(t_unit.entrypoints)) or "none"
        msg = f"the translation unit has {len(t_unit.entrypoints)} entry points ({names}); use t_unit.with_entrypoints"
        raise UnsupportedKernelError(msg)
    return str(next(iter(t_unit.entrypoints)))


class _Extraction:
    def __init__(self, kernel: Any, callables: Any, options: CountingOptions) -> None:
        self.kernel = kernel
        self.callables = callables
        self.program = read_linearization(kernel.linearization)
        self.parameters = size_parameters(kernel, options)
        self.assumptions = assumptions_on(kernel, self.parameters)
        self.trips = TripCounts(kernel, self.parameters, options)
        self.types = KernelTypes(kernel, callables)
        facts = KernelFacts(kernel, self.types, self.parameters, options, self.trips)
        self.domains = DomainMaker(facts)
        self.launches = [self._launch(ids, host) for ids, host in self.program.launches]
        self.accesses = AccessMaker(facts)
        self.maker = StatementMaker(facts, self.accesses, self._sharing())

    def scop(self) -> Scop:
        statements = tuple(
            statement
            for insn_id, place in self.program.instructions
            for instances in [self._instances(self.kernel.id_to_insn[insn_id].within_inames, place)]
            for statement in self.maker.statements(insn_id, place, instances)
        )
        # After all statements: making them is what marks stand-ins as used.
        self.accesses.check_used()
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
            numbered=True,
        )

    def _sharing(self) -> frozenset[str]:
        """Instructions that share a condition with the one before them in the same loops."""
        pairs = pairwise(self.program.instructions)
        return frozenset(
            after
            for (before, place), (after, next_place) in pairs
            if (place.launch, place.schedule[:-1]) == (next_place.launch, next_place.schedule[:-1])
            and self.kernel.id_to_insn[before].predicates & self.kernel.id_to_insn[after].predicates
        )

    def _refuse(self, message: str, **context: object) -> UnsupportedKernelError:
        return UnsupportedKernelError(f"kernel {self.kernel.name!r}: {message}", kernel=self.kernel.name, **context)

    # launches and arrays

    def _launch(self, ids: frozenset[str], host_loops: tuple[str, ...]) -> tuple[Launch, Any]:
        groups, items = self._grid(ids)
        # The sub-group of a work-item comes from products of extents and ids: affine only if extents are numbers.
        if not all(isinstance(extent, int) for extent in items):
            msg = f"the work-group size {tuple(map(str, items))} is symbolic; fix it, e.g. with lp.fix_parameters"
            raise self._refuse(msg)
        repeats = QuasiPolynomial.constant(1)
        if host_loops:
            repeats = self._points(self.domains.trips(frozenset(host_loops)), host_loops)
        launch = Launch(
            groups=tuple(self._simplified(extent) for extent in groups),
            items=tuple(int(extent) for extent in items),
            repeats=repeats,
            host_loops=tuple(map(loop_name, host_loops)),
            unrolled=self._unrolled(ids),
        )
        return launch, groups

    def _points(self, iterations: Any, loops: tuple[str, ...]) -> QuasiPolynomial:
        try:
            return QuasiPolynomial(card(iterations, self.assumptions))
        except TooManyOperationsError:
            # How often it is launched is part of the Scop, which holds formulas.
            msg = f"the loops {', '.join(loops)} around a launch are too complex to count; simplify their bounds"
            raise self._refuse(msg) from None

    def _unrolled(self, ids: frozenset[str]) -> tuple[str, ...]:
        from loopy.kernel.data import IlpBaseTag, UnrollTag

        loops = {loop for name in ids for loop in self.kernel.id_to_insn[name].within_inames}
        written_out = (UnrollTag, IlpBaseTag)
        return tuple(
            sorted(
                loop_name(loop)
                for loop in loops
                if any(isinstance(tag, written_out) for tag in self.kernel.inames[loop].tags)
            )
        )

    def _grid(self, ids: frozenset[str]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        from loopy.diagnostic import LoopyError

        try:
            groups, items = self.kernel.get_grid_sizes_for_insn_ids_as_exprs(ids, self.callables)
        except (LoopyError, RuntimeError) as error:
            msg = (
                f"its work-groups have no shape ({str(error).strip().splitlines()[0]}); tag loops with g.0, g.1, ... "
                "and l.0, l.1, ... without gaps, or call lp.add_inames_for_unused_hw_axes"
            )
            raise self._refuse(msg) from error
        return groups, items

    def _simplified(self, expr: Any) -> QuasiPolynomial:
        polynomial = polynomial_in_parameters(expr, self.parameters).isl_object
        # gist drops the conditions that the assumptions imply, which keeps formulas short.
        return QuasiPolynomial(polynomial.gist_params(self.assumptions.params()))

    def _array(self, name: str) -> Array:
        from loopy.kernel.data import AddressSpace

        variable = self.kernel.get_var_descriptor(name)
        spaces = {AddressSpace.GLOBAL: "global", AddressSpace.LOCAL: "local", AddressSpace.PRIVATE: "private"}
        element = self.types.element(variable.dtype.numpy_dtype, f"array {name!r} of kernel {self.kernel.name!r}")
        shape = [self._simplified(extent) for extent in variable.shape or ()]
        strides = [self._simplified(stride) for stride in strides_of(variable, self.kernel.name)]
        # A vector is an innermost axis. One of three components takes the space of four (OpenCL C, Alignment of Types).
        if element.lanes > 1:
            shape.append(QuasiPolynomial.constant(element.lanes))
            strides = [*(stride * element.width for stride in strides), QuasiPolynomial.constant(1)]
        return Array(name, spaces[variable.address_space], element.name, tuple(shape), tuple(strides))

    # statements and barriers

    def _instances(self, inames: frozenset[str], place: Place, *, all_items: bool = False) -> Instances:
        launch, group_extents = self.launches[place.launch]
        return self.domains.domain(inames, place.entered, group_extents, launch.items, all_items=all_items)

    def _barrier(self, kind: str, origin: str | None, place: Place) -> Barrier:
        # Barriers that loopy inserts have no instruction of their own; only the schedule says where they stand.
        if origin is not None and origin in self.kernel.id_to_insn:
            inames = self.kernel.id_to_insn[origin].within_inames
        else:
            inames = self._neighbour_inames(place)
        # OpenCL: all work-items of a group reach a barrier, or none. Only group axes and loops bound its instances.
        groups, _, _ = self.domains.axes(inames)
        kept = frozenset(groups.values()) | frozenset(place.loops)
        domain = self._instances(kept, place, all_items=True).domain
        averages, stated = self.trips.averages(place.loops), self.trips.stated(place.loops)
        return Barrier(kind, domain, place.launch, place.schedule, averages, stated)

    def _neighbour_inames(self, place: Place) -> frozenset[str]:
        """Inames of an instruction in the same loops: it says which group axes bound those loops."""
        for insn_id, other in self.program.instructions:
            if other.launch == place.launch and other.schedule[: len(place.schedule) - 1] == place.schedule[:-1]:
                return frozenset(self.kernel.id_to_insn[insn_id].within_inames)
        return frozenset(place.loops)


def size_parameters(kernel: Any, options: CountingOptions) -> tuple[str, ...]:
    """Return the arguments that loop bounds, shapes, strides or subscripts depend on, sorted."""
    from loopy.kernel.array import ArrayBase
    from loopy.kernel.data import ValueArg
    from loopy.symbolic import DependencyMapper, get_dependencies

    names = set(kernel.outer_params())
    for variable in (*kernel.args, *kernel.temporary_variables.values()):
        if isinstance(variable, ArrayBase) and isinstance(variable.shape, tuple):
            strides = [tag.stride for tag in variable.dim_tags or () if hasattr(tag, "stride")]
            names |= get_dependencies((*variable.shape, *strides))
    # Arguments in subscripts are sizes as well: x[i + offset] has a stride only if offset is one number.
    subscripts = DependencyMapper(include_subscripts=True)
    for insn in kernel.instructions:
        for expr in (*getattr(insn, "assignees", ()), getattr(insn, "expression", None)):
            if expr is not None:
                for dependency in subscripts(expr):
                    if getattr(dependency, "mapper_method", "") == "map_subscript":
                        names |= get_dependencies(dependency.index)
    # Affine conditions become constraints, and the arguments in them parameters.
    names |= {name for insn in kernel.instructions for name in _deciding_names(insn)}
    # This finds loops and functions, too; only arguments are kept.
    names |= {name for text in _stated_texts(options) for name in re.findall(r"[A-Za-z_]\w*", text)}
    values = {name: kernel.arg_dict[name] for name in names if isinstance(kernel.arg_dict.get(name), ValueArg)}
    # isl's parameters are integers; a floating-point argument decides no count.
    return tuple(sorted(name for name, value in values.items() if _type(kernel, value).is_integral()))


def _type(kernel: Any, argument: Any) -> Any:
    if argument.dtype is None:
        msg = (
            f"argument {argument.name!r} of kernel {kernel.name!r} decides counts and has no type; "
            f'declare it, e.g. loopy.ValueArg("{argument.name}", numpy.int32)'
        )
        raise UnsupportedKernelError(msg, kernel=kernel.name, argument=argument.name)
    return argument.dtype


def _stated_texts(options: CountingOptions) -> Iterator[str]:
    yield from (count for _, count in options.trip_counts if isinstance(count, str))
    yield from (value for _, value in options.accesses)


def _deciding_names(insn: Any) -> Iterator[str]:
    """Names in an instruction's conditions that may be affine."""
    for predicate in insn.predicates:
        yield from _compared_names(predicate)
    pending = [getattr(insn, "expression", None)]
    while pending:
        expr = pending.pop()
        if getattr(expr, "mapper_method", None) in {"map_if", "map_logical_and", "map_logical_or"}:
            yield from _compared_names(getattr(expr, "condition", expr))
        pending += operands(expr)


def _compared_names(condition: Any) -> Iterator[str]:
    """Names in the comparisons of a condition that compare no data."""
    if getattr(condition, "mapper_method", None) in {"map_logical_and", "map_logical_or", "map_logical_not"}:
        for part in operands(condition):
            yield from _compared_names(part)
    elif not _touches_data(condition):
        from loopy.symbolic import get_dependencies

        yield from get_dependencies(condition)


def _touches_data(expr: Any) -> bool:
    method = getattr(expr, "mapper_method", None)
    return method in {"map_subscript", "map_call"} or any(map(_touches_data, operands(expr)))
