"""Reports: one HTML page of calibrations, evaluations, prunings and rooflines that were written to files."""
