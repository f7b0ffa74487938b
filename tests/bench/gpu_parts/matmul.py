"""Part 6: every variant of a space of tiled matrix multiplications, timed, for pruning to be tried on."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from perflex import TimingOptions
from perflex.features.families.machine import RESIDENCY_FEATURES, VOLUME_FEATURES

from .keeping import rows_kept, write_yaml_file
from .matmul_kernels import CONSTRAINTS, PARAMETERS, SPACE, build
from .parts import Goal
from .pipeline import Plan, Variant, timed_variants
from .stencil import BUILT_FEATURES

if TYPE_CHECKING:
    from .budget import Allotted
    from .parts import PartRun, Setting

__all__ = ["COLUMNS", "matmul_space"]

FEWEST = 300
FEATURES = (
    "f_op_float32_madd",
    "f_mem_access_global_float32_load",
    "f_mem_access_global_float32_store",
    "f_mem_access_local_float32_load",
    "f_mem_access_local_float32_store",
    "f_sync_barrier_local",
    "f_thread_groups",
    "f_thread_items",
    "f_sub_groups",
    *RESIDENCY_FEATURES,
    *VOLUME_FEATURES,
    *BUILT_FEATURES,
)
COLUMNS = (*PARAMETERS, "n", *FEATURES, "seconds", "spread", "gflops", "failure")
_N = {"gpu": 2048, "cpu": 256}
_OPTIONS = TimingOptions(trials=9, min_trials=3, budget_s=0.1)


def matmul_space(setting: Setting, time: Allotted, run: PartRun) -> None:
    """Write ``matmul_space.csv``, a row per variant: settings, size, features, time in seconds or why there is none."""
    n = _N["gpu" if setting.on_gpu else "cpu"]
    plan = Plan(build, {"n": n}, FEATURES, setting.device, setting.machine)
    variants = [Variant(settings, _label(settings)) for settings in SPACE]
    # Should time be up before all are timed, those that were are a fair sample.
    random.Random(0).shuffle(variants)  # noqa: S311  no secret
    _describe(setting, n, len(variants))
    best: dict[str, Any] = {}
    timed = failed = 0
    try:
        with rows_kept(setting.folder / "matmul_space.csv", COLUMNS) as keep:
            for one, timing, failure in timed_variants(plan, variants, setting, _OPTIONS, time):
                row = {**one.variant.settings, "n": n, **one.features, "failure": failure}
                if timing is None:
                    failed += 1
                else:
                    timed += 1
                    gflops = 2e-9 * n**3 / timing.seconds
                    row |= {"seconds": timing.seconds, "spread": timing.spread, "gflops": gflops}
                    best = row if not best or timing.seconds < best["seconds"] else best
                keep(row)
    finally:
        run.notes.append(f"n = {n}, single precision: {timed} of {len(variants)} variants timed, {failed} failed.")
        if best:
            settings = ", ".join(f"{name} {best[name]}" for name in PARAMETERS)
            run.notes.append(f"Best: {settings}: {1e3 * best['seconds']:.3f} ms, {best['gflops']:.0f} GFlop/s.")
        run.goals.append(
            Goal(
                what="tiled matrix multiplications: variants timed, of the whole space",
                goal=f"all, and at least {FEWEST}",
                reached=f"{timed} timed and {failed} that cannot run, of {len(variants)}",
                met=timed >= FEWEST and timed + failed == len(variants),
            )
        )


def _describe(setting: Setting, n: int, variants: int) -> None:
    """Write beside the table what its columns are."""
    content = {
        "schema": "perflex-study-space/1",
        "device": str(setting.device),
        "kernel": "tiled matrix multiplication c = a b, float32, tests/bench/gpu_parts/matmul_kernels.py:build",
        "sizes": {"n": n},
        "parameters": {name: list(values) for name, values in PARAMETERS.items()},
        "constraints": list(CONSTRAINTS),
        "variants": variants,
        "features": list(FEATURES),
        "machine": setting.machine,
        "time": "column seconds, median of up to 9 timings; empty where the column failure says why",
    }
    write_yaml_file(setting.folder / "matmul_space.yaml", content)


def _label(settings: dict[str, int]) -> str:
    return f"matmul_tiled({', '.join(f'{name}={value}' for name, value in settings.items())})"
