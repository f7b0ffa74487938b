"""Loop nests of a Scop in the order in which a CPU runs them.

Loops around launches are outside of all. Work-groups run one after the other, axis 0 fastest; several cores take
contiguous parts of that order. In a work-group, the work-items run as loops, axis 0 innermost, around each region
between barriers; sequential loops that hold a barrier are outside of them, others inside. Work-items of axis 0 go
through inner loops in lock step where the CPU's runtime vectorises over them (`lanes`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.cpu.divided_loops import loop_divisors, split_divided_loops
from perflex.features.cpu.nests import Loop, Nest, Nests
from perflex.features.cpu.stream_groups import dimension_names, groups_of, halos_of
from perflex.features.cpu.touched_before import mark_touched_before
from perflex.features.cpu.varying_loops import dependences, drivers_of, range_of, varying_extent
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import address_maps
from perflex.isl import ISL_LOCK, isl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.cpu.nests import Driver
    from perflex.features.scop.address_maps import Conjunction
    from perflex.features.scop.scop import Scop, Statement


def read_nests(scop: Scop, lanes: int = 1) -> Nests:
    """Return the nests of a kernel.

    Parameters
    ----------
    scop
        The kernel.
    lanes
        Work-items along axis 0 that go through inner loops in lock step.

    Raises
    ------
    UnsupportedKernelError
        An access or a loop is too irregular for reuse distances; it is named.
    """
    pieces: dict[str, list[Conjunction]] = defaultdict(list)
    for piece in address_maps(scop):
        pieces[piece.statement].append(piece)
    found: list[tuple[tuple[Loop, ...], Any, list[tuple[Statement, list[Conjunction]]]]] = []
    names = {statement.name: dimension_names(scop, statement) for statement in scop.statements}
    divisors = loop_divisors([piece for own in pieces.values() for piece in own], names)
    with ISL_LOCK:
        for statement in sorted(scop.statements, key=lambda item: (item.launch, _order(item.schedule))):
            if statement.name not in pieces:
                continue
            # Of a loop that subscripts divide, each part moves an axis of its own: the loop becomes two.
            own = {name: divisor for (launch, name), divisor in divisors.items() if launch == statement.launch}
            # A divisor and lanes would both split lid0; the divisor's parts move axes of their own, so it decides.
            loops = split_divided_loops(_loops(scop, statement, 1 if "lid0" in own else lanes), own)
            # Only statements that run in the same iterations may reuse one another's data there.
            for known, domain, members in found:
                if known == loops and domain.is_equal(statement.domain):
                    members.append((statement, pieces[statement.name]))
                    break
            else:
                found.append((loops, statement.domain, [(statement, pieces[statement.name])]))
        nests = mark_touched_before([_nest(scop, loops, members) for loops, _, members in found])
        result = Nests(
            scop.name,
            nests,
            tuple((array.name, array.shape) for array in scop.arrays),
        )
        _read_texts(result)
    if not nests:
        msg = f"kernel {scop.name!r} accesses no global or local memory, so it has no cache volumes"
        raise UnsupportedKernelError(msg, kernel=scop.name)
    return result


def _read_texts(nests: Nests) -> None:
    """Let all polynomials be printed while isl is locked; they are looked up by what is printed."""
    polynomials = [extent for _, shape in nests.shapes for extent in shape]
    for nest in nests.nests:
        polynomials += [nest.count, *(loop.extent for loop in nest.loops)]
        polynomials += [loop.varying for loop in nest.loops if loop.varying is not None]
        polynomials += [axis.stride for group in nest.groups for axis in group.axes]
    for polynomial in polynomials:
        _ = polynomial.text


def _order(schedule: Sequence[int | str]) -> tuple[tuple[int, str], ...]:
    return tuple((step, "") if isinstance(step, int) else (0, step) for step in schedule)


def _nest(scop: Scop, loops: tuple[Loop, ...], members: list[tuple[Statement, list[Conjunction]]]) -> Nest:
    first = members[0][0]
    groups = groups_of(scop, loops, members)
    count = QuasiPolynomial.points(first.domain, scop.assumptions) * first.weight()
    drivers = _drivers(scop, first) if any(loop.varying is not None for loop in loops) else ()
    return Nest(first.launch, loops, groups, count, halos_of(loops, groups), drivers)


def _loops(scop: Scop, statement: Statement, lanes: int) -> tuple[Loop, ...]:
    """Return the loops around a statement, outermost first."""
    launch = scop.launches[statement.launch]
    _check_ranges(scop, statement)
    axes, items = len(launch.groups), len(launch.items)
    host = sum(name in launch.host_loops for name in statement.loops)
    outer = max(host, _loops_with_barriers(scop, statement))
    inner = statement.loops[outer:]
    region = _region(scop, statement, outer)
    extents = [_extent(statement.domain, position) for position in range(statement.domain.dim(isl.dim_type.set))]
    firsts = [_first(statement.domain, position) for position in range(statement.domain.dim(isl.dim_type.set))]
    varying = _varying(scop, statement)
    node: tuple[object, ...] = ()
    loops = []
    for depth, name in enumerate(statement.loops[:host]):
        node = (*node, name)
        place = axes + items + depth
        loops.append(Loop(name, node, extents[place], base=name, first=firsts[place], varying=varying.get(name)))
    node = (*node, statement.launch)
    for axis in reversed(range(axes)):
        node = (*node, f"gid{axis}")
        part, base = ("outer", f"lid{axis}") if axis < items else ("whole", f"gid{axis}")
        block = launch.items[axis] if axis < items else None
        # A guard may cut the last work-group, so group ids times the work-group's extent would be too many.
        extent = extents[axis] if block is None else _range(statement.domain, axis, axes + axis, block)
        loops.append(Loop(f"gid{axis}", node, extent, part, base, block))
    for depth, name in enumerate(statement.loops):
        if depth == outer:
            node, more = _item_loops(
                axes, launch.items, extents[axes : axes + items], (*node, *region), bool(inner), lanes
            )
            loops += more
        if depth < host:
            continue
        node = (*node, statement.schedule[2 * depth], name)
        place = axes + items + depth
        loops.append(Loop(name, node, extents[place], base=name, first=firsts[place], varying=varying.get(name)))
    if outer == len(statement.loops):
        _, more = _item_loops(axes, launch.items, extents[axes : axes + items], (*node, *region), False, lanes)
        loops += more
    if items and inner and min(lanes, launch.items[0]) > 1:
        lane = QuasiPolynomial.constant(min(lanes, launch.items[0]))
        loops.append(Loop("lane", (*loops[-1].node, "lane"), lane, base="lane"))
    return tuple(loops)


def _item_loops(
    groups: int, items: Sequence[int], extents: Sequence[Any], node: tuple[object, ...], vectorised: bool, lanes: int
) -> tuple[tuple[object, ...], list[Loop]]:
    loops = []
    for axis in reversed(range(len(items))):
        node = (*node, f"lid{axis}")
        extent, block = extents[axis], items[axis]
        width = min(lanes, items[0]) if vectorised and axis == 0 else 1
        if width > 1:
            extent, block = QuasiPolynomial.constant(-(-block // width)), -(-block // width)
        # Without groups along the axis there is nothing outside of the block.
        part = ("inner", f"lid{axis}", block) if axis < groups else ("whole", f"lid{axis}", None)
        loops.append(Loop(f"lid{axis}", node, extent, *part))
    return node, loops


def _dependent(scop: Scop, statement: Statement) -> dict[str, tuple[str, ...]]:
    """Return the sequential loops whose range depends on others; work-items that a guard cuts off count as all."""
    found = dependences(dimension_names(scop, statement), statement.domain)
    return {name: outer for name, outer in found.items() if name in statement.loops}


def _drivers(scop: Scop, statement: Statement) -> tuple[Driver, ...]:
    return drivers_of(scop.name, dimension_names(scop, statement), statement.domain, _dependent(scop, statement))


def _varying(scop: Scop, statement: Statement) -> dict[str, QuasiPolynomial]:
    names, drivers = dimension_names(scop, statement), _drivers(scop, statement)
    return {
        name: varying_extent(names, statement.domain, name, [one for one in drivers if one.name in outer])
        for name, outer in _dependent(scop, statement).items()
    }


def _extent(domain: Any, position: int) -> QuasiPolynomial:
    # The range is the number of iterations: `_check_ranges` has refused loops with holes.
    return range_of(domain, position, ())[1]


def _first(domain: Any, position: int) -> int | None:
    """Return the first iteration of a dimension if it is the same number for all sizes."""
    first = domain.dim_min(position)
    found = QuasiPolynomial(isl.PwQPolynomial.from_pw_aff(first.gist(first.domain()).coalesce()))
    return None if found.parameters else int(found.evaluate({}))


def _range(domain: Any, group: int, item: int, block: int) -> QuasiPolynomial:
    """Return how many work-items there are along an axis, from the first that does something to the last."""
    names = [f"i{position}" for position in range(domain.dim(isl.dim_type.set))]
    number = isl.Map(f"{{ [{', '.join(names)}] -> [{block}*{names[group]} + {names[item]}] }}")
    return _extent(domain.apply(number), 0)


def _loops_with_barriers(scop: Scop, statement: Statement) -> int:
    """Return how many of the outermost loops around a statement hold a barrier."""
    if not scop.launches[statement.launch].items:
        return len(statement.loops)
    most = 0
    for barrier in scop.barriers:
        if barrier.launch == statement.launch:
            # Schedules alternate statement numbers and loop names: two steps for each loop that is shared.
            shared = 0
            while (
                2 * shared + 1 < min(len(barrier.schedule), len(statement.schedule))
                and barrier.schedule[2 * shared : 2 * shared + 2] == statement.schedule[2 * shared : 2 * shared + 2]
            ):
                shared += 1
            most = max(most, shared)
    return most


def _region(scop: Scop, statement: Statement, outer: int) -> tuple[object, ...]:
    """Return what the statements between the same barriers have in common."""
    before = [
        barrier
        for barrier in scop.barriers
        if barrier.launch == statement.launch and _order(barrier.schedule) < _order(statement.schedule)
    ]
    return (*statement.schedule[: 2 * outer], len(before))


def _check_ranges(scop: Scop, statement: Statement) -> None:
    for conjunction in statement.domain.compute_divs().get_basic_sets():
        for constraint in conjunction.get_constraints():
            _check_steps(scop, statement, constraint)


def _check_steps(scop: Scop, statement: Statement, constraint: Any) -> None:
    """Stop at a loop that leaves out iterations: the lines it touches do not follow from how many there are."""
    kinds = isl.dim_type
    affine = constraint.get_aff()
    for place in range(affine.dim(kinds.div)):
        if affine.get_coefficient_val(kinds.div, place).is_zero():
            continue
        for position, name in enumerate(dimension_names(scop, statement)):
            if affine.get_div(place).involves_dims(kinds.in_, position, 1):
                msg = (
                    f"loop {name} of kernel {scop.name!r} leaves out iterations around statement {statement.name} (a "
                    "step or a guard with %); for cache volumes write the step in the subscripts, a[2*i] for every "
                    'other i, or count the guard\'s branches everywhere: annotate(kernel, branches="both")'
                )
                raise UnsupportedKernelError(msg, kernel=scop.name, statement=statement.name)
