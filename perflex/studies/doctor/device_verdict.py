"""From trials of a device to findings: launch cost, repeatability, heaps, drift, disturbed samples, clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.acceptance import MANY_DISTURBED, REPEATABILITY_LIMIT
from perflex.studies.doctor.device import (
    LAUNCH,
    common_change,
    disturbed_share,
    repeatability,
    throttled_share,
    two_heaps,
)
from perflex.studies.doctor.finding import Finding, graded, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.studies.doctor.device import DeviceTrials, Trial
    from perflex.studies.doctor.finding import State

# Kernels of the shipped models take some 0.1 ms and more; where a launch costs as much, they measure launches.
_LAUNCH_POOR_S = 2e-4
_REPEATABILITY_POOR = 0.03
_DRIFT_POOR = 0.03
_NO_CHANGE = 0.001
_DISTURBED_BAD = 0.75
_TAKEN = "stop other processes, and see the checks of the machine"
_TAKEN_GPU = "stop other processes on the GPU (nvidia-smi lists them), or wait"


def device_findings(found: DeviceTrials, kind: str = "cpu") -> tuple[Finding, ...]:
    """Return what is to be said of a device.

    Parameters
    ----------
    found
        What was measured.
    kind
        ``"cpu"``, ``"gpu"`` or ``"other"``, which decides what to do.
    """
    findings = []
    if found.failures:
        more = f" (and {len(found.failures) - 1} more)" if len(found.failures) > 1 else ""
        # Without any timing nothing is known of the device; with some, models lack the kernels that failed.
        state: State = "poor" if found.trials else "bad"
        findings.append(Finding("kernels", state, f"{found.failures[0]}{more}", "see 'perflex devices'"))
    if not found.trials:
        return tuple(findings) or (Finding("kernels", "bad", "no kernel could be timed", "give more --seconds"),)
    taken = _TAKEN_GPU if kind == "gpu" else _TAKEN
    kernels = [trial for trial in found.trials if trial.name != LAUNCH]
    findings += [
        _launch(found.trials),
        _repeatability(kernels, taken),
        _heaps(kernels, taken),
        _drift(found, kernels, kind),
    ]
    # On other devices the host's threads only wait, which is no part of a kernel's time.
    if kind == "cpu":
        findings.append(_disturbed(kernels))
    else:
        findings.append(_throttled(found.trials))
    return tuple(findings)


def _launch(trials: Sequence[Trial]) -> Finding:
    check = "launch cost"
    launches = [trial for trial in trials if trial.name == LAUNCH]
    if not launches:
        return Finding(check, "unknown", "the kernel that does nothing could not be timed")
    lowest, highest = min(launches[0].seconds), max(launches[0].seconds)
    middle = float(np.median(launches[0].seconds))
    found = f"{_time(middle)} ({_time(lowest)} to {_time(highest)})"
    state = graded(middle, _LAUNCH_POOR_S)
    advice = "" if state == "good" else "calibrate with kernels that take many times as long as a launch"
    return Finding(check, state, found, advice)


def _repeatability(kernels: Sequence[Trial], taken: str) -> Finding:
    check = "repeatability"
    known = repeatability(kernels)
    if not known:
        return Finding(check, "unknown", "no kernel was timed twice", "give more --seconds")
    middle, worst = float(np.median(list(known.values()))), max(known, key=lambda name: known[name])
    beside = f"median of {len(known)} kernels; worst: {worst} {percent(known[worst])}"
    found = f"times repeat to {percent(middle)} ({beside})"
    # The median alone decides on what cannot be used, as it does for calibrations.
    state = graded(middle, _REPEATABILITY_POOR)
    if middle > REPEATABILITY_LIMIT:
        state = "bad"
    elif known[worst] > REPEATABILITY_LIMIT:
        state = "poor"
    return Finding(check, state, found, "" if state == "good" else taken)


def _heaps(kernels: Sequence[Trial], taken: str) -> Finding:
    check = "two heaps"
    known = {trial.name: heaps for trial in kernels if (heaps := two_heaps(trial.values)) is not None}
    if not known:
        return Finding(check, "good", "the times of each kernel have one mode")
    name, heaps = max(known.items(), key=lambda item: item[1].share)
    found = (
        f"{percent(heaps.share)} of the times are {heaps.ratio:.1f} times as long as the others "
        f"({name}; {len(known)} of {len(kernels)} kernels)"
    )
    return Finding(check, "poor", found, f"the device has only some of its cores part of the time; {taken}")


def _drift(found: DeviceTrials, kernels: Sequence[Trial], kind: str) -> Finding:
    check = "drift"
    change = common_change(kernels or found.trials)
    size = max(found.drift, change, 1 / change) - 1
    state = graded(size, _DRIFT_POOR, REPEATABILITY_LIMIT)
    words = "kernels took as long in the last block as in the first"
    if abs(change - 1) >= _NO_CHANGE:
        way = "slower" if change > 1 else "faster"
        words = f"all kernels became {percent(abs(change - 1))} {way} from the first block to the last"
    if found.drift > 1:
        words += f", reference kernels varied by {percent(found.drift - 1)}"
    cause = "clock or memory of the device change with heat or other load"
    advice = (
        f"{cause}; run it until it is warm, and fix the clock" if kind == "gpu" else f"{cause}; wait, then try again"
    )
    return Finding(check, state, f"{words} in {found.seconds:.0f} s", "" if state == "good" else advice)


def _disturbed(kernels: Sequence[Trial]) -> Finding:
    check = "disturbed"
    share = disturbed_share(kernels)
    if share is None:
        return Finding(check, "unknown", "the system does not report how long the device's threads wait")
    found = f"{percent(share)} of the samples: threads of the device waited for a processor"
    state = graded(share, MANY_DISTURBED, _DISTURBED_BAD)
    return Finding(check, state, found, "" if state == "good" else "stop other processes, or wait")


def _throttled(trials: Sequence[Trial]) -> Finding:
    check = "clock"
    share = throttled_share(trials)
    if share is None:
        return Finding(check, "unknown", "the driver does not report whether it lowers the clock")
    found = f"lowered because of heat or power during {percent(share)} of the samples"
    advice = "set a clock that it can sustain (nvidia-smi --lock-gpu-clocks), or improve the cooling"
    return Finding(check, "poor" if share else "good", found, advice if share else "")


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
