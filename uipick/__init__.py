"""UIPiCK: measurement kernels, made by generators that filter tags select.

Source: the paper's Section 7.1. ::

    from uipick import ALL_GENERATORS, KernelCollection

    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(
        ["matmul_sq", "dtype:float32", "prefetch:True", "lsize_0:16", "lsize_1:16",
         "groups_fit:True", "n:512,640,768,896"])
"""

import lazy_loader

import perflex.caches  # noqa: F401 - before loopy is imported, which fails where its cache cannot be written

# The stub beside this file is the one list of public names.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
