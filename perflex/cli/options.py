"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

MachineOption = Annotated[
    str | None,
    typer.Option("--machine", help="Machine for features that need one: a name of 'perflex machine list', or a file."),
]
ProbeOption = Annotated[
    bool, typer.Option("--probe", help="Launch small parts of each kernel on the calibration's device instead.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
RegistersOption = Annotated[
    int | None,
    typer.Option("--registers", min=1, help="32-bit registers per work-item, which may limit residency."),
]
SourceLoadsOption = Annotated[
    bool,
    typer.Option("--source-loads", help="Count loads as the source has them: no value is kept in a register."),
]
AcceptNoiseOption = Annotated[
    bool, typer.Option("--accept-noise", help="Write calibrations whose times repeat to worse than 15 %, too.")
]
