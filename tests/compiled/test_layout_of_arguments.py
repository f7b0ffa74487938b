"""Runtimes that pass arguments in another way than is known are refused: their code is not what it seems."""

from types import SimpleNamespace

import pytest

from perflex.compiled import layout
from perflex.compiled.elf import Function
from perflex.compiled.program import CompiledProgram
from perflex.errors import MeasurementError
from perflex.timing.launch import opencl_code

# The kernel in perflex/compiled/layout.py as Intel's runtime 2026.2 compiles it.
COMPILED = (
    "f30f1efa554889e5534883e4804881ec800000004889e3488b4e1831d2488b078b77084c8b471041b9800100004885c94c0f45ca4889e24c29ca"
    "4883e2804885c94889d4480f45d14c8982800000004889304c894008488b8fc000000048894810488b8fc800000048894818488b8fd000000048"
    "894820488d65f85b5dc3"
)


@pytest.mark.parametrize(
    ("known", "other", "expected"),
    [
        ("", "", True),
        ("8b8fc0000000", "8b8fc8000000", False),  # the first side of work-groups: [rdi + 192], [rdi + 200]
        ("8b8fd0000000", "8b8fc8000000", False),
        ("8b7708", "8b770c", False),  # the first number: [rdi + 8], [rdi + 12]
        ("8b4710", "8b4718", False),
        ("8b4e18", "8b4e20", False),  # local memory: [rsi + 24], [rsi + 32]
    ],
)
def test_what_is_passed_is_looked_for_where_it_is(known, other, expected):
    code = bytes.fromhex(COMPILED.replace(known, other, 1) if known else COMPILED)
    program = CompiledProgram(layout.NAME, "intel", (Function(layout.NAME, 0, code),), layout.ARGUMENTS)
    assert layout.is_as_expected(program, (67, 5, 3)) is expected


def test_other_code_is_no_known_layout():
    for code in ("c3", "06c3"):  # ret; no instruction
        program = CompiledProgram(
            layout.NAME, "intel", (Function(layout.NAME, 0, bytes.fromhex(code)),), layout.ARGUMENTS
        )
        assert not layout.is_as_expected(program, (67, 5, 3))
    assert not layout.is_as_expected(CompiledProgram(layout.NAME, "intel", (), layout.ARGUMENTS), (67, 5, 3))


def test_a_runtime_of_another_layout_is_refused(monkeypatch):
    monkeypatch.setattr(opencl_code, "runtime_of", lambda _: "intel")
    monkeypatch.setattr(opencl_code, "_layout_is_known", lambda *_: False)
    one = SimpleNamespace(work_group=(32,), items=(1024,))
    request = SimpleNamespace(label="kernel", programs=(one,))
    program = SimpleNamespace(get_info=lambda _: [b""])
    with pytest.raises(MeasurementError, match="in another way than perflex knows; update perflex"):
        opencl_code.programs_in(program, "device", request)
