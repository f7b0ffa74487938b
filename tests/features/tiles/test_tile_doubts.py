"""What no prediction was judged with is told."""

from __future__ import annotations

import pytest

from perflex import load_machine
from perflex.features.from_triton.slices import techniques
from perflex.features.from_triton.ttir import parse_ttir
from perflex.features.tiles.costs import TileCosts
from perflex.features.tiles.doubts import tile_doubts
from perflex.features.tiles.products import Matrices, ProductKernel
from support.triton_data import code_of, launch_of, stored


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("matmul", ""),
        ("matmul_even", ""),
        ("descriptor_matmul", "tensor descriptors"),
        ("matmul_fp8", "products of f8E5M2"),
        ("scaled_matmul", "products of i8"),
        ("int4_matmul", "computed operands"),
        ("split_k", "atomic updates"),
        ("persistent_matmul", "a loop around its products"),
        ("grouped_matmul", "addresses or conditions that arrays decide"),
        ("fused_moe", "addresses or conditions that arrays decide"),
        ("bmm_even", "as batches and parts of k"),
        ("attention", "products that follow one another"),
        ("chunk_state", "stores in loops"),
        ("conv2d_even", "addresses with divisions in the loop"),
        ("softmax", "no products"),
    ],
)
def test_what_is_unlike_plain_products_is_named(name: str, what: str) -> None:
    case = stored(name)
    for texts in case["ttir"].values():
        text = texts.get("90", texts["80"])
        found = tile_doubts(TileCosts(code_of(case, text).program(launch_of(case)), load_machine("A100-80GB")))
        assert len(found) == bool(what)
        assert all("plain products of matrices; this kernel has" in one and what in one for one in found)


def test_specialised_warps_are_named() -> None:
    kernels = stored("more_operations")["ttir"]
    texts = [text for kinds in kernels.values() for one in kinds.values() for text in one.values()]
    special = [text for text in texts if "tt.warp_specialize" in text]
    assert special
    assert all("specialised warps" in techniques(parse_ttir(text)[1]) for text in special)


def product(tile: tuple[int, int, int] = (128, 128, 64), warps: int = 8, dtype: str = "f16") -> ProductKernel:
    return ProductKernel(Matrices(4096, 4096, 4096, dtype, (4096, 1), (4096, 1)), tile, warps, 3)


@pytest.mark.parametrize(
    ("kernel", "machine", "what"),
    [
        (product(), "A100-80GB", []),
        (product(), "H100-SXM", ["with none of H100-SXM"]),
        (product(), "B200", ["B200 is of another architecture"]),
        (product((256, 128, 64), 4), "A100-80GB", ["spilt registers"]),
        (product(dtype="f8E4M3FN"), "H200", ["with none of H200", "products of f8E4M3FN"]),
    ],
)
def test_cards_and_spilt_registers(kernel: ProductKernel, machine: str, what: list[str]) -> None:
    costs = TileCosts(kernel.program({}), load_machine(machine))
    found = tile_doubts(costs)
    assert len(found) == len(what)
    assert all(word in text for word, text in zip(what, found, strict=True))
    # Times of the card itself settle that there are none of it.
    assert len(tile_doubts(costs, timed=True)) == sum("with none of" not in word for word in what)
