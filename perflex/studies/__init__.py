"""Whole jobs: the demo, the paper's studies, detecting a machine."""
