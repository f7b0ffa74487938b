"""The runtime from its ECM contributions, as numbers (YaskSite, Equations 6 and 7): what model strings have to give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.analysis.ecm import cores_by_domain
from perflex.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex import Machine


# Any: numbers or arrays, throughout.
def compose(machine: Machine, in_core: Any, times: Mapping[str, Any]) -> Any:
    """Return the single-core runtime in the overlap hypothesis of a machine.

    ``max(T_comp, op1(T_L1, op2(T_L2, op3(T_L3, T_mem))))``, where each operator is that level's: sum or maximum.

    Parameters
    ----------
    machine
        With cache levels.
    in_core
        Time of the instructions that load and store nothing.
    times
        Time of each level, keyed by its name in lower case, and ``"mem"``: numbers or arrays, in the unit of `in_core`
        (cycles or seconds, per iteration or per launch).

    Raises
    ------
    MachineError
        The machine has no cache levels, or the time of a level is missing.

    Source: YaskSite, Equation 6.
    """
    levels = machine.need_levels()
    names = [*(level.name.lower() for level in levels), "mem"]
    missing = [name for name in names if name not in times]
    if missing:
        msg = f"no time is given for {', '.join(missing)} of machine {machine.name}; it has {', '.join(names)}"
        raise MachineError(msg, machine=machine.name)
    beyond = times["mem"]
    for level, name in zip(reversed(levels), reversed(names[:-1]), strict=True):
        beyond = times[name] + beyond if level.overlap == "sum" else np.maximum(times[name], beyond)
    return np.maximum(in_core, beyond)


def saturated(single: Any, memory: Any, cores: Any) -> Any:
    """Return the runtime on some cores of one domain: ``max(T(1)/cores, T_mem)``.

    Parameters
    ----------
    single
        Runtime on one core.
    memory
        Time of the memory alone, which all cores share.
    cores
        Working cores of the domain.

    Source: YaskSite, Equation 7a, as its text and Fig. 5 have it: as printed, with ``T(1)/max(cores, T(1)/T_mem)``, it
    would be the other way round.
    """
    return np.maximum(np.asarray(single) / cores, memory)


def saturation_cores(single: Any, memory: Any) -> Any:
    """Return the number of cores from which on the memory limits, ``T(1)/T_mem``; not rounded (Equation 7a)."""
    return np.asarray(single) / memory


def on_cores(machine: Machine, single: Any, memory: Any, cores: int) -> Any:
    """Return the runtime on some cores of a machine, which fill one domain after the other.

    Within a domain as `saturated`; the speeds of several domains add up, times the machine's `domain_efficiency`.

    Parameters
    ----------
    machine
        Its number of cores, of cores in a domain, and the efficiency of several domains.
    single, memory
        Runtime on one core, and time of the memory of one domain, for all of the work.
    cores
        Working cores.

    Raises
    ------
    MachineError
        The machine has fewer cores, or their number is not known.

    Source: YaskSite, Equation 7 and the text after it.
    """
    full, each, rest = cores_by_domain(machine, cores)
    speed: Any = full / saturated(single, memory, each) if full else 0.0
    if rest:
        speed = speed + 1 / saturated(single, memory, rest)
    efficiency = machine.domain_efficiency or 1.0
    return 1 / (speed * (efficiency if full + bool(rest) > 1 else 1.0))
