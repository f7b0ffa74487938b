"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from perflex.cli.completion import complete_machine


class CyclesName(StrEnum):
    """Where cycles of machine code come from."""

    PORTS = "ports"
    LLVM_MCA = "llvm-mca"


CyclesOption = Annotated[
    CyclesName,
    typer.Option(
        "--cycles",
        help="Source of f_code_cycles and f_code_chain_cycles: perflex's own model (ports), or LLVM's (llvm-mca).",
    ),
]
MachineOption = Annotated[
    str | None,
    typer.Option(
        "--machine",
        autocompletion=complete_machine,
        help="Machine for features that need one: a name from 'perflex machine list', or a file.",
    ),
]
ProbeOption = Annotated[
    bool, typer.Option("--probe", help="Predict by short launches of parts of each kernel on the calibration's device.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; see docs/reference/json.md.")]
RegistersOption = Annotated[
    int | None,
    typer.Option("--registers", min=1, help="32-bit registers per work-item, which may limit residency."),
]
SourceLoadsOption = Annotated[
    bool,
    typer.Option("--source-loads", help="Count loads as in the source: no value stays in a register."),
]
AcceptNoiseOption = Annotated[
    bool, typer.Option("--accept-noise", help="Also write calibrations whose times repeat worse than 15 %.")
]
