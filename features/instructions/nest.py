"""The loops of a kernel as a tree of isl sets: which instances reach each loop, iterate it, and pass each guard."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from perflex.features.scop.loop_paths import MOST_UNROLLED, Path, paths_of
from perflex.isl import isl

if TYPE_CHECKING:
    from perflex.features.scop.scop import Scop, Statement


@dataclass
class CountedLoop:
    """A sequential loop of a launch, or (the root) all of the launch.

    Attributes
    ----------
    path
        What tells it from the launch's other loops; the outer loop's path is a prefix.
    depth
        Number of loops around and including it.
    iterations
        isl set of (work-group, work-item, loop values) that execute it, or for the root, of work-items.
    weight
        Executions per element of that set.
    unrolled
        Whether all that enter it execute the same few iterations at all sizes.
    """

    path: Path
    depth: int
    iterations: Any
    weight: Fraction = Fraction(1)
    unrolled: bool = False


@dataclass
class CountedNest:
    """The loops of one launch.

    Attributes
    ----------
    launch
        Its index.
    axes
        Number of work-group and work-item axes.
    root
        All work-items of work-groups that do anything.
    loops
        By path, outer ones first.
    paths
        Paths of the loops around each statement, by the statement's index in the Scop.
    """

    launch: int
    axes: int
    root: CountedLoop
    loops: dict[Path, CountedLoop] = field(default_factory=dict)
    paths: dict[int, tuple[Path, ...]] = field(default_factory=dict)

    def around(self, number: int) -> list[CountedLoop]:
        """Return the root and the loops around a statement, outermost first."""
        return [self.root, *(self.loops[path] for path in self.paths[number])]

    def parent(self, loop: CountedLoop) -> CountedLoop:
        """Return the loop around a loop."""
        return self.loops.get(loop.path[:-1], self.root)


def nests_of(scop: Scop) -> list[CountedNest]:
    """Return the loop nests of all launches that execute a statement."""
    nests = []
    for launch in range(len(scop.launches)):
        mine = [(n, statement) for n, statement in enumerate(scop.statements) if statement.launch == launch]
        if mine:
            nests.append(_nest(scop, launch, mine))
    return nests


def _nest(scop: Scop, launch: int, mine: list[tuple[int, Statement]]) -> CountedNest:
    groups, items = len(scop.launches[launch].groups), scop.launches[launch].items
    axes = groups + len(items)
    domains = [statement.domain.intersect_params(scop.assumptions.params()) for _, statement in mine]
    domains += [barrier.domain for barrier in scop.barriers if barrier.launch == launch]
    nest = CountedNest(launch, axes, CountedLoop((), 0, _work_items(domains, groups, items)))
    reached: dict[Path, dict[str, Any]] = {}
    # Domains of barriers stand behind those of the statements.
    for (number, statement), domain in zip(mine, domains, strict=False):
        paths = paths_of(number, statement, axes)
        nest.paths[number] = paths
        for depth, path in enumerate(paths, 1):
            part = _outer(domain, axes + depth)
            reached.setdefault(path, {})[str(part)] = part
            nest.loops.setdefault(path, CountedLoop(path, depth, None, statement.weight(depth)))
    nest.loops = dict(sorted(nest.loops.items(), key=lambda entry: entry[1].depth))
    for path, loop in nest.loops.items():
        loop.iterations = _union(list(reached[path].values()))
        loop.unrolled = _is_constant(loop.iterations, axes + loop.depth - 1)
    return nest


def _outer(domain: Any, dims: int) -> Any:
    return domain.project_out(isl.dim_type.set, dims, domain.dim(isl.dim_type.set) - dims)


def _work_items(domains: list[Any], groups: int, items: tuple[int, ...]) -> Any:
    """Return all work-items of the work-groups that execute anything."""
    active = _union(list({str(part): part for part in (_outer(domain, groups) for domain in domains)}.values()))
    active = active.add_dims(isl.dim_type.set, len(items))
    for axis, extent in enumerate(items):
        active = active.lower_bound_val(isl.dim_type.set, groups + axis, isl.Val(0))
        active = active.upper_bound_val(isl.dim_type.set, groups + axis, isl.Val(extent - 1))
    return active.coalesce()


def _union(parts: list[Any]) -> Any:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.union(part)
    return whole.coalesce()


def _is_constant(iterations: Any, position: int) -> bool:
    """Return whether all that enter a loop execute the same few iterations at all sizes."""
    low, high = iterations.dim_min_val(position), iterations.dim_max_val(position)
    if not (low.is_int() and high.is_int()) or int((high - low).to_python()) >= MOST_UNROLLED:
        return False
    # Equal limits overall are not enough: each entry must run the whole range.
    every = iterations.project_out(isl.dim_type.set, position, 1).insert_dims(isl.dim_type.set, position, 1)
    every = every.lower_bound_val(isl.dim_type.set, position, low).upper_bound_val(isl.dim_type.set, position, high)
    return bool(every.is_subset(iterations))
