"""CPU cache volumes, layer conditions and ECM cycles of kernels, from their access relations.

>>> estimate = estimate_ecm(scop, {"N": 1000}, "clx")
>>> estimate.level("L2").load_bytes, estimate.level("memory").cycles   # per iteration
"""
