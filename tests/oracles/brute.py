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
from math import prod

import islpy as isl
import loopy as lp
import numpy as np
from loopy.kernel.data import AddressSpace, GroupInameTag, LocalInameTag, UnrollTag, VectorizeTag
from loopy.kernel.tools import get_hw_axis_base_for_codegen
from loopy.schedule import Barrier, CallKernel, EnterLoop, LeaveLoop, RunInstruction
from loopy.symbolic import aff_to_expr

from .expressions import ExpressionReader, NotEnumerableError, evaluate_at
from .points import Ints, integer_points


@dataclass(frozen=True)
class Access:
    """One access of one instruction at given sizes: executions are summed over the launch, strides are in elements.

    `shifted` tells whether the first iteration of a loop around it varies: work-groups are in no step together.
    """

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


@dataclass
class Counts:
    """Everything counted for one kernel at given sizes: operations by (dtype, name), barriers of all work-items."""

    groups: int
    items: int
    barriers: int = 0
    launches: int = 0
    accesses: list[Access] = field(default_factory=list)
    operations_per_work_item: Counter[tuple[str, str]] = field(default_factory=Counter)
    operations_per_sub_group: Counter[tuple[str, str]] = field(default_factory=Counter)

    def operations(self, name, dtype=None, *, sub_group=False):
        table = self.operations_per_sub_group if sub_group else self.operations_per_work_item
        return sum(count for (d, n), count in table.items() if n == name and dtype in {None, d})

    def select(self, **wanted):
        """Return the accesses whose attributes are those given, such as ``space="global"``."""
        return [a for a in self.accesses if all(getattr(a, name) == value for name, value in wanted.items())]

    def footprint(self, array):
        return len(np.unique(np.concatenate([access.elements for access in self.select(array=array)])))


def count(t_unit, sizes, sub_group_size=32, *, as_executed=False):
    """Count everything that one launch of a kernel does; what its printed C code does if `as_executed`."""
    return _Counter(lp.preprocess_program(t_unit), dict(sizes), sub_group_size, as_executed).counts


@dataclass
class _Instances:
    """All instances of one instruction: values by loop and size, numbers along axes, and what executes them.

    Under the name ``""`` stand the numbers of the iteration of all sequential loops together.
    """

    values: dict[str, Ints]
    axes: dict[tuple[str, int], Ints]
    executions: Ints  # A number for each sub-group in each step
    shifted: bool

    def where(self, guards, active=True):
        """Return at which of some instances conditions hold or not."""
        for condition, wanted in guards:
            active = active & (np.asarray(evaluate_at(condition, self.values), bool) == wanted)
        return np.broadcast_to(active, self.executions.shape)


class _Counter:
    def __init__(self, t_unit, sizes, sub_group_size, as_executed):
        self.kernel = kernel = t_unit.default_entrypoint
        self.sizes, self.sub_group_size, self.as_executed = sizes, sub_group_size, as_executed
        self.storage = {**kernel.temporary_variables, **kernel.arg_dict}
        every = frozenset(insn.id for insn in kernel.instructions)
        grid = kernel.get_grid_sizes_for_insn_ids_as_exprs(every, t_unit.callables_table)
        # Of every hardware axis.
        self.extents = {
            (kind, axis): int(evaluate_at(extent, sizes))
            for kind, extents in zip("gl", grid, strict=True)
            for axis, extent in enumerate(extents)
        }
        self.counts = Counts(*(prod(n for (k, _), n in self.extents.items() if k == kind) for kind in "gl"))
        scheduled = lp.get_one_linearized_kernel(kernel, t_unit.callables_table)
        nests = self._scheduled(list(scheduled.linearization))
        for insn in kernel.instructions:
            if isinstance(insn, lp.Assignment):
                self._assignment(insn, nests[insn.id])
            elif isinstance(insn, lp.CInstruction | lp.CallInstruction):
                msg = f"instruction {insn.id} is a {type(insn).__name__}"
                raise NotEnumerableError(msg)

    def _scheduled(self, items):
        """Return loops around each instruction, outermost first, each with whether a barrier is in it.

        Counts launches, and the local barriers passed by all work-items.
        """
        nests, nest = {}, []
        for place, item in enumerate(items):
            loops = frozenset(loop for loop, _ in nest)
            match item:
                case EnterLoop():
                    end = next(k for k in range(place + 1, len(items)) if getattr(items[k], "iname", "") == item.iname)
                    nest.append((item.iname, any(isinstance(other, Barrier) for other in items[place:end])))
                case LeaveLoop():
                    nest.pop()
                case RunInstruction():
                    nests[item.insn_id] = [*nest]
                case CallKernel():
                    self.counts.launches += len(self._points(loops)[""]) if loops else 1
                case Barrier(synchronization_kind="local"):
                    # Their bounds may depend on parallel loops.
                    around = self.kernel.get_inames_domain(loops).get_var_names(isl.dim_type.set) if loops else []
                    axes = {axis: name for name in reversed(around) if (axis := self._axis(name))}
                    self.counts.barriers += len(self._instances(loops | {*axes.values()}).executions)
        return nests

    def _axis(self, iname):
        if self.kernel.iname_tags_of_type(iname, VectorizeTag):
            msg = f"vector axis {iname}"
            raise NotEnumerableError(msg)
        for kind, tag_type in (("g", GroupInameTag), ("l", LocalInameTag)):
            for tag in self.kernel.iname_tags_of_type(iname, tag_type):
                return kind, tag.axis
        return None

    def _points(self, inames):
        try:
            return integer_points(self.kernel.get_inames_domain(inames), sorted(inames), self.sizes)
        except KeyError as unknown:
            msg = f"loop bounds of {sorted(inames)} depend on {unknown}"
            raise NotEnumerableError(msg) from None

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
        values, axes, steps, shifted = self._points(inames), {}, {}, False
        for name in sorted(inames):
            if axis := self._axis(name):
                # The first one along an axis is number 0, whatever the value of its loop.
                base = evaluate_at(aff_to_expr(get_hw_axis_base_for_codegen(self.kernel, name)), self.sizes)
                axes[axis] = values[name] - base
            else:
                steps[name] = values[name]
        for depth, (loop, barrier) in enumerate(nest):
            # Before a barrier all work-items go round together.
            parallel = [name for name in inames if (axis := self._axis(name)) and not (barrier and axis[0] == "l")]
            steps[loop] = self._steps(loop, [*parallel, *(outer for outer, _ in nest[:depth])], values)
            shifted |= len(np.unique(values[loop] - steps[loop])) > 1
        values[""] = _keys(list(steps.values()), len(values[""]))
        for axis in self.extents.keys() - axes.keys():
            extent, length = self.extents[axis], len(values[""])
            values, axes = ({key: np.tile(column, extent) for key, column in each.items()} for each in (values, axes))
            axes[axis] = np.repeat(np.arange(extent, dtype=np.int64), length)
        number = values[""]
        group, local = (self._flat(axes, kind) + 0 * number for kind in "gl")
        executions = _keys([group, local // self.sub_group_size, number], len(number))
        return _Instances(values | self.sizes, axes, executions, shifted)

    def _flat(self, axes, kind):
        flat, factor = 0, 1
        for axis, extent in sorted(self.extents.items()):
            if axis[0] == kind:
                flat, factor = flat + factor * axes[axis], factor * extent
        return flat

    def _assignment(self, insn, nest):
        at = self._instances(insn.within_inames, nest)
        active = at.where([(predicate, True) for predicate in insn.predicates])
        for predicate in insn.predicates:
            self._record(predicate, at, np.ones_like(active))
        self._record(insn.expression, at, active)
        self._record(insn.assignee, at, active, "store")

    def _is_memory(self, name):
        return name in self.storage and not isinstance(self.storage[name], lp.ValueArg)

    def _dtype(self, name):
        return np.dtype(self.storage[name].dtype.numpy_dtype) if name in self.storage.keys() - self.sizes else None

    def _record(self, expr, at, active, direction="load"):
        reader = ExpressionReader(self._dtype, self._is_memory, self.as_executed)
        (reader.read if direction == "load" else reader.access)(expr)
        for (guards, *operation), times in reader.operations.items():
            mask, key = at.where(guards, active), tuple(operation)
            self.counts.operations_per_work_item[key] += times * int(mask.sum())
            self.counts.operations_per_sub_group[key] += times * len(np.unique(at.executions[mask]))
        for guards, access in reader.accesses:
            self.counts.accesses.append(self._access(access, at, at.where(guards, active), direction))

    def _access(self, expr, at, mask, direction):
        aggregate = getattr(expr, "aggregate", expr)
        storage = self.storage[aggregate.name]
        flat = np.zeros_like(at.executions)
        for subscript, tag in zip(getattr(expr, "index_tuple", ()), storage.dim_tags or (), strict=True):
            flat = flat + int(evaluate_at(tag.stride, self.sizes)) * evaluate_at(subscript, at.values)
        flat, strides = flat[mask], {"l": {}, "g": {}}
        axes = {axis: values[mask] for axis, values in at.axes.items()}
        for (kind, axis), values in axes.items():
            others = [other for key, other in axes.items() if key != (kind, axis)]
            if found := _strides(values, _keys([*others, at.values[""][mask]], len(flat)), flat):
                strides[kind][axis] = found[0]
        return Access(
            array=aggregate.name, direction=direction, dtype=str(storage.dtype.numpy_dtype), text=str(expr),
            space=getattr(storage, "address_space", AddressSpace.GLOBAL).name.lower(),
            tags=frozenset(getattr(tag, "value", str(tag)) for tag in getattr(aggregate, "tags", ())),
            per_work_item=len(flat), per_sub_group=len(np.unique(at.executions[mask])), elements=np.unique(flat),
            local_strides=strides["l"], group_strides=strides["g"], shifted=at.shifted,
        )  # fmt: skip


def _keys(columns, length):
    """Return one number per row of some columns, equal only for equal rows."""
    keys = np.zeros(length, np.int64)
    for column in columns if length else []:
        low, high = int(column.min()), int(column.max())
        keys = keys * (high - low + 1) + (column - low)
    return keys


def _strides(axis, others, flat):
    """Return the stride along an axis in a list, or an empty list where no two points tell it."""
    order = np.lexsort((axis, others))
    same = np.diff(others[order]) == 0
    steps, changes = np.diff(axis[order])[same], np.diff(flat[order])[same]
    if not len(steps):
        return []
    stride = int(changes[0] // steps[0])
    return [stride if np.array_equal(changes, stride * steps) else None]
