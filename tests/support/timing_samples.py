"""Records of timings, and a fake device beside other work, as tests of how times are made of samples need them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
from perflex.testing import FakeDevice
from perflex.timing.launch.launch_times import LaunchTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perflex.features import SizedKernel

__all__ = ["Failure", "MeasurementKey", "Sample", "SystemActivity", "device_beside_others"]


class Shared(FakeDevice):
    """A fake device beside other work: chosen launches take twice as long, and the system says that they waited."""

    disturbs: Callable[[int], bool]

    def backend(self) -> Any:
        outer = super().backend()
        disturbs = self.disturbs
        device = self

        class Backend:
            timer_resolution_s = outer.timer_resolution_s
            close = staticmethod(outer.close)

            def __init__(self) -> None:
                self.device = device

            def build(self, request: SizedKernel) -> Any:
                inner = outer.build(request)
                # The two launches to begin with are no samples.
                count = -3

                def run(launches: int) -> LaunchTimes:
                    nonlocal count
                    count += 1
                    times = inner.run(launches)
                    total = sum(times)
                    if count >= 0 and disturbs(count):
                        return LaunchTimes((2 * value for value in times), SystemActivity(2 * total, 2 * total, total))
                    return LaunchTimes(times, SystemActivity(total, 2 * total, 0.0))

                return SimpleNamespace(run=run)

        return Backend()


def device_beside_others(
    law: Callable[[str, Mapping[str, int]], float], disturbs: Callable[[int], bool], noise: float = 0.0
) -> Shared:
    """Return one with a law of times; `disturbs` says of each sample's number whether it is disturbed."""
    device = Shared(law, noise=noise)
    object.__setattr__(device, "disturbs", disturbs)
    return device
