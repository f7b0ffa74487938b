"""Spaces of variants: their settings, constraints, kernels."""
