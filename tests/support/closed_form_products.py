"""Products in closed form in place of Triton's code and compiler, which are not needed then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from perflex.features.tiles.products import Matrices, ProductKernel
from perflex.features.tiles.tile_program import TileResources

if TYPE_CHECKING:
    from collections.abc import Mapping


def product(n: int, constants: Mapping[str, int], warps: int = 4, stages: int = 3) -> ProductKernel:
    matrices = Matrices(n, n, n, "f16", (n, 1), (n, 1))
    return ProductKernel(matrices, (constants["M"], constants["N"], constants["K"]), warps, stages)


def compiled_code(told: Mapping[str, Any]) -> TileResources:
    """Stand for Triton's compiler: eight warps take more shared memory than there is."""
    return TileResources(registers=200, local_bytes=100_000 if told["num_warps"] < 8 else 1 << 20)


def launched(kernel: Any) -> tuple[Any, None]:
    """Return what a `TritonKernel` compiles, of square matrices with n rows."""

    def program(*_: Any, warps: int, stages: int, **__: Any) -> Any:
        return product(kernel.launch.arguments["n"], kernel.configuration.constants, warps, stages).program({})

    return SimpleNamespace(code=lambda: SimpleNamespace(program=program), resources=compiled_code), None
