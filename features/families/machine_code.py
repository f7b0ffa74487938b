"""Features of machine code, which is disassembled, never run: ``f_code_...``, and of what a kernel's build takes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from perflex.compiled.nvidia.classes import CLASSES, OF_ACCESSES
from perflex.errors import FeatureError, UnsupportedKernelError
from perflex.features.counting.private_memory import PrivateUse, private_uses
from perflex.features.counting.scop_counts import counts_of
from perflex.features.counting.touched import Certainty
from perflex.features.families.feature import Family, Remarks, any_of, kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.code_values import CodeValues
    from perflex.compiled.control_flow import Totals
    from perflex.compiled.nvidia.flow import GpuBlock
    from perflex.compiled.nvidia.waits import Latencies
    from perflex.compiled.program import CompiledProgram
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

# Of functions that are called.
_CALLS = ("exp", "log", "trig", "tanh", "pow", "root", "integer", "other")
# Of CPUs and GPUs.
_COMMON = {"instructions": "instruction", "loads": "access", "stores": "access", "spills": "access"}
_OF_GPUS = {name: "access" if "_" in name else "instruction" for name in CLASSES}
_OF_CPUS = {
    "cycles": "cycle",
    "chain_cycles": "cycle",
    "gathers": "element",
    "scatters": "element",
    "inserts": "instruction",
    "shuffles": "instruction",
    "calls": "call",
    **{f"calls_{kind}": "vector" for kind in _CALLS},
    "lanes": "element per instruction",
    "divisions": "element",
    **dict.fromkeys(("packed_float32", "packed_float64", "scalar_float32", "scalar_float64"), "instruction"),
}
_UNITS = {**_COMMON, **_OF_CPUS, **_OF_GPUS}
# Named like the fields of what a build takes.
_OF_BUILDS = {"f_registers": "register", "f_private_bytes": "B", "f_spill_bytes": "B", "f_local_bytes": "B"}
_FLOATS = ("float32", "float64")
# Operations of instructions that are counted: a product that feeds a sum is two.
_OPERATIONS = {"add": 1, "mul": 1, "min": 1, "max": 1, "madd": 2, "fma": 2}
# What compilers make neither arithmetic of vectors nor calls of; every other operation may be inlined as any amount.
_PLAIN = {*_OPERATIONS, "div", "sqrt", "abs", "cmp", "bit", "shift", "floordiv", "mod", "sign", "conj", "convert"}


def _code_value(scop: Scop, sizes: Sizes, target: Target, what: str) -> float:
    code = target.code
    if code is None:
        why = (
            "is known only of kernels built for a device; gather it with a wall time, predict with a calibration, or "
            "use perflex features --code DEVICE (for an NVIDIA GPU that is not here: --code machine --machine NAME)"
        )
        raise _error(scop, f"f_code_{what}", why)
    if any(np.ndim(sizes[name]) for name in scop.parameters):
        raise _error(scop, f"f_code_{what}", "is read from the code for one tuple of sizes; give numbers, not arrays")
    on_gpu = _is_for_gpu(code)
    if any(one.runtime == "hip" for one in code):
        raise _error(scop, f"f_code_{what}", "is not read of code for AMD's GPUs; leave it out")
    if what not in (_OF_GPUS if on_gpu else _OF_CPUS) and what not in _COMMON:
        why = f"is known of code for {'a CPU' if on_gpu else 'an NVIDIA GPU'} only; leave it out"
        raise _error(scop, f"f_code_{what}", why)
    # What reads code takes long to import.
    from perflex.compiled.control_flow import UnknownFlowError

    whole = {name: int(sizes[name]) for name in scop.parameters}
    try:
        if not on_gpu:
            return _of_cpu(what, kept(scop, "machine code", whole, code, lambda: launch_values(scop, whole, code)))
        accesses = what in OF_ACCESSES
        key = (code, accesses)
        counts = kept(scop, "code for a GPU", whole, key, lambda: _gpu_counts(whole, code, accesses=accesses))
    except UnknownFlowError as error:
        raise _error(scop, f"f_code_{what}", f"cannot be counted: {error}; leave it out") from error
    return counts.get(what, 0.0)


def _error(scop: Scop, name: str, why: str) -> FeatureError:
    return FeatureError(f"feature {name} of kernel {scop.name!r} {why}", feature=name, kernel=scop.name)


def _is_for_gpu(code: Sequence[CompiledProgram]) -> bool:
    return any(one.gpu is not None for one in code)


def _gpu_counts(sizes: Mapping[str, int], code: tuple[CompiledProgram, ...], *, accesses: bool) -> dict[str, float]:
    from perflex.compiled.nvidia.counts import launch_counts
    from perflex.compiled.nvidia.cubin import GpuCode

    found: dict[str, float] = defaultdict(float)
    for program in code:
        if isinstance(program.gpu, GpuCode):
            scalars = [None if one.is_array else sizes.get(one.name) for one in program.arguments]
            for name, count in launch_counts(program.gpu, scalars, accesses=accesses).items():
                found[name] += count
    return dict(found)


@dataclass(frozen=True)
class GpuLaunch:
    """What the code of a launch for a GPU executes: blocks, how often all sub-groups run each, and private memory."""

    blocks: tuple[GpuBlock, ...]
    runs: Sequence[float]
    counts: Mapping[str, float]
    private: PrivateUse

    def alone_cycles(self, latencies: Latencies) -> float:
        """Return the cycles of all sub-groups together if each were alone."""
        from perflex.compiled.nvidia.waits import cycles_of

        return float(np.dot(self.runs, cycles_of(self.blocks, latencies)))


def gpu_launches(sizes: Mapping[str, int], code: Sequence[CompiledProgram]) -> list[GpuLaunch] | None:
    """Return what the launches of a kernel execute by their code for a GPU; None where data decide that.

    An UnsupportedKernelError where such code goes to private memory: without it a prediction would leave that out.
    """
    from perflex.compiled.control_flow import UnknownFlowError
    from perflex.compiled.nvidia.classes import private_words
    from perflex.compiled.nvidia.counts import block_runs, issued_counts
    from perflex.compiled.nvidia.cubin import GpuCode, disassembled

    found = []
    for program in code:
        if not isinstance(program.gpu, GpuCode):
            return None
        scalars = [None if one.is_array else sizes.get(one.name) for one in program.arguments]
        held = program.gpu.facts.private_bytes
        try:
            runs, blocks = block_runs(program.gpu, scalars, private=True)
        except UnknownFlowError as error:
            if not any(private_words(one) for one in disassembled(program.gpu)):
                return None
            msg = (
                f"the code of kernel {program.name!r} keeps {held} B of each work-item in memory, and how often they "
                f"are used cannot be counted: {error}; predict it without its code"
            )
            raise UnsupportedKernelError(msg, kernel=program.name) from error
        counts = issued_counts(runs, blocks)
        words = (counts.get(f"private_words_{way}", 0.0) for way in ("loaded", "stored"))
        found.append(GpuLaunch(blocks, runs, counts, PrivateUse(held, *words)))
    return found


def amd_private_uses(
    scop: Scop, sizes: Mapping[str, int], code: Sequence[CompiledProgram] | None, sub_group_size: int
) -> dict[int, PrivateUse] | None:
    """Return the private memory of launches by their code for an AMD GPU; None where there is no such code.

    An UnsupportedKernelError where how often code goes there is known neither of the code nor of the source's arrays.
    """
    if not any(one.runtime == "hip" for one in code or ()):
        return None
    from perflex.compiled.amd import AmdCode

    of_source, found = private_uses(scop, sizes, sub_group_size), {}
    for number, (launch, program) in enumerate(zip(scop.launches, code or (), strict=True)):
        if not isinstance(program.gpu, AmdCode) or program.gpu.facts.private_bytes == 0:
            continue
        facts, source = program.gpu.facts, of_source.get(number)
        if facts.private_bytes is None or not (facts.moves.complete or source):
            msg = (
                f"the code of kernel {program.name!r} goes to memory of each work-item in loops or calls, and how "
                "often cannot be counted; predict it without its code"
            )
            raise UnsupportedKernelError(msg, kernel=program.name)
        groups = prod(program.gpu.groups)
        sub_groups = groups * ceil(launch.group_size / sub_group_size)
        met = float(counts_of(scop).barriers("local", number).evaluate(sizes)) / groups
        loads, stores = (sub_groups * words for words in facts.moves.words(met / float(launch.repeats.evaluate(sizes))))
        # What loops move that are not counted, the source tells of its arrays.
        if source and not facts.moves.complete:
            loads, stores = loads + source.loads, stores + source.stores
        if loads or stores:
            found[number] = PrivateUse(facts.private_bytes, loads, stores)
    return found


def _of_cpu(what: str, found: CodeValues) -> float:
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
    from perflex.compiled.code_values import CodeValues, group_values

    found = CodeValues()
    for number, (launch, program) in enumerate(zip(scop.launches, code, strict=True)):
        groups = float(launch.group_count.evaluate(sizes))
        if groups:
            totals = described_totals(scop, sizes, number).times(1 / groups)
            found.add(group_values(program, sizes, launch.items, totals), groups)
    return found


def described_totals(scop: Scop, sizes: Mapping[str, int], launch: int) -> Totals:
    """Return what the description says that a launch does: operations, and bytes of global memory."""
    from perflex.compiled.control_flow import Totals

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
            if array.memory == "global":
                stored += times * array.itemsize * (access.direction == "store")
                loaded += times * array.itemsize * (access.direction == "load")
    moved = {"global_store_bytes": stored}
    # Functions that are inlined add operations of their own.
    return Totals({**(does if exact else {}), **moved}, {"global_load_bytes": loaded}, {} if exact else dict(does))


def examples_for(code: Sequence[CompiledProgram]) -> tuple[str, ...]:
    """Return the identifiers that have a value for this code."""
    on_gpu = _is_for_gpu(code)
    if any(one.runtime == "hip" for one in code):
        return tuple(_OF_BUILDS)
    found = tuple(f"f_code_{what}" for what in {**_COMMON, **(_OF_GPUS if on_gpu else _OF_CPUS)})
    return (*found, *_OF_BUILDS) if on_gpu else found


MACHINE_CODE = Family(
    "A number of the machine code, over all work-groups of a launch; of one core that runs them all",
    f"f_code_({any_of(_UNITS)})",
    _UNITS.__getitem__,
    _code_value,
    examples=tuple(f"f_code_{what}" for what in _UNITS),
    remarks=lambda *_: Remarks("read from the machine code, at the given sizes", Certainty(estimated=True)),
    needs="code",
    cost="on-chip",
)


def _built_value(scop: Scop, _sizes: Sizes, target: Target, name: str) -> float:
    built = target.built
    found = None if built is None else getattr(built, name.removeprefix("f_"))
    # Registers may be stated where nothing was built (`using_machine`).
    if built is None and name == "f_registers":
        found = target.registers
    if found is not None:
        return float(found)
    if built is None:
        raise _error(scop, name, "is known only of kernels built for a device; gather it with a wall time")
    raise _error(scop, name, "is not reported by the device's driver; leave it out, or measure through CUDA")


BUILT = Family(
    "A number per work-item or work-group that the compiler decides; the most of several device programs",
    any_of(_OF_BUILDS),
    _OF_BUILDS.__getitem__,
    _built_value,
    examples=tuple(_OF_BUILDS),
    needs="build",
)
