"""Reports: one HTML page of what commands wrote to files: calibrations, evaluations, predictions, and so on."""
