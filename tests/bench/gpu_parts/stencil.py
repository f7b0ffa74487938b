"""Part 5: the 25-point stencil in every work-group shape: measured times beside every volume feature."""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from perflex import TimingOptions, load_machine
from perflex.analysis.volumes.compare import read_rows
from perflex.features.families.machine import RESIDENCY_FEATURES, VOLUME_FEATURES

from .keeping import rows_kept
from .parts import Goal
from .pipeline import Plan, Variant, timed_variants
from .stencil_kernels import Shape, shapes, star25

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .budget import Allotted
    from .parts import PartRun, Setting

__all__ = ["Rates", "measured_rates", "stencil_shapes"]

WITHIN = 0.05
BUILT_FEATURES = ("f_registers", "f_private_bytes", "f_spill_bytes")
FEATURES = (*VOLUME_FEATURES, *RESIDENCY_FEATURES, *BUILT_FEATURES, "f_thread_groups", "f_sub_groups")
COLUMNS = (
    "block_x", "block_y", "block_z", "folding", "nx", "ny", "nz", "seconds", "spread", "glups", "predicted_s",
    "limiter", *FEATURES, "failure",
)  # fmt: skip
# Arrays of 640 x 512 x 512 with their halos: the paper's. On a CPU, a size that takes milliseconds.
_SIZES = {"gpu": {"nx": 632, "ny": 504, "nz": 504}, "cpu": {"nx": 120, "ny": 104, "nz": 104}}
# What NVRTC 13 takes for compute capability 9.0, for devices that do not tell; half as many let twice as many
# work-groups be resident.
REGISTERS = {"none": 32, "2y": 54, "2z": 58}
_OPTIONS = TimingOptions(trials=9, min_trials=3, budget_s=0.15)
_WAVEFRONT_BYTES = 128


@dataclass(frozen=True)
class Rates:
    """What the parts of the memory hierarchy can do, and where that is known from.

    Attributes
    ----------
    dram, l2
        In B/s.
    l1
        In wavefronts/s, over all compute units.
    sources
        Of each, for the report.
    """

    dram: float
    l2: float
    l1: float
    sources: str

    def predicted(self, features: Mapping[str, float]) -> tuple[float, str]:
        """Return the time in seconds that the slowest part takes, and which it is; nan where volumes are missing."""
        try:
            times = {
                "DRAM": (features["f_vol_dram_load"] + features["f_vol_dram_store"]) / self.dram,
                "L2": (features["f_vol_l2_l1_load"] + features["f_vol_l2_l1_store"]) / self.l2,
                "L1": features["f_l1_wavefronts"] / self.l1,
            }
        except KeyError:
            return math.nan, ""
        slowest = max(times, key=lambda name: times[name])
        return times[slowest], slowest


def stencil_shapes(setting: Setting, time: Allotted, run: PartRun) -> None:
    """Write ``stencil_shapes.csv``; the goal is a predicted best shape within 5 % of the measured best."""
    sizes = _SIZES["gpu" if setting.on_gpu else "cpu"]
    plan = Plan(_build, sizes, FEATURES, setting.device, setting.machine)
    variants = [Variant(asdict(shape), str(shape), REGISTERS[shape.folding]) for shape in shapes()]
    # Should time be up before all are timed, those that were are a fair sample.
    random.Random(0).shuffle(variants)  # noqa: S311  no secret
    rates = measured_rates(setting)
    rows: list[dict[str, Any]] = []
    updates = math.prod(sizes.values())
    run.notes.append(
        f"Grid {sizes['nx']} x {sizes['ny']} x {sizes['nz']}, double precision, halo 4; {len(variants)} shapes."
    )
    try:
        with rows_kept(setting.folder / "stencil_shapes.csv", COLUMNS) as keep:
            for one, timing, failure in timed_variants(plan, variants, setting, _OPTIONS, time):
                predicted, limiter = (math.nan, "") if rates is None else rates.predicted(one.features)
                row = {**_shape_cells(one.variant.settings), **sizes, **one.features}
                row |= {"predicted_s": predicted, "limiter": limiter, "failure": failure}
                if timing is not None:
                    glups = 1e-9 * updates / timing.seconds
                    row |= {"seconds": timing.seconds, "spread": timing.spread, "glups": glups}
                keep(row)
                rows.append(row)
    finally:
        _judge(rows, rates, setting, run, len(variants))


def _build(**settings: Any) -> Any:
    return star25(Shape(**settings))


def _shape_cells(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**{f"block_{axis}": settings[axis] for axis in "xyz"}, "folding": settings["folding"]}


def _judge(rows: list[dict[str, Any]], rates: Rates | None, setting: Setting, run: PartRun, wanted: int) -> None:
    measured = [row for row in rows if "seconds" in row]
    failed = sum(bool(row["failure"]) for row in rows)
    run.notes.append(f"{len(measured)} of {wanted} shapes timed, {failed} failed; all in `stencil_shapes.csv`.")
    if not measured:
        return
    best = min(measured, key=lambda row: float(row["seconds"]))
    run.notes.append(f"Measured best: {_name(best)}, {1e3 * best['seconds']:.3f} ms, {best['glups']:.1f} GLup/s.")
    known = [row for row in measured if math.isfinite(row["predicted_s"])]
    if rates is None or not known:
        run.notes.append("There is no prediction: no ceilings or no volumes are known.")
        return
    chosen = min(known, key=lambda row: float(row["predicted_s"]))
    behind = chosen["seconds"] / best["seconds"] - 1
    errors = sorted(abs(row["predicted_s"] / row["seconds"] - 1) for row in known)
    run.notes.append(
        f"Predicted best: {_name(chosen)}, {1e3 * chosen['predicted_s']:.3f} ms (limited by {chosen['limiter']}), "
        f"measured {1e3 * chosen['seconds']:.3f} ms. Median error over {len(known)} shapes: "
        f"{100 * errors[len(errors) // 2]:.1f} %. Rates: {rates.sources}."
    )
    if not setting.own_machine:
        run.notes.append("The volumes are another machine's, so that this prediction means nothing here.")
        return
    run.goals.append(
        Goal(
            what=f"25-point stencil: time of the predicted best of {len(known)} shapes against the measured best",
            goal=f"within {100 * WITHIN:.0f} %",
            reached=f"{100 * behind:+.1f} %",
            met=behind <= WITHIN and len(measured) + failed == wanted,
        )
    )


def _name(row: Mapping[str, Any]) -> str:
    folding = "" if row["folding"] == "none" else f" {row['folding']}"
    return f"{row['block_x']} x {row['block_y']} x {row['block_z']}{folding}"


def measured_rates(setting: Setting) -> Rates | None:
    """Return the rates in ``ceilings.csv``; what it lacks is the machine's, and None if neither has it."""
    path = setting.folder / "ceilings.csv"
    facts = load_machine(setting.machine).known() if setting.machine else {}
    best = _best_rates(path)
    cycles = facts.get("compute_units", 0.0) * facts.get("clock_hz", 0.0)
    wanted = {
        "DRAM": (best.get("copy"), facts.get("dram_bandwidth")),
        "L2": (best.get("L2 loads"), facts.get("l2_bandwidth")),
        "L1": (best.get("local memory loads", 0.0) / _WAVEFRONT_BYTES or None, cycles or None),
    }
    rates, sources = {}, []
    for name, (measured, stated) in wanted.items():
        rate = measured or stated
        if not rate:
            return None
        rates[name] = rate
        sources.append(f"{name} {'measured' if measured else 'of the machine file'}")
    return Rates(rates["DRAM"], rates["L2"], rates["L1"], ", ".join(sources))


def _best_rates(path: Path) -> dict[str, float]:
    """Return the ceilings of a table: the greatest rate of kernels for each quantity, beyond caches."""
    if not path.exists():
        return {}
    best: dict[str, float] = {}
    for row in read_rows(path):
        if row["source"] == "kernel" and row["rate"] and not row["remark"]:
            best[row["quantity"]] = max(best.get(row["quantity"], 0.0), float(row["rate"]))
    return best
