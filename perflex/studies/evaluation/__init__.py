"""The paper's three studies on any device: calibrate, predict, measure, report (paper Section 8)."""
