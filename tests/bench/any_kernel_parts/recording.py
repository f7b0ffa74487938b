"""Times of all variants and sizes of families on one device, appended to a file that a later run goes on with."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

from perflex import TimingOptions
from perflex.features.sized_kernel import SizedKernel
from perflex.timing.measuring import measure
from perflex.timing.results import Timing

from .cases import cases_of, read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex import Device

    from .cases import Case
    from .family import Family

# Enough samples for a median known to a few percent, and little time for slow variants.
OPTIONS = TimingOptions(trials=41, min_trials=8, precision=0.015, budget_s=0.4, limit_s=10)


def record(families: Sequence[Family], device: Device, label: str, path: Path, limit_s: float = math.inf) -> list[str]:
    """Time all cases that the file does not hold, a family at a time, and append them.

    Parameters
    ----------
    families
        What to time.
    device
        Where to run.
    label
        What rows call the device.
    path
        JSON lines, one per case: ``device``, ``family``, ``variant``, ``size`` (index), ``sizes``, ``seconds``,
        ``repeatability`` (relative, null where unknown).
    limit_s
        No further family is begun after so many seconds.

    Returns
    -------
    list of str
        Why cases have no time, a line for each that failed or was left for a later run.
    """
    started, known, missing = time.perf_counter(), read_rows(path), []
    for family in families:
        cases = [case for case in cases_of(family) if case not in known]
        if cases and time.perf_counter() - started > limit_s:
            missing.append(f"{family.name}: {len(cases)} cases are left for another run")
            continue
        if not cases:
            continue
        begun = time.perf_counter()
        made = {variant: make() for variant, make in family.variants.items()}
        jobs = [SizedKernel(made[case.variant], family.sizes[case.size], str(case), family.name) for case in cases]
        with path.open("a", encoding="utf-8") as stream:
            for case, outcome in zip(cases, measure(jobs, device, OPTIONS), strict=True):
                if isinstance(outcome, Timing):
                    stream.write(json.dumps(_row(label, case, family, outcome)) + "\n")
                else:
                    missing.append(f"{case}: {outcome.reason}")
        print(f"{family.name}: {len(cases)} cases in {time.perf_counter() - begun:.1f} s", flush=True)
    return missing


def _row(label: str, case: Case, family: Family, timing: Timing) -> dict[str, Any]:
    known = math.isfinite(timing.repeatability)
    return {
        "device": label,
        "family": case.family,
        "variant": case.variant,
        "size": case.size,
        "sizes": dict(family.sizes[case.size]),
        "seconds": timing.seconds,
        "repeatability": timing.repeatability if known else None,
    }
