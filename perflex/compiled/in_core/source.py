"""Sources of in-core cycles: perflex's own model of ports, or a tool that knows the core of this machine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Mapping

PORTS, LLVM_MCA = "ports", "llvm-mca"
SOURCES = (PORTS, LLVM_MCA)
# Debian's packages name the program by its version; the newest is taken first.
_VERSIONS = range(30, 13, -1)
_LIMIT_S = 30.0


@dataclass(frozen=True)
class CycleSource:
    """A tool that says how many cycles straight code takes.

    Attributes
    ----------
    name
        ``"llvm-mca"``.
    version
        Of the tool.
    core
        The core of this machine, as the tool calls it.
    program
        Path of the program.
    """

    name: str
    version: str
    core: str
    program: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return how messages name it."""
        return f"{self.name} {self.version} ({self.core})"

    def facts(self) -> dict[str, str]:
        """Return what a calibration keeps of it among its options."""
        return {"cycles": self.name, "cycles_version": self.version, "cycles_core": self.core}


def cycle_source(name: str) -> CycleSource | None:
    """Return a source of cycles; None for perflex's own model of ports.

    Parameters
    ----------
    name
        One of ``SOURCES``.

    Raises
    ------
    ValueError
        There is no such source.
    MissingExtraError
        The tool is not installed, does not run, or does not know the core of this machine.
    """
    if name not in SOURCES:
        msg = f"cycles {name!r} is none of the sources {', '.join(SOURCES)}"
        raise ValueError(msg)
    if name == PORTS:
        return None
    return _llvm_mca()


def source_of_options(options: Mapping[str, object]) -> CycleSource | None:
    """Return the source of cycles that a calibration was made with, from its options; None for ports.

    Raises
    ------
    MissingExtraError
        As `cycle_source`, or the tool is of another version or for another core than the calibration's.
    """
    name = str(options.get("cycles", PORTS))
    if name not in SOURCES:
        msg = f"the calibration has cycles of {name}, which this version of perflex does not know; update perflex"
        raise MissingExtraError(msg, extra=name)
    found = cycle_source(name)
    if found is None:
        return None
    made = CycleSource(name, str(options.get("cycles_version", "")), str(options.get("cycles_core", "")))
    if found != made:
        msg = f"the calibration has cycles of {made}, and here is {found}; install that version, or calibrate again"
        raise MissingExtraError(msg, extra=name)
    return found


@lru_cache(maxsize=1)
def _llvm_mca() -> CycleSource:
    names = [*(f"llvm-mca-{number}" for number in _VERSIONS), "llvm-mca"]
    program = next((path for name in names if (path := shutil.which(name))), None)
    if program is None:
        msg = "cycles by llvm-mca need the program llvm-mca; install it, e.g. with: apt install llvm"
        raise MissingExtraError(msg, extra=LLVM_MCA)
    try:
        told = _output([program, "--version"])
        match = re.search(r"LLVM version (\S+)", told)
        core = json.loads(_output([program, "-json", "-mcpu=native"], "nop\n"))["TargetInfo"]["CPUName"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        msg = f"{program} does not run or is too old ({error}); install LLVM 14 or newer, e.g. with: apt install llvm"
        raise MissingExtraError(msg, extra=LLVM_MCA) from error
    return CycleSource(LLVM_MCA, match[1] if match else "unknown", str(core), program)


def _output(words: list[str], code: str = "") -> str:
    done = subprocess.run(  # noqa: S603 - a program that the user asked for
        words, input=code, capture_output=True, check=True, timeout=_LIMIT_S, encoding="utf-8", errors="replace"
    )
    return done.stdout
