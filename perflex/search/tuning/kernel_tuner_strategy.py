"""A search strategy for Kernel Tuner that knows what the kernel does: ``tune_kernel(..., strategy=...)``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError, MissingExtraError
from perflex.search.described.description import Description
from perflex.search.described.description_file import load_description
from perflex.search.described.space import DescribedSpace
from perflex.search.tuning.tuner import Tuner

if TYPE_CHECKING:
    from pathlib import Path

# Configurations between fits.
_TOGETHER = 5


class KernelTunerStrategy:
    """The tuner of described kernels as a strategy of Kernel Tuner.

    Parameters
    ----------
    description
        The kernel's description, its name or its file. Its tunables must be among those that are tuned.
    device
        Name of the device; one that no machine file knows is taken for a usual GPU of its maker.
    seed
        Of the first batch and the learned correction.

    Raises
    ------
    MissingExtraError
        Kernel Tuner or scikit-learn is not installed.

    Examples
    --------
    ``strategy = KernelTunerStrategy("convolution", device="A100")``, then
    ``tune_kernel(..., strategy=strategy, strategy_options={"max_fevals": 100})``
    """

    def __init__(self, description: Description | str | Path, device: str = "", seed: int = 0) -> None:
        if find_spec("kernel_tuner") is None:
            msg = "the strategy needs Kernel Tuner; install perflex[tuner]"
            raise MissingExtraError(msg, extra="tuner")
        self.description = description if isinstance(description, Description) else load_description(description)
        self.device = device
        self.seed = seed

    def tune(self, searchspace: Any, runner: Any, tuning_options: Any) -> list[Any]:
        """Search Kernel Tuner's space until its budget is spent; settings that change nothing are run once.

        Raises
        ------
        CalibrationError
            A tunable of the description is not tuned, or has values that are no numbers; or the objective is one that
            is better the higher it is, not a time.
        """
        from kernel_tuner.strategies.common import CostFunc
        from kernel_tuner.util import StopCriterionReached

        # One objective and its direction, or lists of them.
        if np.any(getattr(tuning_options, "objective_higher_is_better", False)):
            aims = ", ".join(np.atleast_1d(tuning_options.objective).tolist())
            msg = f"the strategy searches for short times, not for a high {aims}; tune for 'time'"
            raise CalibrationError(msg, description=self.description.name)
        configurations = [tuple(configuration) for configuration in searchspace.list]
        space, chosen = self._space(list(searchspace.param_names), configurations)
        tuner = Tuner(space, seed=self.seed)
        # Configurations come from the space itself: none has to be scaled or snapped to it, and all are valid.
        cost = CostFunc(searchspace, tuning_options, runner, scaling=False, snap=False, invalid_value=np.inf)
        try:
            while proposals := tuner.ask(_TOGETHER):
                for each in proposals:
                    # Milliseconds, in place of the tuner's seconds: only ratios of times matter to it.
                    time = float(cost(configurations[chosen[each.number]], check_restrictions=False))
                    # Kernel Tuner's cost of what failed is infinite.
                    tuner.tell(each, time if 0 < time < np.inf else None)
        except StopCriterionReached:
            pass  # The budget is spent: what was measured is in the results.
        found: list[Any] = cost.results
        return found

    def _space(self, names: list[str], configurations: list[tuple[Any, ...]]) -> tuple[DescribedSpace, list[int]]:
        missing = [name for name in self.description.tunables if name not in names]
        if missing:
            msg = f"{missing[0]} of description {self.description.name!r} is not tuned; give it in tune_params"
            raise CalibrationError(msg, description=self.description.name)
        wanted = [name for name in (*self.description.tunables, *self.description.constants) if name in names]
        try:
            table = np.array([[float(row[names.index(name)]) for name in wanted] for row in configurations])
        except (TypeError, ValueError) as error:
            msg = f"the tunables of description {self.description.name!r} must be numbers: {error}"
            raise CalibrationError(msg, description=self.description.name) from error
        settings = dict(zip(wanted, table.T, strict=True))
        constants = [column for name, column in settings.items() if name not in self.description.tunables]
        kernels = np.column_stack([*self.description.kernels(settings).values(), *constants])
        _, first = np.unique(kernels, axis=0, return_index=True)
        # unique sorts by value; the space keeps Kernel Tuner's order.
        first.sort()
        return DescribedSpace(
            self.description, {name: column[first] for name, column in settings.items()}, self.device
        ), first.tolist()
