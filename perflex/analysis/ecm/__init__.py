"""Composition of ECM contributions: single core, saturation, domains, as numbers and as model strings.

>>> compose(machine, in_core, {"l1": 6, "l2": 5, "l3": 8, "mem": 8.76})   # Eq. 6, in the machine's overlap hypothesis
>>> ecm_model(machine, cores=4, in_core="3 * f_thread_items")             # the same as a Model
"""

from __future__ import annotations

from perflex.analysis.ecm.compose import compose, on_cores, saturated, saturation_cores
from perflex.analysis.ecm.ecm_model import ecm_model
from perflex.analysis.ecm.in_core import in_core_cycles

__all__ = ["compose", "ecm_model", "in_core_cycles", "on_cores", "saturated", "saturation_cores"]
