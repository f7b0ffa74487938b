"""Address maps of a Scop's accesses, read from isl once: rows of integers over sizes, instances and floors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
    from perflex.features.scop.scop import Access, Scop, Statement

# Column (kind, position): ("c", 0) the constant, ("p", i) a size, ("d", i) an instance dimension, ("f", i) a floor.
Column = tuple[str, int]
Row = tuple[tuple[Column, int], ...]
# An access with its place among its statement's, and the isl function that gives the element.
_Found = tuple[int, "Access", Any]


@dataclass(frozen=True)
class Floor:
    """The largest integer not above ``row / denominator``."""

    row: Row
    denominator: int


@dataclass(frozen=True)
class AccessMap:
    """An access of a piece.

    Attributes
    ----------
    number
        Its place among the statement's accesses.
    array, direction, text
        As in the Scop.
    axes
        Index along each axis, outermost first: a row and the denominator it is divided by without rest.
    strides
        Distance between neighbours along each axis, in elements.
    """

    number: int
    array: str
    direction: str
    text: str
    axes: tuple[tuple[Row, int], ...]
    strides: tuple[QuasiPolynomial, ...]


@dataclass(frozen=True)
class Conjunction:
    """Instances of a statement that one conjunction of constraints describes, with their accesses.

    Attributes
    ----------
    statement, number
        The statement's name, and its place among the Scop's statements.
    launch
        Index of its launch.
    dims
        Number of instance dimensions.
    host_dims
        Those that loop around the launch.
    floors
        Floors that rows refer to; a floor refers to earlier ones only.
    equalities, inequalities
        Rows that are zero, or not negative.
    accesses
        The accesses.
    schedule
        The statement's position in the launch: statement numbers and loop names alternate.
    """

    statement: str
    number: int
    launch: int
    dims: int
    host_dims: tuple[int, ...]
    floors: tuple[Floor, ...]
    equalities: tuple[Row, ...]
    inequalities: tuple[Row, ...]
    accesses: tuple[AccessMap, ...]
    schedule: tuple[int | str, ...] = ()


def address_maps(scop: Scop, *, scattered: bool = True) -> tuple[Conjunction, ...]:
    """Return the address maps of all accesses that are not private.

    Parameters
    ----------
    scop
        The kernel.
    scattered
        Whether accesses count that may touch one of several elements; without them, see `scattered_accesses`.

    Raises
    ------
    UnsupportedKernelError
        An access may touch one of several elements, which one is not known.
    """
    return scop.derived("address maps", scattered, lambda: _address_maps(scop, scattered))


def scattered_accesses(scop: Scop) -> dict[str, tuple[Access, ...]]:
    """Return the accesses that may touch one of several elements, by statement; statements without any are left out."""

    def compute() -> dict[str, tuple[Access, ...]]:
        with ISL_LOCK:
            found = {
                statement.name: tuple(
                    item
                    for item in statement.accesses
                    if scop.array(item.array).space != "private" and not item.relation.is_single_valued()
                )
                for statement in scop.statements
            }
        return {name: accesses for name, accesses in found.items() if accesses}

    return scop.derived("scattered accesses", (), compute)


def _address_maps(scop: Scop, scattered: bool) -> tuple[Conjunction, ...]:
    pieces: list[Conjunction] = []
    left_out = {} if scattered else scattered_accesses(scop)
    with ISL_LOCK:
        for place, statement in enumerate(scop.statements):
            numbered = enumerate(statement.accesses)
            accesses = [(number, item) for number, item in numbered if scop.array(item.array).space != "private"]
            accesses = [pair for pair in accesses if pair[1] not in left_out.get(statement.name, ())]
            if accesses:
                pieces.extend(_pieces_of(scop, place, accesses))
    return tuple(pieces)


def _pieces_of(scop: Scop, place: int, accesses: list[tuple[int, Access]]) -> list[Conjunction]:
    """Return one piece for each conjunction of the domain, and others for accesses defined by cases."""
    whole: list[_Found] = []
    pieces: list[Conjunction] = []
    domain = scop.statements[place].domain.coalesce()
    for number, access in accesses:
        for subdomain, function in _functions(scop, access):
            # plain_is_universe only looks at constraints; is_subset may solve integer programmes.
            if subdomain.plain_is_universe() or domain.is_subset(subdomain):
                whole.append((number, access, function))
            else:
                pieces.extend(_conjunctions(scop, place, domain.intersect(subdomain), [(number, access, function)]))
    return _conjunctions(scop, place, domain, whole) + pieces


def _functions(scop: Scop, access: Access) -> list[tuple[Any, Any]]:
    """Return (subdomain, function) for each case of an access relation."""
    if not access.relation.is_single_valued():
        shown = access.text or access.array
        msg = f"data volumes need to know which element {shown} of kernel {scop.name!r} touches; give it a stand-in"
        raise UnsupportedKernelError(msg, kernel=scop.name, access=shown)
    found: list[tuple[Any, Any]] = []
    isl.PwMultiAff.from_map(access.relation).foreach_piece(lambda *case: found.append(case))
    return found


def _conjunctions(scop: Scop, place: int, domain: Any, accesses: list[_Found]) -> list[Conjunction]:
    if not accesses:
        return []
    # Rows need a floor for each local variable; isl computes these only when asked to.
    conjunctions = domain.compute_divs().get_basic_sets()
    # An instance in two conjunctions would count twice.
    if len(conjunctions) > 1:
        conjunctions = domain.make_disjoint().compute_divs().get_basic_sets()
    return [_piece(scop, place, conjunction, accesses) for conjunction in conjunctions]


def _piece(scop: Scop, place: int, conjunction: Any, accesses: list[_Found]) -> Conjunction:
    reader = _Reader(scop.parameters)
    equalities: list[Row] = []
    inequalities: list[Row] = []
    for constraint in conjunction.get_constraints():
        row, _ = reader.read(constraint.get_aff())
        (equalities if constraint.is_equality() else inequalities).append(row)
    maps = []
    for number, access, function in accesses:
        axes = tuple(reader.read(function.get_at(axis)) for axis in range(function.dim(isl.dim_type.out)))
        strides = access.strides if access.strides is not None else scop.array(access.array).strides
        maps.append(AccessMap(number, access.array, access.direction, access.text or access.array, axes, strides))
    statement = scop.statements[place]
    return Conjunction(
        statement.name,
        place,
        statement.launch,
        int(statement.domain.dim(isl.dim_type.set)),
        _host_dims(scop, statement),
        tuple(reader.floors),
        tuple(equalities),
        tuple(inequalities),
        tuple(maps),
        statement.schedule,
    )


def _host_dims(scop: Scop, statement: Statement) -> tuple[int, ...]:
    launch = scop.launches[statement.launch]
    before = len(launch.groups) + len(launch.items)
    return tuple(before + place for place, loop in enumerate(statement.loops) if loop in launch.host_loops)


class _Reader:
    """Reads isl's quasi-affine functions; floors they share are read once."""

    def __init__(self, parameters: tuple[str, ...]) -> None:
        self._columns = {name: ("p", position) for position, name in enumerate(parameters)}
        self.floors: list[Floor] = []

    def read(self, function: Any) -> tuple[Row, int]:
        """Return a function as a row of integers and the denominator that all of it is divided by."""
        kinds = isl.dim_type
        denominator = int(function.get_denominator_val().to_python())
        row: dict[Column, int] = {}
        self._add(row, ("c", 0), function.get_constant_val(), denominator)
        for position in range(function.dim(kinds.param)):
            column = self._columns[function.get_dim_name(kinds.param, position)]
            self._add(row, column, function.get_coefficient_val(kinds.param, position), denominator)
        for position in range(function.dim(kinds.in_)):
            self._add(row, ("d", position), function.get_coefficient_val(kinds.in_, position), denominator)
        for position in range(function.dim(kinds.div)):
            value = function.get_coefficient_val(kinds.div, position)
            if not value.is_zero():
                self._add(row, self._floor(function.get_div(position)), value, denominator)
        return tuple(sorted(row.items())), denominator

    def _floor(self, function: Any) -> Column:
        floor = Floor(*self.read(function))
        # `read` has added the floors inside this one: a floor refers to earlier ones only.
        if floor not in self.floors:
            self.floors.append(floor)
        return "f", self.floors.index(floor)

    @staticmethod
    def _add(row: dict[Column, int], column: Column, value: Any, denominator: int) -> None:
        if not value.is_zero():
            scaled = value if denominator == 1 else value * isl.Val(denominator)
            row[column] = row.get(column, 0) + int(scaled.to_python())
