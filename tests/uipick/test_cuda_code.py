"""The kernels of every generator compile for NVIDIA's GPUs, and fit there."""

import struct
import warnings
from math import prod

import pytest
from truth import rolled

from oracles.nvrtc import compile_cuda, nvrtc_library
from perflex.timing.launch.plan import plan_launch
from uipick import ALL_GENERATORS, KernelCollection

pytestmark = pytest.mark.skipif(nvrtc_library() is None, reason="no NVRTC: pip install nvidia-cuda-nvrtc")

# Unrolled patterns take seconds to generate; their code does not depend on these.
SHORT = ("m:64", "nvars:32", "dtype:float64", "groups_fit:False", "prefetch:True", "width:4")


def kernels_of(generator):
    """One kernel with few operations, in double precision where there is that, and guarded."""
    tags = [generator.name]
    for tag in SHORT:
        name, _, value = tag.partition(":")
        if name in generator.by_name and generator.by_name[name].read(value) is not None:
            tags.append(tag)
    found = KernelCollection([generator]).generate_kernels(tags)
    return list({id(kernel.kernel): kernel for kernel in found}.values())[:1]


def registers_in(binary):
    """Registers by kernel as the ELF file has them: attribute 0x2f of .nv.info, pairs of symbol and count."""
    (begin,) = struct.unpack_from("<Q", binary, 40)
    size, count, names = struct.unpack_from("<HHH", binary, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", binary, begin + size * number) for number in range(count)]
    sections = {_name(binary, headers[names][4] + header[0]): header[4:6] for header in headers}
    place, length = sections[".nv.info"]
    symbols, strings = sections[".symtab"][0], sections[".strtab"][0]
    found, end = {}, place + length
    while place < end:
        form, attribute, extent = struct.unpack_from("<BBH", binary, place)
        place += 4
        if form == 4 and attribute == 0x2F:
            symbol, registers = struct.unpack_from("<II", binary, place)
            (name,) = struct.unpack_from("<I", binary, symbols + 24 * symbol)
            found[_name(binary, strings + name)] = registers
        place += extent if form == 4 else 0
    return found


def _name(binary, start):
    return binary[start : binary.index(b"\0", start)].decode()


# Those with work removed are made of the same code.
@pytest.mark.slow
@pytest.mark.parametrize(
    "generator",
    [generator for generator in ALL_GENERATORS if not generator.name.endswith(("_mem", "_core"))],
    ids=lambda generator: generator.name,
)
def test_each_generators_kernels_compile_and_fit(generator):
    number = ALL_GENERATORS.index(generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernels = kernels_of(generator)
    for kernel in kernels:
        plan = plan_launch(rolled(kernel.kernel), "cuda")
        # Every kernel for one of the two, and every fourth for both.
        for arch in ("sm_80", "sm_90") if number % 4 == 0 else (("sm_80", "sm_90")[number % 2],):
            compiled = compile_cuda(plan.source, arch)
            assert compiled.binary
            assert set(compiled.resources) == {program.name for program in plan.programs}
            stated = {name: taken.registers for name, taken in compiled.resources.items()}
            assert registers_in(compiled.binary) == stated
            for program in plan.programs:
                items = prod(map(int, program.work_group))
                taken = compiled.resources[program.name]
                assert 0 < taken.registers <= min(255, 65536 // items)
                assert taken.spill_bytes == 0


def test_vectors_are_loaded_as_wide_as_the_hardware_can(one):
    for dtype, wide in (("float32", 1), ("float64", 2)):
        kernel = one("gmem_copy", f"dtype:{dtype}", "width:4", "groups_fit:True", "nelements:4194304", "lsize_0:256")
        source = plan_launch(kernel.kernel, "cuda").source
        assert source.count("__align__(16)") == 1
        compiled = compile_cuda(source, "sm_80")
        assert compiled.resources["gmem_copy"].registers <= 8 + 8 * wide
