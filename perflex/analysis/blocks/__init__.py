"""Choosing block sizes of a stencil analytically, from what has to stay in which cache (YaskSite, Section V-A)."""
