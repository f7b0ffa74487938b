"""The application: global options, and the list of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perflex.cli.block import block
from perflex.cli.calibrate import calibrate
from perflex.cli.catalog import catalog
from perflex.cli.compare import compare
from perflex.cli.demo import demo
from perflex.cli.devices import devices
from perflex.cli.diagnose import diagnose
from perflex.cli.doctor import doctor
from perflex.cli.evaluate import evaluate
from perflex.cli.example_text import example_text
from perflex.cli.export_times import export_times
from perflex.cli.features import features
from perflex.cli.layers import layers
from perflex.cli.machine import machine
from perflex.cli.predict import predict, rank
from perflex.cli.prune import prune
from perflex.cli.prune_table import prune_table
from perflex.cli.report import report
from perflex.cli.roofline import roofline
from perflex.cli.store import store
from perflex.cli.terminal import terminal_of
from perflex.cli.transfer import transfer
from perflex.cli.volumes import volumes

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="perflex",
    help="Calibrated cost models for OpenCL and GPU kernels. 'perflex COMMAND --help' explains a command.",
    no_args_is_help=True,
    epilog=example_text("perflex features examples/matmul.py:naive n=1056"),
    pretty_exceptions_enable=False,
    # Plain help breaks its lines where they end at any width, and leaves no brackets or long options out.
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from perflex.version import __version__

        typer.echo(f"perflex {__version__}")
        raise typer.Exit


@app.callback()
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


# A calibration that comes with perflex, from the repository's root.
_POCL = "calib_data/calibrations/matmul_sq_amd_epyc_4cores_pocl.yaml"
# Commands in the order in which help lists them: a line about each, and an example of its use.
_COMMANDS: dict[Callable[..., None], tuple[str, str]] = {
    demo: (
        "Predict matrix multiplication, then measure it.",
        "perflex demo --out demo-out",
    ),
    devices: (
        "List the OpenCL and CUDA devices, and which work.",
        "perflex devices --json",
    ),
    doctor: (
        "Check whether this machine is fit to measure on.",
        "perflex doctor --seconds 20",
    ),
    catalog: (
        "List the generators of measurement kernels.",
        "perflex catalog matmul_sq",
    ),
    features: (
        "Count the operations, accesses and launches of a kernel.",
        "perflex features examples/matmul.py:naive n=1056",
    ),
    calibrate: (
        "Measure a model's kernels and fit its parameters.",
        "perflex calibrate matmul_sq -o matmul.yaml",
    ),
    transfer: (
        "Calibrate a device from other devices' calibrations.",
        f"perflex transfer {_POCL} --machine EPYC-7452 -o new.yaml",
    ),
    diagnose: (
        "Diagnose a calibration and its predictions.",
        f"perflex diagnose {_POCL} --out diagnosis",
    ),
    predict: (
        "Predict a kernel's run time at given sizes.",
        f"perflex predict {_POCL} examples/matmul.py:prefetching n=1056",
    ),
    rank: (
        "Order variants by predicted run time.",
        f"perflex rank {_POCL} examples/matmul.py:prefetching examples/matmul.py:naive n=1056",
    ),
    prune: (
        "Choose the variants of a kernel that are worth running.",
        f"perflex prune {_POCL} examples/matmul_space.py:space n=512 --keep 5%",
    ),
    prune_table: (
        "Choose the configurations of a tuner worth measuring.",
        "perflex prune-table examples/convolution_times.csv convolution --samples 100 --keep 5%",
    ),
    volumes: (
        "Estimate the cache and DRAM volumes of a kernel on a GPU.",
        "perflex volumes examples/stencil.py:star25 --machine V100 nx=640 ny=512 nz=512",
    ),
    layers: (
        "Show layer conditions and cache volumes on a CPU.",
        "perflex layers examples/jacobi.py:seven_point --machine Gold-6248 M=10000 N=600",
    ),
    block: (
        "Choose block sizes of a stencil on a CPU.",
        "perflex block examples/jacobi.py:seven_point --machine Gold-6248 M=1000 N=600 --criterion L2=plane",
    ),
    roofline: (
        "Place kernels on a GPU's instruction roofline.",
        "perflex roofline examples/transposes.py:tiled n=1024 --machine V100 --time bound",
    ),
    compare: (
        "Compare predicted with measured numbers.",
        "perflex compare examples/volumes_paper2022.csv examples/volumes_current.csv --key nx --value dram_load",
    ),
    evaluate: (
        "Run three published studies on this machine's devices.",
        "perflex evaluate matmul --out evaluation",
    ),
    export_times: (
        "Write a calibration's measured times as a table.",
        f"perflex export-times {_POCL} -o times.csv",
    ),
    report: (
        "Write one HTML page of results.",
        f"perflex report {_POCL} --out report.html",
    ),
}
for command, (summary, example) in _COMMANDS.items():
    app.command(name=command.__name__.replace("_", "-"), short_help=summary, epilog=example_text(example))(command)
app.add_typer(machine, name="machine", short_help="List, show or detect machines: hardware facts, with sources.")
app.add_typer(store, name="store", short_help="List, export, check and prune the stored measurements.")
