"""Triton: configurations of an autotuner are chosen before anything is compiled, and predicted without a GPU.

One line above what is there already::

    @perflex.triton.prune(machine="H100-SXM", keep=5)
    @triton.autotune(configs=[...], key=["M", "N", "K"])
    @triton.jit
    def matmul_kernel(...): ...
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.record import CalibrationRecord
from perflex.calibration.times.tuning_files import record
from perflex.errors import MachineError, PerflexError, PerflexWarning, UnsupportedKernelError
from perflex.features.from_triton.launches import (
    Configuration,
    LaunchedKernel,
    StandIn,
    TritonKernel,
    TritonLaunch,
    captured_launch,
    configuration_of,
    launch_of,
)
from perflex.features.tiles.costs import TileCosts
from perflex.machines.files import load_machine, machine_of_device
from perflex.models import load_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine

__all__ = [
    "Configuration", "LaunchedKernel", "Prediction", "TritonKernel", "TritonLaunch", "capture",
    "predict_configurations", "prune", "record", "tensor",
]  # fmt: skip

tensor = StandIn
capture = captured_launch
_MODEL = "general_tile"
# Programs that stand for all of a grid where configurations are only ordered.
_SAMPLED = 16
# What Triton passes on beside the kernel's arguments.
_OPTIONS = {"grid", "warmup", "num_warps", "num_stages", "num_ctas", "maxnreg", "ir_override", "stream", "device"}


@dataclass(frozen=True)
class Prediction:
    """What is known of a configuration before it is compiled.

    Attributes
    ----------
    configuration
        Constants, warps and stages.
    seconds
        Predicted time of a launch; infinite where the machine cannot run it.
    reason
        Why it cannot, or why it has no prediction; empty where it has one.
    """

    configuration: Configuration
    seconds: float
    reason: str = ""


def predict_configurations(
    launch: TritonLaunch, machine: str | Path | Machine | Calibration | None = None, *, most: int | None = _SAMPLED
) -> list[Prediction]:
    """Predict the configurations of a launch, without compiling one.

    Parameters
    ----------
    launch
        The launch, such as one of `capture`.
    machine
        A machine, its name or file, or a calibration of ``general_tile``; by default the GPU that PyTorch uses.
        Without a calibration, the model's usual values predict.
    most
        Programs that are interpreted at most; None for all.

    Returns
    -------
    list
        A prediction of each configuration, in their order.

    Raises
    ------
    MachineError
        There is no such machine, or it is no GPU of NVIDIA.
    UnsupportedKernelError
        The kernel cannot be followed; the message says why.
    """
    facts, values = model_facts(machine)
    capability = int(10 * facts.need("compute_capability"))
    found: list[Prediction] = []
    rows, places = [], []
    for place, configuration in enumerate(launch.configurations):
        try:
            costs = TileCosts(TritonKernel(launch, configuration, capability, most).program({}), facts)
        except UnsupportedKernelError as error:
            found.append(Prediction(configuration, math.inf, error.message))
            continue
        found.append(Prediction(configuration, math.inf, costs.refusal))
        if not costs.refusal:
            rows.append(costs.features())
            places.append(place)
    if rows:
        model = load_model(_MODEL).model()
        columns = {
            name: np.array([row[name.removeprefix("f_tile_")] for row in rows]) for name in model.input_features()
        }
        for place, seconds in zip(places, np.atleast_1d(model.evaluate(values, columns)).tolist(), strict=True):
            found[place] = replace(found[place], seconds=seconds)
    return found


def model_facts(machine: str | Path | Machine | Calibration | None) -> tuple[Machine, Mapping[str, float]]:
    """Return the machine, and the values of the model's parameters."""
    if isinstance(machine, CalibrationRecord):
        if machine.model.expression != load_model(_MODEL).model().expression:
            msg = (
                f"the calibration is of another model than {_MODEL}; make one with: perflex calibrate {_MODEL} --times"
            )
            raise MachineError(msg)
        facts, values = load_machine(machine.machine), dict(machine.fit)
    else:
        facts, values = _present() if machine is None else load_machine(machine), dict(load_model(_MODEL).usual)
    if facts.compute_capability is None:
        msg = f"machine {facts.name} is no GPU of NVIDIA; Triton configurations are predicted for these only"
        raise MachineError(msg, machine=facts.name)
    return facts, values


def _present() -> Machine:
    """Return the machine of the GPU that PyTorch uses."""
    try:
        import torch

        name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    except ImportError:
        name = ""
    found = machine_of_device(name) if name else None
    if found is None:
        what = f"the GPU {name!r} has no machine file" if name else "there is no GPU here"
        msg = f"{what}; name a machine: machine='H100-SXM', or another of 'perflex machine list'"
        raise MachineError(msg)
    return found


def prune(
    machine: str | Path | Machine | Calibration | None = None,
    keep: float = 5,
    *,
    arrays: Mapping[str, Any] | None = None,
) -> Callable[[Any], Any]:
    """Return a decorator for an autotuned Triton kernel: only the configurations that are predicted best are compiled.

    Those that the machine cannot run are left out. It comes after a kernel's own ``early_config_prune`` and before its
    ``perf_model``. Where nothing can be predicted, all configurations stay, and a warning says why, once. Where all
    that are kept fail, the next ones are tried. What was predicted for the last launch is ``kernel.predictions``.

    Parameters
    ----------
    machine
        As of `predict_configurations`.
    keep
        How many configurations are kept, or, below 1, which share of them.
    arrays
        Contents of arrays that addresses depend on, by argument, where the arguments are in a GPU's memory.

    Raises
    ------
    ValueError
        `keep` is not positive.
    UnsupportedKernelError
        What is decorated has no autotuner.
    """
    number: Any = keep
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not number > 0:
        msg = f"keep must be a number of configurations or a share of them, not {keep!r}"
        raise ValueError(msg)

    def decorate(tuner: Any) -> Any:
        if not hasattr(tuner, "early_config_prune") or not hasattr(tuner, "configs"):
            msg = "perflex.triton.prune stands above @triton.autotune, and there is none below it"
            raise UnsupportedKernelError(msg)
        pruner = _Pruner(tuner, machine, keep, dict(arrays or {}))
        tuner.early_config_prune, tuner.run, tuner.predictions = pruner.pruned, pruner.run, []
        return tuner

    return decorate


class _Pruner:
    """Stands between an autotuner and its configurations."""

    def __init__(self, tuner: Any, machine: Any, keep: float, arrays: dict[str, Any]) -> None:
        self.tuner, self.machine, self.keep, self.arrays = tuner, machine, keep, arrays
        self.own, self.launched = tuner.early_config_prune, tuner.run
        self.failed: set[Any] = set()
        self.told: set[str] = set()

    def pruned(self, configs: Sequence[Any], named: Mapping[str, Any], **given: Any) -> list[Any]:
        """Return the configurations to compile, best first, as Triton asks for them."""
        there = list(self.own(configs, named, **given) if self.own else configs)
        left = [config for config in there if config not in self.failed] or there
        try:
            ordered = self._ordered(left, {**named, **given})
        except PerflexError as error:
            self._tell(f"all {len(left)} configurations are kept: {error.message}")
            return left
        count = max(1, math.ceil(self.keep * len(there)) if self.keep < 1 else int(self.keep))
        return ordered[:count]

    def _ordered(self, configs: list[Any], given: Mapping[str, Any]) -> list[Any]:
        arguments = {name: value for name, value in given.items() if name not in _OPTIONS}
        launch = launch_of(self.tuner, arguments, given["grid"])
        launch = replace(launch, configurations=tuple(map(configuration_of, configs)), arrays=self.arrays)
        found = predict_configurations(launch, self.machine)
        self.tuner.predictions = found
        possible = [place for place, one in enumerate(found) if not one.reason]
        if not possible:
            msg = f"none of them can be predicted ({found[0].reason})"
            raise UnsupportedKernelError(msg)
        return [configs[place] for place in sorted(possible, key=lambda place: found[place].seconds)]

    def run(self, *args: Any, **given: Any) -> Any:
        """Run the kernel; where the configuration that was chosen fails, all that were kept do: try the next ones."""
        from triton.runtime.errors import OutOfResources, PTXASError

        while True:
            try:
                return self.launched(*args, **given)
            except (OutOfResources, PTXASError):
                cached = self.tuner.cache
                chosen = getattr(self.tuner, "best_config", None)
                kept = {chosen, *(getattr(self.tuner, "configs_timings", None) or ())}
                new = {config for config in kept if config is not None} - self.failed
                if not new or self.failed | new >= set(self.tuner.configs):
                    raise
                self.failed |= new
                for key in [key for key, config in cached.items() if config in self.failed]:
                    del cached[key]

    def _tell(self, what: str) -> None:
        name = getattr(self.tuner.base_fn, "__name__", "kernel")
        if what not in self.told:
            self.told.add(what)
            warnings.warn(f"kernel {name!r}: {what}", PerflexWarning, stacklevel=4)
