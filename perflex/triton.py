"""Triton: configurations of an autotuner are chosen before anything is compiled, and predicted without a GPU.

One line above what is there already::

    @perflex.triton.prune(machine="H100-SXM", keep=5)
    @triton.autotune(configs=[...], key=["M", "N", "K"])
    @triton.jit
    def matmul_kernel(...): ...
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from perflex.calibration.record import CalibrationRecord
from perflex.calibration.times.tuning_files import record
from perflex.errors import CalibrationError, MachineError, PerflexError, UnsupportedKernelError, warn
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
from perflex.features.tiles.costs import TileCosts, require_triton
from perflex.features.tiles.doubts import tile_doubts
from perflex.features.tiles.tile_program import TileResources
from perflex.machines.files import load_machine, machine_of_device
from perflex.models import load_model
from perflex.search.promise import Promise, check_keep, kept_ratio, number_kept
from perflex.yaml_file import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine
    from perflex.search.promise import Keep

__all__ = [
    "Configuration", "LaunchedKernel", "Prediction", "TileResources", "TritonKernel", "TritonLaunch", "capture",
    "predict_configurations", "prune", "record", "tensor",
]  # fmt: skip

tensor = StandIn
capture = captured_launch
_MODEL = "general_tile"
# Programs that stand for all of a grid where configurations are only ordered.
_SAMPLED = 16


@dataclass(frozen=True)
class Prediction:
    """What is known of a configuration before it is compiled.

    Attributes
    ----------
    configuration
        Constants, warps and stages.
    seconds
        Predicted time of a launch; infinite where there is none.
    reason
        Why there is none; empty where there is one.
    possible
        Whether the machine can run it, as far as is known.
    doubts
        Reasons not to rely on the prediction, as short texts.
    resources
        Registers, spilt bytes and shared memory of its compiled code, where it was compiled.
    read
        Arrays whose integers were read, since addresses, masks or loops depend on them.
    """

    configuration: Configuration
    seconds: float
    reason: str = ""
    possible: bool = True
    doubts: tuple[str, ...] = ()
    resources: TileResources | None = None
    read: tuple[str, ...] = ()


def predict_configurations(
    launch: TritonLaunch,
    machine: str | Path | Machine | Calibration | None = None,
    *,
    most: int | None = _SAMPLED,
    compiled: int = 0,
) -> list[Prediction]:
    """Predict the configurations of a launch, without compiling one.

    Parameters
    ----------
    launch
        The launch, such as one of `capture`.
    machine
        A machine, or a calibration of ``general_tile``, or a file of either, or a machine's name; by default the GPU
        that PyTorch uses. Without a calibration, the model's usual values predict.
    most
        Programs that are interpreted at most; None for all.
    compiled
        The best are compiled and predicted again, with their registers and shared memory in place of formulas, until so
        many of the best are of compiled code. Triton finds them in its cache when it launches them.

    Returns
    -------
    list
        A prediction of each configuration, in their order.

    Raises
    ------
    MachineError
        There is no such machine, or it is no GPU of NVIDIA that Triton supports.
    UnsupportedKernelError
        The kernel cannot be followed; the message says why.
    """
    machine = _read(machine)
    facts, values = model_facts(machine)
    model, capability = load_model(_MODEL).model(), int(10 * facts.need("compute_capability"))

    def predicted(chosen: Sequence[Configuration], *, as_compiled: bool = False) -> list[Prediction]:
        found, rows = [], {}
        for place, one in enumerate(chosen):
            try:
                program = TritonKernel(launch, one, capability, most, compiled=as_compiled).program({})
            except UnsupportedKernelError as error:
                found.append(Prediction(one, math.inf, error.message))
                continue
            costs = TileCosts(program, facts)
            doubts = tile_doubts(costs, timed=has_times(machine))
            read = tuple(name for name, held in launch.read.items() if held is not None)
            found.append(Prediction(one, math.inf, costs.refusal, not costs.refusal, doubts, program.resources, read))
            if not costs.refusal:
                rows[place] = costs.features()
        if rows:
            names = {name: name.removeprefix("f_tile_") for name in model.input_features()}
            columns = {name: np.array([row[short] for row in rows.values()]) for name, short in names.items()}
            for place, seconds in zip(rows, np.atleast_1d(model.evaluate(values, columns)).tolist(), strict=True):
                found[place] = replace(found[place], seconds=seconds)
        return found

    found = predicted(launch.configurations)
    while True:
        # Compiled code may put others first.
        best = sorted((i for i, one in enumerate(found) if not one.reason), key=lambda i: found[i].seconds)[:compiled]
        left = [place for place in best if found[place].resources is None]
        if not left:
            return found
        again = predicted([found[place].configuration for place in left], as_compiled=True)
        for place, one in zip(left, again, strict=True):
            found[place] = one


def model_facts(machine: str | Path | Machine | Calibration | None) -> tuple[Machine, Mapping[str, float]]:
    """Return the machine, and the values of the model's parameters."""
    machine = _read(machine)
    if isinstance(machine, CalibrationRecord):
        if machine.model.expression != load_model(_MODEL).model().expression:
            msg = (
                f"the calibration is of another model than {_MODEL}; make one with: perflex calibrate {_MODEL} --times"
            )
            raise MachineError(msg)
        facts, values = load_machine(machine.machine), dict(machine.fit)
    else:
        facts, values = _present() if machine is None else load_machine(machine), dict(load_model(_MODEL).usual)
    require_triton(facts)
    return facts, values


def has_times(machine: Any) -> bool:
    """Return whether it is a calibration with times of the machine that it predicts for."""
    if not isinstance(machine, CalibrationRecord) or machine.table.machine != machine.machine:
        return False
    return machine.has_samples


def _read(machine: Any) -> Any:
    """Return the calibration of a file; anything else as it is."""
    if isinstance(machine, (str, Path)) and "perflex-calibration" in schema_of(str(machine)):
        from perflex.calibration.calibration import Calibration

        return Calibration.load(machine)
    return machine


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
        msg = f"{what}; name a machine: machine='H100-SXM', or another of 'perflex list machines'"
        raise MachineError(msg)
    return found


def prune(
    machine: str | Path | Machine | Calibration | None = None,
    keep: float | str | Promise = 5,
    *,
    arrays: Mapping[str, Any] | None = None,
    compiled: int = 0,
) -> Callable[[Any], Any]:
    """Return a decorator for an autotuned Triton kernel: only the configurations that are predicted best are compiled.

    Those that the machine cannot run are left out; those that have no prediction stay beside those that are kept. It
    comes after a kernel's own ``early_config_prune`` and before its ``perf_model``. Where nothing can be predicted, all
    configurations stay. Warnings say what has no prediction, and which doubts there are, once. Where all that are kept
    fail, the next ones are tried. What was predicted for the last launch is ``kernel.predictions``. Without parentheses
    it decorates with the usual values.

    Parameters
    ----------
    machine
        As of `predict_configurations`.
    keep
        How many configurations are kept, or which share of them such as 0.1, or a `Promise`: as many as hold one near
        the best, for which `machine` must be a calibration with times of this kernel. ``"promise"`` is ``Promise()``:
        one within 5 % of the best, for 95 % of problems.
    arrays
        Contents of arrays that addresses depend on, by argument, in place of what the arguments hold.
    compiled
        As of `predict_configurations`; as many as are kept, so that all of them can run.

    Raises
    ------
    MachineError
        As of `predict_configurations`, of a machine that is given.
    CalibrationError
        `keep` is out of range, or there are too few times of this kernel for the promise.
    UnsupportedKernelError
        What is decorated has no autotuner, or none of its arguments has the name of one of the `arrays`.
    """
    kernel: Any = machine
    if callable(kernel) or hasattr(kernel, "fn"):  # there are no parentheses
        return cast("Callable[[Any], Any]", prune()(kernel))
    wanted: Any = Promise() if keep == "promise" else keep
    check_keep(wanted)
    given = _read(machine)
    if given is not None:
        model_facts(given)

    def decorate(decorated: Any) -> Any:
        tuner = decorated
        while not (hasattr(tuner, "early_config_prune") and hasattr(tuner, "configs")):
            if not hasattr(tuner, "fn"):
                msg = "perflex.triton.prune stands above @triton.autotune, and there is none below it"
                raise UnsupportedKernelError(msg)
            tuner = tuner.fn  # of heuristics and the like
        names = launch_of(tuner, {}, 1).function.arg_names
        if unknown := set(arrays or ()) - set(names):
            msg = f"prune(arrays=...): the kernel has no argument {min(unknown)}; it has {', '.join(names)}"
            raise UnsupportedKernelError(msg)
        ratio = _promised(given, tuner, wanted) if isinstance(wanted, Promise) else math.inf
        predict = partial(predict_configurations, machine=given, compiled=compiled)
        pruner = _Pruner(tuner, predict, wanted, ratio, dict(arrays or {}))
        tuner.early_config_prune, tuner.run, tuner.predictions = pruner.pruned, pruner.run, []
        return decorated

    return decorate


def _promised(machine: Any, tuner: Any, promise: Promise) -> float:
    """Return up to which multiple of the fastest prediction a promise keeps configurations, by a calibration."""
    name = tuner.base_fn.__name__
    problems: dict[str, list[int]] = {}
    if isinstance(machine, CalibrationRecord):
        for row, problem in enumerate(machine.table.generators):
            problems.setdefault(problem, []).append(row)
    # Where configurations were pruned before, the best may not be among those that have times.
    least = max(2, len(tuner.configs) / 2)
    own = [rows for problem, rows in problems.items() if problem.partition("(")[0] == name and len(rows) >= least]
    if len(own) < promise.batch:
        msg = (
            f"a configuration {promise} takes times of {promise.batch} problems of kernel {name!r}, each of half of "
            f"its configurations or more, and there are {len(own)}: give machine= a calibration that 'perflex "
            "calibrate general_tile --times' makes of what perflex.triton.record writes while nothing is pruned"
        )
        raise CalibrationError(msg)
    rows, model = [row for some in own for row in some], machine.model
    predicted = model.evaluate(machine.fit, machine.table.columns(model.input_features()))
    measured = machine.table.column(model.output_feature)
    return kept_ratio(predicted[rows], measured[rows], [machine.table.generators[row] for row in rows], promise)


def _failures() -> tuple[type[Exception], ...]:
    """Return what Triton raises where a configuration does not fit."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return OutOfResources, PTXASError, CompileTimeAssertionFailure


def _say_traced() -> None:
    """Say once in each trace of ``torch.compile`` that all configurations stay."""
    warn("torch.compile names no grid: it gets all configurations of kernels that perflex.triton.prune decorates")


# PyTorch calls it while it traces, in place of following it: what torch.compiler.assume_constant_result does.
_say_traced._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001


class _Pruner:
    """Stands between an autotuner and its configurations."""

    def __init__(self, tuner: Any, predict: Any, keep: Keep, ratio: float, arrays: dict[str, Any]) -> None:
        self.tuner, self.predict, self.keep, self.ratio, self.arrays = tuner, predict, keep, ratio, arrays
        self.own, self.launched = tuner.early_config_prune, tuner.run
        self.failed: set[Any] = set()
        self.told: set[str] = set()

    # Any name may be one of the kernel's arguments.
    def pruned(self, configs: Sequence[Any], named: Mapping[str, Any], /, **given: Any) -> list[Any]:
        """Return the configurations to compile, best first, as Triton asks for them."""
        # torch.compile follows these lines; the others it does not know.
        there = list(self.own(configs, named, **given) if self.own else configs)
        if "grid" not in given:
            _say_traced()
            return there
        left = [config for config in there if config not in self.failed] or there
        try:
            found = self._found(left, {**named, **given})
        except PerflexError as error:
            self._tell(f"all {len(left)} configurations are kept: {error.message}")
            return left
        self.tuner.predictions = found
        unknown = [place for place, one in enumerate(found) if one.possible and one.reason]
        ordered = sorted((place for place, one in enumerate(found) if not one.reason), key=lambda i: found[i].seconds)
        if not ordered:
            reason = next((one.reason for one in found), "there are none")
            self._tell(f"all {len(left)} configurations are kept: none of them can be predicted ({reason})")
            return left
        if unknown:
            reason = found[unknown[0]].reason
            self._tell(f"{len(unknown)} configurations that have no prediction are kept, too: {reason}")
        count = None if isinstance(self.keep, Promise) else number_kept(self.keep, len(there))
        most = self.ratio * found[ordered[0]].seconds
        kept = [place for place in ordered[:count] if found[place].seconds <= most]
        for doubt in dict.fromkeys(doubt for place in kept for doubt in found[place].doubts):
            self._tell(f"predictions are doubtful: {doubt}")
        return [left[place] for place in kept + unknown]

    def _found(self, configs: list[Any], given: Mapping[str, Any]) -> list[Prediction]:
        arguments = {name: value for name, value in given.items() if name in self.tuner.arg_names}
        launch = launch_of(self.tuner, arguments, given.get("grid", ()))
        configurations = tuple(configuration_of(config).launched(given) for config in configs)
        launch = replace(launch, configurations=configurations, arrays=self.arrays)
        found: list[Prediction] = self.predict(launch)
        return found

    def run(self, /, *args: Any, **given: Any) -> Any:
        """Run the kernel; where the configuration that was chosen fails, all that were kept do: try the next ones."""
        while True:
            try:
                return self.launched(*args, **given)
            except _failures():  # asked for where there is one only
                cached = self.tuner.cache
                chosen = getattr(self.tuner, "best_config", None)
                kept = {chosen, *(getattr(self.tuner, "configs_timings", None) or ())}
                new = {config for config in kept if config is not None} - self.failed
                # Tuners of libraries have caches of their own.
                if not new or self.failed | new >= set(self.tuner.configs) or not isinstance(cached, dict):
                    raise
                self.failed |= new
                for key in [key for key, config in cached.items() if config in self.failed]:
                    del cached[key]

    def _tell(self, what: str) -> None:
        name = getattr(self.tuner.base_fn, "__name__", "kernel")
        if what not in self.told:
            self.told.add(what)
            warn(f"kernel {name!r}: {what}")
