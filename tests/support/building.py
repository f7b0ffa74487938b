"""Building kernels with sizes on a backend, as measuring does; the layout of their arrays."""

from perflex.features import SizedKernel
from perflex.timing.launch.request import request_for


def built(backend, kernel, sizes, label):
    """Return a kernel with sizes, ready to run on the backend's device."""
    return backend.build(request_for(SizedKernel(kernel, sizes, label), backend.device))


def from_outermost(array):
    """Axes of an array in the order of its layout, that with stride 1 last."""
    levels = [getattr(tag, "layout_nesting_level", None) for tag in array.dim_tags or ()]
    axes = list(range(len(array.shape)))
    return axes if None in levels else sorted(axes, key=lambda axis: -levels[axis])
