"""What operations are made of: against counters of a GPU, and against compiled code."""

import pytest

from oracles.nvrtc import nvrtc_library
from oracles.usual_paths import disassembler, functions, usual
from perflex.errors import UnsupportedKernelError
from perflex.features import Target, extract_scop, parse_feature
from perflex.features.instructions.operation_slots import flops_of, slots_of
from support.written_kernels import written

needs_compiler = pytest.mark.skipif(
    nvrtc_library() is None or disassembler() is None,
    reason="no compiler: pip install nvidia-cuda-nvrtc nvidia-cuda-nvdisasm",
)


@pytest.mark.parametrize(("kind", "dtype", "counted"), [
    # Of HeCBench on an RTX 3080 (Nsight Compute): thread instructions of additions and products, a multiply-add as two,
    # beyond those that the source has, for each call. Programs lud and particles, metropolis, minkowski; thomas; gabor.
    ("div", "float32", {"float32": 10}),
    ("exp", "float32", {"float32": 11}),
    ("pow", "float32", {"float32": 59}),
    ("div", "float64", {"float64": 15, "float32": 2}),
    ("cos", "float64", {"float64": 24}),
    ("exp", "float64", {"float64": 30}),
])  # fmt: skip
def test_operations_that_counters_see(kind, dtype, counted):
    # Their compiler, clang, takes one more in exponentials.
    found = flops_of(kind, dtype)
    assert found.keys() == counted.keys()
    for of, number in found.items():
        assert abs(number - counted[of]) <= 1, of
    assert found == counted or kind in {"exp", "pow"}


def flops(body, dtype, *, data="x, y: float32[32*n]; u, v: float64[32*n]"):
    scop = extract_scop(written("{[g,l]: 0<=g<n and 0<=l<32}", body, data, "g: g.0; l: l.0"))
    return parse_feature(f"f_flop_{dtype}").value(scop, {"n": 4}, Target()) / 128


def test_operations_of_a_kernel_by_hand():
    # A product that feeds a sum is two, a division of doubles has two operations of floats beside its fifteen.
    body = """
    y[32*g+l] = exp(x[32*g+l]) * x[32*g+l] + y[32*g+l]
    v[32*g+l] = u[32*g+l] / v[32*g+l] + u[32*g+l]
    """
    assert flops(body, "float32") == 10 + 2 + 2
    assert flops(body, "float64") == 15 + 1
    assert flops("y[32*g+l] = fmax(fabs(x[32*g+l]), y[32*g+l])", "float32", data="x, y: float32[32*n]") == 0


def test_functions_that_are_not_known_have_no_operations():
    with pytest.raises(UnsupportedKernelError, match="call:mine of float32 is made of is not known"):
        flops_of("call:mine", "float32")
    # They have a time all the same, and half precision has operations of its own.
    assert slots_of("call:mine", "float32")["fp32"] == 20
    assert flops_of("exp", "float16") == {}


# Cycles of a chain's operation on an H100, for each sub-group of a quarter of a compute unit that starts an instruction
# in each: the times of `op_chain` in the calibration general_gpu_h100_cuda. A logarithm's has an addition, too.
CYCLES = {
    ("div", "float32"): 17.3, ("sqrt", "float32"): 10.9, ("rsqrt", "float32"): 8.1, ("exp", "float32"): 11.3,
    ("log", "float32"): 31.5, ("sin", "float32"): 26.5, ("cos", "float32"): 27.9,
    ("div", "float64"): 27.3, ("sqrt", "float64"): 27.4,
}  # fmt: skip
# A unit starts an instruction of 32 work-items in so many cycles.
BUSY = {"special": 8, "fp64": 2, "int32": 2, "int32_mul": 2, "fp32": 1}


@pytest.mark.parametrize(("kind", "dtype"), CYCLES)
def test_operations_take_no_fewer_cycles_than_their_instructions(kind, dtype):
    slots = slots_of(kind, dtype)
    least = max(sum(slots.values()), *(BUSY[pipe] * number for pipe, number in slots.items()))
    assert (0.55 if dtype == "float64" else 0.7) < least / CYCLES[kind, dtype] <= 1


# Beside them sources have the operands a and b. Kinds that are the same instruction as another are not looked at.
FUNCTIONS = {
    "add": "a + b", "mul": "a * b", "madd": "a * b + b", "max": "fmax(a, b)", "div": "a / b", "floor": "floor(a)",
    "sqrt": "sqrt(a)", "rsqrt": "rsqrt(a)", "exp": "exp(a)", "exp2": "exp2(a)", "exp10": "exp10(a)", "log": "log(a)",
    "log2": "log2(a)", "log10": "log10(a)", "log1p": "log1p(a)", "pow": "pow(a, b)", "sin": "sin(a)", "cos": "cos(a)",
    "tan": "tan(a)", "asin": "asin(a)", "acos": "acos(a)", "atan": "atan(a)", "tanh": "tanh(a)", "acosh": "acosh(a)",
    "atanh": "atanh(a)", "hypot": "hypot(a, b)", "erf": "erf(a)", "erfc": "erfc(a)",
}  # fmt: skip
NATIVE = {
    "native_div": "__fdividef(a, b)", "native_exp": "__expf(a)", "native_exp10": "__exp10f(a)",
    "native_log": "__logf(a)", "native_log2": "__log2f(a)", "native_log10": "__log10f(a)", "native_sin": "__sinf(a)",
    "native_cos": "__cosf(a)", "native_tan": "__tanf(a)", "native_pow": "__powf(a, b)",
}  # fmt: skip
INTEGERS = {"add": "a + b", "mul": "a * b", "min": "a < b ? a : b", "bit": "a ^ b", "div": "a / b"}
TYPES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long"}
# Compilers for one architecture or another move some values in other ways.
NEAR = 0.1


@needs_compiler
@pytest.mark.machine
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", TYPES)
def test_instructions_of_operations_in_compiled_code(architecture, dtype):
    name = TYPES[dtype]
    operations = FUNCTIONS if dtype.startswith("float") else INTEGERS
    operations = operations | (NATIVE if dtype == "float32" else {})
    source = "\n".join(
        f'extern "C" __global__ void k_{kind}({name} *x, {name} *y) '
        f"{{ {name} a = x[threadIdx.x], b = x[threadIdx.x + 1]; *y = {text}; }}"
        for kind, text in operations.items()
    )
    compiled = functions(source, architecture)
    for kind in operations:
        pipes, sure, perhaps = usual(compiled[f"k_{kind}"])
        slots = slots_of(kind, dtype)
        if dtype == "float64" and kind == "floor":
            assert (sum(pipes.values()), slots) == (1, {"fp64": 1}), kind
            continue
        for pipe in ("fp32", "fp64") if dtype == "float32" else ("fp64",):
            assert abs(slots.get(pipe, 0) - pipes[pipe]) <= NEAR * pipes[pipe], (kind, pipe)
        assert abs(slots.get("special", 0) - pipes["special"]) <= 1, kind
        assert abs(sum(slots.values()) - pipes.total()) <= NEAR * pipes.total(), (kind, slots, pipes)
        for letter, of in (("F", "float32"), ("D", "float64")):
            stated = flops_of(kind, dtype).get(of, 0)
            least = sure[letter]
            assert least <= stated <= least + perhaps[letter], (kind, of, stated)
