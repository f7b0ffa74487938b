"""Subscripts and domains as quasi-affine functions, read from isl once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, TypeAlias

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.affine import Affine, read_affine, read_constraints
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Access, Barrier, Loop, Scop, Statement
from perflex.isl import ISL_LOCK, isl

# What is zero (True), or not negative (False).
Constraints: TypeAlias = "tuple[tuple[Affine, bool], ...]"
# An access with its place among its statement's, and the isl function that gives the element.
_Found = tuple[int, "Access", Any]


@dataclass(frozen=True)
class AccessMap:
    """An access of a piece."""

    number: int  # Its place among the statement's accesses
    # array, direction, text: as in the Scop.
    array: str
    direction: str
    text: str
    axes: tuple[Affine, ...]  # Index along each axis, outermost first; its division leaves no rest
    strides: tuple[QuasiPolynomial, ...]  # Distance between neighbours along each axis, in elements


@dataclass(frozen=True)
class Conjunction:
    """Instances of a statement that one conjunction of constraints describes, with their accesses."""

    # statement, number: the statement's name, and its place among the Scop's statements.
    statement: str
    number: int
    launch: int  # Index of its launch
    dims: int  # Number of instance dimensions
    constraints: Constraints
    accesses: tuple[AccessMap, ...]


def address_maps(scop: Scop, *, scattered: bool = True) -> tuple[Conjunction, ...]:
    """Return the address maps of all accesses that are not private."""
    return scop.derived("address maps", scattered, lambda: _address_maps(scop, scattered))


def scattered_accesses(scop: Scop) -> dict[int, tuple[Access, ...]]:
    """Return the accesses that may touch one of several elements, by place of their statement, where it has any."""

    def scattered(access: Access) -> bool:
        return scop.array(access.array).space != "private" and not access.relation.is_single_valued()

    def compute() -> dict[int, tuple[Access, ...]]:
        with ISL_LOCK:
            found = ((place, filter(scattered, one.accesses)) for place, one in enumerate(scop.statements))
            return {place: accesses for place, each in found if (accesses := tuple(each))}

    return scop.derived("scattered accesses", (), compute)


def _address_maps(scop: Scop, scattered: bool) -> tuple[Conjunction, ...]:
    pieces: list[Conjunction] = []
    with ISL_LOCK:
        for place, statement in enumerate(scop.statements):
            accesses = [
                (number, access)
                for number, access in enumerate(statement.accesses)
                if scop.array(access.array).space != "private" and (scattered or access.relation.is_single_valued())
            ]
            if accesses:
                pieces.extend(_pieces_of(scop, place, accesses))
    return tuple(pieces)


def _pieces_of(scop: Scop, place: int, accesses: list[tuple[int, Access]]) -> list[Conjunction]:
    """Return one piece for each conjunction of the domain, and others for accesses defined by cases."""
    whole: list[_Found] = []
    pieces: list[Conjunction] = []
    domain = scop.statements[place].domain.coalesce()
    for number, access in accesses:
        if not access.relation.is_single_valued():
            shown = access.text or access.array
            msg = (
                f"data volumes need to know which element {shown!r} of kernel {scop.name!r} touches; data decide it: "
                "state a subscript that stands for it, such as --state 'x[col[j]]=8*i + j'"
            )
            raise UnsupportedKernelError(msg, kernel=scop.name, access=shown)
        cases: list[tuple[Any, Any]] = []
        access.relation.as_pw_multi_aff().foreach_piece(lambda *case, to=cases: to.append(case))
        for subdomain, function in cases:
            # plain_is_universe only looks at constraints; is_subset may solve integer programmes.
            if subdomain.plain_is_universe() or domain.is_subset(subdomain):
                whole.append((number, access, function))
            else:
                pieces.extend(_conjunctions(scop, place, domain.intersect(subdomain), [(number, access, function)]))
    return _conjunctions(scop, place, domain, whole) + pieces


def _conjunctions(scop: Scop, place: int, domain: Any, accesses: list[_Found]) -> list[Conjunction]:
    if not accesses:
        return []
    # Each local variable has to be a floor; isl computes these only when asked to.
    conjunctions = domain.compute_divs().get_basic_sets()
    # An instance in two conjunctions would count twice.
    if len(conjunctions) > 1:
        conjunctions = domain.make_disjoint().compute_divs().get_basic_sets()
    return [_piece(scop, place, conjunction, accesses) for conjunction in conjunctions]


def _piece(scop: Scop, place: int, conjunction: Any, accesses: list[_Found]) -> Conjunction:
    maps = []
    for number, access, function in accesses:
        axes = tuple(read_affine(function.get_at(axis)) for axis in range(function.dim(isl.dim_type.out)))
        strides = access.strides if access.strides is not None else scop.array(access.array).strides
        maps.append(AccessMap(number, access.array, access.direction, access.text or access.array, axes, strides))
    statement = scop.statements[place]
    dims = int(statement.domain.dim(isl.dim_type.set))
    constraints = tightened(read_constraints(conjunction))
    return Conjunction(statement.name, place, statement.launch, dims, constraints, tuple(maps))


def tightened(constraints: Constraints) -> Constraints:
    """Return constraints that say the same, each of as few dimensions as it may be.

    With 16 dividing n, ``k < n - 16*j`` is no bound of k < 16, but says ``16 <= n - 16*j``.
    """
    factors = {
        row.terms[0][0]: gcd(*(factor for _, factor in row.floors))
        for row, equality in constraints
        if equality and not row.constant and len(row.terms) == 1 and abs(row.terms[0][1]) == 1
    }
    tight: dict[tuple[Affine, bool], None] = {}
    for row, equality in constraints:
        left = row
        if not equality and len(row.terms) > 1:
            for dim, factor in sorted(row.dim_terms, key=lambda term: abs(term[1])):
                span = constant_span(constraints, dim)
                left = _without(left, dim, sorted(factor * end for end in span), factors) if span else left
        tight[left, equality] = None
    return tuple(tight)


def _without(row: Affine, dim: int, span: Sequence[int], factors: Mapping[str | int, int]) -> Affine:
    """Return what is not negative without the term of a dimension, of this span, if that says the same."""
    others = tuple(term for term in row.terms if term[0] != dim)
    step = gcd(
        *(factor * factors.get(variable, 1) for variable, factor in others), *(factor for _, factor in row.floors)
    )
    # The rest is a multiple of the step, so all that counts is how many whole steps the term and the constant are.
    low, high = ((row.constant + end) // step for end in span) if step else (0, 1)
    return Affine(low * step, others, row.floors) if low == high else row


def bounds_alone(row: Affine, dim: int) -> bool:
    """Return whether a constraint is a number that a dimension must not exceed, or come below."""
    return abs(row.coefficient(dim)) == 1 and len(row.terms) == 1 and not row.floors


def constant_span(constraints: Iterable[tuple[Affine, bool]], dim: int) -> tuple[int, int] | None:
    """Return the first and last value of a dimension by the constraints that are on it alone, if they tell both."""
    lower, upper = [], []
    for row, equality in constraints:
        if bounds_alone(row, dim):
            bound, least = -row.coefficient(dim) * row.constant, row.coefficient(dim) > 0
            # A loop of one iteration is an equality, which is two opposite inequalities.
            lower += [bound] * (equality or least)
            upper += [bound] * (equality or not least)
    return (max(lower), min(upper)) if lower and upper else None


# Compilers unroll loops with up to so many iterations, if the number is known to them; and where the source asks for
# all of them, with any number that stands in a source.
_MOST_UNROLLED, _MOST_ASKED = 32, 1024
# What is asked for in part they still unroll as a whole where no more than so many rounds are left; and of one that is
# to stay a loop so many iterations: NVRTC 11 to 13.
_MOST_ROUNDS, _MOST_KEPT = 8, 4


def most_unrolled(loop: Loop | None = None) -> int:
    """Return with up to how many iterations a loop is unrolled, if the number is known to compilers."""
    asked = None if loop is None else loop.unroll
    if asked is None:
        return _MOST_UNROLLED
    return {0: _MOST_ASKED, 1: _MOST_KEPT}.get(asked, _MOST_ROUNDS * asked)


def paths_of(number: int, statement: Statement) -> tuple[int, ...]:
    """Return what identifies each dimension of a statement but work-groups and work-items: loops, and its own lanes."""
    return (*statement.loops, *([-1 - number] if statement.lanes > 1 else []))


def host_loops(scop: Scop, one: Statement | Barrier) -> int:
    """Return how many of the loops around a statement or barrier the host executes: the outermost ones."""
    return sum(loop.kind == "host" for loop in scop.loops_of(one))


def loops_with_barriers(scop: Scop, statement: Statement) -> int:
    """Return how many of the outermost loops around a statement hold a barrier: work-items run inside of them."""
    barriers = [one for one in scop.barriers if one.launch == statement.launch and one.kind != "sub_group"]
    return len({loop for one in barriers for loop in one.loops}.intersection(statement.loops))


# An instruction moves so many of them at most, the widest of NVIDIA's and AMD's GPUs.
MOST_BYTES = 16


def vector_elements(scop: Scop) -> Mapping[tuple[int, int], int]:
    """Return how many elements an instruction moves, by places of statement and access in the Scop.

    Accesses whose instructions move one element are left out.
    """

    def compute() -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], set[int]] = {}
        for piece in address_maps(scop, scattered=False):
            lanes = scop.statements[piece.number].lanes
            for access in piece.accesses:
                fits = MOST_BYTES // scop.array(access.array).itemsize
                # A vector of three has the space of four, and is moved like one.
                wide = min(fits, 1 << (lanes - 1).bit_length()) if lanes > 1 and _neighbours(piece, access) else 1
                found.setdefault((piece.number, access.number), set()).add(wide)
        # An access of several pieces is counted over their union, so all have to agree.
        return {key: min(each) for key, each in found.items() if min(each) > 1}

    return scop.derived("vector elements", (), compute)


def _neighbours(piece: Conjunction, access: AccessMap) -> bool:
    """Return whether the last dimension moves an access from one element to the next."""
    lane = piece.dims - 1
    moved = [(axis, stride) for axis, stride in zip(access.axes, access.strides, strict=True) if lane in axis.dims]
    if len(moved) != 1:
        return False
    axis, stride = moved[0]
    once = axis.coefficient(lane) == 1 and lane not in axis.floor_dims
    return once and not stride.parameters and stride.evaluate({}) == 1
