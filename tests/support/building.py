"""Building kernels with sizes on a backend, as measuring does."""

from perflex.features import SizedKernel
from perflex.timing.launch.request import request_for


def built(backend, kernel, sizes, label):
    """Return a kernel with sizes, ready to run on the backend's device."""
    return backend.build(request_for(SizedKernel(kernel, sizes, label), backend.device))
