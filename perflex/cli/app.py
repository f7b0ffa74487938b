"""The application: global options, and the list of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from perflex.cli.block import block
from perflex.cli.calibrate import calibrate
from perflex.cli.catalog import catalog
from perflex.cli.compare import compare
from perflex.cli.demo import demo
from perflex.cli.devices import devices
from perflex.cli.diagnose import diagnose
from perflex.cli.evaluate import evaluate
from perflex.cli.features import features
from perflex.cli.layers import layers
from perflex.cli.machine import machine
from perflex.cli.predict import predict, rank
from perflex.cli.prune import prune
from perflex.cli.prune_table import prune_table
from perflex.cli.roofline import roofline
from perflex.cli.session import session_of
from perflex.cli.store import store
from perflex.cli.volumes import volumes

__all__ = ["app"]

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
    session = session_of(context)
    session.quiet = quiet
    session.debug = debug


for command in (
    demo,
    devices,
    catalog,
    features,
    calibrate,
    diagnose,
    predict,
    rank,
    prune,
    prune_table,
    volumes,
    layers,
    block,
    roofline,
    compare,
    evaluate,
):
    app.command()(command)
app.add_typer(machine, name="machine")
app.add_typer(store, name="store")
