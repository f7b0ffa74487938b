"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

MachineOption = Annotated[
    str | None,
    typer.Option("--machine", help="Machine for features that need one: a name of 'perflex machine list', or a file."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
RegistersOption = Annotated[
    int | None,
    typer.Option("--registers", min=1, help="32-bit registers per work-item, which may limit residency."),
]
AcceptNoiseOption = Annotated[
    bool, typer.Option("--accept-noise", help="Write calibrations whose times repeat to worse than 15 %, too.")
]
