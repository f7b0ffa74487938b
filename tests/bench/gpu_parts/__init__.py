"""The parts of ``gpu_study.py``: what is measured on a GPU machine, one part per module."""
