"""What was measured: samples and failures with all they depend on, and what keeps them."""

from perflex.store.records import Failure, MeasurementKey, Recorder, Sample

__all__ = ["Failure", "MeasurementKey", "Recorder", "Sample"]
