"""Code for NVIDIA's GPUs, compiled here and read: what the sources say must come back."""

import re
from math import ceil

import pytest

from perflex.compiled.control_flow import UnknownFlowError
from perflex.compiled.nvidia import cubin
from perflex.compiled.nvidia.counts import launch_counts
from perflex.compiled.nvidia.cubin import GpuCode, compile_cuda, kernel_facts, supported_architectures
from perflex.errors import MissingExtraError

needs_tools = pytest.mark.skipif(
    not supported_architectures(), reason="no NVRTC: pip install nvidia-cuda-nvrtc nvidia-cuda-nvdisasm"
)
# One is quick; compilers and instructions of the others differ, but seldom.
ARCHITECTURES = ("sm_90", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sm_75", "sm_100")))
OPTIONS = ("--ptxas-options=-v",)


def built(body, architecture, groups=(4,), work_group=(64,), *, arguments="float *x, int n", attributes=""):
    source = f'extern "C" __global__ void {attributes} k({arguments}) {{ {body} }}'
    compiled = compile_cuda(source, architecture, OPTIONS)
    assert compiled.cubin, compiled.log
    return GpuCode(architecture, compiled.cubin, "k", groups, work_group), compiled.log


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_a_chain_of_products_and_sums_has_as_many_instructions(architecture, dtype):
    body = f"{dtype} v = x[threadIdx.x]; " + "v = v * v + v; " * 37 + "x[threadIdx.x] = v;"
    code, _ = built(body, architecture, arguments=f"{dtype} *x")
    found = launch_counts(code, [None])
    sub_groups = 4 * 2
    own, other = ("float32", "float64") if dtype == "float" else ("float64", "float32")
    assert found[own] == 37 * sub_groups
    assert found.get(other, 0) == 0
    assert found["global_loads"] == found["global_stores"] == sub_groups


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("n", [0, 1, 3, 61, 64, 1000])
def test_loops_run_as_often_as_their_bounds_say_however_the_compiler_unrolls_them(architecture, n):
    body = "float s = 0; for (int k = 0; k < n; ++k) s += x[k * n + threadIdx.x]; x[threadIdx.x] = s;"
    code, _ = built(body, architecture)
    found = launch_counts(code, [None, n])
    assert found["global_loads"] == pytest.approx(n * 8)
    assert found["float32"] == pytest.approx(n * 8)
    assert found["global_stores"] == pytest.approx(8)


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nested_loops_multiply(architecture):
    body = (
        "float s = 0; for (int i = 0; i < n; ++i) { for (int k = 0; k < m; ++k) s += x[k * n + i]; __syncthreads(); } "
        "x[threadIdx.x] = s;"
    )
    code, _ = built(body, architecture, arguments="float *x, int n, int m")
    found = launch_counts(code, [None, 19, 33])
    assert found["global_loads"] == pytest.approx(19 * 33 * 8)
    assert found["barriers"] == pytest.approx(19 * 8)


@needs_tools
@pytest.mark.parametrize("n", [1, 31, 33, 130, 250, 256])
def test_a_guard_lets_those_sub_groups_pass_that_have_a_work_item_inside(n):
    code, _ = built("int i = blockIdx.x * 64 + threadIdx.x; if (i < n) x[i] = 1.0f;", "sm_90")
    assert launch_counts(code, [None, n])["global_stores"] == pytest.approx(ceil(n / 32))


@needs_tools
def test_loops_whose_bounds_depend_on_the_group_are_summed():
    body = "float s = 0; for (int k = 0; k <= blockIdx.x; ++k) s += x[k * n]; x[blockIdx.x] = s;"
    code, _ = built(body, "sm_90", groups=(101,), work_group=(32,))
    assert launch_counts(code, [None, 7])["global_loads"] == pytest.approx(101 * 102 / 2)


@needs_tools
@pytest.mark.parametrize(
    ("condition", "groups", "expected"),
    [
        ("b < 10", 1000, 20),
        ("b >= 300 && b < 700", 1000, 800),
        ("i % 32 == 5", 10, 20),
        ("(b & 3) == 2 && i > 40", 10, 2),
        (
            "b / 7 == 3 && (i * b) % 5 == 1",
            100,
            sum(any(i * b % 5 == 1 for i in range(w, w + 32)) for b in range(21, 28) for w in (0, 32)),
        ),
    ],
)
def test_each_work_group_and_work_item_counts_that_a_condition_lets_pass(condition, groups, expected):
    body = f"int b = blockIdx.x, i = threadIdx.x; if (!({condition})) return; x[b * 64 + i] = n;"
    code, _ = built(body, "sm_90", groups=(groups,))
    assert launch_counts(code, [None, 7])["global_stores"] == expected


@needs_tools
def test_exits_that_two_predicates_decide():
    body = (
        "int b = blockIdx.x, i = threadIdx.x; if (min(i, b) * 3 <= 1 && (90 - b) / 7 == 3) return; x[b * 96 + i] = n;"
    )
    code, _ = built(body, "sm_75", groups=(7,), work_group=(96,))
    assert launch_counts(code, [None, 7])["global_stores"] == 7 * 3


@needs_tools
def test_loops_whose_bounds_grow_as_squares_are_summed():
    body = "float s = 0; for (int k = 0; k < blockIdx.x * blockIdx.x; ++k) s += x[k * n]; x[blockIdx.x] = s;"
    code, _ = built(body, "sm_90", groups=(20,), work_group=(32,))
    assert launch_counts(code, [None, 7])["global_loads"] == pytest.approx(sum(b * b for b in range(20)))


@needs_tools
def test_conditions_that_change_within_a_loop_are_followed():
    body = (
        "\n#pragma unroll 1\nfor (int k = 0; k < n; ++k) { int y = blockIdx.x * n + k; if (y < 29) {"
        "\n#pragma unroll 1\nfor (int j = 0; j < n; ++j) x[j * n + y] = k * j; } }"
    )
    code, _ = built(body, "sm_90", groups=(6,))
    assert launch_counts(code, [None, 7])["global_stores"] == 2 * 29 * 7


@needs_tools
def test_what_takes_too_long_to_follow_is_refused(monkeypatch):
    monkeypatch.setattr("perflex.compiled.nvidia.counts._MOST_STEPS", 100)
    body = "float s = 0; for (int k = 0; k < blockIdx.x * blockIdx.x; ++k) s += x[k * n]; x[blockIdx.x] = s;"
    code, _ = built(body, "sm_90", groups=(20,), work_group=(32,))
    with pytest.raises(UnknownFlowError, match="takes more than 100 instructions"):
        launch_counts(code, [None, 7])


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_classes_are_those_of_the_source(architecture):
    body = (
        "__shared__ float t[16][17]; int i = threadIdx.x & 15; int j = threadIdx.x >> 4; t[i][j] = x[threadIdx.x]; "
        "__syncthreads(); float v = t[j][i]; x[threadIdx.x] = __sinf(v) + __cosf(v) + __expf(v);"
    )
    code, _ = built(body, architecture, groups=(1,), work_group=(256,), arguments="float *x")
    found = launch_counts(code, [None])
    assert kernel_facts(code).local_bytes == 16 * 17 * 4
    for name, expected in {
        "special": 3,
        "barriers": 1,
        "local_loads": 1,
        "local_stores": 1,
        "loads": 2,
        "stores": 2,
    }.items():
        assert found[name] == 8 * expected, name
    assert found.get("spills", 0) == 0


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_too_few_registers_make_spills(architecture):
    loads = " ".join(f"float v{i} = x[{i} * n];" for i in range(96))
    uses = " + ".join(f"v{i} * v{(i * 7 + 5) % 96}" for i in range(96))
    # Values that a barrier separates from their use are not loaded again.
    body = f"{loads} __syncthreads(); x[threadIdx.x] = {uses};"
    free, _ = built(body, architecture, arguments="float * __restrict__ x, int n")
    tight, log = built(
        body, architecture, arguments="float * __restrict__ x, int n", attributes="__launch_bounds__(1024, 1)"
    )
    most = 65536 // 1024
    facts = kernel_facts(tight)
    assert facts.registers <= most < kernel_facts(free).registers
    assert kernel_facts(free).private_bytes == 0
    assert launch_counts(free, [None, 5]).get("spills", 0) == 0
    frame, stored, loaded = map(
        int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill", log).groups()
    )
    assert facts.private_bytes == frame >= (96 - most) * 4
    # The assembler counts bytes; an access has 4, 8 or 16.
    assert (stored + loaded) / 16 <= launch_counts(tight, [None, 5])["spills"] / 8 <= (stored + loaded) / 4
    assert facts.registers == int(re.search(r"Used (\d+) registers", log)[1])


@needs_tools
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("int i = threadIdx.x; while (x[i] > 1) i += 2; x[0] = i;", "how often the loop"),
        ("if (x[threadIdx.x] > 1) x[threadIdx.x + n] = sqrtf(x[n]);", "data determine whether"),
    ],
)
def test_what_data_decide_is_refused(body, why):
    code, _ = built(body, "sm_90")
    with pytest.raises(UnknownFlowError, match=why):
        launch_counts(code, [None, 5])


@needs_tools
def test_a_kernel_that_is_not_there():
    code, _ = built("x[0] = n;", "sm_90")
    with pytest.raises(ValueError, match="no kernel 'other'"):
        kernel_facts(GpuCode("sm_90", code.cubin, "other", (1,), (1,)))


def test_what_is_missing_is_told_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setattr(cubin, "_libraries", lambda: ())
    with pytest.raises(MissingExtraError, match=r"pip install 'perflex\[cuda-code\]'"):
        compile_cuda("", "sm_90")
    monkeypatch.setattr(cubin.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtraError, match=r"pip install 'perflex\[cuda-code\]'"):
        cubin.disassembled(GpuCode("sm_90", b"none", "k", (1,), (1,)))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('echo \'[{}, [{"function-name": "other", "sass-instructions": []}]]\'', "it lists other, not k"),
        ("echo broken >&2; exit 1", "broken"),
        ("while :; do :; done", "timed out"),
    ],
)
def test_what_the_disassembler_cannot_read_is_told(monkeypatch, tmp_path, answer, why):
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    tool.chmod(0o700)
    monkeypatch.setattr(cubin, "_tool", lambda: str(tool))
    monkeypatch.setattr(cubin, "_LIMIT_S", 0.1 if "while" in answer else 20.0)
    with pytest.raises(MissingExtraError, match=why):
        cubin.disassembled(GpuCode("sm_90", answer.encode(), "k", (1,), (1,)))


def test_the_newest_disassembler_is_taken(monkeypatch, tmp_path):
    for folder in ("cuda_nvdisasm", "cu9", "cu13"):
        (tmp_path / "nvidia" / folder / "bin").mkdir(parents=True)
        (tmp_path / "nvidia" / folder / "bin/nvdisasm").touch()
    monkeypatch.setattr(cubin.sysconfig, "get_path", lambda _: str(tmp_path))
    assert cubin._tool() == str(tmp_path / "nvidia/cu13/bin/nvdisasm")


@needs_tools
def test_gpus_that_the_compiler_does_not_know():
    with pytest.raises(MissingExtraError, match=r"not for sm_35; older GPUs need an older compiler"):
        compile_cuda("", "sm_35")
