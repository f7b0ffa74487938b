"""The application: global options, and the list of commands."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perflex.cli.options import SourceCommand, takes_source
from perflex.cli.terminal import terminal_of

# A calibration that comes with perflex.
_POCL = "matmul_sq_amd_epyc_4cores_pocl"
# Commands in the order in which help lists them: the module in perflex.cli, a line of help, and an example's words.
_COMMANDS = {
    "demo": ("evaluate", "Predict matrix multiplication, then measure it.", "--out demo-out"),
    "devices": ("devices", "List the OpenCL and CUDA devices, and which work.", "--json"),
    "doctor": ("devices", "Check whether this machine is fit to measure on.", "--seconds 20"),
    "list": ("listing:listed", "List models, calibrations, machines, generators.", "machines"),
    "features": (
        "features",
        "Count the operations, accesses and launches of a kernel.",
        "examples/matmul.cl:tiled --local 16,16 --global n,n n=1024 --lines",
    ),
    "time": (
        "time",
        "Time kernels, without a calibration.",
        "examples/matmul.py:prefetching examples/matmul.py:naive n=512",
    ),
    "calibrate": ("calibrate", "Measure a model's kernels and fit its parameters.", "matmul_sq -o matmul.yaml"),
    "transfer": (
        "calibrate",
        "Calibrate a device from other devices' calibrations.",
        f"{_POCL} --machine EPYC-7452 -o new.yaml",
    ),
    "diagnose": ("diagnose", "Diagnose a calibration and its predictions.", f"{_POCL} --out diagnosis"),
    "predict": (
        "predict",
        "Predict a kernel's run time at given sizes.",
        f"{_POCL} examples/matmul.py:prefetching n=1056",
    ),
    "explain": (
        "explain",
        "Say what limits a kernel, and what each flaw costs.",
        "examples/matmul.cl:naive --machine V100 --local 16,16 --global n,n n=1024",
    ),
    "diff": (
        "diff",
        "Predict what a change of a kernel does.",
        "examples/matmul.cl:naive examples/matmul.cl:tiled --machine V100 --local 16,16 --global n,n n=1024",
    ),
    "gate": (
        "gate",
        "Judge kernels and their changes by conditions.",
        "examples/matmul.cl:tiled --machine V100 --local 16,16 --global n,n n=1024 'time<=1ms, exact'",
    ),
    "rank": (
        "rank",
        "Order variants by predicted run time.",
        f"{_POCL} examples/matmul.py:prefetching examples/matmul.py:naive n=1056",
    ),
    "prune": (
        "rank",
        "Choose the variants of a kernel that are worth running.",
        f"{_POCL} examples/matmul_space.py:space n=512 --keep 5%",
    ),
    "tune": (
        "tune",
        "Search a kernel's variants for the fastest.",
        f"{_POCL} examples/matmul_space.py:space n=512 --measurements 5",
    ),
    "volumes": (
        "volumes",
        "Estimate the cache and DRAM volumes of a kernel on a GPU.",
        "examples/stencil.py:star25 --machine V100 nx=640 ny=512 nz=512",
    ),
    "layers": (
        "volumes",
        "Show layer conditions and cache volumes on a CPU.",
        "examples/jacobi.py:seven_point --machine Gold-6248 M=10000 N=600",
    ),
    "block": (
        "volumes",
        "Choose block sizes of a stencil on a CPU.",
        "examples/jacobi.py:seven_point --machine Gold-6248 M=1000 N=600 --criterion L2=plane",
    ),
    "roofline": (
        "roofline",
        "Place kernels on a GPU's instruction roofline.",
        "examples/transposes.py:tiled n=1024 --machine V100 --time bound",
    ),
    "evaluate": ("evaluate", "Run three published studies on this machine's devices.", "matmul --out evaluation"),
    "machine": ("machine", "Show or detect a machine: hardware facts, with sources.", "show V100"),
    "store": ("store", "List, export, check and prune the stored measurements.", "list"),
}
# Sections of the help; all others come last.
_SECTIONS = {
    "See what is there": ("devices", "doctor", "list", "machine"),
    "Measure": ("time",),
    "Calibrate": ("calibrate", "transfer", "diagnose"),
    "Count and predict": ("features", "predict", "explain", "rank", "prune", "tune"),
    "Guard against regressions": ("diff", "gate"),
    "Estimate from a machine's facts": ("volumes", "layers", "block", "roofline"),
}
# Those that take kernels in OpenCL C and CUDA C, with the options of their launch.
_TAKE_KERNELS = ("features", "time", "predict", "explain", "diff", "gate", "rank", "volumes", "layers", "roofline")
# Help is at most 80 columns wide, and indented by two.
_WIDTH = 76


class _Sections(TyperGroup):
    """The program, whose help shows commands in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as typer calls it
        """Write what help says of commands."""
        others = tuple(name for name in _COMMANDS if not any(name in names for names in _SECTIONS.values()))
        for title, names in {**_SECTIONS, "Others": others}.items():
            with formatter.section(title):
                formatter.write_dl([(name, _COMMANDS[name][1]) for name in names])


def application(name: str = "") -> typer.Typer:
    """Return the application with the command of a name alone, whose module is all that is loaded; else with all."""
    app = typer.Typer(
        name="perflex",
        cls=_Sections,
        help="Calibrated cost models for OpenCL and GPU kernels. "
        "'perflex COMMAND --help' explains a command. Examples name files of perflex's folder 'examples'.",
        no_args_is_help=True,
        epilog=_example("perflex features examples/matmul.py:naive n=1056"),
        pretty_exceptions_enable=False,
        # Plain help breaks its lines where they end at any width, and leaves no brackets or long options out.
        rich_markup_mode=None,
    )
    app.callback()(_options)
    # The version is told before any command is looked for.
    for known in [name] if name in _COMMANDS else () if name == "--version" else _COMMANDS:
        place, summary, words = _COMMANDS[known]
        module, _, attribute = place.partition(":")
        example = _example(f"perflex {known} {words}")
        found = getattr(import_module(f"perflex.cli.{module}"), attribute or known.replace("-", "_"))
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=known, short_help=summary, epilog=example)
        else:
            source = known in _TAKE_KERNELS
            command = app.command(name=known, short_help=summary, epilog=example, cls=SourceCommand if source else None)
            command(takes_source(found) if source else found)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        from perflex.version import __version__

        typer.echo(f"perflex {__version__}")
        raise typer.Exit


def _options(
    context: typer.Context,
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show results only, no progress and no remarks.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    del version
    terminal = terminal_of(context)
    terminal.quiet = quiet
    terminal.debug = debug


def _example(command: str) -> str:
    """Return an example as an epilog; a long one takes several lines that a shell reads as one."""
    lines = ["Example:"]
    for word in command.split(" "):
        if len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines[-1] += " \\"
            lines.append("    " + word)
        else:
            lines[-1] += f" {word}"
    # A backspace keeps the lines of a paragraph as they are.
    return "\n".join(["\b", *lines] if len(lines) > 1 else lines)
