"""Kernels that loopy never saw: described by formulas over their tunables, predicted from what was measured."""
