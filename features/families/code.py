"""Features of a kernel's machine code: ``f_code_...``, of the whole launch.

The code is disassembled, never run. How often each part of it runs follows from its control flow, from the sizes, and
on a CPU from the counts of the kernel's description (`perflex.compiled`). On a GPU an instruction counts once for each
sub-group that is issued it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.compiled.code_values import KINDS, CodeValues, group_values
from perflex.compiled.control_flow import Totals
from perflex.compiled.nvidia.counts import CLASSES, launch_counts
from perflex.compiled.nvidia.flow import UnknownFlowError
from perflex.errors import FeatureError
from perflex.features.counting.scop_counts import counts_of
from perflex.features.families.feature import Family, FeatureDefaults, NamedFeature, named_family

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.program import CompiledProgram
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

# Of CPUs and GPUs.
_COMMON = {"instructions": "instruction", "loads": "access", "stores": "access", "spills": "access"}
# Of GPUs: of each work-item or work-group, and of all sub-groups.
_TAKEN = {"registers": "register", "private_bytes": "B", "spill_bytes": "B", "local_bytes": "B"}
_OF_GPUS = {**_TAKEN, **{name: "access" if "_" in name else "instruction" for name in CLASSES}}
_OF_CPUS = {
    "cycles": "cycle",
    "chain_cycles": "cycle",
    "gathers": "element",
    "scatters": "element",
    "inserts": "instruction",
    "shuffles": "instruction",
    "calls": "call",
    **{f"calls_{kind}": "vector" for kind in KINDS},
    "lanes": "element per instruction",
    "divisions": "element",
    "packed_float32": "instruction",
    "packed_float64": "instruction",
    "scalar_float32": "instruction",
    "scalar_float64": "instruction",
}
_UNITS = {**_COMMON, **_OF_CPUS, **_OF_GPUS}
_IDENTIFIER = re.compile(f"f_code_({'|'.join(_UNITS)})")
_FLOATS = ("float32", "float64")
# Operations of instructions that are counted: a product that feeds a sum is two.
_OPERATIONS = {"add": 1, "mul": 1, "min": 1, "max": 1, "madd": 2, "fma": 2}
# What compilers make neither arithmetic of vectors nor calls of; every other operation may be inlined as any amount.
_PLAIN = {*_OPERATIONS, "div", "sqrt", "abs", "cmp", "bit", "shift", "floordiv", "mod", "sign", "conj", "convert"}
_KEPT = 64


@dataclass(frozen=True)
class CodeFeature(FeatureDefaults):
    """A number of the machine code, over all work-groups of a launch; of one core that runs them all."""

    identifier: str  # In model strings
    # What is counted; ``"cycles"`` are those of the busiest part of the core, ``"chain_cycles"`` what chains of
    # dependent instructions take beyond that, ``"lanes"`` the mean of floating-point instructions. ``"registers"``,
    # ``"private_bytes"`` and ``"spill_bytes"`` are those of a work-item, ``"local_bytes"`` of a work-group: the most
    # of several device programs.
    what: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return _UNITS[self.what]

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value for the target's machine code at one tuple of sizes."""
        scop.check_sizes(sizes)
        if target.code is None:
            msg = (
                f"feature {self.identifier} of kernel {scop.name!r} is known only of kernels built for a device; "
                "gather it with a wall time, predict with a calibration, or use perflex features --code DEVICE (for an "
                "NVIDIA GPU that is not here: --code machine --machine NAME)"
            )
            raise FeatureError(msg, feature=self.identifier, kernel=scop.name)
        used = {name: np.asarray(sizes[name]) for name in scop.parameters}
        if any(array.shape for array in used.values()):
            msg = (
                f"feature {self.identifier} is read from the machine code for one tuple of sizes; give numbers, "
                "not arrays"
            )
            raise FeatureError(msg, feature=self.identifier, kernel=scop.name)
        whole = {name: int(array) for name, array in used.items()}
        on_gpu = any(one.gpu is not None for one in target.code)
        if self.what not in (_OF_GPUS if on_gpu else _OF_CPUS) and self.what not in _COMMON:
            kind = "a CPU" if on_gpu else "an NVIDIA GPU"
            msg = f"feature {self.identifier} is known of code for {kind} only; leave it out"
            raise FeatureError(msg, feature=self.identifier, kernel=scop.name)
        if self.what in _TAKEN:
            taken = getattr(target.built, self.what)
            if taken is None:
                msg = f"feature {self.identifier} of kernel {scop.name!r} is not reported by the compiler; leave it out"
                raise FeatureError(msg, feature=self.identifier, kernel=scop.name)
            return float(taken)
        key = (tuple(sorted(whole.items())), target.code)
        code = target.code
        if on_gpu:
            try:
                counts = scop.derived("code for a GPU", key, lambda: _gpu_counts(whole, code), most=_KEPT)
            except UnknownFlowError as error:
                msg = f"feature {self.identifier} of kernel {scop.name!r} cannot be counted: {error}; leave it out"
                raise FeatureError(msg, feature=self.identifier, kernel=scop.name) from error
            return counts.get(self.what, 0.0)
        found = scop.derived("machine code", key, lambda: launch_values(scop, whole, code), most=_KEPT)
        return _value(self.what, found)

    def matches(self, _scop: Scop, _sizes: Sizes, /) -> bool:
        """Return True: every kernel has code, and may have none of what is counted."""
        return True

    def inventory(self, _scop: Scop, /) -> list[str]:
        """Return the features of this family."""
        return [f"f_code_{what}" for what in _UNITS]


def _gpu_counts(sizes: Mapping[str, int], code: tuple[CompiledProgram, ...]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for program in code:
        if program.gpu is not None:
            scalars = [None if one.is_array else sizes.get(one.name) for one in program.arguments]
            for name, count in launch_counts(program.gpu, scalars).items():
                found[name] += count
    return dict(found)


def _value(what: str, found: CodeValues) -> float:
    if what == "cycles":
        return found.cycles - found.chained
    if what == "chain_cycles":
        return found.chained
    counts = found.counts
    if what == "lanes":
        instructions = sum(counts[f"{kind}_{dtype}"] for kind in ("packed", "scalar") for dtype in _FLOATS)
        return sum(counts[f"lanes_{dtype}"] for dtype in _FLOATS) / instructions if instructions else 1.0
    if what == "divisions":
        return sum(counts[f"{kind}_{dtype}"] for kind in ("div", "sqrt") for dtype in _FLOATS)
    return float(counts[what])


def launch_values(scop: Scop, sizes: Mapping[str, int], code: tuple[CompiledProgram, ...]) -> CodeValues:
    """Return what a kernel's machine code does, over all its launches and work-groups."""
    found = CodeValues()
    for number, (launch, program) in enumerate(zip(scop.launches, code, strict=True)):
        groups = float(launch.group_count.evaluate(sizes))
        if groups:
            totals = described_totals(scop, sizes, number).times(1 / groups)
            found.add(group_values(program, sizes, launch.items, totals), groups)
    return found


def described_totals(scop: Scop, sizes: Mapping[str, int], launch: int) -> Totals:
    """Return what the description says that a launch does: operations, and bytes of global memory."""
    counts = counts_of(scop)
    does: dict[str, float] = defaultdict(float)
    stored = loaded = 0.0
    exact = True
    for statement in scop.statements:
        if statement.launch != launch:
            continue
        times = float(counts.instances(statement).evaluate(sizes))
        for operation in statement.operations:
            if operation.dtype not in _FLOATS:
                continue
            exact = exact and operation.kind in _PLAIN
            if operation.kind in _OPERATIONS:
                does[f"ops_{operation.dtype}"] += times * operation.count * _OPERATIONS[operation.kind]
            elif operation.kind in {"div", "sqrt"}:
                does[f"{operation.kind}_{operation.dtype}"] += times * operation.count
        for access in statement.accesses:
            array = scop.array(access.array)
            if array.space == "global":
                stored += times * array.itemsize * (access.direction == "store")
                loaded += times * array.itemsize * (access.direction == "load")
    moved = {"global_store_bytes": stored}
    # Functions that are inlined add operations of their own.
    return Totals({**(does if exact else {}), **moved}, {"global_load_bytes": loaded}, {} if exact else dict(does))


def examples_for(code: Sequence[CompiledProgram]) -> tuple[str, ...]:
    """Return the identifiers that have a value for this code."""
    own = _OF_GPUS if any(one.gpu is not None for one in code) else _OF_CPUS
    return tuple(f"f_code_{what}" for what in {**_COMMON, **own})


def _code(identifier: str) -> CodeFeature | None:
    match = _IDENTIFIER.fullmatch(identifier)
    return CodeFeature(identifier, match[1]) if match else None


CODE_FAMILY = Family(_code, tuple(f"f_code_{what}" for what in _UNITS))


def needs_code(feature: object) -> bool:
    """Return whether a feature has no value without a kernel's machine code."""
    return isinstance(feature, CodeFeature)


# Named like the fields of what a build takes.
_OF_BUILDS = {"f_registers": "register", "f_private_bytes": "B", "f_spill_bytes": "B"}


@dataclass(frozen=True)
class BuildFeature(NamedFeature):
    """A number per work-item that the compiler decides; the most of several device programs."""

    units = _OF_BUILDS

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value of the target's build, or the registers that are stated for it."""
        scop.check_sizes(sizes)
        built = target.built
        found = None if built is None else getattr(built, self.identifier.removeprefix("f_"))
        # Registers may be stated where nothing was built (`using_machine`).
        if built is None and self.identifier == "f_registers":
            found = target.registers
        if found is not None:
            return float(found)
        if built is None:
            why = "is known only of kernels built for a device; gather it with a wall time"
        else:
            why = "is not reported by the device's driver; leave it out, or measure through CUDA"
        msg = f"feature {self.identifier} of kernel {scop.name!r} {why}"
        raise FeatureError(msg, feature=self.identifier, kernel=scop.name)

    def matches(self, _scop: Scop, _sizes: Sizes, /) -> bool:
        """Return True: every kernel takes some, were it none."""
        return True


BUILD_FAMILY = named_family(_OF_BUILDS, BuildFeature)


def needs_build(feature: object) -> bool:
    """Return whether a feature has no value without a built kernel."""
    return isinstance(feature, BuildFeature)
