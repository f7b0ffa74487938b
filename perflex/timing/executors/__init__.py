"""Measuring in the workers of an executor: of a pool, or of a Dask cluster on many machines."""

from perflex.timing.executors.dask import DaskExecutor, dask_executor
from perflex.timing.executors.rounds import measure_on

__all__ = ["DaskExecutor", "dask_executor", "measure_on"]
