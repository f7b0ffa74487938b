"""A second set of kernels with one planted flaw each, and of clean kernels, of the form of `planted_kernels`."""

from . import held_back_sources as texts
from .planted_kernels import Clean, planted
from .planted_sources import opencl

_LINE = {"groups": ("n/256",), "local": (256,)}
_ROWS = {"groups": ("n/32", "n/8"), "local": (32, 8)}
_TILES = {"groups": ("n/32", "n/32"), "local": (32, 8)}
_SUB_GROUPS = {"groups": ("m/8",), "local": (32, 8)}
_SMALL_TILES = {"groups": ("n/16", "n/16"), "local": (16, 16)}
_HALVES = {"groups": ("n/512",), "local": (512,)}
_THOUSANDS = {"groups": ("n/1024",), "local": (1024,)}
_BY_64 = {"mended_groups": ("n/64",), "mended_local": (64,)}
_BY_128 = {"mended_groups": ("n/128",), "mended_local": (128,)}
_BY_256 = {"mended_groups": ("n/256",), "mended_local": (256,)}
_BY_512 = {"mended_groups": ("n/512",), "mended_local": (512,)}
_R = {"over": {"r": (0, 8, 16, 24)}}

COALESCING = [
    planted("coalescing", "image", "one of three colours", texts.NEGATIVE, ("rgb[i]", "rgb[3 * i]"), **_LINE,
            sizes={"n": 2**26}, machine="T4", access="rgb[3 * i]", mended_access="rgb[i]", found=12, mended=4),
    planted("coalescing", "particles", "structs", texts.PARTICLES, source=texts.PARTICLES_AS_STRUCTS, **_LINE,
            sizes={"n": 2**24}, machine="A100-80GB", access="p[i].vx", mended_access="vx[i]", found=32, mended=4),
    planted("coalescing", "rows", "a work-item for each", texts.ROW_NORMS, source=texts.NAIVE_ROW_NORMS,
            groups=("m/256",), mended_groups=("m/8",), mended_local=(32, 8), sizes={"n": 512, "m": 2**19},
            machine="V100", access="x[row * n + k]", mended_access="x[row * n + k + lane]",
            over={"k": tuple(range(0, 512, 32))}, found=32, mended=4),
    planted("coalescing", "matrix", "traces", texts.TRACES, ("a[5 * k * n + b]", "a[16 * b + 5 * k]"), **_LINE,
            sizes={"n": 2**24}, machine="H100-PCIe", access="a[16 * b + 5 * k]", mended_access="a[5 * k * n + b]",
            over={"k": tuple(range(4))}, found=32, mended=4),
]  # fmt: skip

BANK_CONFLICTS = [
    planted("bank-conflicts", "image", "a quarter turn", texts.ROTATE, ("[33]", "[32]"), **_TILES, sizes={"n": 8192},
            machine="A100-80GB", access="tile[31 - tx][ty + r]", **_R, found=32, mended=1),
    planted("bank-conflicts", "matrix", "attention", texts.SCORES, ("[33]", "[32]"), groups=("n/32", "n/32", "h"),
            local=(32, 8), sizes={"n": 2048, "d": 128, "h": 16}, machine="H100-PCIe", access="sk[tx][k]",
            over={"k": tuple(range(32))}, found=32, mended=1),
    planted("bank-conflicts", "transform", "results side by side", texts.EXCHANGE, ("[33]", "[32]"),
            groups=("n/1024",), sizes={"n": 2**26, "m": 10}, machine="V100", access="buf[t / 8][t % 8 * 4 + k]",
            over={"k": (0, 1)}, found=4, mended=1),
    planted("bank-conflicts", "rows", "16 logits", texts.LOG_SUM_EXP, ("[33]", "[32]"), groups=("n/2048",),
            local=(128,), sizes={"n": 2**28}, machine="A100-80GB", access="buf[t / 2][t % 2 * 16 + k]",
            over={"k": tuple(range(16))}, found=16, mended=1),
]  # fmt: skip

DIVERGENCE = [
    planted("divergence", "pointwise", "materials by eights", texts.MATERIALS, ("i < n / 2", "i / 8 % 2 == 0"),
            **_LINE, sizes={"n": 2**24}, machine="L40S", access="i / 8 % 2 == 0", mended_access="i < n / 2",
            found=0.5, mended=1),
    planted("divergence", "image", "a checkerboard in OpenCL C", opencl(texts.SHADE), ("i % 2", "(i + j) % 2"), **_ROWS,
            sizes={"n": 4096}, machine="W7800", access="(i + j) % 2 == 0", mended_access="i % 2 == 0",
            found=0.5, mended=1),
    planted("divergence", "particles", "one in eight", texts.CHARGED, ("i < n / 8", "i % 8 == 0"), **_LINE,
            sizes={"n": 2**24}, machine="V100", access="i % 8 == 0", mended_access="i < n / 8", found=0.125, mended=1),
    # Eight work-items: one in each of eight sub-groups, or all in one.
    planted("divergence", "rows", "the first of each row", texts.ROW_SCALES, ("t < 8", "t % 32 == 0"),
            ("m[t]", "m[t / 32]"), **_LINE, sizes={"n": 2**26}, machine="RTX-4090", access="t % 32 == 0",
            mended_access="t < 8", found=1 / 32, mended=8 / 32),
]  # fmt: skip

FLOAT64 = [
    planted("float64", "image", "curve of tones", texts.TONES, *((c + "f", c) for c in
            ("2.51", "0.03", "2.43", "0.59", "0.14")), **_LINE, sizes={"n": 2**26}, machine="T4",
            access="(u * (2.51 * u + 0.03)) / (u * (2.43 * u + 0.59) + 0.14)", found=8, mended=0),
    planted("float64", "pointwise", "option prices", texts.OPTIONS, *((c + "f", c) for c in
            ("0.3193815", "0.3565638", "1.781478", "1.821256", "1.330274")), **_LINE, sizes={"n": 2**22, "m": 32},
            machine="L40S", over={"j": tuple(range(32))}, found=9 * 32, mended=0,
            access="k * (0.3193815 + k * (-0.3565638 + k * (1.781478 + k * (-1.821256 + k * 1.330274))))"),
    planted("float64", "lattice", "equilibria", texts.LATTICE, ("(1.0f + 3.0f", "(1.0 + 3.0"), ("4.5f", "4.5"),
            ("- 1.5f * uu);\n}\n_", "- 1.5 * uu);\n}\n_"), **_ROWS, sizes={"n": 4096}, machine="T4",
            access="w * (1.0 + 3.0 * cu + 4.5 * cu * cu - 1.5 * uu)", over={"directions": tuple(range(1, 9))},
            found=64, mended=0),
    planted("float64", "pointwise", "Mandelbrot set", texts.MANDELBROT, ("2.0f", "2.0"), **_LINE,
            sizes={"n": 2**22, "m": 256}, machine="RTX-4090", access="2.0 * u * v + cy",
            over={"k": tuple(range(256))}, found=768, mended=0),
]  # fmt: skip

FEW_GROUPS = [
    planted("few-groups", "pointwise", "32 for 128 units", texts.MANDELBROT, **_THOUSANDS,
            sizes={"n": 2**15, "m": 65536}, machine="RTX-4090", **_BY_256, found=32, mended=128),
    planted("few-groups", "pointwise", "57 for 114 units", texts.CHEBYSHEV, **_THOUSANDS,
            sizes={"n": 57 * 1024, "m": 65536}, machine="H100-PCIe", **_BY_512, found=57, mended=114),
    planted("few-groups", "pointwise", "27 for 108 units", texts.OPTIONS, **_THOUSANDS,
            sizes={"n": 27 * 1024, "m": 4096}, machine="A100-80GB", **_BY_256, found=27, mended=108),
    planted("few-groups", "pointwise", "35 for 70 units", opencl(texts.CHEBYSHEV), **_THOUSANDS,
            sizes={"n": 35 * 1024, "m": 65536}, machine="W7800", **_BY_512, found=35, mended=70),
]  # fmt: skip

LAST_WAVE = [
    planted("last-wave", "pointwise", "160 on 128 units", texts.MANDELBROT, **_HALVES,
            sizes={"n": 160 * 512, "m": 16384}, machine="RTX-4090", **_BY_128, found=2 / 1.25, mended=1),
    planted("last-wave", "pointwise", "44 on 40 units", texts.CHEBYSHEV, **_THOUSANDS,
            sizes={"n": 44 * 1024, "m": 16384}, machine="T4", **_BY_128, found=2 / 1.1, mended=9 / 8.8),
    planted("last-wave", "pointwise", "120 on 108 units", texts.CHEBYSHEV, **_THOUSANDS,
            sizes={"n": 120 * 1024, "m": 16384}, machine="A100-80GB", **_BY_128,
            found=2 / (120 / 108), mended=9 / (960 / 108)),
    planted("last-wave", "pointwise", "90 on 70 units", opencl(texts.MANDELBROT), **_HALVES,
            sizes={"n": 90 * 512, "m": 16384}, machine="W7800", **_BY_64, found=2 / (90 / 70), mended=11 / (720 / 70)),
]  # fmt: skip

_WARPS = {"groups": ("n/32",), "local": (32,), "mended_groups": ("n/256",), "mended_local": (256,)}
_PIECES = {"groups": ("n/32", "n"), "local": (32, 1), "mended_groups": ("n/256", "n"), "mended_local": (256, 1)}
GROUP_STARTS = [
    planted("group-starts", "image", "grey of colours", texts.GREY, **_WARPS, sizes={"n": 2**26}, machine="A100-80GB",
            found=2**21, mended=2**18),
    planted("group-starts", "particles", "push", texts.PARTICLES, **_WARPS, sizes={"n": 2**26}, machine="H100-PCIe",
            found=2**21, mended=2**18),
    planted("group-starts", "image", "upsampling in OpenCL C", texts.UPSAMPLE_CL, **_PIECES, sizes={"n": 8192},
            machine="L40S", found=2**21, mended=2**18),
    planted("group-starts", "transform", "bitonic step", texts.BITONIC, groups=("n/64",), local=(32,),
            mended_groups=("n/512",), mended_local=(256,), sizes={"n": 2**27}, machine="V100",
            found=2**21, mended=2**18),
]  # fmt: skip

_LOGITS = {"access": "q[row * d + k]", "mended": 1, "over": {"k": tuple(range(64)), "k0": (0, 32)}}
_TILES_32 = {"groups": ("n/32", "n/32"), "local": (32, 32)}
REPEATED_LOADS = [
    planted("repeated-loads", "matrix", "attention", texts.LOGITS, source=texts.NAIVE_LOGITS, **_LOGITS,
            **_SMALL_TILES, sizes={"n": 8192, "d": 128}, machine="A100-80GB", mended_access="q[row * d + k0 + tx]",
            found=16),
    planted("repeated-loads", "matrix", "attention in OpenCL C", opencl(texts.LOGITS.replace("16", "32")),
            source=opencl(texts.NAIVE_LOGITS.replace("16", "32")), **_LOGITS, **_TILES_32,
            sizes={"n": 4096, "d": 256}, machine="T4", mended_access="q[row * d + k0 + tx]", found=32),
    planted("repeated-loads", "particles", "nearest centre", texts.NEAREST, source=texts.NAIVE_NEAREST, **_LINE,
            sizes={"n": 2**24}, machine="H100-PCIe", access="c[4 * k]", mended_access="s[t] = c[t]",
            over={"k": tuple(range(64))}, found=256, mended=1),
    planted("repeated-loads", "pointwise", "power series", texts.SERIES, source=texts.NAIVE_SERIES, **_LINE,
            sizes={"n": 2**24}, machine="L40S", access="c[k]", mended_access="s[t] = c[t]",
            over={"k": tuple(range(256))}, found=256, mended=1),
]  # fmt: skip

_NOTHING = {"mended": None, "mended_source": None, "found": 1}
LAUNCH_BOUND = [
    planted("launch-bound", "rows", "few norms", texts.RMS_NORM, **_SUB_GROUPS, sizes={"n": 128, "m": 640},
            machine="V100", **_NOTHING),
    planted("launch-bound", "particles", "few", texts.PARTICLES, **_LINE, sizes={"n": 256 * 256}, machine="RTX-4090",
            **_NOTHING),
    planted("launch-bound", "lattice", "small square", texts.WAVE, **_ROWS, sizes={"n": 288}, machine="A100-80GB",
            **_NOTHING),
    planted("launch-bound", "image", "thumbnail in OpenCL C", texts.UPSAMPLE_CL, **_ROWS, sizes={"n": 320},
            machine="T4", **_NOTHING),
]  # fmt: skip

_LONG = {"n": 2**20, "m": 64}
_WINDOW = texts.WINDOW.replace("[256]", "[8192]")
OCCUPANCY = [
    planted("occupancy", "lattice", "registers", texts.LATTICE, **_ROWS, sizes={"n": 4096}, machine="A100-80GB",
            registers=168, mended_registers=128, found=1, mended=2),
    planted("occupancy", "rows", "registers", texts.PREFIX, groups=("n/128",), local=(128,), sizes=_LONG,
            machine="H100-PCIe", registers=200, mended_registers=168, found=2, mended=3),
    planted("occupancy", "rows", "48 KiB of 100", _WINDOW, ("[8192]", "[12288]"), **_LINE, sizes=_LONG,
            machine="RTX-4090", access="s[12288]", mended_access="s[8192]", found=2, mended=3),
    planted("occupancy", "rows", "48 KiB of 64", _WINDOW, ("[8192]", "[12288]"), **_LINE, sizes=_LONG,
            machine="T4", access="s[12288]", mended_access="s[8192]", found=1, mended=2),
]  # fmt: skip

PLANTED = [
    *COALESCING, *BANK_CONFLICTS, *DIVERGENCE, *FLOAT64, *FEW_GROUPS, *LAST_WAVE, *GROUP_STARTS, *REPEATED_LOADS,
    *LAUNCH_BOUND, *OCCUPANCY,
]  # fmt: skip

_1024 = {"groups": ("n/1024",)}
_2048 = {"groups": ("n/2048",)}
_512 = {"groups": ("n/512",)}
CLEAN = [
    Clean(name=name, kind=kind, source=source, machine=machine, sizes=sizes, **launch)
    for name, kind, source, machine, sizes, launch in [
        ("negative", "image", texts.NEGATIVE, "RTX-4090", {"n": 2**27}, _LINE),
        ("grey", "image", texts.GREY, "T4", {"n": 2**26}, _LINE),
        ("grey in OpenCL C", "image", texts.GREY_CL, "W7800", {"n": 2**27}, _LINE),
        ("gain", "image", texts.GAIN, "H100-PCIe", {"n": 2**25}, _LINE),
        ("blur", "image", texts.BLUR, "A100-80GB", {"n": 8192}, _ROWS),
        ("tones", "image", texts.TONES, "L40S", {"n": 2**27}, _LINE),
        ("upsampling", "image", texts.UPSAMPLE_CL, "L40S", {"n": 16384}, _ROWS),
        ("quarter turn", "image", texts.ROTATE, "A100-80GB", {"n": 16384}, _TILES),
        ("quarter turn in OpenCL C", "image", opencl(texts.ROTATE), "T4", {"n": 8192}, _TILES),
        ("push", "particles", texts.PARTICLES, "V100", {"n": 2**26}, _LINE),
        ("norms", "rows", texts.ROW_NORMS, "H100-PCIe", {"n": 1024, "m": 2**18}, _SUB_GROUPS),
        ("softmax", "rows", texts.SOFTMAX, "A100-80GB", {"n": 512, "m": 2**18}, _SUB_GROUPS),
        ("normalised", "rows", texts.RMS_NORM, "RTX-4090", {"n": 768, "m": 2**17}, _SUB_GROUPS),
        ("matrix times vector", "rows", texts.GEMV, "A100-80GB", {"n": 8192, "m": 2**16},
         {"groups": ("m/4",), "local": (32, 4)}),
        ("logarithms of sums", "rows", texts.LOG_SUM_EXP, "A100-80GB", {"n": 2**28}, _2048 | {"local": (128,)}),
        ("prefix", "rows", texts.PREFIX, "RTX-4090", {"n": 2**20, "m": 128}, _LINE),
        ("prefix in OpenCL C", "rows", opencl(texts.PREFIX), "T4", {"n": 2**20, "m": 128}, _LINE),
        ("small matrices", "matrix", texts.BATCHED, "V100", {"n": 2**23}, _LINE),
        ("attention", "matrix", texts.SCORES, "A100-80GB", {"n": 2048, "d": 64, "h": 32},
         {"groups": ("n/32", "n/32", "h"), "local": (32, 8)}),
        ("D2Q9", "lattice", texts.LATTICE, "V100", {"n": 4096}, _ROWS),
        ("D2Q9", "lattice", texts.LATTICE, "L40S", {"n": 8192}, _ROWS),
        ("wave", "lattice", texts.WAVE, "H100-PCIe", {"n": 8192}, _ROWS),
        ("magnetic field", "lattice", texts.MAGNETIC, "RTX-4090", {"n": 8192}, _ROWS),
        ("option prices", "pointwise", texts.OPTIONS, "T4", {"n": 2**22, "m": 64}, _LINE),
        ("Mandelbrot set", "pointwise", texts.MANDELBROT, "A100-80GB", {"n": 2**24, "m": 256}, _LINE),
        ("Mandelbrot set in OpenCL C", "pointwise", opencl(texts.MANDELBROT), "W7800", {"n": 2**24, "m": 256}, _LINE),
        ("Chebyshev polynomials", "pointwise", texts.CHEBYSHEV, "RTX-4090", {"n": 2**24, "m": 512}, _LINE),
        ("complex product", "transform", texts.COMPLEX_PRODUCT, "V100", {"n": 2**25}, _LINE),
        ("butterfly", "transform", texts.BUTTERFLY, "H100-PCIe", {"n": 2**27}, _512),
        ("bitonic step", "transform", texts.BITONIC, "A100-80GB", {"n": 2**28}, _512),
        ("exchange", "transform", texts.EXCHANGE, "RTX-4090", {"n": 2**28, "m": 2}, _1024),
    ]
]  # fmt: skip
