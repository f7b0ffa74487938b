"""Compiles the CUDA source of default variants of all generators for two GPUs: cuda_sources.py [--unrolled] [ARCH ...].

Prints how many there are, those that fail or spill, and the range of registers by generator. No GPU is needed. loopy
takes many minutes to unroll the innermost loops of all; without ``--unrolled`` that is left to the compiler.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

# The project first: tests/uipick is a folder of tests.
sys.path[:0] = [str(Path(__file__).parents[2])]
sys.path.append(str(Path(__file__).parents[1]))


def rolled(kernel: Any) -> Any:
    import loopy as lp
    from loopy.kernel.data import UnrollTag

    entry = kernel.default_entrypoint
    if "k_inner" not in entry.all_inames():
        return kernel
    return kernel.with_kernel(lp.untag_inames(entry, "k_inner", UnrollTag))


def main(architectures: list[str], *, unrolled: bool) -> int:
    from oracles.nvrtc import compile_cuda
    from perflex.errors import PerflexError
    from perflex.timing.launch.plan import plan_launch
    from uipick import ALL_GENERATORS, KernelCollection

    warnings.simplefilter("ignore")
    sources: dict[str, tuple[str, str]] = {}
    failures, count, start = [], 0, time.monotonic()
    for generator in ALL_GENERATORS:
        kernels = KernelCollection([generator]).generate_kernels([generator.name])
        for kernel in {id(kernel.kernel): kernel for kernel in kernels}.values():
            count += 1
            unit = kernel.kernel if unrolled else rolled(kernel.kernel)
            try:
                sources.setdefault(plan_launch(unit, "cuda").source, (generator.name, kernel.name))
            except PerflexError as error:
                failures.append(f"{kernel.name}: {error.message}")
    print(f"{count} kernels, {len(sources)} sources, generated in {time.monotonic() - start:.0f} s")
    for architecture in architectures:
        start = time.monotonic()
        registers, spilling = defaultdict(list), []
        for source, (generator, name) in sources.items():
            try:
                compiled = compile_cuda(source, architecture)
            except RuntimeError as error:
                failures.append(f"{architecture} {name}: {error}")
                continue
            for taken in compiled.resources.values():
                registers[generator].append(taken.registers)
                if taken.spill_bytes:
                    spilling.append(f"{name}: {taken.spill_bytes} B")
        print(
            f"{architecture}: compiled in {time.monotonic() - start:.0f} s; spilling: {'; '.join(spilling) or 'none'}"
        )
        ranges = (f"{name} {min(found)}-{max(found)}" for name, found in registers.items())
        print("  registers per work-item: " + ", ".join(ranges))
    print("\n".join(failures) or "no failures")
    return bool(failures)


if __name__ == "__main__":
    asked = [word for word in sys.argv[1:] if word != "--unrolled"]
    sys.exit(main(asked or ["sm_80", "sm_90"], unrolled="--unrolled" in sys.argv))
