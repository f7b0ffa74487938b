"""Tile programs: what the programs of a launch access and compute, tile by tile."""
