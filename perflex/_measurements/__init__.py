"""What was measured: samples and failures with all they depend on, and what keeps them."""

from perflex._measurements.records import Failure, FailureKind, MeasurementKey, Recorder, Sample

__all__ = ["Failure", "FailureKind", "MeasurementKey", "Recorder", "Sample"]
