"""What LLVM's assembly text says of kernels for AMD's GPUs, and which compiler is taken."""

from dataclasses import replace

import pytest

from perflex.compiled import amd
from perflex.compiled.amd import AmdCode, PrivateMoves, facts_of
from perflex.errors import EnvironmentSetupError

# Of clang 19.1.7 for gfx906, without most of its instructions and remarks.
TILES = """\
	.text
	.amdgcn_target "amdgcn-amd-amdhsa--gfx906"
	.globl	tiles
	.type	tiles,@function
tiles:                                  ; @tiles
; %bb.0:
	s_load_dword s9, s[4:5], 0x8
	buffer_store_dword v0, off, s[0:3], 0
	s_cbranch_scc1 .LBB0_5
; %bb.1:
	v_lshlrev_b32_e32 v2, 2, v0
.LBB0_2:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB0_3 Depth 2
	global_load_dword v4, v[4:5], off
	buffer_load_dword v5, off, s[0:3], 0 glc
	ds_write_b32 v5, v4
	s_barrier
.LBB0_3:                                ;   Parent Loop BB0_2 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
	ds_read_b32 v4, v4
	s_cbranch_scc0 .LBB0_3
; %bb.4:                                ;   in Loop: Header=BB0_2 Depth=1
	s_barrier
	s_cbranch_scc0 .LBB0_2
.LBB0_5:
	global_store_dword v[2:3], v1, off
	s_endpgm
	.section	.rodata,"a",@progbits
	.amdhsa_kernel tiles
		.amdhsa_next_free_vgpr 6
	.end_amdhsa_kernel
	.text
.Lfunc_end0:
	.size	tiles, .Lfunc_end0-tiles
	.ident	"Debian clang version 19.1.7 (3~deb12u1)"
	.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .address_space:  global
        .name:           x
        .offset:         0
        .size:           8
    .group_segment_fixed_size: 512
    .name:           tiles
    .private_segment_fixed_size: 8
    .reqd_workgroup_size:
      - 128
      - 1
      - 1
    .sgpr_count:     22
    .sgpr_spill_count: 0
    .uses_dynamic_stack: false
    .vgpr_count:     6
    .vgpr_spill_count: 1
    .wavefront_size: 64
amdhsa.target:   amdgcn-amd-amdhsa--gfx906
amdhsa.version:
  - 1
  - 2
...
	.end_amdgpu_metadata
"""


def moves(text):
    (found,) = facts_of(text)
    return found.moves


def test_metadata_and_private_memory_are_read():
    (found,) = facts_of(TILES)
    assert (found.name, found.registers, found.private_bytes) == ("tiles", 6, 8)
    assert (found.spill_bytes, found.local_bytes) == (4, 512)
    # Stored before the loop, loaded in each of its iterations, in which two barriers stand.
    assert found.moves == PrivateMoves(stores=1, looped_loads=1, looped_barriers=2)
    assert found.moves.words(20) == (10, 1)
    (found,) = facts_of(TILES.replace(".uses_dynamic_stack: false", ".uses_dynamic_stack: true"))
    assert found.private_bytes is None


def test_instructions_move_as_many_words_as_their_names_say():
    store = "buffer_store_dword v0, off"
    assert moves(TILES.replace(store, "scratch_store_b128 off, v[0:3]")).stores == 4
    assert moves(TILES.replace(store, "buffer_store_dwordx2 v[0:1], off")).stores == 2
    assert moves(TILES.replace(store, "buffer_store_short v0, off")).stores == 1
    assert moves(TILES.replace(store, "global_store_dword v0, off")).stores == 0


def test_what_loops_without_barriers_or_calls_move_is_not_complete():
    inner = "ds_read_b32 v4, v4"
    assert not moves(TILES.replace(inner, "scratch_load_b32 v4, off")).complete
    assert not moves(TILES.replace("s_endpgm", "s_swappc_b64 s[30:31], s[4:5]")).complete
    # Of two loops with barriers nobody knows which of them how many are met in.
    assert not moves(TILES.replace(inner, f"{inner}\n\ts_barrier")).complete
    # Without private memory it does not matter.
    assert moves(
        TILES.replace("\tbuffer_load_dword v5, off, s[0:3], 0 glc\n", "").replace("s_barrier", "s_nop")
    ).complete


def test_equal_code_has_one_digest_whatever_its_names():
    def digest(text, **more):
        (facts,) = facts_of(text)
        return replace(AmdCode("gfx906", facts, (4,), (128,)), **more).digest

    assert digest(TILES) == digest(TILES.replace("tiles", "other").replace("BB0_", "BB7_"))
    assert digest(TILES) != digest(TILES.replace("v_lshlrev_b32_e32 v2, 2", "v_lshlrev_b32_e32 v2, 3"))
    assert digest(TILES) != digest(TILES.replace(".vgpr_count:     6", ".vgpr_count:     7"))
    assert digest(TILES) != digest(TILES, groups=(5,))
    assert digest(TILES) != digest(TILES, architecture="gfx90a")
    # A function that is not called is none of it.
    assert digest(TILES) == digest(TILES.replace("\t.text\n", "\t.text\nhelp: ; @help\n\ts_nop\n.Lfunc_end7:\n", 1))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (".amdgpu_metadata", ".metadata", "no .amdgpu_metadata"),
        (".vgpr_count:", ".registers:", "no .vgpr_count"),
        ("tiles:  ", "other:  ", "no function tiles"),
    ],
)
def test_other_text_is_no_zero(before, after, message):
    with pytest.raises(ValueError, match=message):
        facts_of(TILES.replace(before, after))


def test_without_a_compiler_the_cure_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("HIP_CLANG_PATH", str(tmp_path))
    amd.amd_compiler.cache_clear()
    with pytest.raises(EnvironmentSetupError, match=r"no clang of version 17 or newer is here; install ROCm, or clang"):
        amd.amd_compiler("gfx906")
    # One that says it knows the GPU, without libraries.
    tool = tmp_path / "clang"
    tool.write_text("")
    tool.chmod(0o755)
    told = "clang version 19.1.7 (x)\n gfx906 gfx90a"
    monkeypatch.setattr(amd, "_said", lambda *_: told)
    with pytest.raises(EnvironmentSetupError, match=r"19\.1\.7 \(x\) makes no code for gfx942"):
        amd.amd_compiler("gfx942")
    monkeypatch.setenv("HIP_DEVICE_LIB_PATH", str(tmp_path))
    with pytest.raises(EnvironmentSetupError, match=r"lacks ROCm's libraries for devices \(ocml\.bc\)"):
        amd.amd_compiler("gfx906")
    (tmp_path / "ocml.bc").write_bytes(b"four")
    found = amd.amd_compiler("gfx906")
    assert (found.path, found.libraries, found.version) == (
        str(tool),
        tmp_path,
        "clang version 19.1.7 (x) with libraries of 4 bytes",
    )
    amd.amd_compiler.cache_clear()
