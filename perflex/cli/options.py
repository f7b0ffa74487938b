"""Options that several commands share; those of the launch of a kernel in OpenCL C or CUDA C."""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer
from typer.core import TyperCommand

from perflex.cli.completion import complete_device, complete_machine
from perflex.cli.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KERNEL_FILES = "KERNEL.cl:name, KERNEL.cu:name, KERNEL.py:function (a loopy kernel), or SCOP.yaml"
KernelArgument = Annotated[str, typer.Argument(help=f"{KERNEL_FILES}.")]
SPACE_FILES = (
    "SPACE.py:name (a VariantSpace, or a function that returns one), a Kernel Tuner script as it is (SCRIPT.py, "
    "which is executed up to its call of tune_kernel; 'SCRIPT.py ARGUMENT ...'), a T1 file (.json), or a "
    "perflex-source file (.yaml)"
)
SizesArgument = Annotated[list[str] | None, typer.Argument(help="name=value of each size.")]
SERIES = "name=value of each size; several as name=value,value,... or name=first:last:step"
KernelsArgument = Annotated[list[str], typer.Argument(help=f"Of each kernel {KERNEL_FILES}; then {SERIES}.")]
SeriesArgument = Annotated[list[str] | None, typer.Argument(help=f"{SERIES}.")]
CalibrationArgument = Annotated[Path, typer.Argument(help="A calibration: a file, or a name of one of perflex.")]
MachineOption = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--machine",
        autocompletion=complete_machine,
        help="Machine for features that need one: a name from 'perflex list machines', or a file.",
    ),
]
NeededMachineOption = Annotated[
    str,
    typer.Option(
        "-m", "--machine", autocompletion=complete_machine, help="A name of 'perflex list machines', or a file."
    ),
]
LaunchesOption = Annotated[
    Literal["gpu", "queued", "host"] | None,
    typer.Option(
        help="What a time is of, without a calibration of the device: the GPU's own duration (gpu, the default), "
        "launches back to back (queued), or launches that the host waits for (host)."
    ),
]
CachesOption = Annotated[
    Literal["warm", "cold"] | None,
    typer.Option(
        help="What launches find in L2: what the same run before has left (warm, the default), or nothing (cold)."
    ),
]
_DEVICE = "Parts of a device's name; tcp://HOST:PORT of a Dask cluster; see 'perflex devices'."
DeviceOption = Annotated[str, typer.Option("-d", "--device", autocompletion=complete_device, help=_DEVICE)]
DevicesOption = Annotated[
    list[str] | None,
    typer.Option("-d", "--device", autocompletion=complete_device, help=f"{_DEVICE[:-1]}; may be repeated."),
]
TrialsOption = Annotated[
    int, typer.Option("--trials", min=1, help="Maximum number of undisturbed timings of one kernel.")
]
OnlyOption = Annotated[list[str] | None, typer.Option("--only", help="Rows of the table with COLUMN=VALUE[,VALUE].")]
KernelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--kernels", help="Python file with the functions, or a Scop's YAML file, of the table; may be repeated."
    ),
]
OutFolderOption = Annotated[Path | None, typer.Option("--out", help="Folder for files; created if needed.")]
OutFileOption = Annotated[Path, typer.Option("-o", "--out", help="File to write.")]
TimeOption = Annotated[
    bool, typer.Option("--time", help="Time each kernel, too, on the calibration's device, as 'calibrate' does.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; see docs/reference/json.md.")]
RegistersOption = Annotated[
    int | None, typer.Option("--registers", min=1, help="32-bit registers per work-item; else estimated.")
]
AcceptNoiseOption = Annotated[
    bool, typer.Option("--accept-noise", help="Also write calibrations whose times are too noisy or disturbed.")
]


@dataclass(frozen=True)
class SourceOptions:
    """What commands are told of a kernel's launch."""

    local: Annotated[str | None, typer.Option("--local", help="Work-group, such as 32,8.")] = None
    groups: Annotated[str | None, typer.Option("--groups", help="Work-groups, such as n/32,4.")] = None
    extent: Annotated[str | None, typer.Option("--global", help="Work-items in all instead, such as nx,ny.")] = None
    define: Annotated[list[str] | None, typer.Option("-D", help="Macro NAME=VALUE; may be repeated.")] = None
    language: Annotated[
        Literal["opencl", "cuda", "hip"] | None, typer.Option("--language", help="Where suffix and text do not say so.")
    ] = None
    include: Annotated[list[Path] | None, typer.Option("-I", help="Folder of headers; may be repeated.")] = None
    build: Annotated[
        list[str] | None,
        typer.Option("--build-option", metavar="OPTION", help="Of the device's compiler; may be repeated."),
    ] = None
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            help="LINE=TRIPS, ARRAY=ELEMENTS or ACCESS=SUBSCRIPT, which data decide; of a loopy kernel LOOP=TRIPS.",
        ),
    ] = None


LAUNCH = tuple(one.name for one in fields(SourceOptions))
# Those that other kernels have no use for.
_FLAGS = {
    "local": "--local", "groups": "--groups", "extent": "--global", "define": "-D", "language": "--language",
    "include": "-I", "build": "--build-option",
}  # fmt: skip
_OF_LAUNCHES = {"--local", "--groups", "--global"}


@dataclass(frozen=True)
class Told:
    """What the running command was told of kernels, and where it prints."""

    source: SourceOptions = SourceOptions()
    machine: str | None = None
    terminal: Terminal = field(default_factory=Terminal)


_NOTHING = Told()
TOLD = ContextVar("told", default=_NOTHING)


class SourceCommand(TyperCommand):
    """A command whose help shows the options of `SourceOptions` in a group of their own."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write what help says of arguments and options."""
        own = [parameter for parameter in self.params if parameter.name not in LAUNCH]
        added = [parameter for parameter in self.params if parameter.name in LAUNCH]
        self.params = own
        super().format_options(ctx, formatter)
        self.params = [*own, *added]
        with formatter.section("Launch of kernels in source code, if not KERNEL.cl:name<<<groups,local>>>"):
            formatter.write_dl([record for each in added if (record := each.get_help_record(ctx)) is not None])


def _require_source(given: SourceOptions, words: Sequence[str]) -> None:
    """Refuse options of a launch where no word names source code, to which they would apply."""
    from perflex.cli.arguments import ArgumentError, is_source, launch_in

    unused = [flag for name, flag in _FLAGS.items() if getattr(given, name)]
    sources = [word for word in words if is_source(word)]
    if unused and not sources:
        msg = f"{', '.join(unused)}: only for kernels in files of OpenCL C or CUDA C, and none is named; leave out"
        raise ArgumentError(msg, word=unused[0])
    unused = [flag for flag in unused if flag in _OF_LAUNCHES]
    if unused and all(map(launch_in, sources)):
        msg = f"{', '.join(unused)}: each kernel has its launch behind its name, <<<...>>>; leave out"
        raise ArgumentError(msg, word=unused[0])


def takes_options(name: str, kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator: the command takes the fields of a dataclass as options, in place of the parameter `name`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        hints, known = get_type_hints(kind, include_extras=True), fields(kind)

        def run(*arguments: Any, **options: Any) -> None:
            options[name] = kind(**{one.name: options.pop(one.name) for one in known})
            command(*arguments, **options)

        added = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
            for one in known
        ]
        parameters = [*(one for one in signature.parameters.values() if one.name != name), *added]
        changed: Any = update_wrapper(run, command)
        changed.__signature__ = signature.replace(parameters=parameters)  # which typer reads
        changed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del changed.__wrapped__  # of which it would read the other's
        result: Callable[..., None] = changed
        return result

    return decorate


def takes_source(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the options of `SourceOptions`, too."""

    def run(*arguments: Any, source: SourceOptions, **options: Any) -> None:
        _require_source(source, [options["kernel"]] if "kernel" in options else options["words"])
        machine = options["asked"].machine if "asked" in options else options.get("machine")
        token = TOLD.set(Told(source, machine, terminal_of(options["context"])))
        try:
            command(*arguments, **options)
        finally:
            TOLD.reset(token)

    changed: Any = update_wrapper(run, command)
    changed.__signature__ = inspect.signature(command, eval_str=True)
    return takes_options("source", SourceOptions)(changed)
