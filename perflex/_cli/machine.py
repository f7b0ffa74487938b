"""``perflex machine``: the hardware facts that features read, with their sources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from perflex._cli.session import session_of

if TYPE_CHECKING:
    from perflex._machines import Machine

__all__ = ["machine"]

machine = typer.Typer(no_args_is_help=True, help="List machines, and show the facts of one with their sources.")


@machine.command("list")
def list_(
    context: typer.Context, *, as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False
) -> None:
    """List the machines that come with perflex."""
    from perflex._machines import load_machine, machine_names

    machines = [load_machine(name) for name in machine_names()]
    if as_json:
        rows = [{"name": m.name, "vendor": m.vendor, "kind": m.kind, "aliases": list(m.aliases)} for m in machines]
        typer.echo(json.dumps(rows, indent=2))
        return
    width = max(len(m.name) for m in machines)
    for entry in machines:
        line = f"{entry.name.ljust(width)}  {entry.vendor} {entry.kind}  {', '.join(entry.aliases)}"
        session_of(context).output.print(line.rstrip(), markup=False, soft_wrap=True)


@machine.command("show")
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A machine's name, a name of its device, or a YAML file.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object, in SI units.")] = False,
) -> None:
    """Show what is known of a machine, and from where."""
    from perflex._machines import load_machine
    from perflex._machines.machine import FACTS

    found = load_machine(name)
    if as_json:
        typer.echo(json.dumps(_as_json(found), indent=2))
        return
    output = session_of(context).output
    output.print(f"{found.name}: {found.vendor} {found.kind}", markup=False, soft_wrap=True, style="bold")
    if found.aliases:
        output.print(f"devices: {', '.join(found.aliases)}", markup=False, soft_wrap=True)
    numbers = {source: number for number, source in enumerate(dict.fromkeys(found.sources.values()), start=1)}
    width = max(map(len, FACTS))
    for fact, what in FACTS.items():
        value = getattr(found, fact)
        if value is None:
            output.print(f"  {fact.ljust(width)}  not known", markup=False, soft_wrap=True, style="dim")
            continue
        source = f"[{numbers[found.sources[fact]]}]" if fact in found.sources else ""
        line = f"  {fact.ljust(width)}  {_amount(value, what.unit)}  {source}"
        output.print(line.rstrip(), markup=False, soft_wrap=True)
    for curve, coefficients in found.curves.items():
        output.print(f"  curve {curve}: a, b, c = {coefficients}", markup=False, soft_wrap=True)
    for level, ceiling in found.ceilings.items():
        unit = "instruction/s" if level == "instructions" else "B/s"
        line = f"  roofline ceiling {level}: {ceiling.rate / 1e9:g} G{unit}  ({ceiling.source.text})"
        output.print(line, markup=False, soft_wrap=True)
    for origin, number in numbers.items():
        output.print(f"[{number}] {origin.kind}: {origin.text}", markup=False, soft_wrap=True, style="dim")


def _as_json(found: Machine) -> dict[str, object]:
    from perflex._machines.machine import FACTS

    facts = {
        fact: {
            "value": value,
            "unit": FACTS[fact].unit,
            "source": f"{found.sources[fact].kind}: {found.sources[fact].text}" if fact in found.sources else "",
        }
        for fact, value in found.known().items()
    }
    curves = {curve: list(coefficients) for curve, coefficients in found.curves.items()}
    return {
        "name": found.name,
        "aliases": list(found.aliases),
        "vendor": found.vendor,
        "kind": found.kind,
        "facts": facts,
        "curves": curves,
        "ceilings": {
            level: {"rate": ceiling.rate, "source": f"{ceiling.source.kind}: {ceiling.source.text}"}
            for level, ceiling in found.ceilings.items()
        },
        "unknown": [fact for fact in FACTS if getattr(found, fact) is None],
    }


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        for factor, larger in ((2**20, "MiB"), (2**10, "KiB")):
            if value >= factor and value % factor == 0:
                return f"{value / factor:g} {larger}"
    if unit in {"Hz", "B/s"}:
        return f"{value / 1e9:g} G{unit}"
    return f"{value:.10g}" if unit == "1" else f"{value:.10g} {unit}"
