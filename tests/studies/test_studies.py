"""The studies' measurement kernels are like their variants."""

import re

import loopy as lp
import pytest

from perflex.models import load_model, measurement_kernels
from perflex.studies.evaluation.studies import STUDIES


def _loops(kernel):
    """Return the numbers of trips of the loops in the generated code that a compiler knows them of."""
    code = lp.generate_code_v2(kernel).device_code()
    return {1 + int(last) for last in re.findall(r"for \(int \w+ = 0; \w+ <= (\d+);", code)}


@pytest.mark.parametrize("study", ["matmul", "dg"])
def test_local_memory_is_measured_in_loops_as_long_as_those_of_the_variants(study):
    """Compilers unroll loops of few trips: others have other costs."""
    chosen = STUDIES[study]
    variants = [chosen.kernel(name, chosen.sizes[0]) for name in chosen.variants if "prefetch" in name]
    inner = {max(_loops(variant.kernel)) for variant in variants if variant.arguments.get("prefetch", True)}
    for name in chosen.models.values():
        kernels = measurement_kernels(load_model(name))
        for kernel in {id(one.kernel): one for one in kernels if one.generator == "lmem_madd"}.values():
            assert {max(_loops(kernel.kernel))} == inner
