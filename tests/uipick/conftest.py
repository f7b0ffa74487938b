"""Run measurement kernels on real devices through loopy's own executor, independent of perflex."""

import warnings
from itertools import count
from zlib import crc32

import numpy as np
import pytest
from loopy.diagnostic import ParameterFinderWarning
from truth import UNTOUCHED

from support.building import from_outermost
from uipick import ALL_GENERATORS, KernelCollection


@pytest.fixture
def one():
    """Make the only kernel that the tags describe."""

    def make(*tags):
        (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
        return kernel

    return make


@pytest.fixture
def run(contexts, request):
    """Run a kernel on every platform, which must agree, or, if that is slow, on one; returns the one output array."""
    import pyopencl as cl
    import pyopencl.array as cla

    slow = request.node.get_closest_marker("slow") is not None
    turn = count(crc32(request.node.name.encode()))

    def run_on(context, kernel, sizes, inputs):
        queue = cl.CommandQueue(context)
        (output,) = (a for a in kernel.default_entrypoint.args if getattr(a, "is_output", False))
        shape = [int(_evaluate(extent, sizes)) for extent in output.shape]
        axes = from_outermost(output)
        back = np.argsort(axes).tolist()
        result = cla.to_device(queue, np.full([shape[axis] for axis in axes], UNTOUCHED, output.dtype.numpy_dtype))
        on_device = {name: cla.to_device(queue, array) for name, array in inputs.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)
            # Sizes are given, so whether loopy could find them from the arrays' shapes does not matter.
            warnings.simplefilter("ignore", ParameterFinderWarning)
            kernel.executor(context)(queue, **sizes, **on_device, **{output.name: result.transpose(back)})
        return result.get().transpose(back)

    def run_everywhere(kernel, sizes, **inputs):
        # Slow kernels are many enough to spread them over the platforms.
        chosen = [contexts[next(turn) % len(contexts)]] if slow else contexts
        results = [run_on(context, kernel, sizes, inputs) for context in chosen]
        for result in results[1:]:
            np.testing.assert_allclose(result, results[0], rtol=1e-4, atol=1e-6)
        return results[0]

    return run_everywhere


def _evaluate(expression, sizes):
    from pymbolic import evaluate

    return evaluate(expression, dict(sizes))


@pytest.fixture
def random():
    return np.random.default_rng(20)
