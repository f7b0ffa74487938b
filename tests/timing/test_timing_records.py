from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pytest

from failing_kernels import good
from perflex import TimingOptions
from perflex.errors import MeasurementError
from perflex.features import SizedKernel
from perflex.testing import FakeDevice
from perflex.timing.key import measurement_key
from perflex.timing.launch.plan import plan_launch
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure, Timing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.timing_samples import Failure, MeasurementKey, Sample


class Kept:
    """A recorder in memory, which may be interrupted."""

    def __init__(self) -> None:
        self.samples: dict[MeasurementKey, list[Sample]] = defaultdict(list)
        self.failures: dict[MeasurementKey, list[Failure]] = defaultdict(list)
        self.left: int | None = None
        self.labels: Counter[str] = Counter()

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:
        return tuple(self.samples.get(key, ()))

    def failure(self, key: MeasurementKey) -> Failure | None:
        return next(reversed(self.failures.get(key, [])), None)

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left = self.left and self.left - 1
        self.samples[key].append(sample)
        self.labels[label] += 1

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:  # noqa: ARG002
        self.failures[key].append(failure)


KERNEL: Any = None


def law(_: str, sizes: Mapping[str, int]) -> float:
    return 1e-6 * sizes["n"]


def jobs(*sizes: int) -> list[SizedKernel]:
    return [SizedKernel(KERNEL, {"n": n}, f"n={n}") for n in sizes]


class Closed(FakeDevice):
    def backend(self) -> Any:
        pytest.fail("opened in vain")


def test_every_sample_is_recorded_with_its_round() -> None:
    kept = Kept()
    outcomes = measure(jobs(100, 200, 3000), FakeDevice(law, noise=0.1), TimingOptions(trials=12), recorder=kept)
    assert len(kept.samples) == 3
    for outcome, (key, samples) in zip(outcomes, kept.samples.items(), strict=True):
        del key
        assert isinstance(outcome, Timing)
        assert kept.labels[outcome.label] == len(samples)
    by_size = {dict(key.sizes)["n"]: samples for key, samples in kept.samples.items()}
    assert tuple(sample.seconds for sample in by_size[100]) == outcomes[0].samples  # type: ignore[union-attr]
    assert [sample.round for sample in by_size[100]] == list(range(len(by_size[100])))
    assert len({sample.session for samples in by_size.values() for sample in samples}) == 1


def test_what_is_known_is_not_measured_again() -> None:
    kept = Kept()
    options = TimingOptions(trials=12)
    first = measure(jobs(100, 200), FakeDevice(law, noise=0.1), options, recorder=kept)
    assert first.summary().samples_resumed == 0
    known = measure(jobs(100, 200), Closed(law), options, recorder=kept)
    assert known == first
    assert known.summary().samples_resumed == sum(len(timing.samples) for timing in first.timings)
    more = measure(jobs(100, 200), FakeDevice(law, noise=0.1), replace(options, trials=15), recorder=kept)
    assert all(isinstance(outcome, Timing) and len(outcome.samples) == 15 for outcome in more)
    assert set(kept.labels.values()) == {15}


def test_a_new_kernel_among_known_ones_is_measured_beside_a_reference() -> None:
    kept = Kept()
    measure(jobs(100, 200, 2000, 90_000), FakeDevice(law), recorder=kept)
    before = kept.labels.copy()
    measure(jobs(100, 200, 2000, 90_000, 300), FakeDevice(law), recorder=kept)
    assert dict(kept.labels - before) == {"n=300": 8, "n=2000": 8, "n=200": 8}


def test_interrupted_at_any_moment_ends_like_an_undisturbed_run() -> None:
    kept = Kept()
    moments = random.Random(1)  # noqa: S311
    sizes = (100, 200, 300, 1500, 4000, 9000, 20_000)
    options = TimingOptions(trials=25)
    interrupted = 0
    while True:
        kept.left = moments.randrange(25)
        before = sum(kept.labels.values())
        try:
            resumed = measure(jobs(*sizes), FakeDevice(law, noise=0.1, seed=before), options, recorder=kept)
        except KeyboardInterrupt:
            interrupted += 1
            continue
        break
    assert interrupted >= 3
    assert measure(jobs(*sizes), Closed(law), options, recorder=kept) == resumed
    # Only references get more samples than trials.
    more = [label for label, count in kept.labels.items() if count > 25]
    assert len(more) <= 3


def test_failures_are_recorded_and_crashes_are_not_tried_again() -> None:
    kept = Kept()
    tried: Counter[int] = Counter()

    def failing(label: str, sizes: Mapping[str, int]) -> float:
        tried[sizes["n"]] += 1
        if sizes["n"] < 4:
            kind = ("hang", "crash", "memory")[sizes["n"] - 1]
            msg = f"{label}: {kind}!"
            raise MeasurementError(msg, kind=kind)
        if sizes["n"] == 4:
            msg = f"{label}: no such type"
            raise MeasurementError(msg)
        return 1e-3

    device = FakeDevice(failing)
    outcomes = measure(jobs(1, 2, 3, 4, 5), device, recorder=kept)
    kinds = [outcome.kind for outcome in outcomes if isinstance(outcome, MeasurementFailure)]
    assert kinds == ["hang", "crash", "memory", "prepare"]
    assert {failure.kind for failures in kept.failures.values() for failure in failures} == set(kinds)
    again = measure(jobs(1, 2, 3, 4, 5), device, recorder=kept)
    assert tried == {1: 1, 2: 1, 3: 2, 4: 2, 5: 1}
    assert isinstance(again[0], MeasurementFailure)
    assert (again[0].kind, again[0].label) == ("hang", "n=1")
    assert again[0].reason.startswith("n=1: hang! (in an earlier run; ")
    measure(jobs(1), device, TimingOptions(retry_failures=True), recorder=kept)
    assert tried[1] == 2


def preamble(_: object) -> Iterator[tuple[str, str]]:
    yield "factor", "#define FACTOR 2"


def test_key_holds_all_that_a_time_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice(law)
    options = TimingOptions()
    kernel = good()
    key = measurement_key(SizedKernel(kernel, {"n": 64}, "x"), device, options)
    assert key == measurement_key(
        SizedKernel(good(), {"n": np.int64(64)}, "x"), FakeDevice(law, noise=0.5), TimingOptions(trials=9)
    )
    others = [
        measurement_key(SizedKernel(good(3.0), {"n": 64}, "x"), device, options),
        measurement_key(SizedKernel(lp.assume(kernel, "n>=64"), {"n": 64}, "x"), device, options),
        measurement_key(SizedKernel(kernel, {"n": 65}, "x"), device, options),
        measurement_key(SizedKernel(kernel, {"n": 64, "m": 1}, "x"), device, options),
        measurement_key(SizedKernel(kernel, {"n": 64, "alpha": 0.5}, "x"), device, options),
        measurement_key(SizedKernel(kernel, {"n": 64, "alpha": 0.25}, "x"), device, options),
        measurement_key(SizedKernel(kernel, {"n": 64}, "x"), FakeDevice(law, name="other"), options),
        measurement_key(SizedKernel(kernel, {"n": 64}, "x"), FakeDevice(law, platform="other"), options),
        measurement_key(SizedKernel(kernel, {"n": 64}, "x"), FakeDevice(law, vendor="other"), options),
        measurement_key(SizedKernel(kernel, {"n": 64}, "x"), FakeDevice(law, driver="1"), options),
        measurement_key(SizedKernel(kernel, {"n": 64}, "x"), device, TimingOptions(warmups=2)),
    ]
    monkeypatch.setattr("perflex.timing.key.version", lambda _: "0")
    others.append(measurement_key(SizedKernel(kernel, {"n": 64}, "x"), device, options))
    assert len({key, *others}) == len(others) + 1


def test_key_of_a_kernel_with_own_functions_holds_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> tuple[MeasurementKey, ...]:
        kernels = (good(name="told_apart"), lp.register_preamble_generators(good(name="told_apart"), [preamble]))
        return tuple(
            measurement_key(SizedKernel(kernel, {"n": 64}, "x"), FakeDevice(law), TimingOptions()) for kernel in kernels
        )

    plain, with_function = keys()
    assert keys() == (plain, with_function)
    # The function is the same by name, and what it gives is another.
    monkeypatch.setattr(
        "perflex.timing.key.plan_launch", lambda kernel, api: replace(plan_launch(kernel, api), source="other")
    )
    again = keys()
    assert again[0] == plain
    assert again[1] != with_function


def test_numbers_of_a_device_count_its_equals() -> None:
    class Second(FakeDevice):
        ordinal = 1

    first, second = (
        measurement_key(SizedKernel(good(), {"n": 1}, "x"), kind(law), TimingOptions()) for kind in (FakeDevice, Second)
    )
    assert first != second
