"""Judging a fit: what its parameters rest on, and what its predictions are worth."""
