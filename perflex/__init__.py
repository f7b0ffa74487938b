"""Calibrated cost models for OpenCL and GPU kernels.

Write a cost model as a string, calibrate it on a device from measurement kernels, and predict the run
time of kernels that never ran there::

    from perflex import Model, calibrate
    from uipick import ALL_GENERATORS, KernelCollection

    model = Model("f_cl_wall_time_intel_epyc", "p_f32madd * f_op_float32_madd")
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(
        ["matmul_sq", "dtype:float32", "prefetch:True", "lsize_0:16", "lsize_1:16",
         "groups_fit:True", "n:512,640,768,896"])
    calibration = calibrate(model, kernels)
    seconds = calibration.predict(kernels[0], {"n": 1024})
"""

from perflex.guard import hold_interrupts

hold_interrupts()

import lazy_loader  # noqa: E402 - what takes time comes after that

from perflex.caches import use_writable_caches  # noqa: E402
from perflex.version import __version__ as __version__  # noqa: E402

# Before loopy is imported, which fails where its cache cannot be written.
use_writable_caches()


def load_ipython_extension(shell: object) -> None:
    """Add ``%%perflex`` to a notebook; ``%load_ext perflex`` calls this."""
    from perflex.cli.notebook import load_ipython_extension as load

    load(shell)


# The stub beside this file is the one list of public names. loopy and sympy alone take most of a second to load.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
