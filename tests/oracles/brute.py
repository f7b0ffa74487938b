"""Counts of a loopy kernel at given sizes, by visiting every instance of every instruction.

Nothing here counts symbolically and nothing comes from perflex: the domain of each instruction is
enumerated point by point (`points`), every subscript is evaluated at every point, and the numbers are
counted. Terms:

* an *instance* is one execution of an instruction by one work-item; an instruction that lacks a hardware
  axis of the kernel is executed by all work-items (or work-groups) along it;
* a *sub-group* is ``sub_group_size`` consecutive work-items of a work-group in the order
  ``l0 + L0*(l1 + L1*l2)`` that run in lock step: in step t of a loop each one is in its own t-th iteration. It
  executes an instruction once per such step of the sequential loops in which at least one work-item is active;
* the first work-item or work-group along an axis has the number 0, whatever value its loop starts at;
* the *stride* along an axis is the change of the flat element index per unit of the axis, everything else
  fixed: absent when no two points differ in that axis only, None when it is not the same everywhere.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import islpy as isl
import loopy as lp
import numpy as np
from loopy.kernel.data import AddressSpace, GroupInameTag, LocalInameTag, UnrollTag, VectorizeTag
from loopy.kernel.tools import get_hw_axis_base_for_codegen

from .expressions import ExpressionReader, NotEnumerableError, evaluate_at
from .points import Ints, integer_points

_SPACES = {AddressSpace.GLOBAL: "global", AddressSpace.LOCAL: "local", AddressSpace.PRIVATE: "private"}


@dataclass(frozen=True)
class Access:
    """One access of one instruction at given sizes: executions are summed over the launch, strides are in elements.

    `shifted` tells whether the first iteration of a loop around it varies: work-groups are in no step together.
    """

    instruction: str
    array: str
    space: str
    dtype: str
    direction: str
    tags: frozenset[str]
    text: str
    per_work_item: int
    per_sub_group: int
    elements: Ints  # sorted distinct flat indices
    local_strides: Mapping[int, int | None]
    group_strides: Mapping[int, int | None]
    shifted: bool

    @property
    def uniform(self):
        """Whether lid(0) does not change the address."""
        return self.local_strides.get(0, 0) == 0


@dataclass(frozen=True)
class Counts:
    """Everything counted for one kernel at given sizes: operations by (dtype, name), barriers of all work-items."""

    groups: int
    items: int
    accesses: tuple[Access, ...]
    operations_per_work_item: Mapping[tuple[str, str], int]
    operations_per_sub_group: Mapping[tuple[str, str], int]
    barriers: int
    launches: int

    def operations(self, name, dtype=None, *, sub_group=False):
        table = self.operations_per_sub_group if sub_group else self.operations_per_work_item
        return sum(count for (d, n), count in table.items() if n == name and dtype in {None, d})

    def select(self, **wanted):
        """Return the accesses whose attributes are those given, such as ``space="global"``."""
        return [a for a in self.accesses if all(getattr(a, name) == value for name, value in wanted.items())]

    def accessed(self, space, direction):
        """Executed accesses per work-item of one address space and direction."""
        return sum(access.per_work_item for access in self.select(space=space, direction=direction))

    def footprint(self, array):
        """Distinct elements of an array that any access touches."""
        touched = [access.elements for access in self.select(array=array)]
        return len(np.unique(np.concatenate(touched))) if touched else 0


def count(t_unit, sizes, sub_group_size=32, *, as_executed=False):
    """Count everything that one launch of a kernel does; what its printed C code does if `as_executed`."""
    return _Counter(lp.preprocess_program(t_unit), dict(sizes), sub_group_size, as_executed).run()


@dataclass
class _Instances:
    """All instances of one instruction: a value per instance for every name."""

    values: dict[str, Ints]
    group: Ints
    local: Ints
    sequential: Ints
    shifted: bool
    axes: dict[tuple[str, int], Ints]

    def __len__(self):
        return len(self.group)


@dataclass
class _Counter:
    t_unit: lp.TranslationUnit
    sizes: dict[str, int]
    sub_group_size: int
    as_executed: bool
    per_item: Counter[tuple[str, str]] = field(default_factory=Counter)
    per_sub_group: Counter[tuple[str, str]] = field(default_factory=Counter)
    accesses: list[Access] = field(default_factory=list)

    @cached_property
    def kernel(self):
        return self.t_unit.default_entrypoint

    @cached_property
    def extents(self):
        """Extent of every hardware axis."""
        every = frozenset(insn.id for insn in self.kernel.instructions)
        grid, group = self.kernel.get_grid_sizes_for_insn_ids_as_exprs(every, self.t_unit.callables_table)
        point = {name: np.array([value]) for name, value in self.sizes.items()}
        evaluated = {}
        for kind, extents in (("g", grid), ("l", group)):
            for axis, extent in enumerate(extents):
                evaluated[kind, axis] = int(np.max(evaluate_at(extent, point)))
        return evaluated

    @cached_property
    def scheduled(self):
        return lp.get_one_linearized_kernel(self.kernel, self.t_unit.callables_table)

    @cached_property
    def nests(self):
        """Loops around each instruction, outermost first, and whether there is a barrier in them."""
        found = {}
        items = list(self.scheduled.linearization)
        open_loops = []
        for place, item in enumerate(items):
            kind = type(item).__name__
            if kind == "EnterLoop":
                end = next(k for k in range(place + 1, len(items)) if getattr(items[k], "iname", "") == item.iname)
                inside = {type(other).__name__ for other in items[place:end]}
                open_loops.append((item.iname, "Barrier" in inside))
            elif kind == "LeaveLoop":
                open_loops.pop()
            elif kind == "RunInstruction":
                found[item.insn_id] = list(open_loops)
        return found

    def run(self):
        for insn in self.kernel.instructions:
            if isinstance(insn, lp.Assignment):
                self._assignment(insn)
            elif isinstance(insn, lp.CInstruction | lp.CallInstruction):
                msg = f"instruction {insn.id} is a {type(insn).__name__}"
                raise NotEnumerableError(msg)
        barriers, launches = self._synchronisation()
        return Counts(
            groups=self._extent("g"), items=self._extent("l"), accesses=tuple(self.accesses),
            operations_per_work_item=dict(self.per_item), operations_per_sub_group=dict(self.per_sub_group),
            barriers=barriers, launches=launches,
        )  # fmt: skip

    def _extent(self, kind):
        return int(np.prod([extent for (k, _), extent in self.extents.items() if k == kind], dtype=np.int64))

    def _axis(self, iname):
        if self.kernel.iname_tags_of_type(iname, VectorizeTag):
            msg = f"vector axis {iname}"
            raise NotEnumerableError(msg)
        for kind, tag_type in (("g", GroupInameTag), ("l", LocalInameTag)):
            for tag in self.kernel.iname_tags_of_type(iname, tag_type):
                return kind, tag.axis
        return None

    def _base(self, iname):
        """Value of a parallel loop in the first work-item or work-group along its axis."""
        base = get_hw_axis_base_for_codegen(self.kernel, iname)
        space = base.get_domain_space()
        point = isl.Point.zero(isl.Set.universe(space).params().get_space())
        for position in range(space.dim(isl.dim_type.param)):
            name = space.get_dim_name(isl.dim_type.param, position)
            point = point.set_coordinate_val(isl.dim_type.param, position, isl.Val(int(self.sizes[name])))
        return int(base.to_pw_aff().project_domain_on_params().eval(point).to_python())

    def _points(self, inames):
        domain = self.kernel.get_inames_domain(inames)
        known = {*self.sizes, *inames}
        count = domain.dim(isl.dim_type.param)
        unknown = {domain.get_dim_name(isl.dim_type.param, k) for k in range(count)} - known
        if unknown:
            msg = f"loop bounds of {sorted(inames)} depend on {sorted(unknown)}"
            raise NotEnumerableError(msg)
        return integer_points(domain, sorted(inames), self.sizes)

    def _steps(self, loop, around, values):
        """Return the numbers of a loop's iterations: its values less the first one at given values of those around."""
        if self.kernel.iname_tags_of_type(loop, UnrollTag):
            return values[loop]
        known = sorted({*around} & {*self.kernel.get_inames_domain(loop).get_var_names(isl.dim_type.set)})
        points = self._points(frozenset([loop, *known]))
        first = {}
        for *outer, value in zip(*(points[name].tolist() for name in (*known, loop)), strict=True):
            first[tuple(outer)] = min(value, first.get(tuple(outer), value))
        outer = zip(*(values[name].tolist() for name in known), strict=True) if known else [()] * len(values[loop])
        return values[loop] - np.array([first[key] for key in outer], np.int64)

    def _instances(self, inames, nest=()):
        values = self._points(inames)
        axes = {axis: values[name] - self._base(name) for name in sorted(inames) if (axis := self._axis(name))}
        steps = {name: values[name] for name in sorted(inames) if self._axis(name) is None}
        for depth, (loop, barrier) in enumerate(nest):
            # Before a barrier all work-items go round together.
            parallel = [name for name in inames if (axis := self._axis(name)) and not (barrier and axis[0] == "l")]
            steps[loop] = self._steps(loop, [*parallel, *(outer for outer, _ in nest[:depth])], values)
        number = _keys(list(steps.values()), len(values[""]))
        shifted = any(len(np.unique(values[loop] - steps[loop])) > 1 for loop, _ in nest)
        for axis, extent in self.extents.items():
            if axis in axes:
                continue
            repeated = np.repeat(np.arange(extent, dtype=np.int64), len(number))
            values, axes = _tiled(values, extent), _tiled(axes, extent)
            number, axes[axis] = np.tile(number, extent), repeated
        values |= {name: np.full(len(number), value, np.int64) for name, value in self.sizes.items()}
        return _Instances(values, self._flat(axes, "g", number), self._flat(axes, "l", number), number, shifted, axes)

    def _flat(self, axes, kind, like):
        flat, factor = np.zeros_like(like), 1
        for axis in sorted(key for key in self.extents if key[0] == kind):
            flat = flat + factor * axes[axis]
            factor *= self.extents[axis]
        return flat

    def _assignment(self, insn):
        instances = self._instances(insn.within_inames, self.nests[insn.id])
        everyone = np.ones(len(instances), bool)
        active = everyone
        for predicate in insn.predicates:
            active = active & evaluate_at(predicate, instances.values).astype(bool)
        for predicate in sorted(insn.predicates, key=str):
            self._record(insn, self._contents(predicate), instances, everyone)
        self._record(insn, self._contents(insn.expression), instances, active)
        self._record(insn, self._contents(insn.assignee, stored=True), instances, active, "store")

    def _contents(self, expr, *, stored=False):
        reader = ExpressionReader(self._dtype, self._is_memory, self.as_executed)
        (reader.access if stored else reader.read)(expr, ())
        return reader.contents

    def _storage(self, name):
        return self.kernel.arg_dict.get(name) or self.kernel.temporary_variables.get(name)

    def _is_memory(self, name):
        storage = self._storage(name)
        return storage is not None and not isinstance(storage, lp.ValueArg)

    def _dtype(self, name):
        storage = self._storage(name)
        if storage is None or name in self.sizes:
            return None
        return np.dtype(storage.dtype.numpy_dtype)

    def _record(self, insn, contents, instances, active, direction="load"):
        for (guards, dtype, name), times in contents.operations.items():
            mask = active & _true_at(guards, instances)
            self.per_item[dtype, name] += times * int(mask.sum())
            self.per_sub_group[dtype, name] += times * self._sub_groups(instances, mask)
        for guards, access in contents.accesses:
            mask = active & _true_at(guards, instances)
            self.accesses.append(self._access(insn, access, instances, mask, direction))

    def _sub_groups(self, instances, mask):
        columns = [instances.group, instances.local // self.sub_group_size, instances.sequential]
        return len(np.unique(_keys([column[mask] for column in columns], int(mask.sum()))))

    def _access(self, insn, expr, instances, mask, direction):
        aggregate = getattr(expr, "aggregate", expr)
        storage = self._storage(aggregate.name)
        flat = self._flat_index(storage, getattr(expr, "index_tuple", ()), instances)[mask]
        if storage.dtype is None:
            msg = f"the type of {aggregate.name} is not known"
            raise NotEnumerableError(msg)
        space = _SPACES[getattr(storage, "address_space", AddressSpace.GLOBAL)]
        axes = {axis: values[mask] for axis, values in instances.axes.items()}
        sequential = instances.sequential[mask]
        strides = {axis: _strides(axis, axes, sequential, flat) for axis in axes}
        return Access(
            instruction=insn.id, array=aggregate.name, space=space, dtype=str(storage.dtype.numpy_dtype),
            direction=direction,
            tags=frozenset(getattr(tag, "value", str(tag)) for tag in getattr(aggregate, "tags", ())), text=str(expr),
            per_work_item=int(mask.sum()), per_sub_group=self._sub_groups(instances, mask), elements=np.unique(flat),
            local_strides={n: s[0] for (kind, n), s in strides.items() if kind == "l" and s},
            group_strides={n: s[0] for (kind, n), s in strides.items() if kind == "g" and s},
            shifted=instances.shifted,
        )  # fmt: skip

    def _flat_index(self, storage, subscripts, instances):
        flat = np.zeros(len(instances), np.int64)
        point = {name: np.array([value]) for name, value in self.sizes.items()}
        for subscript, tag in zip(subscripts, storage.dim_tags or (), strict=True):
            stride = int(evaluate_at(tag.stride, point)[0])
            flat = flat + stride * evaluate_at(subscript, instances.values)
        return flat

    def _synchronisation(self):
        """Return the local barriers passed by all work-items, and the launches."""
        loops = []
        passed = launches = 0
        for item in self.scheduled.linearization:
            kind = type(item).__name__
            if kind == "EnterLoop":
                loops.append(item.iname)
            elif kind == "LeaveLoop":
                loops.remove(item.iname)
            elif kind == "CallKernel":
                launches += len(self._points(frozenset(loops))[""]) if loops else 1
            elif kind == "Barrier" and item.synchronization_kind == "local":
                passed += len(self._instances(self._with_groups(loops)))
        return passed, launches

    def _with_groups(self, loops):
        """Add the parallel inames that the bounds of these loops may depend on."""
        inames = frozenset(loops)
        if not inames:
            return inames
        domain = self.kernel.get_inames_domain(inames)
        names = (domain.get_dim_name(isl.dim_type.set, k) for k in range(domain.dim(isl.dim_type.set)))
        by_axis = {}
        for name in names:
            axis = self._axis(name)
            if axis is not None:
                by_axis.setdefault(axis, name)
        return inames | frozenset(by_axis.values())


def _true_at(guards, instances):
    mask = np.ones(len(instances), bool)
    for condition, wanted in guards:
        mask &= evaluate_at(condition, instances.values).astype(bool) == wanted
    return mask


def _tiled(columns, times):
    return {key: np.tile(values, times) for key, values in columns.items()}


def _keys(columns, length):
    """Return one number per row of some columns, equal only for equal rows."""
    keys = np.zeros(length, np.int64)
    for column in columns if length else []:
        low, high = int(column.min()), int(column.max())
        keys = keys * (high - low + 1) + (column - low)
    return keys


def _strides(axis, axes, sequential, flat):
    """Return the stride along an axis in a list, or an empty list where no two points tell it."""
    others = [values for other, values in sorted(axes.items()) if other != axis]
    block = _keys([*others, sequential], len(flat))
    order = np.lexsort((axes[axis], block))
    same = np.diff(block[order]) == 0
    steps = np.diff(axes[axis][order])[same]
    changes = np.diff(flat[order])[same]
    if not len(steps):
        return []
    stride = int(changes[0] // steps[0])
    return [stride if np.array_equal(changes, stride * steps) else None]
