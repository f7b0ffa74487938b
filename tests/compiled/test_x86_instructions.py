"""What instructions of x86-64 do, as Intel's manual says, and how often loops of known code run."""

import pytest

from perflex.compiled.code_values import block_facts, trip_count
from perflex.compiled.control_flow import Totals, UnknownFlowError, block_executions, blocks_of, loops_of
from perflex.compiled.decoding import disassembled
from perflex.compiled.elf import Function
from perflex.compiled.values import Pointer, Propagation

ENTRY = {"rsp": Pointer("frame"), "rdi": Pointer("global x")}


LOADED = {"loads": 1, "global_load_bytes": 4}
STORED = {"stores": 1, "global_store_bytes": 4}


def blocks(code):
    return blocks_of(disassembled(Function("f", 0, bytes.fromhex(code))))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f73c24", {"loads": 1, "spills": 1}),  # idiv dword ptr [rsp]
        ("0f180f", {}),  # prefetcht0 [rdi]
        ("f00fb10f", LOADED | STORED),  # lock cmpxchg [rdi], ecx
        ("830701", LOADED | STORED),  # add dword ptr [rdi], 1
        ("833f01", LOADED),  # cmp dword ptr [rdi], 1
        ("62f17c491107", {"stores": 1, "global_store_bytes": 64}),  # vmovups [rdi]{k1}, zmm0
        ("62f17458c20700", LOADED),  # vcmpps k0, zmm1, [rdi]{1to16}, 0
        ("62f27d49a2048f", {"scatters": 16, "global_store_bytes": 64}),  # vscatterdps [rdi + 4 * zmm1]{k1}, zmm0
        ("c4e379160701", STORED | {"inserts": 1, "shuffles": 1}),  # vpextrd [rdi], xmm0, 1
        ("488d07", {}),  # lea rax, [rdi]
        ("b906000000f348ab", {"stores": 6, "global_store_bytes": 48}),  # mov ecx, 6; rep stosq
    ],
)
def test_accesses(code, expected):
    found = blocks(code)
    counts = block_facts(found[0], 0, Propagation(found, ENTRY, {})).counts
    assert {name: count for name, count in counts.items() if count and name != "instructions"} == expected


MASK = (1 << 64) - 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        # mov eax, 100; mov ecx, 7; cdq; idiv ecx
        ("b864000000b90700000099f7f9", {"rax": 14, "rdx": 2, "rcx": 7}),
        # mov eax, -100; mov ecx, 7; cdq; idiv ecx
        ("b89cffffffb90700000099f7f9", {"rax": -14 & 0xFFFFFFFF, "rdx": -2 & 0xFFFFFFFF}),
        # mov eax, 100; mov ecx, 7; xor edx, edx; div ecx
        ("b864000000b90700000031d2f7f1", {"rax": 14, "rdx": 2}),
        # mov rax, -100; mov rcx, -7; cqo; idiv rcx
        ("48c7c09cffffff48c7c1f9ffffff489948f7f9", {"rax": 14, "rdx": -2 & MASK}),
        # mov eax, -2; mov ecx, 3; mul ecx
        ("b8feffffffb903000000f7e1", {"rax": -6 & 0xFFFFFFFF, "rdx": 2}),
        # mov eax, -2; mov ecx, 3; imul ecx
        ("b8feffffffb903000000f7e9", {"rax": -6 & 0xFFFFFFFF, "rdx": 0xFFFFFFFF}),
        # mov rax, -1; mov rcx, rax; mul rcx
        ("48c7c0ffffffff4889c148f7e1", {"rax": 1, "rdx": MASK - 1}),
        # idiv of what is not known: mov eax, 100; cdq; idiv esi
        ("b86400000099f7fe", {"rax": None, "rdx": None}),
        # mov eax, 1; mov edx, 2; xchg eax, edx
        ("b801000000ba0200000092", {"rax": 2, "rdx": 1}),
        # mov eax, -5; cdqe
        ("b8fbffffff4898", {"rax": -5 & MASK}),
        # mov eax, 0x1234; mov al, 0x56
        ("b834120000b056", {"rax": 0x1256}),
        # mov eax, 0x1234; mov ah, 0x56
        ("b834120000b456", {"rax": None}),
        # mov eax, 3; cmp eax, 4; setl al
        ("b80300000083f8040f9cc0", {"rax": 1}),
        # mov ecx, 3; mov eax, 5; shlx eax, eax, ecx
        ("b903000000b805000000c4e271f7c0", {"rax": 40}),
        # mov eax, 5; push rax; cpuid
        ("b805000000500fa2", {"rax": None, "rbx": None, "rsp": Pointer("frame", -8)}),
        # mov qword ptr [rsp - 8], 5; mov dword ptr [rsp - 4], 7; mov rax, [rsp - 8]
        ("48c74424f805000000c74424fc07000000488b4424f8", {"rax": None}),
        # mov qword ptr [rsp - 8], 5; mov eax, [rsp - 8]
        ("48c74424f8050000008b4424f8", {"rax": 5}),
        # mov eax, 5; lea rdi, [rsp + 8]; mov [rsp + 8], eax; call 0xf; mov eax, [rsp + 8]
        ("b805000000488d7c240889442408e8fbffffff8b442408", {"rax": None}),
        # mov eax, 1; mov ecx, 2; lock cmpxchg [rdi], ecx
        ("b801000000b902000000f00fb10f", {"rax": None, "rcx": 2}),
        # Shifts by 0 keep the flags. mov eax, 1; mov ecx, 32; mov ebx, 0; xor edx, edx; shl eax, cl; sete bl
        ("b801000000b920000000bb0000000031d2d3e00f94c3", {"rax": 1, "rbx": 1}),
        # mov ecx, esi; mov eax, 1; mov ebx, 0; xor edx, edx; shl eax, cl; sete bl
        ("89f1b801000000bb0000000031d2d3e00f94c3", {"rax": None, "rbx": None}),
        # The sign is not that of the true result: mov eax, 0x40000000; mov ebx, 0; shl eax, 1; setl bl
        ("b800000040bb00000000d1e00f9cc3", {"rax": 1 << 31, "rbx": None}),
        # mov eax, 4; mov ebx, 0; shr eax, 3; sete bl
        ("b804000000bb00000000c1e8030f94c3", {"rax": 0, "rbx": 1}),
    ],
)
def test_results(code, expected):
    found = Propagation(blocks(code), ENTRY, {}).after(0).values
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("code", "trips"),
    [
        # mov eax, 100; mov ecx, 7; cdq; idiv ecx; xor edx, edx; loop: inc edx; cmp edx, eax; jl loop; ret
        ("b864000000b90700000099f7f931d2ffc239c27cfac3", 14),
        # mov ecx, 9; xor edx, edx; loop: add edx, 2; cmp ecx, edx; jg loop; ret
        ("b90900000031d283c20239d17ff9c3", 5),
        # xor eax, eax; mov ecx, 3000000000; loop: add eax, 1000; cmp eax, ecx; jb loop; ret
        ("31c0b9005ed0b205e803000039c872f7c3", 3_000_000),
        # mov dword ptr [rsp - 8], 0; loop: inc dword ptr [rsp - 8]; cmp dword ptr [rsp - 8], 12; jne loop; ret
        ("c74424f800000000ff4424f8837c24f80c75f5c3", 12),
        # mov eax, 10; loop: sub eax, 3; jae loop; ret
        ("b80a00000083e80373fbc3", 4),
        # mov eax, 10; loop: dec eax; jns loop; ret
        ("b80a000000ffc879fcc3", 11),
        # lea rax, [rdi + 64]; mov rcx, rdi; loop: add rcx, 4; cmp rcx, rax; jne loop; ret
        ("488d47404889f94883c1044839c175f7c3", 16),
        # mov eax, 8; loop: lea eax, [rax - 1]; test eax, eax; jne loop; ret
        ("b8080000008d40ff85c075f9c3", 8),
        # Data decide: xor eax, eax; loop: cmp dword ptr [rdi], 0; je over; inc eax; over: cmp eax, 10; jl loop; ret
        ("31c0833f007402ffc083f80a7cf4c3", None),
        # Data may leave it: xor eax, eax; loop: cmp dword ptr [rdi], 0; je out; inc eax; cmp eax, 10; jl loop; out: ret
        ("31c0833f007407ffc083f80a7cf4c3", None),
        # Data decide: mov eax, 10; loop: dec eax; add dword ptr [rdi], 1; jne loop; ret
        ("b80a000000ffc883070175f9c3", None),
    ],
)
def test_trip_counts(code, trips):
    found = blocks(code)
    (loop,) = [one for one in loops_of(found) if one.depth == 1]
    assert trip_count(loop, found, Propagation(found, ENTRY, {})) == trips


@pytest.mark.parametrize(
    ("code", "why"),
    [
        # A switch. cmp edi, 5; ja over; mov ecx, edi; lea rax, [rip]; movsxd rcx, dword ptr [rax + 4 * rcx];
        # add rcx, rax; jmp rcx; over: ret
        ("83ff05771289f9488d050000000048630c884801c1ffe1c3", "goes on where a table in memory says"),
        # Bytes that are no instruction.
        ("06c3", "is none that is known"),
        # mov rcx, [rdi]; rep stosq; ret
        ("488b0ff348abc3", "how often stosq at 0x3 is repeated"),
        # A loop without an end: jmp 0
        ("ebfe", "no numbers of executions fit the control flow"),
    ],
)
def test_what_does_not_follow_from_the_code_is_refused(code, why):
    with pytest.raises(UnknownFlowError, match=why):
        executions(blocks(code))


def test_what_is_never_reached_refuses_nothing():
    # mov eax, 1; test eax, eax; jne over; mov rcx, [rdi]; rep stosq; over: ret
    runs, _ = executions(blocks("b80100000085c07506488b0ff348abc3"))
    assert runs.tolist() == [1, 0, 1]


def executions(found):
    known = Propagation(found, ENTRY, {})
    facts = [block_facts(one, number, known) for number, one in enumerate(found)]
    return block_executions(found, known.edges, facts, [], Totals({}, {}))
