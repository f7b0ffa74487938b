"""A scheduled loopy kernel as a Scop: its sizes, launches, arrays, statements and barriers."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from loopy.diagnostic import LoopyError
from loopy.kernel.array import ArrayBase
from loopy.kernel.data import AddressSpace, ValueArg
from loopy.kernel.instruction import AtomicUpdate, BarrierInstruction, NoOpInstruction
from loopy.schedule import Barrier as BarrierItem
from loopy.schedule import CallKernel, EnterLoop, LeaveLoop, ReturnFromKernel, RunInstruction
from loopy.symbolic import SubArrayRef, get_dependencies
from msgspec.structs import replace

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.accesses import AccessMaker
from perflex.features.from_loopy.domains import DomainMaker, TripCounts
from perflex.features.from_loopy.expression import ExpressionReader, Mask, element_of, path_from
from perflex.features.from_loopy.generated import KernelFacts
from perflex.features.from_loopy.scheduling import linearized
from perflex.features.from_loopy.terms import method_of, operands, polynomial_in_parameters
from perflex.features.lowering.schedule import Cursor
from perflex.features.polynomials.cardinality import TooManyOperationsError, card
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.numbering import by_number
from perflex.features.scop.scop import Array, Barrier, Launch, Loop, Operation, Recurrence, Scop, Statement
from perflex.isl import ISL_LOCK, align_parameters, isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perflex.features.annotation import CountingOptions

_SPACES = {AddressSpace.GLOBAL: "global", AddressSpace.LOCAL: "local", AddressSpace.PRIVATE: "private"}
_JUNCTIONS = {"map_logical_and", "map_logical_or"}


def described(t_unit: Any, options: CountingOptions) -> Scop:
    """Return the Scop of a translation unit's single entry point."""
    with ISL_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loopy's advice is for its users, not for counting
        kernel, callables = linearized(t_unit)
        try:
            return _Extraction(kernel, callables, options).scop()
        except isl.Error as error:
            msg = f"kernel {kernel.name!r} cannot be described, isl says: {error}; simplify its domains and subscripts"
            raise UnsupportedKernelError(msg, kernel=kernel.name) from error


@dataclass(frozen=True)
class _Place:
    """Where an instruction or barrier stands in the linearization."""

    launch: int
    names: tuple[str, ...]  # Loops around it, outermost first
    loops: tuple[int, ...]  # Their places in the launch's list
    order: tuple[int, ...]


class _Extraction:
    def __init__(self, kernel: Any, callables: Any, options: CountingOptions) -> None:
        self.kernel = kernel
        self.callables = callables
        self.parameters = size_parameters(kernel, options)
        # Of values that the kernel computes itself, no assumptions are kept.
        assumed = isl.Set.from_basic_set(kernel.assumptions).project_out_except(self.parameters, [isl.dim_type.param])
        self.assumptions = align_parameters(assumed, self.parameters)
        self.trips = TripCounts(kernel, self.parameters, options.trip_counts)
        # Preambles make of the generated code what people write: arrays that overlap, an index that is cut to 32 bits.
        preambles = "".join(code for _, code in kernel.preambles)
        self.restrict = "#define __restrict__" not in preambles
        self.hidden = "#define lid(N) ((int) get_global_id(N))" in preambles
        self.facts = KernelFacts(kernel, callables, self.parameters, self.trips.displaced)
        self.domains = DomainMaker(kernel, self.parameters, self.assumptions, self.trips)
        self.accesses = AccessMaker(self.facts, options.accesses)
        self.instructions: list[tuple[str, _Place]] = []
        # Kind, originating instruction (or None) and place of each barrier.
        self.barriers: list[tuple[str, str | None, _Place]] = []
        self.launches: list[Launch] = []
        self.loops: list[list[Loop]] = []  # Of each launch
        self.extents: list[dict[str, Any]] = []  # Of each launch by axis
        # Launch and number of each loop: where the linearization enters it, and the loops around it and itself.
        self.heads: dict[tuple[int, int], tuple[int, tuple[str, ...]]] = {}
        self._read_linearization()
        # Instructions one after the other in the same loops, by the conditions that they test.
        self.tests: dict[str, list[frozenset[Any]]] = {}
        for _, run in groupby(self.instructions, key=lambda entry: (entry[1].launch, entry[1].loops)):
            self.tests |= _tests([(name, kernel.id_to_insn[name].predicates) for name, _ in run])

    def _read_linearization(self) -> None:
        names: list[str] = []
        # Instructions of the device program that is read; None outside of one.
        inside: list[str] | None = None
        cursor, hosts = Cursor(), 0
        for number, item in enumerate(self.kernel.linearization):
            if isinstance(item, CallKernel):
                # Loops that are open at the call run on the host: each of their iterations is a launch.
                inside, hosts, cursor = [], len(names), Cursor()
                for loop in names:
                    cursor.enter(loop)
            elif isinstance(item, ReturnFromKernel):
                self._add_launch(frozenset(inside or ()), tuple(names))
                loops = [self.trips.loop(*one, "host" * (at < hosts)) for at, one in enumerate(cursor.entered)]
                self.loops.append(loops)
                inside = None
            elif isinstance(item, EnterLoop):
                names.append(item.iname)
                cursor.enter(item.iname)
                # A launch is listed when it ends, so that the length is the number of the one being read.
                if inside is not None:
                    self.heads[len(self.launches), cursor.loops[-1]] = number, tuple(names)
            elif isinstance(item, LeaveLoop):
                names.pop()
                cursor.leave()
            elif isinstance(item, (RunInstruction, BarrierItem)) and inside is not None:
                place = _Place(len(self.launches), tuple(names), cursor.loops, cursor.step())
                if isinstance(item, RunInstruction):
                    inside.append(item.insn_id)
                    self.instructions.append((item.insn_id, place))
                else:
                    self.barriers.append((item.synchronization_kind, item.originating_insn_id, place))

    def scop(self) -> Scop:
        statements = tuple(made for entry in self.instructions for made in self._statements(*entry))
        # After all statements: making them is what marks stand-ins as used.
        self.accesses.check_used()
        used = {access.array for statement in statements for access in statement.accesses}
        names = [name for name in (*self.kernel.arg_dict, *self.kernel.temporary_variables) if name in used]
        scop = Scop(
            name=self.kernel.name,
            parameters=self.parameters,
            assumptions=self.assumptions.params(),
            launches=tuple(
                replace(one, loops=tuple(loops)) for one, loops in zip(self.launches, self.loops, strict=True)
            ),
            arrays=tuple(map(self._array, names)),
            statements=statements,
            barriers=tuple(self._barrier(*entry) for entry in self.barriers),
            numbered=True,
        )
        entered = {
            (launch, loop): iterations
            for (launch, loop), head in self.heads.items()
            # Copies of a loop's body begin at one value.
            if self.loops[launch][loop].kind == "loop"
            and (iterations := self.domains.entered(*head, self.extents[launch])) is not None
        }
        if not entered:
            return scop
        statements, barriers = by_number(scop, entered)
        return replace(scop, statements=statements, barriers=barriers)

    # Launches and arrays

    def _add_launch(self, ids: frozenset[str], host_loops: tuple[str, ...]) -> None:
        try:
            groups, items = self.kernel.get_grid_sizes_for_insn_ids_as_exprs(ids, self.callables)
        except (LoopyError, RuntimeError) as error:
            msg = (
                f"its work-groups have no shape ({str(error).strip().splitlines()[0]}); tag loops with g.0, g.1, ... "
                "and l.0, l.1, ... without gaps, or call lp.add_inames_for_unused_hw_axes"
            )
            raise self.facts.refuse(msg) from error
        # The sub-group of a work-item comes from products of extents and ids: affine only if extents are numbers.
        if not all(isinstance(extent, int) for extent in items):
            msg = f"the work-group size {tuple(map(str, items))} is symbolic; fix it, e.g. with lp.fix_parameters"
            raise self.facts.refuse(msg)
        repeats = QuasiPolynomial.constant(1)
        if host_loops:
            try:
                iterations = self.domains.loopys(host_loops).project_out_except(host_loops, [isl.dim_type.set])
                iterations = iterations.intersect_params(self.assumptions.params())
                repeats = QuasiPolynomial(card(iterations, self.assumptions))
            except TooManyOperationsError:
                # How often it is launched is part of the Scop, which holds formulas.
                loops_text = ", ".join(host_loops)
                msg = f"the loops {loops_text} around a launch are too complex to count; simplify their bounds"
                raise self.facts.refuse(msg) from None
        self.launches.append(Launch(
            groups=tuple(map(self._simplified, groups)),
            items=tuple(map(int, items)),
            repeats=repeats,
        ))  # fmt: skip
        grid = {f"gid{axis}": extent for axis, extent in enumerate(groups)}
        self.extents.append(grid | {f"lid{axis}": extent for axis, extent in enumerate(items)})

    def _simplified(self, expr: Any) -> QuasiPolynomial:
        polynomial = polynomial_in_parameters(expr, self.parameters).isl_object
        # gist drops the conditions that the assumptions imply, which keeps formulas short.
        return QuasiPolynomial(polynomial.gist_params(self.assumptions.params()))

    def _array(self, name: str) -> Array:
        variable = self.kernel.get_var_descriptor(name)
        what = f"array {name!r} of kernel {self.kernel.name!r}"
        element = self.facts.element(variable.dtype.numpy_dtype, what)
        shape = [self._simplified(extent) for extent in variable.shape or ()]
        strides = [self._simplified(stride) for stride in self.facts.strides(variable)]
        # A vector is an innermost axis. One of three components takes the space of four (OpenCL C, Alignment of Types).
        if element.lanes > 1:
            shape.append(QuasiPolynomial.constant(element.lanes))
            strides = [*(stride * element.width for stride in strides), QuasiPolynomial.constant(1)]
        # loopy writes tables of numbers into constant memory.
        table = variable.address_space == AddressSpace.GLOBAL and getattr(variable, "initializer", None) is not None
        space = "constant" if table else _SPACES[variable.address_space]
        return Array(name, space, element.name, tuple(shape), tuple(strides), restrict=self.restrict)

    # Statements

    def _statements(self, insn_id: str, place: _Place) -> list[Statement]:
        """Return what an instruction does: a statement for all its instances, more for parts of them."""
        insn = self.kernel.id_to_insn[insn_id]
        if isinstance(insn, (BarrierInstruction, NoOpInstruction)):
            return []
        every = self.domains.instances(insn.within_inames, place.names, self.extents[place.launch])
        self._require_known(insn)
        reader = ExpressionReader(self.facts, every.space, insn_id, self.facts.vectorised(insn))
        assigned = self.facts.assigned(insn)
        home, assumed = self._read(insn, assigned, place, reader)
        recurrence, resets = self._update(insn, assigned, place, reader)
        made: list[Statement] = []
        for mask, work in reader.work.items():
            # Where the value is assigned is kept even if nothing is done there: it carries the recurrence.
            if mask != home and not (work.operations or work.accesses):
                continue
            instances = every.restricted(mask.conditions, self.facts.parameters) if mask.conditions else every
            instances = instances if mask.lanes == 1 else instances.in_lanes(mask.lanes)
            loops = self._with_copies(place, instances.copied)
            touched = sorted(work.accesses, key=lambda raw: raw.direction)
            updated = {raw.text for raw in touched if assumed and mask == home and raw.direction == "store"}
            accesses = (self.accesses.access(raw, instances, insn_id) for raw in touched)
            made.append(self.domains.placed(Statement(
                name=insn_id if not made else f"{insn_id}.{len(made)}",
                domain=instances.domain,
                accesses=tuple(replace(one, atomic=one.text in updated, hidden=self.hidden) for one in accesses),
                operations=_operations(work.operations),
                launch=place.launch,
                loops=loops,
                order=(*place.order, *[0] * len(instances.copied)),
                guarded=mask.guarded,
                recurrence=recurrence if mask == home else None,
                resets=resets if mask == home else "",
                assumed=assumed,
                lanes=mask.lanes,
            ), instances))  # fmt: skip
        return made

    def _with_copies(self, place: _Place, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the loops of a statement of which copies stand side by side, each in a loop of its own."""
        known, loops = self.loops[place.launch], place.loops
        for name in names:
            known.append(self.trips.loop(name, loops[-1] if loops else None, "interleaved"))
            loops = (*loops, len(known) - 1)
        return loops

    def _require_known(self, insn: Any) -> None:
        """Refuse literal code and calls on parts of arrays: what they execute is not known."""
        if not hasattr(insn, "expression"):
            what = f"literal code ({type(insn).__name__})"
        elif any(isinstance(each, SubArrayRef) for each in (*operands(insn.expression), *insn.assignees)):
            # loopy underlines functions.
            what = f"a call on sub-arrays ({insn.expression})".replace("\N{COMBINING LOW LINE}", "")
        else:
            return
        msg = (
            f"instruction {insn.id!r} is {what}, and what it executes is not known; describe the kernel by hand as a "
            "Scop (scop_from_yaml), or give its OpenCL C source with source_kernel"
        )
        raise self.facts.refuse(msg, instruction=insn.id)

    def _read(self, insn: Any, assigned: Any, place: _Place, reader: ExpressionReader) -> tuple[Mask, str]:
        """Read an instruction; return where it assigns, and what is assumed, for messages."""
        tested, home = self.tests[insn.id], Mask()
        # Conditions that an instruction before tested hold here. They are frozensets: their order, and so that of the
        # statements, would differ between processes.
        for group in (insn.predicates.difference(*tested), *tested):
            around = home
            for predicate in sorted(group, key=str):
                # Loops that a condition does not depend on are inside of it; of several, the last may not be tested.
                outside = bool(set(place.names) - get_dependencies(predicate))
                if any(predicate in each for each in tested):
                    with reader.only(around.within(Mask(guarded=len(group) > 1 or outside))):
                        reader.test(self.facts.generated(predicate))
                home = home.within(reader.branches(predicate)[0])
        # An update may be generated as a compare-and-swap loop, which runs again when another work-item was faster.
        updates = sum(isinstance(one, AtomicUpdate) for one in getattr(insn, "atomicity", ()))
        with reader.only(home):
            reader.read(assigned)
            for assignee in insn.assignees:
                reader.write(assignee)
            reader.count("atomic", insn.assignees[0], updates)
        return home, "atomic updates that succeed at once" if updates else ""

    def _update(
        self, insn: Any, assigned: Any, place: _Place, reader: ExpressionReader
    ) -> tuple[Recurrence | None, str]:
        """Return how the instruction updates a scalar from its old value, or which one it sets afresh.

        A scalar is a private variable, or an element of an array in memory that the innermost loop does not leave.
        """
        if len(insn.assignees) != 1:
            return None, ""
        [name, *subscripts] = element = element_of(insn.assignees[0])
        in_memory = self.facts.is_array(name)
        if in_memory:
            private = self.kernel.get_var_descriptor(name).address_space == AddressSpace.PRIVATE
            if private or not place.names or place.names[-1] in get_dependencies(tuple(subscripts)):
                return None, ""
        path = path_from(reader, assigned, element)
        if path is None:
            return None, "" if in_memory else name
        text = f"{name}[{', '.join(map(str, subscripts))}]" if subscripts else name
        return Recurrence(text, _operations(Counter(path))), ""

    # Barriers

    def _barrier(self, kind: str, origin: str | None, place: _Place) -> Barrier:
        # Barriers that loopy inserts have no instruction of their own; only the schedule says where they stand.
        if origin not in self.kernel.id_to_insn:
            around, depth = (place.launch, place.loops), len(place.loops)
            neighbours = (one for one, other in self.instructions if (other.launch, other.loops[:depth]) == around)
            origin = next(neighbours, None)
        inames = self.kernel.id_to_insn[origin].within_inames if origin is not None else frozenset(place.names)
        # OpenCL: all work-items of a group reach a barrier, or none. Only group axes and loops bound its instances.
        groups = {iname for axis, iname in self.domains.axes(inames).items() if axis.startswith("g")}
        found = self.domains.instances(groups.union(place.names), place.names, self.extents[place.launch])
        return self.domains.placed(Barrier(kind, found.domain, place.launch, place.loops, place.order), found)


def _tests(run: Sequence[tuple[str, frozenset[Any]]]) -> dict[str, list[frozenset[Any]]]:
    """Return which conditions each instruction tests, outer ones first; of those that share one, the first does."""
    found: dict[str, list[frozenset[Any]]] = {}
    start = 0
    while start < len(run):
        first, shared = run[start]
        end = start + 1
        while end < len(run) and shared & run[end][1]:
            shared, end = shared & run[end][1], end + 1
        found |= _tests([(name, conditions - shared) for name, conditions in run[start:end]]) if shared else {first: []}
        found[first][:0] = [shared] if shared else []
        start = end
    return found


def _operations(counted: Counter[tuple[str, str]]) -> tuple[Operation, ...]:
    return tuple(Operation(kind, dtype, count) for (kind, dtype), count in sorted(counted.items()))


def size_parameters(kernel: Any, options: CountingOptions) -> tuple[str, ...]:
    """Return the integer arguments that loop bounds, shapes, strides, subscripts or conditions depend on, sorted."""
    names = set(kernel.outer_params())
    for variable in (*kernel.args, *kernel.temporary_variables.values()):
        if isinstance(variable, ArrayBase) and isinstance(variable.shape, tuple):
            strides = [tag.stride for tag in variable.dim_tags or () if hasattr(tag, "stride")]
            names |= get_dependencies((*variable.shape, *strides))
    for insn in kernel.instructions:
        names.update(*(_deciding(predicate, condition=True) for predicate in insn.predicates))
        # Those in subscripts as well: x[i + offset] has a stride only if offset is one number.
        names.update(*map(_deciding, (*getattr(insn, "assignees", ()), getattr(insn, "expression", 0))))
    # This finds loops and functions, too; only arguments are kept.
    for _, text in (*options.trip_counts, *options.accesses):
        names.update(re.findall(r"[A-Za-z_]\w*", str(text)))
    arguments = [kernel.arg_dict[name] for name in sorted(names) if isinstance(kernel.arg_dict.get(name), ValueArg)]
    for argument in arguments:
        if argument.dtype is None:
            msg = (
                f"argument {argument.name!r} of kernel {kernel.name!r} decides counts and has no type; "
                f'declare it, e.g. loopy.ValueArg("{argument.name}", numpy.int32)'
            )
            raise UnsupportedKernelError(msg, kernel=kernel.name, argument=argument.name)
    # isl's parameters are integers; a floating-point argument decides no count.
    return tuple(argument.name for argument in arguments if argument.dtype.is_integral())


def _deciding(expr: Any, *, condition: bool = False) -> Iterator[str]:
    """Names in subscripts, and in those comparisons of a condition that compare no data."""
    method = method_of(expr)
    joins = method in _JUNCTIONS or (condition and method == "map_logical_not")
    if method == "map_subscript" or (condition and not joins and not _touches_data(expr)):
        yield from get_dependencies(expr)
        return
    for part in operands(expr):
        yield from _deciding(part, condition=joins or (method == "map_if" and part is expr.condition))


def _touches_data(expr: Any) -> bool:
    return method_of(expr) in {"map_subscript", "map_call"} or any(map(_touches_data, operands(expr)))
