"""Which function a call in machine code calls, told by symbols of three makers of vector functions."""

import struct

import pytest

from perflex.compiled.code_values import block_facts, callee, with_callees
from perflex.compiled.control_flow import blocks_of
from perflex.compiled.decoding import disassembled
from perflex.compiled.elf import Function, elf_object
from perflex.compiled.values import Propagation


@pytest.mark.parametrize(
    ("symbol", "kind", "vectors"),
    [
        ("__ocl_svml_z0_expf16", "exp", 1),
        ("__ocl_svml_z1_exp16", "exp", 2),
        ("__ocl_svml_z1_exp2f16", "exp", 1),
        ("__ocl_svml_z1_log10f16", "log", 1),
        ("__ocl_svml_z1_sincosf16", "trig", 1),
        ("__ocl_svml_z1_pow16", "pow", 2),
        ("__ocl_svml_z1_rsqrtf16", "root", 1),
        ("__ocl_svml_z1_irem16", "integer", 1),
        ("_ZGVeN16v_expf", "exp", 1),
        ("_ZGVeN16v_sin", "trig", 2),
        ("_Z7_cl_sind", "trig", 1),
        ("_Z20__pocl_argReductionSPU9CLprivatefS0_f", "trig", 1),
        ("_Z28__pocl_remainder_piby2_largedPU9CLprivatedS0_PU9CLprivatel", "trig", 1),
        ("_Z12__pocl_expep7v2float", "pow", 1),
        ("_Z5ldexpfi", "other", 1),
        ("__ocl_svml_z0_frexpf16", "other", 1),
        ("_Z4logbf", "other", 1),
        ("_Z5ilogbf", "other", 1),
        ("_Z3logf", "log", 1),
        ("_Z5log1pf", "log", 1),
        ("printf", "other", 1),
        ("", "other", 1),
    ],
)
def test_symbols(symbol, kind, vectors):
    assert callee(symbol) == (kind, vectors)


def test_jumps_out_of_the_function_are_calls():
    # movabs rax, 0; jmp rax
    function = Function("f", 0, bytes.fromhex("48b80000000000000000ffe0"), ((2, "expf"),))
    (block,) = blocks_of(with_callees(disassembled(function), dict(function.symbols)))
    assert block_facts(block, 0, Propagation([block], {}, {})).counts["calls_exp"] == 1


# movabs rax, 0; call rax; movabs rbx, 0; call rax; call rbx; call 0x40; call rcx; ret
CODE = bytes.fromhex("48b80000000000000000ffd048bb0000000000000000ffd0ffd3e821000000ffd1c3")


def test_calls_by_register_and_by_address():
    function = Function("f", 0, CODE, ((2, "first"), (14, "second"), (64, "third")))
    calls = [one.symbol for one in with_callees(disassembled(function), dict(function.symbols)) if one.flow == "call"]
    assert calls == ["first", "first", "second", "third", ""]


def test_relocations_of_an_object_name_what_is_called():
    names = b"\0f\0exp\0"
    sections = b"\0.text\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 18, 0, 1, 0, len(CODE)) + struct.pack("<IBBHQQ", 3, 16, 0, 0, 0, 0)
    relocations = struct.pack("<QQq", 2, (2 << 32) | 1, 0) + struct.pack("<QQq", 24, (0 << 32) | 1, 0)
    contents = [b"", CODE, symbols, names, relocations, sections]
    kinds = [(0, 0, 0), (1, 0, 0), (2, 3, 0), (3, 0, 0), (4, 2, 1), (3, 0, 0)]
    body, headers = b"", b""
    for content, (kind, link, subject) in zip(contents, kinds, strict=True):
        headers += struct.pack("<IIQQQQIIQQ", 1, kind, 0, 0, 64 + len(body), len(content), link, subject, 1, 0)
        body += content
    start = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 1, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 6, 5
    )
    found = elf_object(start + body + headers)
    assert found is not None
    (function,) = found.functions()
    assert function == Function("f", 0, CODE, ((0, "f"), (2, "exp")))
