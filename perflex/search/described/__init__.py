"""Kernels that loopy never saw: described by formulas over their tunables, and pruned by what was measured."""
