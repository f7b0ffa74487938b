"""A search strategy for Kernel Tuner that knows what the kernel does: ``tune_kernel(..., strategy=...)``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.calibration import Calibration
from perflex.errors import CalibrationError, MachineError, MissingExtraError
from perflex.machines.files import load_machine, machine_names, machine_of_device
from perflex.search.counted_variants import Work, extract_space
from perflex.search.kernel_tuner_script import call_of, tuned_source
from perflex.search.settings_table import features_of, interpolated
from perflex.search.tuner import SearchOptions, Tuner
from perflex.search.variants import EnumeratedSpace, Variants, settings_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.machines.machine import Machine

    Array = NDArray[np.float64]

# More are not counted: one takes a tenth of a second to a second.
_MOST_COUNTED = 300


@dataclass(frozen=True, eq=False)
class ExpectedTimes:
    """What is expected of configurations: their numbers, settings, and seconds ``(n,)``."""

    numbers: list[int]
    variants: Variants
    seconds: Array

    @property
    def table(self) -> Array:
        """Settings as columns, shape ``(n, d)``."""
        return features_of(self.variants)


def expected_times(space: EnumeratedSpace, counted: Sequence[int], machine: Machine) -> ExpectedTimes:
    """Return what the source says of a space on a GPU: some configurations are counted, others interpolated.

    A configuration that gives the same kernel as another one counted is left out.
    """
    calibration, settings = Calibration.load("general_gpu"), [space.settings[number] for number in counted]
    features, target = tuple(calibration.model.input_features()), calibration.target(machine)
    variants = extract_space(replace(space, settings=settings), Work(space.build, features, target), None)
    again = {id(each) for others in variants.same.values() for each in others}
    numbers = [number for number, each in enumerate(space.settings) if id(each) not in again]
    places = {id(space.settings[number]): place for place, number in enumerate(numbers)}
    every = tuple(space.settings[number] for number in numbers)
    known = [places[id(each)] for each in variants.settings]
    names, nothing = tuple(map(settings_text, every)), np.empty((len(every), 0))
    plain = Variants(names, (space.sizes,) * len(every), (), nothing, {}, settings=every)
    seconds = interpolated(features_of(plain), known, variants.predicted(calibration))
    return ExpectedTimes(numbers, plain, seconds)


class KernelTunerStrategy:
    """The tuner as a strategy of Kernel Tuner.

    It reads the kernel's source, which has to be in OpenCL C or CUDA C, and the GPU must have a machine file: the
    calibration ``general_gpu`` says what to expect of each configuration. Of more than 300 configurations so many are
    drawn at random and counted; what is expected of the others is interpolated.

    Parameters
    ----------
    device
        Name of the device, by default as Kernel Tuner says.
    seed
        Of the first batch.

    Raises
    ------
    MissingExtraError
        Kernel Tuner is not installed.

    Examples
    --------
    ``tune_kernel(..., strategy=KernelTunerStrategy(), strategy_options={"max_fevals": 100})``
    """

    def __init__(self, device: str = "", seed: int = 0) -> None:
        if find_spec("kernel_tuner") is None:
            msg = "the strategy needs Kernel Tuner; install perflex[tuner]"
            raise MissingExtraError(msg, extra="tuner")
        self.device = device
        self.seed = seed

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> list[Any]:
        """Search Kernel Tuner's space until its budget is spent; settings that change nothing are run once.

        A CalibrationError if not a time is minimised; an UnsupportedKernelError if the source cannot be read; a
        MachineError if the GPU has no file, or it lacks facts.
        """
        from kernel_tuner.strategies.common import CostFunc
        from kernel_tuner.util import StopCriterionReached

        # One objective and its direction, or lists of them.
        if np.any(getattr(tuning_options, "objective_higher_is_better", False)):
            aims = ", ".join(np.atleast_1d(tuning_options.objective).tolist())
            msg = f"the strategy searches for short times, not for a high {aims}; tune for 'time'"
            raise CalibrationError(msg)
        configurations = [tuple(configuration) for configuration in searchspace.list]
        names, options = list(searchspace.param_names), SearchOptions(promise=False, seed=self.seed)
        tuner, chosen = self._from_source(runner, names, configurations, options)
        # Configurations come from the space itself: none has to be scaled or snapped to it, and all are valid.
        cost = CostFunc(searchspace, tuning_options, runner, scaling=False, snap=False, invalid_value=np.inf)
        try:
            while proposals := tuner.ask():
                for each in proposals:
                    # Kernel Tuner's times are in milliseconds.
                    time = 1e-3 * float(cost(configurations[chosen[each.number]], check_restrictions=False))
                    # Kernel Tuner's cost of what failed is infinite.
                    tuner.tell(each, time if 0 < time < np.inf else None)
        except StopCriterionReached:
            pass  # The budget is spent: what was measured is in the results.
        found: list[Any] = cost.results
        return found

    def _from_source(
        self, runner: Any, names: list[str], configurations: list[tuple[Any, ...]], options: SearchOptions
    ) -> tuple[Tuner, list[int]]:
        """Return a tuner that knows what the source does, and the configurations that it chooses from."""
        call = call_of(runner.kernel_options)
        tuned = tuned_source(call, Path.cwd() / "script.py")
        settings = [dict(zip(names, configuration, strict=True)) for configuration in configurations]
        sizes = tuned.sizes_in(settings)
        space = EnumeratedSpace(call.kernel_name, tuned, len(settings), settings, Counter(), sizes)
        name = self.device or runner.get_device_info().name
        machine = load_machine(name) if name in machine_names() else machine_of_device(name)
        if machine is None:
            msg = f"no machine file is of the device {name!r}; give device= of 'perflex list machines'"
            raise MachineError(msg, machine=name)
        drawn = np.random.default_rng(self.seed).permutation(len(settings))[:_MOST_COUNTED]
        found = expected_times(space, sorted(drawn.tolist()), machine)
        return Tuner(found.variants, prior=found.seconds, options=options), found.numbers
