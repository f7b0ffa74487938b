"""Launches of Triton kernels: their arguments, without a GPU, and the configurations of their autotuners."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from math import prod
from typing import Any
from unittest import mock

import numpy as np
from msgspec import structs

from perflex.errors import PerflexError, UnsupportedKernelError
from perflex.features.from_triton.front_end import TritonSource, triton_module, triton_source
from perflex.features.from_triton.interpreter import Launch
from perflex.features.tiles.costs import require_triton
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.features.tiles.tile_program import TileProgram, TileResources
from perflex.machines.machine import Machine

_BITS = {"half": 16, "float": 32, "double": 64, "bool": 8, "i1": 8}
# What the compiler is told beside constants, and what it takes where it is told nothing.
OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "ir_override": None}
# Bytes of an array that are copied from a GPU's memory at most.
_MOST_COPIED = 1 << 24


class StandIn:
    """Stands for a tensor of a GPU that is not there: type and shape, in rows, and no elements."""

    def __init__(self, dtype: str, *shape: Any) -> None:
        self.dtype = dtype
        # As of PyTorch, one tuple will do as well.
        given: Any = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        self.shape: tuple[int, ...] = tuple(given)

    def stride(self, axis: int | None = None) -> Any:
        """Return the elements between neighbours along an axis, or along all of them."""
        strides = tuple(prod(self.shape[place + 1 :]) for place in range(len(self.shape)))
        return strides if axis is None else strides[axis]

    def size(self, axis: int | None = None) -> Any:
        """Return the extent of an axis, or all of them."""
        return self.shape if axis is None else self.shape[axis]

    def numel(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return (_BITS.get(self.dtype) or int(re.findall(r"\d+", self.dtype)[0])) // 8

    def data_ptr(self) -> int:
        """Return an address, which no element has."""
        return 0


@dataclass(frozen=True)
class Configuration:
    """One configuration: values of constants, and what the compiler is told beside.

    Attributes
    ----------
    constants
        Values of the kernel's constants.
    warps, stages
        Sub-groups of a program, and iterations of a loop that are in flight at once.
    options
        What else the compiler is told and does not take anyway: ``num_ctas``, ``maxnreg`` and ``ir_override``.
    hook
        Its ``pre_hook``.
    """

    constants: Mapping[str, Any]
    warps: int = 4
    stages: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)
    hook: Callable[[dict[str, Any]], Any] | None = field(default=None, compare=False, repr=False)

    def told(self) -> dict[str, Any]:
        """Return what the compiler is told, by Triton's names."""
        return {"num_warps": self.warps, "num_stages": self.stages, **self.options}

    def all(self) -> dict[str, Any]:
        """Return the constants with what the compiler is told."""
        return {**self.constants, **self.told()}

    @property
    def unpredictable(self) -> str:
        """What it has that predictions know nothing of; empty where there is none."""
        return " ".join(f"{name}={value}" for name, value in self.options.items() if name != "maxnreg")

    def launched(self, options: Mapping[str, Any]) -> Configuration:
        """Return it with what a launch tells the compiler itself, by Triton's names."""
        told = {name: value for name, value in {**self.told(), **options}.items() if name in OPTIONS}
        warps, stages = told.pop("num_warps"), told.pop("num_stages")
        others = {name: value for name, value in told.items() if value != OPTIONS[name]}
        return replace(self, warps=warps, stages=stages, options=others)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.all().items())


@dataclass(frozen=True, eq=False)
class TritonLaunch:
    """A launch of a Triton kernel before its configuration is chosen.

    Attributes
    ----------
    function
        The kernel.
    arguments
        Values of its arguments by name, as far as the launch gives them.
    grid
        Programs along each axis, or a function of all arguments that returns them.
    configurations
        Those of its autotuner; none where it has no autotuner.
    heuristics
        Functions of all arguments that compute constants.
    arrays
        Contents of arrays that addresses depend on, beside those that arguments hold.
    keys
        Arguments that its autotuner tells problems apart by.
    read
        Integers of arguments that predictions asked for and read so far; None where they could not be read.
    """

    function: Any
    arguments: Mapping[str, Any]
    grid: Any
    configurations: tuple[Configuration, ...] = ()
    heuristics: Mapping[str, Callable[[dict[str, Any]], Any]] = field(default_factory=dict)
    arrays: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    read: dict[str, np.ndarray[Any, Any] | None] = field(default_factory=dict, init=False, repr=False)

    def kernels(self, most: int | None = None) -> dict[str, TritonKernel]:
        """Return it with each of its configurations, by names for these; `most` as of `TritonKernel`."""
        found: dict[str, TritonKernel] = {}
        for one in self.configurations:
            name, number = str(one), 1
            while name in found:
                number += 1
                name = f"{one} #{number}"
            found[name] = TritonKernel(self, one, most=most)
        return found


class TritonKernel(TileKernel):
    """A launch of a Triton kernel with one configuration, taken wherever a kernel is; all its sizes are given.

    Parameters
    ----------
    launch, configuration
        The launch, and what is chosen of it.
    capability
        Compute capability that it is compiled for, as 80 for 8.0.
    most
        Programs that are interpreted at most; None for all, so that counts are exact.
    compiled
        Whether it is compiled, so that its registers and local memory are known.
    """

    def __init__(
        self, launch: TritonLaunch, configuration: Configuration, capability: int = 80, most: int | None = None,
        *, compiled: bool = False,
    ) -> None:  # fmt: skip
        self.launch, self.configuration, self.compiled = launch, configuration, compiled
        self.capability, self.most = capability, most
        self.name, self.parameters = launch.function.__name__, ()

    def program(self, sizes: Mapping[str, Any]) -> TileProgram:  # noqa: ARG002 - all are given
        """Return the tile program; errors as of `TileCode.program`, `triton_source` and `TritonSource`."""
        return self._program

    def compiled_for(self, machine: Machine) -> TritonKernel:
        """Return the kernel for a machine's compute capability; a `MachineError` where Triton does not support it."""
        require_triton(machine)
        return self._with(int(10 * machine.need("compute_capability")), compiled=self.compiled)

    def with_code(self) -> TritonKernel:
        """Return the kernel compiled."""
        return self._with(self.capability, compiled=True)

    def _with(self, capability: int, *, compiled: bool) -> TritonKernel:
        if (capability, compiled) == (self.capability, self.compiled):
            return self
        return TritonKernel(self.launch, self.configuration, capability, self.most, compiled=compiled)

    @property
    def settings(self) -> dict[str, Any]:
        """All that its configuration says, by name."""
        return self.configuration.all()

    @property
    def resources(self) -> TileResources | None:
        """What its code takes; None where it is not compiled."""
        return self._program.resources

    @cached_property
    def _program(self) -> TileProgram:
        chosen = self.configuration
        if chosen.unpredictable:
            msg = f"kernel {self.name!r} with {chosen.unpredictable} cannot be predicted"
            raise UnsupportedKernelError(msg)
        source, launch = self._launched
        program = source.code().program(launch, warps=chosen.warps, stages=chosen.stages, most=self.most)
        resources = source.resources(chosen.told()) if self.compiled else None
        return structs.replace(program, registers=chosen.options.get("maxnreg"), resources=resources)

    @cached_property
    def _values(self) -> dict[str, Any]:
        """All arguments by name."""
        defaults = {one.name: one.default for one in self.launch.function.params if one.has_default}
        found = {**defaults, **self.launch.arguments, **self.configuration.constants}
        known = {"num_warps": self.configuration.warps, "num_stages": self.configuration.stages}
        if self.configuration.hook is not None and any(map(_is_described, found.values())):
            # It says which blocks descriptors have; those of the launch itself stay as they are.
            found.update({name: copy(value) for name, value in found.items() if _is_described(value)})
            self._users(self.configuration.hook, {**known, **found})
        for name, compute in self.launch.heuristics.items():
            found[name] = self._users(compute, {**known, **found})
        return known | found

    def _users(self, function: Callable[[dict[str, Any]], Any], values: dict[str, Any]) -> Any:
        try:
            return function(values)
        except Exception as error:
            msg = f"kernel {self.name!r}: its grid, a heuristic or a pre_hook fails ({type(error).__name__}: {error})"
            raise UnsupportedKernelError(msg) from error

    @cached_property
    def _launched(self) -> tuple[TritonSource, Launch]:
        """What Triton compiles, and what it is called with."""
        function = self.launch.function
        given: dict[str, Any] = {}
        numbers: dict[str, Any] = {}
        described: dict[str, tuple[Any, Any]] = {}
        arrays: dict[str, Any] = {}
        for one in function.params:
            name = one.name
            if name not in self._values:
                msg = f"kernel {self.name!r}: argument {name} has no value; give one, or a configuration that has it"
                raise UnsupportedKernelError(msg)
            given[name] = value = self._values[name]
            if one.is_constexpr or value is None:
                continue
            if hasattr(value, "data_ptr") or isinstance(value, np.ndarray):
                given[name], arrays[name] = StandIn(str(value.dtype)), value
            elif _is_described(value):
                given[name], described[name] = None, (value.base.dtype, value.block_shape)
                for what, extents in (("size", value.shape), ("stride", value.strides)):
                    numbers.update({f"{name}.{what}{axis}": int(extent) for axis, extent in enumerate(extents)})
            elif isinstance(value, (int, float, np.integer, np.floating)):
                given[name] = numbers[name] = value.item() if isinstance(value, np.generic) else value
            else:
                msg = f"kernel {self.name!r}: argument {name} is a {type(value).__name__}; give a tensor or a number"
                raise UnsupportedKernelError(msg)
        # An argument that is None has no contents.
        if unknown := {name for name in self.launch.arrays if self._values.get(name, 0) is not None} - arrays.keys():
            msg = f"kernel {self.name!r} has no array {min(unknown)}; its arrays are {', '.join(arrays)}"
            raise UnsupportedKernelError(msg)
        x, y, z = self._users(self._grid, self._values)
        # Before 9.0, Triton takes descriptors of the host apart in ways that differ between its versions.
        source = triton_source(function, given, described, max(90, self.capability) if described else self.capability)
        return source, Launch(numbers, self._contents(source.code().read, arrays), (x, y, z))

    def _contents(self, wanted: set[str], arrays: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the contents of the arrays that the launch gives, and of those of its arguments that are wanted."""
        given, read = self.launch.arrays, self.launch.read
        for name in sorted(wanted & arrays.keys() - given.keys() - read.keys()):
            read[name] = _integers(arrays[name])
        held = {name: read[name] for name in wanted & arrays.keys() - given.keys()}
        return {name: np.asarray(one) for name, one in (held | dict(given)).items() if one is not None}

    def _grid(self, values: dict[str, Any]) -> tuple[int, ...]:
        """Return programs along three axes."""
        grid = self.launch.grid(values) if callable(self.launch.grid) else self.launch.grid
        return tuple(int(extent) for extent in (*((grid,) if np.ndim(grid) == 0 else grid), 1, 1)[:3])


def _is_described(value: Any) -> bool:
    return hasattr(value, "block_shape")


def _integers(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the integers that an array holds, copied from a GPU's memory; None where it has none to be read."""
    where = "cpu" if isinstance(value, np.ndarray) else getattr(getattr(value, "device", None), "type", "")
    whole = str(value.dtype).removeprefix("torch.").startswith(("int", "uint", "bool"))
    # Tensors of PyTorch's FakeTensorMode say that they are on a device.
    if not whole or hasattr(value, "fake_mode"):
        return None
    if where == "cuda":
        small = value.numel() * value.element_size() <= _MOST_COPIED
        return np.asarray(value.cpu()) if small and value.is_contiguous() and not _capturing() else None
    held = np.asarray(value) if where == "cpu" else None
    return held if held is not None and held.flags.c_contiguous else None


def _capturing() -> bool:
    """Return whether launches are recorded into a CUDA graph, which a copy would break."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_current_stream_capturing())


class _CapturedError(Exception):
    """Carries a launch out of the function that makes it."""


def launch_of(function: Any, arguments: Mapping[str, Any], grid: Any) -> TritonLaunch:
    """Return a launch of a kernel, perhaps within an autotuner and heuristics, with arguments by name.

    Raises
    ------
    UnsupportedKernelError
        It is no Triton kernel.
    """
    configurations: tuple[Configuration, ...] = ()
    heuristics: dict[str, Any] = {}
    keys: tuple[str, ...] = ()
    inner = function
    while not hasattr(inner, "params"):
        if hasattr(inner, "configs"):
            configurations, keys = tuple(map(configuration_of, inner.configs)), tuple(inner.keys)
        elif hasattr(inner, "values"):
            heuristics = {**heuristics, **inner.values}
        if not hasattr(inner, "fn"):
            msg = f"{getattr(function, '__name__', function)!r} is no Triton kernel; decorate it with triton.jit"
            raise UnsupportedKernelError(msg)
        inner = inner.fn
    return TritonLaunch(inner, dict(arguments), grid, configurations, heuristics, keys=keys)


def configuration_of(config: Any) -> Configuration:
    """Return a ``triton.Config``."""
    options = {name: getattr(config, name) for name in OPTIONS if hasattr(config, name)}
    return replace(Configuration(dict(config.kwargs)).launched(options), hook=config.pre_hook)


def captured_launch(make: Callable[..., Any], sizes: Mapping[str, int]) -> TritonLaunch:
    """Return the first launch that a function makes, which is neither compiled nor run.

    Parameters
    ----------
    make
        The function; tensors may be `StandIn` objects, NumPy arrays, or PyTorch's of the device ``meta``.
    sizes
        Its arguments.

    Raises
    ------
    UnsupportedKernelError
        It launches no kernel.
    """
    triton_module()
    from triton.runtime.jit import KernelInterface

    def of_grid(self: Any, grid: Any) -> Callable[..., None]:
        def run(*args: Any, **named: Any) -> None:
            raise _CapturedError(self, args, grid, named)

        return run

    try:
        with mock.patch.object(KernelInterface, "__getitem__", of_grid):
            make(**sizes)
    except _CapturedError as found:
        kernel, args, grid, named = found.args
    except PerflexError:
        raise
    except Exception as error:
        msg = f"{make.__name__} fails before it launches a kernel ({type(error).__name__}: {error})"
        raise UnsupportedKernelError(msg) from error
    else:
        msg = f"{make.__name__} launches no Triton kernel; it must call kernel[grid](...)"
        raise UnsupportedKernelError(msg)
    launch = launch_of(kernel, {}, grid)
    try:
        given = {name: value for name, value in named.items() if name not in OPTIONS}
        arguments = launch.function.signature.bind_partial(*args, **given).arguments
    except TypeError as error:
        msg = f"{make.__name__} launches kernel {launch.function.__name__!r} with arguments it has not: {error}"
        raise UnsupportedKernelError(msg) from error
    configurations = tuple(one.launched(named) for one in launch.configurations or (Configuration({}),))
    return replace(launch, arguments=arguments, configurations=configurations)


class LaunchedKernel(TileKernel):
    """What a user's function launches, whose parameters are sizes, taken wherever a kernel is.

    Sizes may choose a configuration, too: values of constants, ``num_warps`` and ``num_stages``.
    """

    # Which names of sizes it takes is known at given sizes only.
    takes_any_size = True

    def __init__(self, make: Callable[..., Any], capability: int = 80) -> None:
        self.make, self.name, self.capability = make, make.__name__, capability
        known = signature(make).parameters.values()
        self.optional = {one.name for one in known if one.default is not one.empty}
        self.parameters = tuple(one.name for one in known if one.name not in self.optional)

    def launch(self, sizes: Mapping[str, Any]) -> TritonLaunch:
        """Return the launch at some sizes, with the configurations that have the constants among them.

        Raises
        ------
        UnsupportedKernelError
            The function launches nothing, or no configuration has these constants.
        """
        own = {name: int(value) for name, value in sizes.items() if name in {*self.parameters, *self.optional}}
        chosen = {name: value for name, value in sizes.items() if name not in own}
        launch: TritonLaunch = self.derived(
            "launch", tuple(sorted(own.items())), lambda: captured_launch(self.make, own), most=64
        )
        fitting = tuple(one for one in launch.configurations if chosen.items() <= one.all().items())
        if not fitting:
            words = " ".join(f"{name}={value}" for name, value in chosen.items())
            msg = f"{self.name}: no configuration has {words}; the first is {launch.configurations[0]}"
            raise UnsupportedKernelError(msg)
        return replace(launch, configurations=fitting)

    def compiled_for(self, machine: Machine) -> LaunchedKernel:
        """Return the kernel for a machine's compute capability; a `MachineError` where Triton does not support it."""
        require_triton(machine)
        capability = int(10 * machine.need("compute_capability"))

        def made() -> LaunchedKernel:
            found = copy(self)  # which shares what was derived
            found.capability = capability
            return found

        found: LaunchedKernel = self.derived("compiled for", capability, made)
        return found

    def program(self, sizes: Mapping[str, Any]) -> TileProgram:
        """Return the tile program at some sizes, which must choose one configuration."""

        def made() -> TileProgram:
            launch = self.launch(sizes)
            first, *others = launch.configurations
            if others:
                msg = f"{self.name} has {len(others) + 1} configurations; choose one, such as {first}"
                raise UnsupportedKernelError(msg)
            return TritonKernel(launch, first, self.capability).program({})

        key = (self.capability, *sorted(sizes.items()))
        program: TileProgram = self.derived("program", key, made, most=64)
        return program
