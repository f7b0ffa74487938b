"""The kernels of the nvbench data that are one launch; sizes: `n`, width of the mask `w`, channels `c`.

`b` is the number of work-items along an axis of a work-group.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perflex.features import Operation, extract_scop

from .writing import in_constant_memory, make

if TYPE_CHECKING:
    import loopy as lp

    from perflex.features import Scop

# Work-items of a b x b block inside of an n x n array.
_IN_IMAGE = "{{[gx,gy,lx,ly]: 0<=lx,ly<{b} and 0<=gx,gy and {b}*gx+lx<n and {b}*gy+ly<n}}"
_IN_GRID = "{{[gx,gy,lx,ly]: 0<=lx,ly<{b} and 0<=gx,gy and {x}*gx<n and {y}*gy<n}}"
_LINE = "{{[gx,lx]: 0<=lx<{b} and 0<=gx and {b}*gx<n}}"
_SUMS = "private float32 acc; private float64 wide"
_MATRICES = "uint32 a[n, n], b[n, n], c[n, n]"
_VECTORS = "uint32 a[n, n], x[n]"


@cache
def array_add(*, strided: bool) -> lp.TranslationUnit:
    x, y = "16*gx+lx", "16*gy+ly"
    place = f"{x}, {y}" if strided else f"{y}, {x}"
    name = f"array_add_{'strided' if strided else 'contiguous'}"
    return make(
        name, _IN_IMAGE.format(b=16), f"c[{place}] = a[{place}] + b[{place}]", "float32 a[n, n], b[n, n], c[n, n]"
    )


@cache
def rgb_to_gray() -> lp.TranslationUnit:
    body = """
    red = rgb[16*gy+ly, 16*gx+lx, 0] {id=red}
    green = rgb[16*gy+ly, 16*gx+lx, 1] {id=green}
    blue = rgb[16*gy+ly, 16*gx+lx, 2] {id=blue}
    sum = 0.21*red + 0.71*green + 0.07*blue {id=sum}
    gray[16*gy+ly, 16*gx+lx] = sum {id=gray}
    """
    data = "uint8 rgb[n, n, 3], gray[n, n]; private float32 red, green, blue, sum"
    return make("rgb_to_gray", _IN_IMAGE.format(b=16), body, data)


def _conv1d_data(b: int, width: int | str, tile: int = 0) -> str:
    staged = f"; local float32 tile[{tile}]" if tile else ""
    return f"float32 x[n], mask[{width}], y[{b}*((n+{b}-1)//{b})]; {_SUMS}{staged}"


@cache
def conv1d_plain(b: int, *, guarded: bool) -> lp.TranslationUnit:
    """1-D convolution with a comparison for each end of the array in each term."""
    i = f"{b}*gx+lx"
    guard = f" and {i}<n" if guarded else ""
    body = f"""
    acc = 0 {{id=init}}
    for j
        if {i} + j - w//2 >= 0 and {i} + j - w//2 < n
            acc = acc + x[{i} + j - w//2]*mask[j] {{id=add}}
        end
    end
    wide = acc {{id=widen}}
    y[{i}] = fmin(fmax(wide, 0.0), 1.0) {{id=clamp}}
    """
    domains = [f"{{[gx,lx]: 0<=lx<{b} and 0<=gx and {b}*gx<n{guard}}}", "{[j]: 0<=j<w}"]
    return make("conv1d", domains, body, _conv1d_data(b, "w"), "n,w")


@cache
def conv1d_tiled(b: int, w: int) -> lp.TranslationUnit:
    h = w // 2
    body = f"""
    if lx >= {b - h}
        tile[lx-{b - h}] = x[{b}*gx-{b}+lx] if gx >= 1 else 0 {{id=left}}
    end
    tile[lx+{h}] = x[{b}*gx+lx] if {b}*gx+lx < n else 0 {{id=own}}
    if lx < {h}
        tile[lx+{h + b}] = x[{b}*gx+{b}+lx] if {b}*gx+{b}+lx < n else 0 {{id=right}}
    end
    ... lbarrier
    acc = 0 {{id=init}}
    for j
        acc = acc + tile[lx+j]*mask[j] {{id=add}}
    end
    wide = acc {{id=widen}}
    y[{b}*gx+lx] = fmin(fmax(wide, 0.0), 1.0) {{id=clamp}}
    """
    return make("conv1d_tiled", [_LINE.format(b=b), f"{{[j]: 0<=j<{w}}}"], body, _conv1d_data(b, w, tile=b + w - 1))


@cache
def conv1d_halo_global(b: int, w: int) -> lp.TranslationUnit:
    """1-D convolution of a tile in local memory without its halo, which is read from global memory."""
    h = w // 2
    body = f"""
    tile[lx] = x[{b}*gx+lx] if {b}*gx+lx < n else 0 {{id=own}}
    ... lbarrier
    acc = 0 {{id=init}}
    for j
        if {b}*gx+lx+j-{h} >= 0 and {b}*gx+lx+j-{h} < n
            if lx+j-{h} >= 0 and lx+j-{h} < {b}
                acc = acc + tile[lx+j-{h}]*mask[j] {{id=add_own}}
            else
                acc = acc + x[{b}*gx+lx+j-{h}]*mask[j] {{id=add_halo}}
            end
        end
    end
    wide = acc {{id=widen}}
    y[{b}*gx+lx] = fmin(fmax(wide, 0.0), 1.0) {{id=clamp}}
    """
    return make("conv1d_tiled_halo_global", [_LINE.format(b=b), f"{{[j]: 0<=j<{w}}}"], body, _conv1d_data(b, w, tile=b))


@cache
def conv2d_plain(b: int) -> lp.TranslationUnit:
    """2-D convolution of interleaved channels with four comparisons in each term."""
    row, column = f"{b}*gy+ly+k-w//2", f"{b}*gx+lx+l-w//2"
    body = f"""
    for ch
        acc = 0 {{id=init}}
        for k, l
            if {row} >= 0 and {row} < n and {column} >= 0 and {column} < n
                acc = acc + x[{row}, {column}, ch]*mask[k, l] {{id=add}}
            end
        end
        wide = acc {{id=widen}}
        y[{b}*gy+ly, {b}*gx+lx, ch] = fmin(fmax(wide, 0.0), 1.0) {{id=clamp}}
    end
    """
    domains = [_IN_IMAGE.format(b=b), "{[ch]: 0<=ch<c}", "{[k,l]: 0<=k,l<w}"]
    return make("conv2d", domains, body, f"float32 x[n, n, c], mask[w, w], y[n, n, c]; {_SUMS}", "n,w,c")


@cache
def conv2d_tiled(b: int, w: int) -> lp.TranslationUnit:
    """2-D convolution: b x b work-items load a tile, those inside of its rim compute."""
    t, h = b - w + 1, w // 2
    row, column = f"{t}*gy+ly", f"{t}*gx+lx"
    inside = " and ".join(f"{x}-{h} >= 0 and {x}-{h} < n" for x in (row, column))
    body = f"""
    for ch
        tile[ly, lx] = x[{row}-{h}, {column}-{h}, ch] if {inside} else 0 {{id=load}}
        ... lbarrier
        if lx < {t} and ly < {t} and {row} < n and {column} < n
            acc = 0 {{id=init}}
            for k, l
                acc = acc + tile[ly+k, lx+l]*mask[k, l] {{id=add}}
            end
            wide = acc {{id=widen}}
            y[{row}, {column}, ch] = fmin(fmax(wide, 0.0), 1.0) {{id=clamp}}
        end
        ... lbarrier
    end
    """
    data = f"float32 x[n, n, c], mask[{w}, {w}], y[n, n, c]; {_SUMS}; local float32 tile[{b}, {b}]"
    domains = [_IN_GRID.format(b=b, x=t, y=t), "{[ch]: 0<=ch<c}", f"{{[k,l]: 0<=k,l<{w}}}"]
    return make("conv2d_tiled", domains, body, data, "n,c")


@cache
def counted(kernel: lp.TranslationUnit, *, constant_mask: bool) -> Scop:
    """Return a convolution as it is counted, its mask in constant memory or not.

    With the conversions, to double precision and back, of what it clamps in double precision.
    """
    scop, conversions = extract_scop(kernel), Operation("convert", "float64", 2)
    statements = tuple(
        replace(one, operations=(*one.operations, conversions))
        if any((operation.kind, operation.dtype) == ("min", "float64") for operation in one.operations)
        else one
        for one in scop.statements
    )
    scop = replace(scop, statements=statements)
    return in_constant_memory(scop, "mask") if constant_mask else scop


@cache
def matmul_naive(b: int) -> lp.TranslationUnit:
    row, column = f"{b}*gy+ly", f"{b}*gx+lx"
    body = f"""
    acc = 0 {{id=init}}
    for k
        acc = acc + a[{row}, k]*b[k, {column}] {{id=add}}
    end
    c[{row}, {column}] = acc {{id=write}}
    """
    return make("matmul_naive", [_IN_IMAGE.format(b=b), "{[k]: 0<=k<n}"], body, f"{_MATRICES}; private uint32 acc")


def _phases(b: int, x: int) -> list[str]:
    return [_IN_GRID.format(b=b, x=x, y=b), f"{{[ph]: 0<=ph and {b}*ph<n}}", f"{{[k]: 0<=k<{b}}}"]


@cache
def matmul_tiled(b: int) -> lp.TranslationUnit:
    row, column = f"{b}*gy+ly", f"{b}*gx+lx"
    body = f"""
    acc = 0 {{id=init}}
    for ph
        a_tile[ly, lx] = a[{row}, {b}*ph+lx] if {row} < n and {b}*ph+lx < n else 0 {{id=load_a}}
        b_tile[ly, lx] = b[{b}*ph+ly, {column}] if {b}*ph+ly < n and {column} < n else 0 {{id=load_b}}
        ... lbarrier
        for k
            acc = acc + a_tile[ly, k]*b_tile[k, lx] {{id=add}}
        end
        ... lbarrier
    end
    if {row} < n and {column} < n
        c[{row}, {column}] = acc {{id=write}}
    end
    """
    data = f"{_MATRICES}; private uint32 acc; local uint32 a_tile[{b}, {b}], b_tile[{b}, {b}]"
    return make("matmul_tiled", _phases(b, b), body, data)


@cache
def matmul_tiled_double(b: int) -> lp.TranslationUnit:
    """Product of matrices, two columns per work-item, from a grid four times as wide as the matrix.

    The second half of the tile of the right matrix begins b elements after the first one, but its rows are b elements
    apart as well: rows overlap, and results are wrong. Work-groups beyond the matrix do all but load from the right one
    and store.
    """
    row, column = f"{b}*gy+ly", f"{2 * b}*gx+lx"
    source = f"b[{b}*ph+ly, {column}"
    inside = f"{b}*ph+ly < n and {column}"
    second = f"{source}+{b}] if {inside}+{b} < n else 0 {{id=load_second, nosync=load_first@local}}"
    body = f"""
    first = 0 {{id=init_first}}
    second = 0 {{id=init_second}}
    for ph
        a_tile[ly, lx] = a[{row}, {b}*ph+lx] if {row} < n and {b}*ph+lx < n else 0 {{id=load_a}}
        b_tile[{b}*ly+lx] = {source}] if {inside} < n else 0 {{id=load_first}}
        b_tile[{b}*ly+lx+{b}] = {second}
        ... lbarrier
        for k
            first = first + a_tile[ly, k]*b_tile[{b}*k+lx] {{id=add_first}}
            second = second + a_tile[ly, k]*b_tile[{b}*k+lx+{b}] {{id=add_second}}
        end
        ... lbarrier
    end
    if {row} < n and {column} < n
        c[{row}, {column}] = first {{id=write_first}}
    end
    if {row} < n and {column}+{b} < n
        c[{row}, {column}+{b}] = second {{id=write_second}}
    end
    """
    data = f"{_MATRICES}; private uint32 first, second; local uint32 a_tile[{b}, {b}], b_tile[{2 * b * b}]"
    return make("matmul_tiled_double", _phases(b, b // 2), body, data)


@cache
def matvec_naive(b: int) -> lp.TranslationUnit:
    i = f"{b}*gx+lx"
    body = f"""
    acc = 0 {{id=init}}
    for k
        acc = acc + a[{i}, k]*x[k] {{id=add}}
    end
    y[{i}] = acc {{id=write}}
    """
    domains = [f"{{[gx,lx]: 0<=lx<{b} and 0<=gx and {i}<n}}", "{[k]: 0<=k<n}"]
    return make("matvec_naive", domains, body, f"{_VECTORS}, y[n]; private uint32 acc")


@cache
def matvec_shared(b: int) -> lp.TranslationUnit:
    """Product of a matrix and a vector, a row per work-item, parts of the vector staged in local memory."""
    i = f"{b}*gx+lx"
    body = f"""
    acc = 0 {{id=init}}
    for ph
        part[lx] = x[{b}*ph+lx] if {b}*ph+lx < n else 0 {{id=load}}
        ... lbarrier
        for k
            if {i} < n
                acc = acc + a[{i}, {b}*ph+k]*part[k] {{id=add}}
            end
        end
        ... lbarrier
    end
    y[{i}] = acc {{id=write}}
    """
    domains = [_LINE.format(b=b), f"{{[ph]: 0<=ph and {b}*ph<n}}", f"[n,ph] -> {{[k]: 0<=k<{b} and {b}*ph+k<n}}"]
    data = f"{_VECTORS}, y[{b}*((n+{b - 1})//{b})]; private uint32 acc; local uint32 part[{b}]"
    return make("matvec_shared", domains, body, data)
