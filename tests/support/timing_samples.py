"""Records of timings, as tests of how times are made of them need them."""

from __future__ import annotations

from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity

__all__ = ["Failure", "MeasurementKey", "Sample", "SystemActivity"]
