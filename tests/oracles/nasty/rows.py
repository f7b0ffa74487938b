"""What can be compared between counts and execution, row by row."""

import re
from dataclasses import dataclass

from perflex.features import count_features, counts_of

__all__ = ["Counted", "counted_rows", "executed_rows", "mismatches"]

SPACES = ("global", "local")
DIRECTIONS = ("load", "store")
# Built-in functions by their OpenCL names -> the operation in features; of floating-point arguments only.
FUNCTIONS = {
    "fabs": "abs", "fmin": "min", "fmax": "max", "pow": "pow", "pown": "pow", "powr": "pow", "isnan": "cmp",
    **{name: name for name in (
        "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "fma",
        "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "floor", "ceil", "round",
        "trunc", "fmod", "hypot", "erf", "erfc",
    )},
}  # fmt: skip
_FLOAT = re.compile(r"f_op_float(?:16|32|64)_(.+)")
_COMPLEX = re.compile(r"f_op_complex(?:64|128)_(.+)")
# What loopy's functions for complex numbers do with the components.
COMPLEX = {
    "mul": {"mul": 2, "madd": 2}, "add": {"add": 2}, "madd": {"mul": 2, "madd": 2, "add": 2},
}  # fmt: skip
_VECTOR_MADD = re.compile(r"llvm\.fmuladd\.v(\d+)f\d+")


@dataclass(frozen=True)
class Counted:
    """A count and whether it is exact."""

    value: int
    exact: bool = True

    def plus(self, value, exact):
        return Counted(self.value + int(value), self.exact and exact)


def counted_rows(scop, sizes):
    """Return executed instances as perflex counts them."""
    rows = {}

    def add(name, value, exact):
        rows[name] = rows.get(name, Counted(0)).plus(value, exact)

    for feature in count_features(scop, sizes, sub_group_size=1):
        operation = _FLOAT.fullmatch(feature.identifier)
        assert feature.value is not None
        if operation is not None:
            add(operation[1], feature.value, feature.exact)
        elif (operation := _COMPLEX.fullmatch(feature.identifier)) is not None:
            for kind, times in COMPLEX.get(operation[1], {f"complex {operation[1]}": 1}).items():
                add(kind, feature.value * times, feature.exact)
        elif feature.identifier == "f_sync_kernel_launch":
            add("kernel_launch", feature.value, feature.exact)
        elif feature.identifier == "f_sync_barrier_local":
            # The simulator counts those of all work-items.
            executed = sum(
                counts_of(scop).barriers("local", place).evaluate(sizes) * launch.group_size
                for place, launch in enumerate(scop.launches)
            )
            add("barrier_local", executed, feature.exact)
    for item in counts_of(scop).accesses:
        # Structures, such as complex numbers, are copied in one piece, which is no load or store to the simulator.
        if item.array.space in SPACES and not item.array.dtype.startswith("complex"):
            value = item.work_item_count.evaluate(sizes)
            row = f"{item.array.space} {item.access.direction}"
            add(row, value, item.exact)
            add(f"{row} bytes", value * item.array.itemsize, item.exact)
    return rows


def executed_rows(run):
    """Return the same, as Oclgrind saw it."""
    rows = {
        "add": run.adds, "mul": run.muls, "madd": run.madds(), "div": run.divs,
        "cmp": run.instructions.get("fcmp", 0), "barrier_local": run.barriers, "kernel_launch": len(run.launches),
    }  # fmt: skip
    for called, count in run.calls.items():
        if vector := _VECTOR_MADD.fullmatch(called):
            rows["madd"] += count * int(vector[1])
    for called, kind in FUNCTIONS.items():
        floating = sum(run.called(called, dtype) for dtype in ("float16", "float32", "float64"))
        rows[kind] = rows.get(kind, 0) + floating
    for space in SPACES:
        for direction in DIRECTIONS:
            # An array of constants is an array in global memory to loopy.
            for seen in (space, "constant") if space == "global" else (space,):
                traffic = run.load(seen) if direction == "load" else run.store(seen)
                for row, value in (
                    (f"{space} {direction}", traffic.count),
                    (f"{space} {direction} bytes", traffic.bytes),
                ):
                    rows[row] = rows.get(row, 0) + value
    return rows


def mismatches(counted, executed):
    """Return the rows that contradict each other: name -> (counted, executed, counted as exact).

    A count that is marked as exact must be equal, another one must not be below.
    """
    wrong = {}
    for name in sorted({*counted, *executed}):
        ours, theirs = counted.get(name, Counted(0)), executed.get(name, 0)
        if ours.value < theirs or (ours.exact and ours.value != theirs):
            wrong[name] = (ours.value, theirs, ours.exact)
    return wrong
