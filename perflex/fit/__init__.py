"""From a feature table to parameters with uncertainties. Numbers only: no kernel, no device."""
