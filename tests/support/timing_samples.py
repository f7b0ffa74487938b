"""Records of timings, and a fake device beside other work, as tests of how times are made of samples need them."""

from collections import Counter

from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
from perflex.timing.launch.launch_times import LaunchTimes
from support.scripted_device import ScriptedDevice, law

__all__ = ["Failure", "MeasurementKey", "Sample", "SystemActivity", "device_beside_others"]


def device_beside_others(disturbs, noise=0.0, law=law):
    """Return a device beside other work: disturbed samples take twice as long, and the system says that they waited.

    `disturbs` says of each sample's number whether it is disturbed.
    """
    runs = Counter()

    def on_run(request, launches, run):
        # The two launches to begin with are no samples.
        number = runs[request.label] - 2
        runs[request.label] += 1
        times = run(launches)
        total = sum(times)
        if number >= 0 and disturbs(number):
            return LaunchTimes(tuple(2 * value for value in times), SystemActivity(2 * total, 2 * total, total))
        return LaunchTimes(times, SystemActivity(total, 2 * total, 0.0))

    return ScriptedDevice(law, noise=noise, on_run=on_run)
