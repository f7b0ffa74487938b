"""A fake device that follows a test's script, jobs for it, and a recorder of samples in memory."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from perflex.features import SizedKernel
from perflex.testing import FakeDevice

# The fake device never looks at the kernel.
KERNEL = None


def law(_, sizes):
    return 1e-6 * sizes["n"]


def jobs(*sizes, kernel=KERNEL):
    return [SizedKernel(kernel, {"n": n}, f"n={n}") for n in sizes]


def _nothing_before(_):
    pass


def _by_the_law(_, launches, run):
    return run(launches)


@dataclass(frozen=True)
class ScriptedDevice(FakeDevice):
    """A fake device whose builds and launches go through functions of a test."""

    # Is told of each kernel before it is built.
    on_build: Callable[[SizedKernel], Any] = _nothing_before
    # Gets the kernel, how many launches are wanted, and what gives their times by the law; returns the times.
    on_run: Callable[[SizedKernel, int, Callable[[int], Any]], Any] = _by_the_law
    kind: str = ""

    def backend(self):
        """Return what "runs" kernels by the script."""
        plain = super().backend()

        def build(request):
            self.on_build(request)
            run = plain.build(request).run
            return SimpleNamespace(run=lambda launches: self.on_run(request, launches, run))

        return SimpleNamespace(device=self, timer_resolution_s=plain.timer_resolution_s, build=build, close=plain.close)


class Kept:
    """A recorder in memory, which can be interrupted: after `left` more samples, if that is a number."""

    def __init__(self):
        self.samples: dict[Any, list[Any]] = defaultdict(list)
        self.failures: dict[Any, list[Any]] = defaultdict(list)
        self.labels: Counter[str] = Counter()
        self.left: int | None = None

    def earlier(self, key):
        return tuple(self.samples.get(key, ()))

    def failure(self, key):
        return next(reversed(self.failures.get(key, [])), None)

    def add(self, key, sample, label=""):
        if self.left == 0:
            raise KeyboardInterrupt
        self.left = self.left and self.left - 1
        self.samples[key].append(sample)
        self.labels[label] += 1

    def fail(self, key, failure, label=""):  # noqa: ARG002
        self.failures[key].append(failure)
