"""The generated OpenCL has the paper's shape, and building it raises no warning."""

import re
import warnings

import loopy as lp
import pytest
from truth import rolled

from uipick import ALL_GENERATORS, KernelCollection

# Variants differ in nothing that could warn but guards, and of the slow and many the guarded ones suffice.
FEW = {"dtype": "float64"}
FEWER = {**FEW, "groups_fit": False}


def _code(kernel):
    code = lp.generate_code_v2(kernel.kernel).device_code()
    return re.sub(r"/\*.*?\*/", "", code[code.index("__kernel") :])


def _lines(kernel):
    return [line.strip() for line in _code(kernel).splitlines() if line.strip() not in {"", "{", "}"}]


def _variants():
    for generator in ALL_GENERATORS:
        slow = generator.name.startswith("flops") or generator.name.endswith("_mem")
        chosen = (FEWER if slow else FEW).items()
        narrowed = [
            f"{name}:{value}"
            for name, value in chosen
            if name in generator.by_name and generator.by_name[name].read(str(value)) is not None
        ]
        kernels = KernelCollection([generator]).generate_kernels([generator.name, *narrowed])
        yield from {id(k.kernel): k for k in kernels}.values()


@pytest.mark.slow
def test_every_default_variant_states_its_sizes_and_generates_code_without_a_warning():
    variants = list(_variants())
    assert len(variants) > 120
    # Code from loopy's cache on disk would come without its warnings.
    with warnings.catch_warnings(), lp.CacheMode(False):
        warnings.simplefilter("error")
        for kernel in variants:
            values = {a.name for a in kernel.kernel.default_entrypoint.args if isinstance(a, lp.ValueArg)}
            assert values == set(kernel.sizes), kernel.name
            assert "__kernel" in lp.generate_code_v2(rolled(kernel.kernel)).device_code()


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "form"), [
    ("flops_add", r"x\d+ \+ x\d+"), ("flops_mul", r"x\d+ \* x\d+"), ("flops_madd", r"x\d+ \* one \+ x\d+"),
    ("flops_div", r"x\d+ / x\d+"), ("flops_sqrt", r"sqrt\(x\d+\)"), ("iops_add", r"x\d+ \+ x\d+"),
    ("iops_bit", r"x\d+ \^ x\d+ & x\d+"),
])  # fmt: skip
def test_patterns_keep_32_variables_and_no_update_depends_on_the_last_four(one, operation, form):
    dtype, word = ("int32", "int") if operation.startswith("iops") else ("float32", "float")
    lines = _lines(one(f"{operation}_pattern", f"dtype:{dtype}", "groups_fit:True", "nelements:524288", "m:1024"))
    assert len([line for line in lines if re.fullmatch(rf"{word} x\d+;", line)]) == 32
    # One loop, with all 64 copies in it.
    (start,) = (number for number, line in enumerate(lines) if line.startswith("for ("))
    _check_updates([line for line in lines[start + 1 :] if line.startswith("x")], form, 64)


def _check_updates(updates, form, unroll):
    assert len(updates) == unroll * 32
    assert len({line.split(" = ")[0] for line in updates}) == 32
    latest = []
    for line in updates:
        target, expression = line.rstrip(";").split(" = ")
        assert re.fullmatch(form, expression), line
        assert not set(latest[-4:]) & set(re.findall(r"x\d+", expression)), line
        latest.append(target)
