"""Every variant of the any-kernel benchmark computes what its family says."""

import warnings
from math import prod

import numpy as np
import pytest
from loopy.diagnostic import ParameterFinderWarning
from pymbolic import evaluate

from support.building import from_outermost
from tests.bench.any_kernel_parts.families import families

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", families())
def test_every_variant_gives_the_reference(name, contexts):
    for variant in families()[name].variants:
        check_variant(families()[name], variant, contexts[0])


@pytest.mark.parametrize("name", families())
def test_a_family_is_one_task_at_growing_sizes(name):
    family = families()[name]
    assert 6 <= len(family.variants) <= 12
    assert len(family.sizes) == 3
    assert all(size.keys() == family.tiny.keys() for size in family.sizes)
    arrays = {variant: _arrays(make()) for variant, make in family.variants.items()}
    first = next(iter(arrays.values()))
    assert [variant for variant, own in arrays.items() if own != first] == []
    moved = [_bytes(first, size) for size in family.sizes]
    assert moved[0] < moved[1] < moved[2]


def _arrays(kernel):
    arguments = [argument for argument in kernel.default_entrypoint.args if hasattr(argument, "shape")]
    return {str(a.name): (a.dtype.numpy_dtype, a.shape, a.is_input, a.is_output) for a in arguments}


def _bytes(arrays, sizes):
    elements = {name: prod(evaluate(extent, dict(sizes)) for extent in array[1]) for name, array in arrays.items()}
    return sum(int(count) * arrays[name][0].itemsize for name, count in elements.items())


def inputs_of(arguments, sizes, seed=3):
    """Return a value of every array, indexed as in the kernel; arrays that are only stored to hold -77."""
    random = np.random.default_rng(seed)
    arrays = {}
    for argument in sorted(arguments, key=lambda argument: str(argument.name)):
        shape = [int(evaluate(extent, dict(sizes))) for extent in argument.shape]
        dtype = argument.dtype.numpy_dtype
        assert dtype.kind in "fi", argument
        drawn = 0.5 + random.random(shape) if dtype.kind == "f" else random.integers(1, 10, shape)
        arrays[argument.name] = drawn.astype(dtype) if argument.is_input else np.full(shape, -77, dtype)
    return arrays


def check_variant(family, variant, context):
    """Run a variant at the tiny size and compare every output with the family's reference."""
    import pyopencl as cl
    import pyopencl.array as cla

    kernel = family.variants[variant]()
    sizes = dict(family.tiny)
    arguments = [argument for argument in kernel.default_entrypoint.args if hasattr(argument, "shape")]
    arrays = inputs_of(arguments, sizes)
    written = {str(argument.name) for argument in arguments if argument.is_output}
    expected = family.reference({name: array.copy() for name, array in arrays.items()}, sizes)
    assert set(expected) == written, f"the reference gives {sorted(expected)}, the kernel {sorted(written)}"
    queue = cl.CommandQueue(context)
    axes = {str(argument.name): from_outermost(argument) for argument in arguments}
    on_device = {name: cla.to_device(queue, array.transpose(axes[name]).copy()) for name, array in arrays.items()}
    views = {name: array.transpose(np.argsort(axes[name]).tolist()) for name, array in on_device.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        # Sizes are given, so whether loopy could find them from the arrays' shapes does not matter.
        warnings.simplefilter("ignore", ParameterFinderWarning)
        kernel.executor(context)(queue, **sizes, **views)
    for name, value in expected.items():
        result = on_device[name].get().transpose(np.argsort(axes[name]).tolist())
        np.testing.assert_allclose(result, value, rtol=family.tolerance, atol=family.tolerance, err_msg=name)
