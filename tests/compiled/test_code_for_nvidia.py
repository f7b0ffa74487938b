"""Code for NVIDIA's GPUs, compiled here and read: what the sources say must come back."""

import json
import re
from math import ceil

import pytest
from nvidia_kernels import ARCHITECTURES, built, every_count, needs_tools

from perflex.compiled.control_flow import UnknownFlowError
from perflex.compiled.nvidia import cubin
from perflex.compiled.nvidia.cubin import GpuCode, compile_cuda, disassembled, kernel_facts
from perflex.errors import MissingExtraError


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_a_chain_of_products_and_sums_has_as_many_instructions(architecture, dtype):
    body = f"{dtype} v = x[threadIdx.x]; " + "v = v * v + v; " * 37 + "x[threadIdx.x] = v;"
    code, _ = built(body, architecture, arguments=f"{dtype} *x")
    found = every_count(code, [None])
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
    found = every_count(code, [None, n])
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
    found = every_count(code, [None, 19, 33])
    assert found["global_loads"] == pytest.approx(19 * 33 * 8)
    assert found["barriers"] == pytest.approx(19 * 8)


@needs_tools
@pytest.mark.parametrize("n", [1, 31, 33, 130, 250, 256])
def test_a_guard_lets_those_sub_groups_pass_that_have_a_work_item_inside(n):
    code, _ = built("int i = blockIdx.x * 64 + threadIdx.x; if (i < n) x[i] = 1.0f;", "sm_90")
    assert every_count(code, [None, n])["global_stores"] == pytest.approx(ceil(n / 32))


@needs_tools
def test_loops_whose_bounds_depend_on_the_group_are_summed():
    body = "float s = 0; for (int k = 0; k <= blockIdx.x; ++k) s += x[k * n]; x[blockIdx.x] = s;"
    code, _ = built(body, "sm_90", groups=(101,), work_group=(32,))
    assert every_count(code, [None, 7])["global_loads"] == pytest.approx(101 * 102 / 2)


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
    assert every_count(code, [None, 7])["global_stores"] == expected


@needs_tools
def test_exits_that_two_predicates_decide():
    body = (
        "int b = blockIdx.x, i = threadIdx.x; if (min(i, b) * 3 <= 1 && (90 - b) / 7 == 3) return; x[b * 96 + i] = n;"
    )
    code, _ = built(body, "sm_75", groups=(7,), work_group=(96,))
    assert every_count(code, [None, 7])["global_stores"] == 7 * 3


@needs_tools
def test_loops_whose_bounds_grow_as_squares_are_summed():
    body = "float s = 0; for (int k = 0; k < blockIdx.x * blockIdx.x; ++k) s += x[k * n]; x[blockIdx.x] = s;"
    code, _ = built(body, "sm_90", groups=(20,), work_group=(32,))
    assert every_count(code, [None, 7])["global_loads"] == pytest.approx(sum(b * b for b in range(20)))


@needs_tools
def test_conditions_that_change_within_a_loop_are_followed():
    body = (
        "\n#pragma unroll 1\nfor (int k = 0; k < n; ++k) { int y = blockIdx.x * n + k; if (y < 29) {"
        "\n#pragma unroll 1\nfor (int j = 0; j < n; ++j) x[j * n + y] = k * j; } }"
    )
    code, _ = built(body, "sm_90", groups=(6,))
    assert every_count(code, [None, 7])["global_stores"] == 2 * 29 * 7


@needs_tools
def test_what_takes_too_long_to_follow_is_refused(monkeypatch):
    monkeypatch.setattr("perflex.compiled.nvidia.counts._MOST_STEPS", 100)
    body = "float s = 0; for (int k = 0; k < blockIdx.x * blockIdx.x; ++k) s += x[k * n]; x[blockIdx.x] = s;"
    code, _ = built(body, "sm_90", groups=(20,), work_group=(32,))
    with pytest.raises(UnknownFlowError, match="takes more than 100 instructions"):
        every_count(code, [None, 7])


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_classes_are_those_of_the_source(architecture):
    body = (
        "__shared__ float t[16][17]; int i = threadIdx.x & 15; int j = threadIdx.x >> 4; t[i][j] = x[threadIdx.x]; "
        "__syncthreads(); float v = t[j][i]; x[threadIdx.x] = __sinf(v) + __cosf(v) + __expf(v);"
    )
    code, _ = built(body, architecture, groups=(1,), work_group=(256,), arguments="float *x")
    found = every_count(code, [None])
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


def test_before_volta_instructions_have_eight_bytes_and_words_between_them(monkeypatch):
    listed = ["", "MOV", "S2R", "IADD", "", "EXIT"]
    entries = [{"opcode": name, "operands": "R1, R2"} for name in listed]
    text = json.dumps([{}, [{"function-name": "k", "sass-instructions": entries}]]).encode()
    monkeypatch.setattr(cubin, "_disassembled", lambda _: text)
    found = disassembled(GpuCode("sm_61", b"", "k", (1,), (32,)))
    assert [(one.address, one.name) for one in found] == [(8, "MOV"), (16, "S2R"), (24, "IADD"), (40, "EXIT")]


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_instructions_count_for_the_unit_that_carries_them_out(architecture):
    """Minima of floats take the unit of simple integers, products of integers that of float32 arithmetic."""
    body = (
        "float v = x[threadIdx.x], u = v; int j = n + threadIdx.x; "
        + "v = v * u + 1.5f; " * 40
        + "v = fminf(v * u, u + 1.0f); " * 30
        + "j = j * j + n; " * 20
        + "x[threadIdx.x] = v + j;"
    )
    code, _ = built(body, architecture, groups=(1,), work_group=(32,))
    found = every_count(code, [None, 3])
    # The sum is the same each time, and computed once.
    assert found["unit_fma"] == pytest.approx(71, abs=3)
    assert found["unit_imad"] == pytest.approx(20, abs=8)
    assert found["unit_alu"] == pytest.approx(30, abs=12)
    assert found["float32"] == pytest.approx(101, abs=3)


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
    assert every_count(free, [None, 5]).get("spills", 0) == 0
    frame, stored, loaded = map(
        int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill", log).groups()
    )
    assert facts.private_bytes == frame >= (96 - most) * 4
    # The assembler counts bytes; an access has 4, 8 or 16.
    assert (stored + loaded) / 16 <= every_count(tight, [None, 5])["spills"] / 8 <= (stored + loaded) / 4
    assert facts.registers == int(re.search(r"Used (\d+) registers", log)[1])


@needs_tools
@pytest.mark.parametrize("architecture", ARCHITECTURES[:2])
def test_ids_are_known_that_registers_hold_no_longer(architecture):
    floats, ids, n = range(64), range(3), 2
    loads = " ".join(f"float v{i} = x[{i} * n];" for i in floats)
    loads += " ".join(f"int t{i} = ((int)threadIdx.x * (n + {i})) / {3 + 2 * i};" for i in ids)
    turn = " ".join(f"v{i} = v{i} * v{(i * 7 + 5) % 64} + x[k];" for i in floats)
    turn += " ".join(f"if (t{i} < 4 * k + {i}) x[{i} + k] = v{i};" for i in ids)
    end = f"x[threadIdx.x] = {' + '.join(f'v{i}' for i in floats)};"
    body = f"{loads} for (int k = 0; k < n; k++) {{ __syncthreads(); {turn} }} {end}"
    code, log = built(body, architecture, groups=(1,), work_group=(96,), attributes="__launch_bounds__(1024, 1)")
    assert " 0 bytes spill stores" not in log
    passing = [
        any((item * (n + i)) // (3 + 2 * i) < 4 * k + i for item in range(first, first + 32))
        for first in (0, 32, 64)
        for i in ids
        for k in range(n)
    ]
    assert every_count(code, [None, n])["global_stores"] == 3 + sum(passing)


@needs_tools
@pytest.mark.parametrize(
    ("outer", "condition", "inner"),
    [
        ("n", "i % 32 == k", "5"),
        ("n", "(i + k) % 3 == 1 and i >= 30", "5"),
        ("n", "i > 3 * k", "i % 8"),
        ("i", "True", "63 - i"),
        ("i % 11", "True", "i // 9 + k"),
    ],
)
def test_sub_groups_run_in_each_iteration_what_any_work_item_does(outer, condition, inner):
    text = condition.replace("and", "&&").replace("True", "1")
    body = (
        f"int i = threadIdx.x; float v = x[0];\n#pragma unroll 1\nfor (int k = 0; k < {outer}; ++k) if ({text}) {{"
        f"\n#pragma unroll 1\nfor (int j = 0; j < {inner.replace('//', '/')}; ++j) v = v * v + 1.5f; }} x[1] = v;"
    )
    code, _ = built(body, "sm_90", groups=(1,))
    n = 37
    expected = 0
    for first in (0, 32):
        turns = set()
        for i in range(first, first + 32):
            for k in range(eval(outer, {"i": i, "n": n})):
                if eval(condition, {"i": i, "k": k}):
                    turns |= {(k, j) for j in range(eval(inner, {"i": i, "k": k}))}
        expected += len(turns)
    assert every_count(code, [None, n]).get("float32", 0) == expected


@needs_tools
@pytest.mark.parametrize(("work_group", "requests"), [((64, 4), 3538944), ((128, 8), 1802240), ((8, 32), 2359296)])
def test_accesses_count_where_a_predicate_lets_some_work_item_take_part(work_group, requests):
    # The tile of the convolution in tests/bench/gpu_counters.py; requests of global loads that an RTX 2080 Ti counted.
    body = (
        "__shared__ float t[BY + 14][BX + 14];\n#pragma unroll\nfor (int i = threadIdx.y; i < BY + 14; i += BY) {"
        "\n#pragma unroll\nfor (int j = threadIdx.x; j < BX + 14; j += BX)"
        "t[i][j] = x[(blockIdx.y * BY + i) * 4110 + blockIdx.x * BX + j]; } __syncthreads();"
        "float s = 0; for (int k = 0; k < BY + 14; ++k) s += t[k][(threadIdx.x * 7) % (BX + 14)];"
        "y[(blockIdx.y * BY + threadIdx.y) * 4096 + blockIdx.x * BX + threadIdx.x] = s;"
    )
    for name, side in zip(("BX", "BY"), work_group, strict=True):
        body = body.replace(name, str(side))
    groups = tuple(4096 // side for side in work_group)
    code, _ = built(body, "sm_75", groups, work_group, arguments="float *y, float *x")
    assert any(one.name == "LDG" and one.predicate for one in cubin.disassembled(code))
    found = every_count(code, [None, None])
    assert found["global_loads"] == found["local_stores"] == requests
    assert found["global_stores"] == 4096 * 4096 / 32


@needs_tools
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_100"])
def test_sides_of_work_groups_and_of_the_grid_are_known(architecture):
    body = (
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= gridDim.x * blockDim.x - 100) return; "
        "\n#pragma unroll 1\nfor (int k = 0; k < blockDim.y * gridDim.y; ++k) x[k * n + i] = k;"
    )
    code, _ = built(body, architecture, groups=(10, 7), work_group=(48, 2))
    passing = sum(
        any(48 * group + item % 48 < 380 for item in range(first, first + 32))
        for group in range(10)
        for first in (0, 32, 64)
    )
    assert every_count(code, [None, 5])["global_stores"] == 7 * passing * 14


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
    monkeypatch.setattr(cubin, "_tools", lambda: [str(tool)])
    monkeypatch.setattr(cubin, "_LIMIT_S", 0.1 if "while" in answer else 20.0)
    with pytest.raises(MissingExtraError, match=why):
        cubin.disassembled(GpuCode("sm_90", answer.encode(), "k", (1,), (1,)))


def test_the_newest_disassembler_that_knows_the_gpu_is_taken(monkeypatch, tmp_path):
    answer = 'echo "[{}, [{\\"function-name\\": \\"k\\", \\"sass-instructions\\": [{\\"opcode\\": \\"%s\\"}]}]]"'
    tools = {
        "nvidia/cuda_nvdisasm": answer % "OLD", "nvidia/cu9": answer % "NEWER",
        "nvidia/cu13": "echo SM70 is deprecated >&2; exit 1", "triton/backends/nvidia": answer % "OF_TRITON",
    }  # fmt: skip
    for folder, does in tools.items():
        (tmp_path / folder / "bin").mkdir(parents=True)
        tool = tmp_path / folder / "bin/nvdisasm"
        tool.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        tool.chmod(0o700)
    monkeypatch.setattr(cubin.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", "/bin:/usr/bin")

    def read(what):
        return cubin.disassembled(GpuCode("sm_70", what, "k", (1,), (1,)))[0].name

    assert read(b"first") == "NEWER"
    for folder in ("cu9", "cuda_nvdisasm"):
        (tmp_path / "nvidia" / folder / "bin/nvdisasm").unlink()
    assert read(b"second") == "OF_TRITON"
    (tmp_path / "triton/backends/nvidia/bin/nvdisasm").unlink()
    with pytest.raises(MissingExtraError, match=r"SM70 is deprecated.*pip install 'triton<3.7'"):
        read(b"third")


@needs_tools
def test_kernels_that_compile_to_the_same_code_have_one_digest():
    def digest(body, groups=(2,), lines=""):
        source = f'{lines}extern "C" __global__ void k(float *x, int n) {{ {body} }}'
        return GpuCode("sm_90", compile_cuda(source, "sm_90", ("-lineinfo",)).cubin, "k", groups, (64,)).digest

    same = digest("x[threadIdx.x] = 2.0f * x[threadIdx.x];")
    assert digest("const unsigned i = threadIdx.x; x[i] = x[i] + x[i];", lines="\n\n") == same
    # Another kernel beside it changes nothing; a table, a function that is called, and the launch do.
    other = 'extern "C" __global__ void other(float *x) { x[1] = 3.0f; }\n'
    assert digest("x[threadIdx.x] = 2.0f * x[threadIdx.x];", lines=other) == same
    table = "__constant__ float t[2] = {%s, 2};"
    called = "__device__ __noinline__ float f(float v) { return v * %s; }"
    others = [
        digest("x[threadIdx.x] = 3.0f * x[threadIdx.x];"),
        digest("x[threadIdx.x] = 2.0f * x[threadIdx.x];", (3,)),
        *(digest("x[threadIdx.x] = t[n];", lines=table % value) for value in (1, 2)),
        *(digest("x[threadIdx.x] = f(x[n]);", lines=called % value) for value in (5, 7)),
    ]
    assert len({same, *others}) == 7


@needs_tools
def test_gpus_that_the_compiler_does_not_know():
    with pytest.raises(MissingExtraError, match=r"not for sm_35; older GPUs need an older compiler"):
        compile_cuda("", "sm_35")


@pytest.mark.parametrize("operands", ["R2[R1+0x8]", "R2, [R1+0x8]", "R2.reuse , [R1+0x8]"])
def test_operands_without_their_comma_are_told_apart(operands):
    read = cubin._instruction(16, {"opcode": "LDL.LU.64", "operands": operands})
    assert (read.name, read.modifiers, read.operands) == ("LDL", ("LU", "64"), ("R2", "[R1+0x8]"))
    assert cubin._instruction(0, {"opcode": "MOV", "operands": "RZ, c[0x0][R2]"}).operands == ("RZ", "c[0x0][R2]")
