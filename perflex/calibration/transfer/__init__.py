"""Transfer: a calibration of a device from those of other devices and few samples, or none."""
