"""The benchmark of statistics, on made-up samples with known answers; and the processes that disturb."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from support.timing_samples import Sample, SystemActivity

BENCH = Path(__file__).parents[1] / "bench"
sys.path.append(str(BENCH))  # benchmarks are scripts, which import what lies beside them

import timing_statistics as bench  # noqa: E402
from burner import burning  # noqa: E402
from candidate_statistics import CANDIDATES, samples_needed  # noqa: E402

SCATTER = np.random.default_rng(3).normal(0, 0.01, 40)


def sample(seconds: float, number: int, waited: float = 0.0) -> Sample:
    """Return a sample of a kernel that uses two processors unless it waits for one."""
    activity = SystemActivity(elapsed_s=seconds, processor_s=2 * seconds - waited, waited_s=waited, stolen_s=0.0)
    return Sample(seconds, 1, 1.8e9 + number, "made-up", number, activity)


def test_two_heaps_are_told_apart_by_those_that_can() -> None:
    # Of 40 samples 16 take 1 ms and 24 take 2 ms.
    heaps = np.where(np.arange(40) % 5 < 2, 1e-3, 2e-3) * (1 + SCATTER)
    found = {name: statistic(heaps) for name, statistic in CANDIDATES.items()}
    for name in ("lower quartile", "lower component", "minimum", "mean, lower half", "median, lower half"):
        limit = 0.25 if name == "mean, lower half" else 0.03
        assert found[name] == pytest.approx(1e-3, rel=limit), name
    assert found["median"] == pytest.approx(2e-3, rel=0.03)
    assert found["mean"] == pytest.approx(1.6e-3, rel=0.03)


@pytest.mark.parametrize("name", CANDIDATES)
def test_equal_samples_have_one_statistic(name: str) -> None:
    assert CANDIDATES[name](np.full(7, 3e-5)) == pytest.approx(3e-5)


def test_mode_is_where_samples_are_densest() -> None:
    # By hand: the narrowest half of eight is 5 to 5.2, of these four 5 to 5.1; the closer pair of three decides.
    values = np.array([1.0, 2.0, 5.0, 5.1, 5.11, 5.2, 8.0, 9.0])
    assert CANDIDATES["half-sample mode"](values) == pytest.approx((5.1 + 5.11) / 2)


def test_samples_that_intervals_need() -> None:
    # From the least to the largest of n samples: 1 - 2/2^n for a median; no less than 1 - 0.75^n below a quartile.
    needed = samples_needed()
    assert needed["median"] == (6, 8)
    once, looks = needed["lower quartile"] or (0, 0)
    assert 0.75**once <= 0.025 < 0.75 ** (once - 1)
    assert 0.75**looks <= 0.05 / 6 / 2 < 0.75 ** (looks - 1)
    assert needed["half-sample mode"] is None


def made_up(folder: Path) -> bench.Recording:
    """Return a recording of two kernels: 10 % slower in the second quiet run, and disturbed beside burners.

    Beside the first burner three of five samples take twice as long, for a thread waited.
    """
    rows: list[dict[str, object]] = [{"device": "made-up"}]
    for condition, factor in (("quiet 1", 1.0), ("burner 50 ms", 1.0), ("quiet 2", 1.1), ("burner 500 ms", 1.1)):
        for kernel, seconds in (("short", 1e-4), ("long", 1e-2)):
            for number in range(40):
                late = condition == "burner 50 ms" and kernel == "long" and number % 5 < 3
                time_s = seconds * factor * (2 if late else 1)
                row = dataclasses.asdict(sample(time_s, number, waited=time_s / 2 if late else 0.0))
                rows.append({"condition": condition, "kernel": kernel, **row})
    path = folder / "made-up.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return bench.read_recording(path)


def test_report_finds_what_was_put_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "RESAMPLES", 20)
    result = bench.report([made_up(tmp_path)])
    (device,) = result["devices"]
    assert {name: group["kernels"] for name, group in device["groups"].items()} == {
        "all kernels": 2,
        "below 0.2 ms": 1,
        "from 0.2 ms on": 1,
    }
    long = device["groups"]["from 0.2 ms on"]
    assert long["disturbed"] == pytest.approx({"quiet 1": 0, "burner 50 ms": 0.6, "quiet 2": 0, "burner 500 ms": 0})
    for rule in ("all", "undisturbed"):
        assert long[rule]["median"]["quiet, again"] == pytest.approx([math.log(1.1)] * 3)
        assert long[rule]["median"]["quiet, 500 ms"] == pytest.approx([0] * 3)
        assert long[rule]["lower quartile"]["quiet, 50 ms"] == pytest.approx([0] * 3)
    assert long["all"]["median"]["quiet, 50 ms"] == pytest.approx([math.log(2)] * 3)
    assert long["all"]["mean"]["quiet, 50 ms"] == pytest.approx([math.log(1.6)] * 3)
    assert long["undisturbed"]["median"]["quiet, 50 ms"] == pytest.approx([0] * 3)
    # The short kernel is not disturbed: only the long one differs, and the maximum over both is its.
    assert device["groups"]["below 0.2 ms"]["all"]["median"]["quiet, 50 ms"] == pytest.approx([0] * 3)
    assert device["groups"]["all kernels"]["all"]["median"]["quiet, 50 ms"][2] == pytest.approx(math.log(2))
    # Of the long kernel only 16 samples are undisturbed beside the first burner: three series have twice ten.
    retaken = device["groups"]["all kernels"]["retaken"]["median"]
    assert retaken == {"series": 3, "cell": pytest.approx([0] * 3)}
    assert result["best"]["all"]["name"] not in {"mean", "median"}
    assert "lower quartile" in "\n".join(bench.lines_of(result))
    json.dumps(result)


def test_best_is_by_the_stated_criterion() -> None:
    def found(*largest: float) -> list[dict[str, np.ndarray]]:
        return [{"a": np.full((10, 1), largest[0]), "b": np.full((10, 1), largest[1])}]

    whole = [slice(None)]
    # The worst comparison counts, not the sum.
    assert bench.best_of({"x": found(0.0, 0.3), "y": found(0.2, 0.2)}, whole) == "y"
    # Equal within a tenth: the medians decide.
    uneven = np.array([[0.01]] * 8 + [[0.21]] * 2)
    tie = [{"a": uneven, "b": uneven}]
    assert bench.best_of({"x": found(0.2, 0.2), "y": tie}, whole) == "y"


def test_budget_is_spent_on_long_kernels_alike() -> None:
    # 40 timings with a warm-up each: the short kernel takes 0.08 s in all, the long one what remains of 4 s.
    assert bench.budget_for([0.001, 0.1], 4.0) == pytest.approx(3.92, rel=1e-6)


def state_of(process: int) -> str:
    """Return the state of a process as the system names it; Z, too, for one that is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")


def burn_for_a_while(seen: list[int]) -> None:
    """Raise an error beside two burners after both have used a processor; note their numbers before."""
    with burning(0.05, 0.05, processes=2) as processes:
        seen += processes
        end = time.monotonic() + 10
        while min(map(processor_seconds, processes)) < 0.1:
            assert time.monotonic() < end
            time.sleep(0.05)
        raise ZeroDivisionError


@on_linux
def test_burners_burn_and_end_with_an_exception() -> None:
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError):
        burn_for_a_while(seen)
    assert [state_of(process) for process in seen] == ["Z", "Z"]


@on_linux
def test_burners_sleep_in_between() -> None:
    with burning(0.02, 0.18) as (process,):
        before = processor_seconds(process)
        time.sleep(1.0)
        # A tenth of the time: it burns again only after each sleep, however late others let it run.
        assert processor_seconds(process) - before < 0.5


@on_linux
def test_burners_end_when_their_parent_is_killed() -> None:
    program = (
        f"import sys, time; sys.path.insert(0, {str(BENCH)!r})\nfrom burner import burning\n"
        "with burning(60.0, 0.0) as started:\n    print(*started, flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        process = int(parent.stdout.readline())
        assert state_of(process) != "Z"
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    end = time.monotonic() + 10
    while state_of(process) != "Z" and time.monotonic() < end:
        time.sleep(0.05)
    assert state_of(process) == "Z"
