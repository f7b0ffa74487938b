"""Pruning of variants: what to keep, with which promise, over which space."""
