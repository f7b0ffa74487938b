"""What a walk through a kernel recorded, as a Scop."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from operator import mul
from typing import Any, TypeAlias

from perflex.features.from_source.integers import (
    Integer,
    NotAffineError,
    constant,
    is_size_name,
    names_in,
    own_name,
    shown_name,
    variable,
)
from perflex.features.from_source.recording import MemoryArray
from perflex.features.from_source.values import Executed, MemoryAccess
from perflex.features.from_source.walk import Walk
from perflex.features.lowering.arithmetic_types import scalar_bytes
from perflex.features.lowering.subscripts import flattened, in_lanes, lane_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Access, Array, Barrier, Launch, Loop, Operation, Recurrence, Scop, Statement
from perflex.isl import isl

# The relation, its axes' strides where sizes are multiplied, and whether different ones are certain.
_Subscript: TypeAlias = tuple[Any, tuple[QuasiPolynomial, ...] | None, bool]
_PARAMETER, _SET, _IN = isl.dim_type.param, isl.dim_type.set, isl.dim_type.in_


class ScopMaker:
    """Makes a Scop of what a walk recorded; `shapes` are stated extents in elements."""

    def __init__(self, walk: Walk, shapes: Mapping[str, Integer]) -> None:
        self._walk = walk
        self._recorder = walk.recorder
        self._shapes = shapes
        self._ids = [own_name(f"{letter}{axis}") for letter in "gl" for axis in range(len(walk.local))]
        self._executed = [each for each in self._recorder.executed if not _is_idle(each) and not each.domain.is_empty()]
        accesses = [(executed, access) for executed in self._executed for access in executed.accesses]
        # Sizes that the description does not need are left out, so that users need not give them.
        integers = [*walk.groups, *shapes.values()]
        integers += [access.offset for _, access in accesses if access.offset is not None]
        used = {name for integer in integers for name in integer.names}
        for executed in self._executed:
            used |= names_in(executed.domain.remove_redundancies())
        fixed = {name: value for name, value in walk.fixed.items() if name in walk.read and is_size_name(name)}
        self._sizes = sorted((used & walk.sizes) | fixed.keys())
        self._frame = f"[{', '.join(self._sizes)}] -> "
        # What was described for some sizes is no description for others.
        assumed = (f"{name} = {fixed[name]}" if name in fixed else f"{name} >= 0" for name in self._sizes)
        self._assumptions = isl.Set(f"{self._frame}{{ : {' and '.join(assumed)} }}")
        self._anywhere: dict[str, Any] = {}  # The elements of arrays of which data decide which one is accessed
        self._moved: dict[int, list[tuple[str, Integer]]] = {}
        self.split = 0  # Pieces into which accesses fall because sizes decide where they begin
        self._accesses: dict[str, list[tuple[Executed, MemoryAccess]]] = {}
        for executed, access in accesses:
            self._accesses.setdefault(access.array, []).append((executed, access))
        self._bytes = {name: self._element_bytes(found) for name, found in self._accesses.items()}
        entered = walk.cursor.entered
        self._domains = {
            executed: self._with_dimensions(
                executed.domain, _SET, [*self._ids, *(entered[loop][0] for loop in executed.loops)]
            )
            for executed in self._executed
        }
        # Places of loops in the launch's list, by those among all that were entered.
        inside = sorted({loop for executed in self._executed for loop in executed.loops})
        self._loops = {loop: number for number, loop in enumerate(inside)}

    def scop(self) -> Scop:
        """Return the Scop."""
        arrays = [self._array(self._recorder.arrays[name], found) for name, found in self._accesses.items()]
        statements: list[Statement] = []
        barriers: list[Barrier] = []
        names: Counter[str] = Counter()
        for executed in self._executed:
            if executed.barrier:
                place = 0, self._around(executed), executed.order, executed.guarded
                barriers.append(Barrier(executed.barrier, self._domains[executed], *place))
                continue
            names[executed.line] += 1
            number = f"_{names[executed.line]}" if names[executed.line] > 1 else ""
            label = re.sub(r"\W", "_", executed.line)
            statements += self._statements(executed, f"line{label}{number}")
        groups, loops = tuple(map(self._polynomial, self._walk.groups)), tuple(map(self._loop, self._loops))
        return Scop(
            name=self._walk.kernel.name,
            parameters=tuple(self._sizes),
            assumptions=self._assumptions,
            launches=(Launch(groups, self._walk.local, loops=loops),),
            arrays=tuple(arrays),
            statements=tuple(statements),
            barriers=tuple(barriers),
            numbered=True,
        )

    # Statements

    def _statements(self, executed: Executed, name: str) -> list[Statement]:
        """Return a statement for the operations and single elements, and one for the vectors of each width."""
        wide: dict[int, list[MemoryAccess]] = {}
        for access in executed.accesses:
            wide.setdefault(access.bytes // self._bytes[access.array], []).append(access)
        counts = executed.operations.items()
        alone: dict[str, Any] = {
            "operations": tuple(Operation(kind, dtype, count) for (dtype, kind), count in counts if count)
        }
        if executed.updates is not None:
            chain = tuple(Operation(kind, dtype) for dtype, kind in executed.chain)
            alone["recurrence"] = Recurrence(str(executed.updates[0]), chain)  # type: ignore[index]  # name and hash
        if executed.resets is not None:
            alone["resets"] = str(executed.resets[0])  # type: ignore[index]
        found = []
        for lanes, accesses in {1: [], **wide}.items():
            # Where a variable is assigned is kept even if nothing is done there: it carries the recurrence.
            if lanes == 1 and wide and not accesses and not any(alone.values()):
                continue
            domain = self._domains[executed] if lanes == 1 else in_lanes(self._domains[executed], lanes)
            found.append(Statement(
                name=name if lanes == 1 else f"{name}_x{lanes}",
                domain=domain,
                accesses=tuple(self._access(executed, one, domain, lanes) for one in accesses),
                loops=self._around(executed),
                order=executed.order,
                guarded=executed.guarded,
                lanes=lanes,
                line=executed.line,
                **(alone if lanes == 1 else {}),
            ))  # fmt: skip
        return found

    def _around(self, executed: Executed) -> tuple[int, ...]:
        return tuple(self._loops[loop] for loop in executed.loops)

    def _loop(self, entered: int) -> Loop:
        name, around = self._walk.cursor.entered[entered]
        parent, recorder = None if around is None else self._loops[around], self._recorder
        assumed = "a trip count as stated" if name in recorder.averages else ""
        average = recorder.tests.get(entered, recorder.averages.get(name, Fraction(1)))
        compiled: dict[str, Any] = {"unroll": recorder.unrolled.get(name), "trips": recorder.trips.get(name)}
        return Loop(shown_name(name), parent, average=average, assumed=assumed, **compiled)

    def _access(self, executed: Executed, access: MemoryAccess, domain: Any, lanes: int) -> Access:
        if access.offset is None:
            found: _Subscript = isl.Map.from_domain_and_range(domain, self._anywhere[access.array]), None, True
        else:
            found = self._subscript(access, access.offset, domain, lanes)
        relation, strides, injective = found
        assumed = f"{access.text} anywhere" if access.offset is None else access.assumed
        line = access.line if access.line != executed.line else ""
        shown = access.array, access.direction, relation, None, access.text
        return Access(*shown, strides, injective, assumed, executed.atomic, line, self._hides(executed, access))

    def _hides(self, executed: Executed, access: MemoryAccess) -> bool:
        """Return whether an index that was cut to 32 bits hides from compilers that neighbours touch neighbours.

        Intel's OpenCL runtime moves ``a[i]``, with ``int i = get_global_id(0)``, element by element, but ``a[j*n + i]``
        in vectors, and ``a[k*n + i]`` element by element where the loop over k takes one pointer only, which it moves
        on; where it takes several, it computes subscripts. With ``uint i`` it moves single elements in all cases.
        Measured: docs/benchmarks/source_suites.md. PoCL was not seen to care.
        """
        offset = access.offset
        if offset is None or not offset.cut:
            return False
        if offset.cut.startswith("u") or offset.names <= {own_name("g0"), own_name("l0")}:
            return True
        counter = self._walk.cursor.entered[executed.loops[-1]][0] if executed.loops else ""
        if counter not in offset.names or not _is_linear(offset):
            return False
        pointers = self._moving(executed.loops[-1])
        if any(array != access.array for array, _ in pointers):
            return False
        for _, each in pointers:
            self._walk.count_step()
            if each.plus(offset, -1).value is None:
                return False
        return True

    def _moving(self, loop: int) -> list[tuple[str, Integer]]:
        """Return arrays and offsets in a loop that its counter moves on."""
        if loop not in self._moved:
            counter = self._walk.cursor.entered[loop][0]
            inside = (each for other in self._executed if loop in other.loops for each in other.accesses)
            self._moved[loop] = [
                (each.array, each.offset)
                for each in inside
                if each.offset is not None and each.offset.cut and counter in each.offset.names
            ]
        return self._moved[loop]

    def _subscript(self, access: MemoryAccess, offset: Integer, domain: Any, lanes: int) -> _Subscript:
        """Return which elements an access with a known offset touches."""
        self._walk.described = access.line
        self._walk.count_step()
        each = self._bytes[access.array]
        whole: dict[tuple[str, ...], Any] = {(): constant(0), **offset.terms}
        terms = {key: self._on_instances(term.div(constant(each)).floor(), domain) for key, term in whole.items()}
        if lanes > 1:
            terms[()] = terms[()].add(lane_of(domain.get_space()))
        axes = [terms[()]]
        strides: tuple[QuasiPolynomial, ...] | None = None
        injective = True
        if len(terms) > 1:
            found = flattened(terms, domain, self._sizes)
            axes, injective = [value for value, _ in found.axes], found.injective
            strides = tuple(stride for _, stride in found.axes)
        relation = reduce(isl.Map.flat_range_product, map(isl.Map.from_pw_aff, axes))
        return relation.intersect_domain(domain), strides, injective

    # Spaces

    def _with_dimensions(self, found: Any, kind: Any, names: Sequence[str]) -> Any:
        """Return a set or map whose ids and loops are dimensions, and whose parameters are sizes."""
        for place, name in enumerate(names):
            at = found.find_dim_by_name(_PARAMETER, name)
            found = found.insert_dims(kind, place, 1) if at < 0 else found.move_dims(kind, place, _PARAMETER, at, 1)
            found = found.set_dim_name(kind, place, shown_name(name)) if name else found
        for place in reversed(range(found.dim(_PARAMETER))):
            if found.get_dim_name(_PARAMETER, place) not in self._sizes:
                found = found.project_out(_PARAMETER, place, 1)
        return found

    def _on_instances(self, term: Any, domain: Any) -> Any:
        """Return an expression as a function of a statement's instances."""
        shown = (domain.get_dim_name(_SET, place) for place in range(domain.dim(_SET)))
        names = [own_name(name) if name else "" for name in shown]
        as_map = self._with_dimensions(isl.Map.from_pw_aff(term), _IN, names)
        return as_map.as_pw_multi_aff().get_pw_aff(0)

    # Arrays

    def _element_bytes(self, found: list[tuple[Executed, MemoryAccess]]) -> int:
        """Return the largest element that all accesses of an array are whole multiples of."""
        each = most = max(1, math.gcd(*(size for _, one in found for size in (one.bytes, scalar_bytes(one.dtype)))))
        for executed, access in found:
            self._walk.described = access.line
            for term in access.offset.terms.values() if access.offset is not None else ():
                while not term.mod_val(isl.Val(each)).ne_set(constant(0)).intersect(executed.domain).is_empty():
                    each //= 2
        self.split += most // each - 1
        return each

    def _array(self, array: MemoryArray, found: list[tuple[Executed, MemoryAccess]]) -> Array:
        each = self._bytes[array.name]
        dtypes = Counter(access.dtype for _, access in found if scalar_bytes(access.dtype) == each)
        dtype = dtypes.most_common(1)[0][0] if dtypes else f"uint{8 * each}"
        parts = max(array.element.bytes // each, 1)  # Of an element, which are counted
        shape = self._shapes.get(array.name)
        if shape is None and array.bytes is not None:
            shape = Integer.of(max(1, array.bytes // array.element.bytes))
        unknown = any(access.offset is None for _, access in found)
        shape = self._unknown_shape(array) if unknown and shape is None else shape
        elements = self._inferred_shape(found) if shape is None else self._polynomial(shape.scaled(parts))
        if unknown and shape is not None:
            self._anywhere[array.name] = self._below(shape.scaled(parts), array.name)
        one = QuasiPolynomial.constant(1)
        return Array(array.name, array.space, dtype, (elements,), (one,), restrict=array.restrict)

    def _unknown_shape(self, array: MemoryArray) -> Integer:
        """Return a size of its own for an array of which data decide the elements: who needs it asks for it."""
        name = re.sub(r"\W", "_", f"{array.name}_elements")
        while name in self._walk.sizes:
            name += "_"
        return Integer.of(variable(name))

    def _below(self, shape: Integer, name: str) -> Any:
        """Return all elements of an array, of which an access touches one."""
        if set(shape.terms) - {()}:
            raise NotAffineError(f"the extent of {name!r} multiplies sizes; give numbers for them")
        limit = shape.affine.add_dims(_IN, 1)
        local = isl.LocalSpace.from_space(limit.get_domain_space())
        place = isl.PwAff.var_on_domain(local, _SET, 0)
        return place.lt_set(limit).lower_bound_val(_SET, 0, isl.Val(0))

    def _inferred_shape(self, found: list[tuple[Executed, MemoryAccess]]) -> QuasiPolynomial:
        """Return how many elements are reached from the pointer on."""
        one = QuasiPolynomial.constant(1)
        reached: dict[tuple[str, ...], tuple[tuple[QuasiPolynomial, ...], list[Any]]] = {}
        for executed, access in found:
            if access.offset is None:
                continue
            relation, strides, _ = self._subscript(access, access.offset, self._domains[executed], 1)
            strides, elements = strides or (one,), relation.range()
            axes = range(elements.dim(_SET))
            if not all(elements.dim_has_upper_bound(_SET, axis) for axis in axes):
                elements = elements.compute_divs().coalesce()  # isl sees no end behind some divisions
            if not all(elements.dim_has_upper_bound(_SET, axis) for axis in axes):
                self._walk.described = access.line
                raise self._walk.refuse(
                    f"how far accesses of {access.array!r} reach is not known; state its number of elements with "
                    f"--state {access.array}=N"
                )
            most = [elements.dim_max(axis) for axis in axes]
            most[-1] = most[-1].add_constant_val(isl.Val(access.bytes // self._bytes[access.array] - 1))
            key = tuple(map(str, strides))
            if key in reached:
                most = list(map(isl.PwAff.union_max, reached[key][1], most))
            reached[key] = strides, most
        # Of subscripts with other strides the one of the longest products reaches furthest.
        strides, most = max(reached.values(), key=lambda each: (len(each[0]), str(each[0][0]).count("*")))
        return sum(map(mul, strides, map(self._of_parameters, most)), start=one)

    def _polynomial(self, integer: Integer) -> QuasiPolynomial:
        """Return an integer of sizes as a polynomial."""
        return QuasiPolynomial.total(
            QuasiPolynomial.parse(f"{self._frame}{{ {'*'.join(product) or '1'} }}") * self._of_parameters(term)
            for product, term in integer.terms.items()
        )

    def _of_parameters(self, expression: Any) -> QuasiPolynomial:
        found = isl.PwQPolynomial.from_pw_aff(expression.coalesce())
        if not found.get_domain_space().is_params():
            found = found.project_domain_on_params()
        return QuasiPolynomial(found)


def _is_linear(offset: Integer) -> bool:
    """Return whether it has no cases, and nothing is rounded in it."""
    pieces = [term.get_pieces() for term in offset.terms.values()]
    return all(len(each) == 1 and not each[0][1].dim(isl.dim_type.div) for each in pieces)


def _is_idle(executed: Executed) -> bool:
    """Return whether a statement does nothing."""
    marked = executed.updates is not None or executed.resets is not None
    return not (executed.barrier or marked or executed.accesses or any(executed.operations.values()))
