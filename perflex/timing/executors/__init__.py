"""Measuring in the workers of an executor: of a pool, or of a Dask cluster on many machines."""
