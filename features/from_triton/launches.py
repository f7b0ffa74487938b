"""Launches of Triton kernels: their arguments, without a GPU, and the configurations of their autotuners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from math import prod
from typing import Any
from unittest import mock

import numpy as np
from msgspec import structs

from perflex.errors import MissingExtraError, PerflexError, UnsupportedKernelError
from perflex.features.from_triton.front_end import specialised, tile_code, type_of
from perflex.features.from_triton.interpreter import Launch
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.features.tiles.tile_program import TileProgram

# Triton's names of types, by those of PyTorch and NumPy.
_TYPES = {
    "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "bool": "i1",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
_BYTES = {"fp64": 8, "i64": 8, "u64": 8, "fp32": 4, "i32": 4, "u32": 4, "fp16": 2, "bf16": 2, "i16": 2, "u16": 2}
# What the compiler is told beside constants, by Triton's names.
OPTIONS = {
    "num_warps": "warps", "num_stages": "stages", "num_ctas": "ctas", "maxnreg": "registers", "ir_override": "override",
}  # fmt: skip
_USUAL = {("num_ctas", 1), ("maxnreg", None), ("ir_override", None)}


class StandIn:
    """Stands for a tensor of a GPU that is not there: type and shape, in rows, and no elements."""

    def __init__(self, dtype: str, *shape: Any) -> None:
        self.dtype = _TYPES.get(dtype, dtype)
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
        return _BYTES.get(self.dtype, 1)

    def data_ptr(self) -> int:
        """Return an address, which no element has."""
        return 0


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
        Those of its autotuner: constants, warps and stages; none where it has no autotuner.
    heuristics
        Functions of all arguments that compute constants.
    arrays
        Contents of arrays that addresses depend on, beside those that arguments hold.
    keys
        Arguments that its autotuner tells problems apart by.
    """

    function: Any
    arguments: Mapping[str, Any]
    grid: Any
    configurations: tuple[Configuration, ...] = ()
    heuristics: Mapping[str, Callable[[dict[str, Any]], Any]] = field(default_factory=dict)
    arrays: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Configuration:
    """One configuration: values of constants, and what the compiler is told beside.

    Attributes
    ----------
    constants
        Values of the kernel's constants.
    warps, stages
        Sub-groups of a program, and iterations of a loop that are in flight at once.
    ctas, registers, override
        Programs of a cluster (``num_ctas``), registers that a work-item may have (``maxnreg``), and a file of code that
        stands in place of the kernel's (``ir_override``).
    hook
        Its ``pre_hook``.
    """

    constants: Mapping[str, Any]
    warps: int = 4
    stages: int = 3
    ctas: int = 1
    registers: int | None = None
    override: str | None = None
    hook: Callable[[dict[str, Any]], Any] | None = field(default=None, compare=False, repr=False)

    def all(self) -> dict[str, Any]:
        """Return the constants with what the compiler is told beside, as far as it is not as usual."""
        options = {name: getattr(self, own) for name, own in OPTIONS.items()}
        return {**self.constants, **{name: value for name, value in options.items() if (name, value) not in _USUAL}}

    @property
    def unpredictable(self) -> str:
        """What it has that predictions know nothing of; empty where there is none."""
        found = {"num_ctas": self.ctas, "ir_override": self.override}.items()
        return " ".join(f"{name}={value}" for name, value in found if (name, value) not in _USUAL)

    def launched(self, options: Mapping[str, Any]) -> Configuration:
        """Return it with what a launch tells the compiler itself, by Triton's names."""
        return replace(self, **{OPTIONS[name]: value for name, value in options.items() if name in OPTIONS})

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.all().items())


class TritonKernel(TileKernel):
    """A launch of a Triton kernel with one configuration, taken wherever a kernel is; all its sizes are given.

    Parameters
    ----------
    launch
        The launch.
    configuration
        What is chosen of it.
    capability
        Compute capability that it is compiled for, as 80 for 8.0.
    most
        Programs that are interpreted at most; None for all, so that counts are exact.
    """

    def __init__(
        self, launch: TritonLaunch, configuration: Configuration, capability: int = 80, most: int | None = None
    ) -> None:
        self.launch, self.configuration = launch, configuration
        self.capability, self.most = capability, most
        self.name, self.parameters = launch.function.__name__, ()

    def program(self, sizes: Mapping[str, Any]) -> TileProgram:  # noqa: ARG002 - all are given
        """Return the tile program; errors as of `TileCode.program` and `tile_code`."""
        if self.configuration.unpredictable:
            msg = f"kernel {self.name!r} with {self.configuration.unpredictable} cannot be predicted"
            raise UnsupportedKernelError(msg)
        return structs.replace(self._program, registers=self.configuration.registers)

    @cached_property
    def _values(self) -> dict[str, Any]:
        """All arguments by name."""
        found = {**self.launch.arguments, **self.configuration.constants}
        for name, parameter in _defaults(self.launch.function).items():
            found.setdefault(name, parameter)
        known = {"num_warps": self.configuration.warps, "num_stages": self.configuration.stages}
        if self.configuration.hook is not None and (
            described := [name for name in found if _is_described(found[name])]
        ):
            # It says which blocks descriptors have; those of the launch itself stay as they are.
            found.update({name: copy(found[name]) for name in described})
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
    def _program(self) -> TileProgram:
        function, values = self.launch.function, self._values
        constants: dict[str, Any] = {}
        arguments: dict[str, Any] = {}
        types: dict[str, str] = {}
        arrays: dict[str, Any] = {}
        for name, parameter in zip(function.arg_names, function.params, strict=True):
            if name not in values:
                msg = f"kernel {self.name!r}: argument {name} has no value; give one, or a configuration that has it"
                raise UnsupportedKernelError(msg)
            value = values[name]
            if parameter.is_constexpr or value is None:
                constants[name] = value
            elif hasattr(value, "dtype") and (hasattr(value, "data_ptr") or isinstance(value, np.ndarray)):
                types[name] = f"*{_type_of(value)}"
                if (held := _contents(value)) is not None:
                    arrays[name] = held
            elif _is_described(value):
                types[name] = self._described(name, value, arguments)
            elif isinstance(value, (int, float, np.integer, np.floating)):
                arguments[name] = value.item() if isinstance(value, np.generic) else value
            else:
                msg = f"kernel {self.name!r}: argument {name} is a {type(value).__name__}; give a tensor or a number"
                raise UnsupportedKernelError(msg)
        arrays.update(self._given(types))
        x, y, z = self._users(self._grid, values)
        plain = {one.name for one in function.params if one.do_not_specialize}
        for one in function.params:
            if one.name in arguments and (one.annotation_type or one.name in plain):
                types[one.name] = one.annotation_type or type_of(arguments[one.name])
        compiled = specialised(arguments, types, constants)
        compiled = replace(compiled, divisible=compiled.divisible - plain)
        launch = Launch(arguments, arrays, (x, y, z))
        # Before 9.0, Triton takes descriptors of the host apart in ways that differ between its versions.
        described = any(kind.startswith("tensordesc") for kind in types.values())
        code = tile_code(function, compiled, max(90, self.capability) if described else self.capability)
        return code.program(launch, warps=values["num_warps"], stages=values["num_stages"], most=self.most)

    def _grid(self, values: dict[str, Any]) -> tuple[int, ...]:
        """Return programs along three axes."""
        grid = self.launch.grid(values) if callable(self.launch.grid) else self.launch.grid
        return tuple(int(extent) for extent in (*((grid,) if np.ndim(grid) == 0 else grid), 1, 1)[:3])

    def _given(self, types: Mapping[str, str]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the contents of arrays that were given beside the arguments; an argument that is None has none."""
        known = [name for name, kind in types.items() if kind.startswith("*")]
        absent = {name for name, value in self._values.items() if value is None}
        if unknown := set(self.launch.arrays) - absent - set(known):
            msg = f"kernel {self.name!r} has no array {min(unknown)}; its arrays are {', '.join(known)}"
            raise UnsupportedKernelError(msg)
        return {name: np.asarray(given) for name, given in self.launch.arrays.items()}

    def _described(self, name: str, value: Any, arguments: dict[str, Any]) -> str:
        """Return the type of a descriptor that the host made, whose sizes and strides are arguments behind it."""
        for what, numbers in (("size", value.shape), ("stride", value.strides)):
            arguments.update({f"{name}.{what}{axis}": int(number) for axis, number in enumerate(numbers)})
        shape = ", ".join(map(str, value.block_shape))
        return f"tensordesc<{_type_of(value.base)}[{shape}]>"


def _type_of(tensor: Any) -> str:
    """Return Triton's name of a tensor's type."""
    name = str(tensor.dtype).rpartition(".")[2]
    return _TYPES.get(name, name)


def _is_described(value: Any) -> bool:
    return hasattr(value, "block_shape")


def _defaults(function: Any) -> dict[str, Any]:
    return {one.name: one.default for one in function.params if one.has_default}


def _contents(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the integers that an array in the host's memory holds."""
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "iub" and value.flags.c_contiguous else None
    device = getattr(getattr(value, "device", None), "type", "")
    # Contents of a GPU's memory would have to be waited for.
    if device == "cpu" and str(value.dtype).rpartition(".")[2].startswith(("int", "uint", "bool")):
        held = np.asarray(value)
        return held if held.flags.c_contiguous else None
    return None


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


@contextmanager
def _capturing() -> Iterator[None]:
    """Let launches of Triton kernels raise, with what they are, in place of compiling and running."""
    try:
        from triton.runtime.jit import KernelInterface
    except ImportError as error:
        msg = "Triton kernels need Triton; install it with: pip install 'perflex[triton]'"
        raise MissingExtraError(msg, extra="triton") from error

    def of_grid(self: Any, grid: Any) -> Callable[..., None]:
        def run(*args: Any, **named: Any) -> None:
            raise _CapturedError(self, args, grid, named)

        return run

    with mock.patch.object(KernelInterface, "__getitem__", of_grid):
        yield


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
    try:
        with _capturing():
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
    if len(args) > len(launch.function.arg_names):
        msg = f"{make.__name__} launches {launch.function.__name__!r} with {len(args)} arguments, which are too many"
        raise UnsupportedKernelError(msg)
    given = {name: value for name, value in named.items() if name not in OPTIONS}
    arguments = {**dict(zip(launch.function.arg_names, args, strict=False)), **given}
    if unknown := arguments.keys() - set(launch.function.arg_names):
        msg = f"kernel {launch.function.__name__!r} has no argument {min(unknown)}"
        raise UnsupportedKernelError(msg)
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

    def program(self, sizes: Mapping[str, Any]) -> TileProgram:
        """Return the tile program at some sizes, which must choose one configuration."""
        key = tuple(sorted(sizes.items()))
        program: TileProgram = self.derived("program", key, lambda: self._program(sizes), most=64)
        return program

    def _program(self, sizes: Mapping[str, Any]) -> TileProgram:
        launch = self.launch(sizes)
        if len(launch.configurations) > 1:
            first = launch.configurations[0]
            msg = f"{self.name} has {len(launch.configurations)} configurations; choose one, such as {first}"
            raise UnsupportedKernelError(msg)
        return TritonKernel(launch, launch.configurations[0], self.capability).program({})
