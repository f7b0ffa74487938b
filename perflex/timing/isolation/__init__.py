"""Kernels run in a process of their own, so that one that crashes or hangs fails alone."""
