"""Code for NVIDIA's GPUs that tests compile."""

import pytest

from perflex.compiled.nvidia.counts import launch_counts
from perflex.compiled.nvidia.cubin import GpuCode, compile_cuda, supported_architectures

needs_tools = pytest.mark.skipif(
    not supported_architectures(), reason="no NVRTC: pip install nvidia-cuda-nvrtc nvidia-cuda-nvdisasm"
)
# One is quick; compilers and instructions of the others differ, but seldom.
ARCHITECTURES = ("sm_90", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sm_75", "sm_100")))
OPTIONS = ("--ptxas-options=-v",)


def every_count(code, scalars):
    return launch_counts(code, scalars) | launch_counts(code, scalars, accesses=True)


def built(body, architecture, groups=(4,), work_group=(64,), *, arguments="float *x, int n", attributes=""):
    source = f'extern "C" __global__ void {attributes} k({arguments}) {{ {body} }}'
    compiled = compile_cuda(source, architecture, OPTIONS)
    assert compiled.cubin, compiled.log
    return GpuCode(architecture, compiled.cubin, "k", groups, work_group), compiled.log
