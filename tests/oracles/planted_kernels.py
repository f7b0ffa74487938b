"""GPU kernels with exactly one planted flaw each, and kernels without a flaw: the truth for findings in kernels.

Numbers are derived by hand from the texts and from the machines' data sheets; `test_planted_kernels` enumerates them.
"""

import re
from dataclasses import dataclass, field

from . import planted_sources as texts
from .planted_sources import opencl

# What `found` and `mended` number, by flaw.
MEANINGS = {
    "coalescing": "sectors of 32 bytes per sub-group request of the access",
    "bank-conflicts": "wavefronts per sub-group request of the access, on average over requests",
    "divergence": "active share of a sub-group in the first way of the line's condition, where any work-item enters it",
    "float64": "operations in float64 of a work-item in the line as written, all iterations, without conversions",
    "few-groups": "work-groups; mended: after work-groups are halved until there is one for each compute unit",
    "last-wave": "work-groups of the busiest compute unit over their mean; mended: halved until it is below 1.1",
    "group-starts": "work-groups; mended: with 256 work-items in each",
    "repeated-loads": "loads by work-items of the access per element and work-group",
    "launch-bound": "one launch; nothing mends it",
    "occupancy": "resident work-groups per compute unit; mended: one more",
}
COMPUTE_UNITS = {
    "A100-40GB": 108, "V100": 80, "RTX-3090": 82, "H100-SXM": 132, "RTX-2080-Ti": 68, "W7800": 70,
    "A100-80GB": 108, "RTX-4090": 128, "L40S": 142, "H100-PCIe": 114, "T4": 40,
}  # fmt: skip
# Resident work-items, registers in each of four parts, bytes of local memory and reserved ones, from the data sheets.
UNIT = {
    "A100-40GB": (2048, 16384, 164 * 1024, 1024),
    "V100": (2048, 16384, 96 * 1024, 0),
    "RTX-3090": (1536, 16384, 100 * 1024, 1024),
    "H100-SXM": (2048, 16384, 228 * 1024, 1024),
    "RTX-2080-Ti": (1024, 16384, 64 * 1024, 0),
    "A100-80GB": (2048, 16384, 164 * 1024, 1024),
    "H100-PCIe": (2048, 16384, 228 * 1024, 1024),
    "RTX-4090": (1536, 16384, 100 * 1024, 1024),
    "T4": (1024, 16384, 64 * 1024, 0),
}


@dataclass(frozen=True, kw_only=True)
class Clean:
    """A kernel without a flaw: its text, launch, sizes, machine, and registers of a work-item (None if unknown)."""

    name: str
    kind: str
    source: str
    machine: str
    sizes: dict[str, int]
    groups: tuple[str, ...]
    local: tuple[int, ...] = (256,)
    registers: int | None = None

    @property
    def function(self) -> str:
        return function_of(self.source)


@dataclass(frozen=True, kw_only=True)
class Planted(Clean):
    """A kernel with one flaw, and the mended kernel; where nothing mends it, both of its fields are None.

    `access` is the text of the flaw: an access, a condition, an expression or a declaration; of a launch it is
    the kernel's name. `over` has values of the loops' integers over which the number is the mean, or the sum (float64).
    """

    flaw: str
    access: str
    found: float
    mended: float | None
    mended_source: str | None
    mended_access: str
    mended_groups: tuple[str, ...]
    mended_local: tuple[int, ...]
    mended_registers: int | None = None
    over: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def line(self) -> int:
        """Number of the flaw's line in `source`, from 1."""
        return line_of(self.source, self.access)


def function_of(text: str) -> str:
    return re.search(r"void (\w+)\(", text)[1]


def line_of(text: str, access: str) -> int:
    (line,) = (number for number, line in enumerate(text.splitlines(), 1) if access in line)
    return line


def planted(flaw, kind, name, clean, *edits, **fields):
    """Plant a flaw with edits into a clean text; without them ``source`` is the flawed text."""
    source = fields.pop("source", clean)
    for before, after in edits:
        assert before in source, (name, before)
        source = source.replace(before, after)
    usual = {
        "access": f"void {function_of(source)}(",
        "mended_access": fields.get("access", ""),
        "mended_source": clean,
        "mended_groups": fields["groups"],
        "mended_local": fields.get("local", (256,)),
    }
    return Planted(flaw=flaw, kind=kind, name=f"{flaw}, {kind}: {name}", source=source, **(usual | fields))


_LINE = {"groups": ("n/256",), "local": (256,)}
_ROWS = {"groups": ("n/32", "n/8"), "local": (32, 8)}
_SQUARE = {"groups": ("n/32", "n/32"), "local": (32, 32)}
_TILES = {"groups": ("n/32", "n/32"), "local": (32, 8)}
_SMALL_TILES = {"groups": ("n/16", "n/16"), "local": (16, 16)}
_THOUSANDS = {"groups": ("n/1024",), "local": (1024,)}

COALESCING = [
    planted("coalescing", "stream", "axes exchanged", texts.SCALE,
            ("y[i * n + j] = 2.0f * x[i * n + j]", "y[j * n + i] = 2.0f * x[j * n + i]"), **_ROWS,
            sizes={"n": 8192}, machine="A100-40GB", access="x[j * n + i]", mended_access="x[i * n + j]",
            found=32, mended=4),
    planted("coalescing", "stream", "axes exchanged in OpenCL C", texts.COPY_CL,
            ("y[i * n + j] = x[i * n + j]", "y[j * n + i] = x[j * n + i]"), **_ROWS,
            sizes={"n": 8192}, machine="RTX-3090", access="x[j * n + i]", mended_access="x[i * n + j]",
            found=32, mended=4),
    planted("coalescing", "stream", "two fields of six", texts.NORMS, ("p[i]", "p[6 * i]"),
            ("p[n + i]", "p[6 * i + 1]"), **_LINE, sizes={"n": 2**25}, machine="V100", access="p[6 * i + 1]",
            mended_access="p[n + i]", found=24, mended=4),
    planted("coalescing", "stream", "one field of eight", texts.FIELD, ("p[3 * n + i]", "p[8 * i + 3]"), **_LINE,
            sizes={"n": 2**24}, machine="A100-40GB", access="p[8 * i + 3]", mended_access="p[3 * n + i]",
            found=32, mended=4),
    planted("coalescing", "stream", "each fourth element", texts.SHIFT_CL, ("x[i]", "x[4 * i]"), **_LINE,
            sizes={"n": 2**25}, machine="RTX-2080-Ti", access="x[4 * i]", mended_access="x[i]", found=16, mended=4),
    planted("coalescing", "reduction", "a chunk for each work-item", texts.CHUNKS,
            ("k * 256 + t]", "t * 16 + k]"), groups=("n/4096",), sizes={"n": 2**27}, machine="A100-40GB",
            access="x[blockIdx.x * 4096 + t * 16 + k]", mended_access="x[blockIdx.x * 4096 + k * 256 + t]",
            over={"k": tuple(range(16))}, found=32, mended=4),
    planted("coalescing", "reduction", "a row for each work-item", texts.COLUMN_SUMS, ("x[k * n + i]", "x[i * m + k]"),
            **_LINE, sizes={"n": 2**20, "m": 64}, machine="H100-SXM", access="x[i * m + k]",
            mended_access="x[k * n + i]", over={"k": tuple(range(64))}, found=32, mended=4),
    planted("coalescing", "transpose", "loads by column", texts.TRANSPOSE, source=texts.NAIVE_TRANSPOSE, **_TILES,
            sizes={"n": 8192}, machine="V100", access="x[i * n + j]",
            mended_access="x[(by + ty + r) * n + bx + tx]", over={"r": (0, 8, 16, 24)}, found=32, mended=4),
    planted("coalescing", "transpose", "stores by column", texts.TRANSPOSE,
            ("x[i * n + j]", "x[j * n + i]"), ("y[j * n + i]", "y[i * n + j]"), source=texts.NAIVE_TRANSPOSE,
            **_TILES, sizes={"n": 8192}, machine="A100-40GB", access="y[i * n + j]",
            mended_access="y[(bx + ty + r) * n + by + tx]", over={"r": (0, 8, 16, 24)}, found=32, mended=4),
    planted("coalescing", "stencil", "axes exchanged", texts.VERTICAL,
            ("int j = blockIdx.x * blockDim.x + threadIdx.x", "int i = blockIdx.x * blockDim.x + threadIdx.x"),
            ("int i = blockIdx.y * blockDim.y + threadIdx.y", "int j = blockIdx.y * blockDim.y + threadIdx.y"),
            **_ROWS, sizes={"n": 8192}, machine="RTX-3090", access="x[(i + 1) * n + j]", found=32, mended=4),
    planted("coalescing", "matmul", "outer product by column", texts.RANK_ONE,
            ("c[blockIdx.y * n + j]", "c[j * n + blockIdx.y]"), groups=("n/256", "n"), local=(256, 1),
            sizes={"n": 8192}, machine="V100", access="c[j * n + blockIdx.y]",
            mended_access="c[blockIdx.y * n + j]", found=32, mended=4),
]  # fmt: skip

_STEPS = {"s": (1, 2, 4, 8, 16, 32, 64, 128)}
BANK_CONFLICTS = [
    planted("bank-conflicts", "transpose", "columns of a tile", texts.TRANSPOSE, ("[33]", "[32]"), **_TILES,
            sizes={"n": 8192}, machine="A100-40GB", access="tile[tx][ty + r]", over={"r": (0, 8, 16, 24)},
            found=32, mended=1),
    planted("bank-conflicts", "transpose", "columns of a tile in OpenCL C", opencl(texts.TRANSPOSE), ("[33]", "[32]"),
            **_TILES, sizes={"n": 8192}, machine="H100-SXM", access="tile[tx][ty + r]",
            over={"r": (0, 8, 16, 24)}, found=32, mended=1),
    planted("bank-conflicts", "matmul", "rows of a transposed tile", texts.TURNED_MATMUL, ("[33]", "[32]"),
            **_SQUARE, sizes={"n": 4096}, machine="A100-40GB", access="sb[tx][k]", over={"k": (0, 1, 31)},
            found=32, mended=1),
    planted("bank-conflicts", "matmul", "rows of a small transposed tile", texts.TURNED_MATMUL_16, ("[18]", "[16]"),
            **_SMALL_TILES, sizes={"n": 4096}, machine="RTX-3090", access="sb[tx][k]", over={"k": (0, 1, 15)},
            found=8, mended=1),
    planted("bank-conflicts", "reduction", "a row for each work-item", texts.ROWS_OF_32, ("[33]", "[32]"),
            groups=("n/2048",), local=(64,), sizes={"n": 2**26}, machine="H100-SXM", access="buf[t][k]",
            over={"k": tuple(range(32))}, found=32, mended=1),
    planted("bank-conflicts", "reduction", "a short row for each work-item", texts.ROWS_OF_16, ("[17]", "[16]"),
            groups=("n/2048",), local=(128,), sizes={"n": 2**26}, machine="A100-40GB", access="buf[t][k]",
            over={"k": tuple(range(16))}, found=16, mended=1),
    planted("bank-conflicts", "transpose", "weighed rows of blocks", texts.WEIGHED_BLOCKS, ("[17]", "[16]"),
            **_SMALL_TILES, sizes={"n": 8192}, machine="RTX-2080-Ti", access="tile[tx][k]",
            over={"k": tuple(range(16))}, found=8, mended=1),
    planted("bank-conflicts", "stencil", "columns of sums", texts.TURNED, ("[33]", "[32]"), **_TILES,
            sizes={"n": 8192}, machine="H100-SXM", access="tile[tx][ty + r]", over={"r": (0, 8, 16, 24)},
            found=32, mended=1),
]  # fmt: skip

DIVERGENCE = [
    planted("divergence", "stream", "odd and even", texts.TWO_WAYS, ("i < n / 2", "i % 2 == 0"), **_LINE,
            sizes={"n": 2**24}, machine="A100-40GB", access="i % 2 == 0", mended_access="i < n / 2",
            found=0.5, mended=1),
    planted("divergence", "stream", "odd and even in OpenCL C", opencl(texts.TWO_WAYS), ("i < n / 2", "i % 2 == 0"),
            **_LINE, sizes={"n": 2**24}, machine="W7800", access="i % 2 == 0", mended_access="i < n / 2",
            found=0.5, mended=1),
    planted("divergence", "stream", "one in four", texts.ONE_IN_FOUR, ("i < n / 4", "i % 4 == 0"), **_LINE,
            sizes={"n": 2**24}, machine="V100", access="i % 4 == 0", mended_access="i < n / 4", found=0.25, mended=1),
    planted("divergence", "stream", "eight of 32", texts.ONE_IN_FOUR, ("i < n / 4", "i % 32 < 8"), **_LINE,
            sizes={"n": 2**24}, machine="RTX-3090", access="i % 32 < 8", mended_access="i < n / 4",
            found=0.25, mended=1),
    planted("divergence", "stencil", "odd and even columns", texts.HALVES, ("j < n / 2", "j % 2 == 0"), **_ROWS,
            sizes={"n": 4096}, machine="H100-SXM", access="j % 2 == 0", mended_access="j < n / 2",
            found=0.5, mended=1),
    planted("divergence", "nbody", "two kinds of bodies", texts.KINDS, ("i < n / 2", "i % 2 == 0"), **_LINE,
            sizes={"n": 2**24}, machine="RTX-2080-Ti", access="i % 2 == 0", mended_access="i < n / 2",
            found=0.5, mended=1),
    # 255 additions by 47 sub-groups of 32, mended by 12.
    planted("divergence", "reduction", "roles interleaved", texts.TREE,
            ("int s = 128; s > 0; s /= 2", "int s = 1; s < 256; s *= 2"), ("t < s", "t % (2 * s) == 0"), **_LINE,
            sizes={"n": 2**26}, machine="RTX-2080-Ti", access="t % (2 * s) == 0", mended_access="t < s", over=_STEPS,
            found=255 / 1504, mended=255 / 384),
]  # fmt: skip

FLOAT64 = [
    planted("float64", "stream", "polynomial", texts.POLYNOMIAL, *((f"0.{i}f", f"0.{i}") for i in range(1, 7)),
            **_LINE, sizes={"n": 2**26}, machine="RTX-3090", found=11, mended=0,
            access="(u - 0.1) * (u - 0.2) * (u - 0.3) * (u - 0.4) * (u - 0.5) * (u - 0.6)"),
    planted("float64", "stream", "logistic map", texts.ORBIT, ("1.0f", "1.0"), **_LINE,
            sizes={"n": 2**24, "m": 64}, machine="RTX-2080-Ti", access="r * v * (1.0 - v)",
            over={"k": tuple(range(64))}, found=128, mended=0),
    planted("float64", "reduction", "losses", texts.LOSSES, ("0.5f", "0.5"), ("1.5f", "1.5"),
            groups=("n/4096",), sizes={"n": 2**27}, machine="RTX-3090", access="(u - 0.5) * (u - 1.5) * (u + 0.5)",
            over={"k": tuple(range(16))}, found=80, mended=0),
    planted("float64", "matmul", "a scaled matrix", texts.SCALED_MATMUL, ("1.5f", "1.5"), **_SQUARE,
            sizes={"n": 4096}, machine="RTX-3090", access="1.5 * sa[ty][k]", found=4096, mended=0,
            over={"k0": tuple(range(0, 4096, 32)), "k": tuple(range(32))}),
    planted("float64", "nbody", "halved distances", texts.LATTICE, ("0.5f", "0.5"), **_LINE,
            sizes={"n": 2**20, "m": 1024}, machine="RTX-2080-Ti", access="(at - xi) * 0.5",
            over={"j": tuple(range(1024))}, found=1024, mended=0),
    planted("float64", "stencil", "reaction", texts.REACTION, ("1.0f", "1.0"), ("0.3f", "0.3"), ("0.7f", "0.7"),
            ("0.6f", "0.6"), **_ROWS, sizes={"n": 8192}, machine="RTX-3090",
            access="u * (1.0 - u) * (u - 0.3) * (u + 0.7) * 0.6", found=7, mended=0),
    planted("float64", "transpose", "polynomial", texts.CURVED_TRANSPOSE, ("0.5f", "0.5"), ("1.5f", "1.5"),
            ("2.5f", "2.5"), **_TILES, sizes={"n": 8192}, machine="RTX-2080-Ti", over={"r": (0, 8, 16, 24)},
            access="(v - 0.5) * (v + 0.5) * (v - 1.5) * (v + 1.5) * (v - 2.5)", found=36, mended=0),
]  # fmt: skip

FEW_GROUPS = [
    planted("few-groups", "stream", "16 for 108 units", texts.ORBIT, **_THOUSANDS, sizes={"n": 16 * 1024, "m": 65536},
            machine="A100-40GB", mended_groups=("n/128",), mended_local=(128,), found=16, mended=128),
    planted("few-groups", "stream", "18 for 70 units", opencl(texts.ORBIT), **_THOUSANDS,
            sizes={"n": 18 * 1024, "m": 65536}, machine="W7800", mended_groups=("n/256",),
            mended_local=(256,), found=18, mended=72),
    planted("few-groups", "nbody", "20 for 80 units", texts.LATTICE, groups=("n/512",), local=(512,),
            sizes={"n": 20 * 512, "m": 65536}, machine="V100", mended_groups=("n/128",), mended_local=(128,),
            found=20, mended=80),
    planted("few-groups", "stream", "8 for 82 units", texts.MARCH, **_THOUSANDS, sizes={"n": 8192, "m": 8192},
            machine="RTX-3090", mended_groups=("n/64",), mended_local=(64,), found=8, mended=128),
    planted("few-groups", "nbody", "33 for 132 units", texts.LATTICE, **_THOUSANDS,
            sizes={"n": 33 * 1024, "m": 65536}, machine="H100-SXM", mended_groups=("n/256",), mended_local=(256,),
            found=33, mended=132),
]  # fmt: skip

_SIXTY_FOUR = {"mended_groups": ("n/64",), "mended_local": (64,)}
LAST_WAVE = [
    planted("last-wave", "stream", "109 on 108 units", texts.ORBIT, **_THOUSANDS,
            sizes={"n": 109 * 1024, "m": 16384}, machine="A100-40GB", **_SIXTY_FOUR,
            found=2 / (109 / 108), mended=17 / (1744 / 108)),
    planted("last-wave", "nbody", "133 on 132 units", texts.LATTICE, **_THOUSANDS,
            sizes={"n": 133 * 1024, "m": 16384}, machine="H100-SXM", **_SIXTY_FOUR,
            found=2 / (133 / 132), mended=17 / (2128 / 132)),
    planted("last-wave", "stream", "161 on 80 units", texts.ORBIT, groups=("n/512",), local=(512,),
            sizes={"n": 161 * 512, "m": 16384}, machine="V100", **_SIXTY_FOUR,
            found=3 / (161 / 80), mended=17 / (1288 / 80)),
    planted("last-wave", "nbody", "69 on 68 units", texts.LATTICE, **_THOUSANDS,
            sizes={"n": 69 * 1024, "m": 16384}, machine="RTX-2080-Ti", **_SIXTY_FOUR,
            found=2 / (69 / 68), mended=17 / (1104 / 68)),
    planted("last-wave", "stream", "71 on 70 units", opencl(texts.ORBIT), **_THOUSANDS,
            sizes={"n": 71 * 1024, "m": 16384}, machine="W7800", **_SIXTY_FOUR,
            found=2 / (71 / 70), mended=17 / (1136 / 70)),
    planted("last-wave", "stream", "83 on 82 units", texts.ORBIT, **_THOUSANDS,
            sizes={"n": 83 * 1024, "m": 16384}, machine="RTX-3090", **_SIXTY_FOUR,
            found=2 / (83 / 82), mended=17 / (1328 / 82)),
]  # fmt: skip

_WARPS = {"groups": ("n/32",), "local": (32,), "mended_groups": ("n/256",), "mended_local": (256,)}
_PIECES = {"groups": ("n/32", "n"), "local": (32, 1), "mended_groups": ("n/256", "n"), "mended_local": (256, 1)}
GROUP_STARTS = [
    planted("group-starts", "stream", "saxpy", texts.SAXPY, **_WARPS, sizes={"n": 2**26}, machine="A100-40GB",
            found=2**21, mended=2**18),
    planted("group-starts", "stream", "norms", texts.NORMS, **_WARPS, sizes={"n": 2**25}, machine="V100",
            found=2**20, mended=2**17),
    planted("group-starts", "stencil", "pieces of rows", texts.VERTICAL, **_PIECES, sizes={"n": 8192},
            machine="RTX-3090", found=2**21, mended=2**18),
    planted("group-starts", "matmul", "outer product", texts.RANK_ONE, **_PIECES, sizes={"n": 16384},
            machine="H100-SXM", found=2**23, mended=2**20),
    planted("group-starts", "stream", "copy in OpenCL C", texts.COPY_CL, **_PIECES, sizes={"n": 8192},
            machine="RTX-2080-Ti", found=2**21, mended=2**18),
]  # fmt: skip

_BY_K = {"over": {"k": tuple(range(64)), "k0": (0, 16, 32, 48)}, "access": "a[row * n + k]",
         "mended_access": "a[row * n + k0 + tx]", "found": 16, "mended": 1, **_SMALL_TILES}  # fmt: skip
REPEATED_LOADS = [
    planted("repeated-loads", "matmul", "no tiles", texts.MATMUL_16, source=texts.NAIVE_MATMUL_16, **_BY_K,
            sizes={"n": 4096}, machine="A100-40GB"),
    planted("repeated-loads", "matmul", "no tiles in OpenCL C", opencl(texts.MATMUL_16),
            source=opencl(texts.NAIVE_MATMUL_16), **_BY_K, sizes={"n": 2048}, machine="RTX-3090"),
    planted("repeated-loads", "matmul", "no large tiles", texts.MATMUL,
            source=texts.NAIVE_MATMUL_16.replace("16", "32"),
            **(_BY_K | _SQUARE | {"found": 32, "over": {"k": tuple(range(64)), "k0": (0, 32)}}),
            sizes={"n": 4096}, machine="V100"),
    planted("repeated-loads", "nbody", "distances between rows", texts.DISTANCES, source=texts.NAIVE_DISTANCES,
            **_BY_K, sizes={"n": 4096}, machine="H100-SXM"),
    planted("repeated-loads", "nbody", "all bodies", texts.BODIES, source=texts.NAIVE_BODIES, **_LINE,
            sizes={"n": 2**18}, machine="A100-40GB", access="x[j]", mended_access="x[j0 + t]",
            over={"j": tuple(range(64)), "j0": (0, 256)}, found=256, mended=1),
    # 256 work-items load 65 elements each, of 320.
    planted("repeated-loads", "stencil", "moving sum", texts.BOX, source=texts.NAIVE_BOX, **_LINE,
            sizes={"n": 2**26}, machine="H100-SXM", access="x[i + k]", mended_access="s[t] = x[i]",
            over={"k": tuple(range(65))}, found=52, mended=1),
]  # fmt: skip

_NOTHING = {"mended": None, "mended_source": None, "found": 1}
LAUNCH_BOUND = [
    planted("launch-bound", "stream", "small saxpy", texts.SAXPY, **_LINE, sizes={"n": 108 * 256},
            machine="A100-40GB", **_NOTHING),
    planted("launch-bound", "stencil", "small square", texts.VERTICAL, **_ROWS, sizes={"n": 320}, machine="V100",
            **_NOTHING),
    planted("launch-bound", "transpose", "small matrix", texts.TRANSPOSE_16, **_SMALL_TILES, sizes={"n": 528},
            machine="H100-SXM", **_NOTHING),
    planted("launch-bound", "reduction", "small tree", texts.TREE, **_LINE, sizes={"n": 68 * 256},
            machine="RTX-2080-Ti", **_NOTHING),
    planted("launch-bound", "stream", "few steps", texts.ORBIT, **_LINE, sizes={"n": 82 * 256, "m": 4},
            machine="RTX-3090", **_NOTHING),
]  # fmt: skip

_LONG = {"n": 2**20, "m": 64}
OCCUPANCY = [
    planted("occupancy", "stream", "registers", texts.MARCH, **_LINE, sizes=_LONG, machine="A100-40GB",
            registers=168, mended_registers=128, found=1, mended=2),
    planted("occupancy", "reduction", "registers", texts.COLUMN_SUMS, groups=("n/128",), local=(128,), sizes=_LONG,
            machine="V100", registers=200, mended_registers=168, found=2, mended=3),
    planted("occupancy", "stream", "registers and arithmetic", texts.ORBIT, **_LINE, sizes={"n": 2**22, "m": 1024},
            machine="RTX-3090", registers=168, mended_registers=128, found=1, mended=2),
    planted("occupancy", "stencil", "registers", texts.HEAT, groups=("n/32", "n/8"), local=(32, 8),
            sizes={"n": 512}, machine="H100-SXM", registers=255, mended_registers=128, found=1, mended=2),
    planted("occupancy", "stream", "48 KiB", texts.STAGED.replace("[256]", "[8192]"), ("[8192]", "[12288]"), **_LINE,
            sizes=_LONG, machine="RTX-2080-Ti", access="s[12288]", mended_access="s[8192]", found=1, mended=2),
    planted("occupancy", "stream", "48 KiB of 96", texts.STAGED.replace("[256]", "[8192]"), ("[8192]", "[12288]"),
            **_LINE, sizes=_LONG, machine="V100", access="s[12288]", mended_access="s[8192]", found=2, mended=3),
    planted("occupancy", "stream", "48 KiB of 164", texts.STAGED.replace("[256]", "[10240]"), ("[10240]", "[12288]"),
            **_LINE, sizes=_LONG, machine="A100-40GB", access="s[12288]", mended_access="s[10240]", found=3, mended=4),
]  # fmt: skip

PLANTED = [
    *COALESCING, *BANK_CONFLICTS, *DIVERGENCE, *FLOAT64, *FEW_GROUPS, *LAST_WAVE, *GROUP_STARTS, *REPEATED_LOADS,
    *LAUNCH_BOUND, *OCCUPANCY,
]  # fmt: skip

_PURE = [
    Clean(name=name, kind=kind, source=source, machine=machine, sizes=sizes, **launch)
    for name, kind, source, machine, sizes, launch in [
        ("saxpy", "stream", texts.SAXPY, "A100-40GB", {"n": 2**26}, _LINE),
        ("saxpy", "stream", texts.SAXPY, "RTX-3090", {"n": 2**26}, _LINE),
        ("triad of float4", "stream", texts.TRIAD4, "H100-SXM", {"n": 2**24}, _LINE),
        ("triad of float4", "stream", texts.TRIAD4, "V100", {"n": 2**24}, _LINE),
        ("copy", "stream", texts.COPY_CL, "W7800", {"n": 8192}, _ROWS),
        ("march", "stream", texts.MARCH, "A100-40GB", {"n": 2**22, "m": 32}, _LINE),
        ("march in OpenCL C", "stream", opencl(texts.MARCH), "V100", {"n": 2**22, "m": 32}, _LINE),
        ("logistic map", "stream", texts.ORBIT, "A100-40GB", {"n": 2**24, "m": 256}, _LINE),
        ("staged", "stream", texts.STAGED, "RTX-2080-Ti", {"n": 2**21, "m": 32}, _LINE),
        ("tree", "reduction", texts.TREE_OF_16, "A100-40GB", {"n": 2**28}, {"groups": ("n/4096",)}),
        ("chunks", "reduction", texts.CHUNKS, "RTX-3090", {"n": 2**28}, {"groups": ("n/4096",)}),
        ("dots", "reduction", texts.DOTS, "A100-40GB", {"n": 1024, "m": 2**16}, {"groups": ("m/8",), "local": (32, 8)}),
        ("normalised rows", "reduction", texts.NORMALISED, "H100-SXM", {"n": 1024, "m": 2**16},
         {"groups": ("m/8",), "local": (32, 8)}),
        ("transpose", "transpose", texts.TRANSPOSE, "RTX-3090", {"n": 8192}, _TILES),
        ("transpose", "transpose", texts.TRANSPOSE, "H100-SXM", {"n": 16384}, _TILES),
        ("five points", "stencil", texts.STENCIL, "A100-40GB", {"n": 8192}, _ROWS),
        ("five points", "stencil", texts.STENCIL, "RTX-2080-Ti", {"n": 8192}, _ROWS),
        ("seven points", "stencil", texts.HEAT, "V100", {"n": 1024}, _ROWS),
        ("tiles", "matmul", texts.MATMUL, "A100-40GB", {"n": 4096}, _SQUARE),
        ("four rows", "matmul", texts.BLOCKED_MATMUL, "A100-40GB", {"n": 4096}, _TILES),
        ("four rows", "matmul", texts.BLOCKED_MATMUL, "RTX-2080-Ti", {"n": 4096}, _TILES),
        ("lattice", "nbody", texts.LATTICE, "V100", {"n": 2**22, "m": 256}, _LINE),
    ]
]  # fmt: skip
# Mended of the planted flaw, not of all: stores in two ways to rows of 17 elements, work-items that a tree leaves idle.
_NOT_CLEAN = {"rows_of_16", "weighed_blocks", "tree"}
_MENDED = [
    Clean(
        name=f"mended {each.name}",
        kind=each.kind,
        source=each.mended_source,
        machine=each.machine,
        sizes=each.sizes,
        groups=each.mended_groups,
        local=each.mended_local,
    )
    for each in [*COALESCING, *BANK_CONFLICTS, *DIVERGENCE, *FLOAT64, *REPEATED_LOADS]
]
CLEAN = list(
    {(each.source, each.machine): each for each in [*_MENDED, *_PURE] if each.function not in _NOT_CLEAN}.values()
)
