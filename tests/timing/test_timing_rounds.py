from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from perflex import TimingOptions
from perflex.features import SizedKernel
from perflex.testing import FakeDevice
from perflex.timing.measuring import measure
from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Mapping

KERNEL: Any = None


def law(_: str, sizes: Mapping[str, int]) -> float:
    return 1e-6 * sizes["n"]


class Uneven(FakeDevice):
    """Only kernels of odd size are noisy."""

    runs: Counter[str]

    def backend(self) -> Any:
        noisy, steady = super().backend(), FakeDevice(self.law).backend()
        runs: Counter[str] = Counter()
        object.__setattr__(self, "runs", runs)

        class Backend:
            device = self
            timer_resolution_s = 1e-9

            def build(self, request: SizedKernel) -> Any:
                inner = (noisy if request.sizes["n"] % 2 else steady).build(request)

                class Runnable:
                    def run(self, launches: int) -> tuple[float, ...]:
                        runs[request.label] += 1
                        return inner.run(launches)

                return Runnable()

            def close(self) -> None:
                pass

        return Backend()


def jobs(*sizes: int) -> list[SizedKernel]:
    return [SizedKernel(KERNEL, {"n": n}, f"n={n}") for n in sizes]


def test_precise_kernels_drop_out_and_noisy_ones_go_on() -> None:
    device = Uneven(law, noise=0.2)
    outcomes = measure(jobs(100, 1001, 102, 104, 1003), device, TimingOptions(warmups=0))
    timings = {outcome.label: outcome for outcome in outcomes if isinstance(outcome, Timing)}
    for n in (100, 102, 104):
        assert timings[f"n={n}"].precise
        assert len(timings[f"n={n}"].samples) == 8  # the first look
        assert device.runs[f"n={n}"] == 2 + 8
    for n in (1001, 1003):
        assert len(timings[f"n={n}"].samples) > 20


def test_noisy_kernels_end_when_they_are_known_or_out_of_trials() -> None:
    [known] = measure(jobs(1001), Uneven(law, noise=0.05), TimingOptions(precision=0.01, trials=500))
    assert isinstance(known, Timing)
    assert known.precise
    assert 10 < len(known.samples) < 500
    low, high = known.interval
    assert (high - low) / 2 <= 0.01 * known.seconds
    [spent] = measure(jobs(1001), Uneven(law, noise=0.5), TimingOptions(precision=0.001, trials=30))
    assert isinstance(spent, Timing)
    assert (len(spent.samples), spent.precise) == (30, False)


def test_references_of_suitable_length_take_part_in_every_round() -> None:
    device = Uneven(law, noise=0.3)
    sizes = (2, 1500, 90_000, 100, 900_001, 200)
    outcomes = measure(jobs(*sizes), device, TimingOptions(warmups=0, trials=40, budget_s=100))
    timings = {outcome.label: outcome for outcome in outcomes if isinstance(outcome, Timing)}
    assert len(timings["n=900001"].samples) == 40
    assert len(timings["n=1500"].samples) == 40  # 1.5 ms: known after eight rounds, and a reference
    assert len(timings["n=90000"].samples) == 8
    assert outcomes.drift.rounds == 40
    assert "n=1500" in outcomes.drift.references


def test_progress_is_told_within_its_bounds() -> None:
    seen: list[tuple[int, int, str]] = []
    measure(jobs(101, 103, 200), FakeDevice(law, noise=0.1), progress=lambda *told: seen.append(told))
    done = [told[0] for told in seen]
    assert done == sorted(done)
    assert done[-1] == seen[-1][1] == 6


@pytest.mark.parametrize("launches", [1, 25])
def test_budget_counts_all_launches(launches: int) -> None:
    device = FakeDevice(law, timer_resolution_s=1e-9 if launches == 1 else 0.999e-4)
    options = TimingOptions(precision=0, trials=60, budget_s=0.1, warmups=1)
    [outcome] = measure(jobs(200), device, options)
    assert isinstance(outcome, Timing)
    assert outcome.launches == launches
    assert len(outcome.samples) == min(60, int(0.1 / (200e-6 * (launches + 1))))
