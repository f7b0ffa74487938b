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
from perflex.cli.export_times import export_times
from perflex.cli.features import features
from perflex.cli.layers import layers
from perflex.cli.machine import machine
from perflex.cli.predict import predict, rank
from perflex.cli.prune import prune
from perflex.cli.prune_table import prune_table
from perflex.cli.roofline import roofline
from perflex.cli.store import store
from perflex.cli.terminal import terminal_of
from perflex.cli.transfer import transfer
from perflex.cli.volumes import volumes

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(
    name="perflex",
    help="Calibrated cost models for OpenCL and GPU kernels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
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
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show results only.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    del version
    terminal = terminal_of(context)
    terminal.quiet = quiet
    terminal.debug = debug


# Commands in the order in which help lists them, each with an example of its use.
_EXAMPLES: dict[Callable[..., None], str] = {
    demo: "perflex demo --out demo-out",
    devices: "perflex devices --json",
    doctor: "perflex doctor --device pocl",
    catalog: "perflex catalog matmul_sq",
    features: "perflex features examples/matmul.py:naive n=1056",
    calibrate: "perflex calibrate matmul_sq -o matmul.yaml",
    transfer: "perflex transfer A.yaml B.yaml --machine RTX-2080-Ti --samples few.csv -o new.yaml",
    diagnose: "perflex diagnose matmul.yaml --out diagnosis",
    predict: "perflex predict matmul.yaml examples/matmul.py:prefetching n=1056",
    rank: "perflex rank matmul.yaml examples/matmul.py:prefetching examples/matmul.py:naive n=1056",
    prune: "perflex prune matmul.yaml examples/matmul_space.py:space n=512 --keep 5%",
    prune_table: "perflex prune-table cache.json convolution --samples 100 --keep 5%",
    volumes: "perflex volumes examples/stencil.py:star25 --machine V100 nx=640 ny=512 nz=512",
    layers: "perflex layers examples/jacobi.py:seven_point --machine Gold-6248 M=10000 N=600",
    block: "perflex block examples/jacobi.py:seven_point --machine Gold-6248 M=1000 N=600 --criterion L2=plane",
    roofline: "perflex roofline examples/transposes.py:tiled n=1024 --machine V100 --time bound",
    compare: "perflex compare predicted.csv measured.csv --key x --key y --value dram_load",
    evaluate: "perflex evaluate matmul --out evaluation",
    export_times: "perflex export-times matmul.yaml -o times.csv",
}
for command, example in _EXAMPLES.items():
    app.command(name=command.__name__.replace("_", "-"), epilog=f"Example: {example}")(command)
app.add_typer(machine, name="machine")
app.add_typer(store, name="store")
