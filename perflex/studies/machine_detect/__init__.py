"""Finding out what a CPU's machine file says: what the operating system reports, and what kernels measure."""

from __future__ import annotations

from perflex.studies.machine_detect.detect import Detected, detect_machine
from perflex.studies.machine_detect.system import ReportedCache, ReportedCpu, reported_cpu

__all__ = ["Detected", "ReportedCache", "ReportedCpu", "detect_machine", "reported_cpu"]
