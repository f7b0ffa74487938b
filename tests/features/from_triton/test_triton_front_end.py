"""Triton's own front end, launches and the decorator; all of it needs Triton, and no GPU."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from perflex import load_times
from perflex.errors import MissingExtraError, PerflexWarning, UnsupportedKernelError
from support.triton_data import NAMES, stored

pytestmark = [pytest.mark.machine, pytest.mark.filterwarnings("ignore::perflex.errors.DoubtfulPredictionWarning")]
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402

import perflex.triton  # noqa: E402
from perflex.features.from_triton import front_end  # noqa: E402
from perflex.features.from_triton.front_end import triton_source  # noqa: E402
from perflex.features.from_triton.interpreter import Launch  # noqa: E402
from perflex.features.from_triton.launches import StandIn, TritonKernel, configuration_of, launch_of  # noqa: E402
from support.triton_kernels import CASES  # noqa: E402
from support.triton_products import matmul_kernel  # noqa: E402

TILES = [(128, 128, 32), (128, 128, 64), (64, 128, 32), (64, 64, 64), (128, 64, 32), (32, 64, 64), (128, 256, 64)]
CONFIGS = [
    triton.Config(
        {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8, "ACTIVATION": ""}, warps, stages
    )
    for (m, n, k), warps, stages in itertools.product(TILES, (4, 8), (3, 4))
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Keep TTIR of other tests, and of earlier versions, out."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    front_end._codes.clear()
    return tmp_path / "cache"


def tuned(**options):
    return triton.autotune(configs=CONFIGS, key=["M", "N", "K"], **options)(matmul_kernel)


def arguments(m=4096, n=4096, k=4096):
    a, b, c = (StandIn("fp16", *shape) for shape in ((m, k), (k, n), (m, n)))
    strides = {
        "stride_am": k, "stride_ak": 1, "stride_bk": n, "stride_bn": 1, "stride_cm": n, "stride_cn": 1
    }  # fmt: skip
    return {"a_ptr": a, "b_ptr": b, "c_ptr": c, "M": m, "N": n, "K": k, **strides}


def grid(meta):
    return (triton.cdiv(meta["M"], meta["BLOCK_SIZE_M"]) * triton.cdiv(meta["N"], meta["BLOCK_SIZE_N"]),)


def bench(call, quantiles):
    call()
    return [1.0 for _ in quantiles]


def kept(tuner, **sizes):
    tuner.nargs = arguments(**sizes)
    return tuner.prune_configs({"grid": grid, "warmup": False})


@pytest.mark.parametrize("name", NAMES)
def test_ttir_is_that_of_tritons_compiler(name, monkeypatch):
    """Its version's TTIR is stored; syntax trees that are used again change nothing."""
    case, data = CASES[name], stored(name)
    version = next((one for one in data["ttir"] if triton.__version__.startswith(one)), None)
    if version is None:
        pytest.skip(f"there is no TTIR of Triton {triton.__version__}")
    numbers = {one["name"]: one["value"] for one in data["arguments"] if "value" in one}
    arrays = {one["name"]: StandIn(one["type"][1:], 1) for one in data["arguments"] if one["type"].startswith("*")}
    given = numbers | arrays | data["constexprs"]
    monkeypatch.setattr(front_end, "_kept", lambda _key, make: make())
    for capability, text in data["ttir"][version].items():
        for _ in range(2):
            front_end._codes.clear()
            assert triton_source(case.kernel, given, {}, int(capability)).code().text == text


def test_later_processes_find_the_ttir_that_is_kept(own_cache, monkeypatch):
    launch = launch_of(matmul_kernel, arguments(), grid)
    configuration = configuration_of(CONFIGS[0])

    def counted():
        front_end._codes.clear()
        return TritonKernel(launch, configuration).program({})

    made = counted()
    with monkeypatch.context() as patched:
        patched.setattr("triton.compiler.ASTSource.make_ir", None)
        assert counted() == made
    # Without a cache that can be written it is made anew.
    shutil.rmtree(own_cache)
    own_cache.write_text("no folder")
    assert counted() == made


def sizes_in(ptx, names):
    """Return the largest bytes of a load or store of each array, whose addresses are followed to the arguments."""
    made, used = {}, []
    for text in ptx.splitlines():
        registers = re.findall(r"%rd\d+", text)
        if found := re.search(r"ld\.param\.b64\s+(%rd\d+), \[\w+_param_(\d+)\]", text):
            made[found[1]] = {int(found[2])}
        elif found := re.search(r"\b(ld|st)\.global\S*?(?:\.v(\d))?\.[bfus](\d+) .*\[ ?(%rd\d+)", text):
            used.append((found[4], "load" if found[1] == "ld" else "store", int(found[2] or 1) * int(found[3]) // 8))
        elif found := re.search(r"cp\.async\.c\w\.shared\.global .*\[ ?(%rd\d+).*\], (0x[0-9a-f]+|\d+)", text):
            used.append((found[1], "load", int(found[2], 0)))
        elif registers:
            made.setdefault(registers[0], set()).update(registers[1:])

    def arguments_of(register, seen):
        if isinstance(register, int) or register in seen:
            return {register} if isinstance(register, int) else set()
        return set().union(*(arguments_of(one, seen | {register}) for one in made.get(register, ())))

    largest = {}
    for register, direction, size in used:
        for number in arguments_of(register, frozenset()):
            key = names[number], direction
            largest[key] = max(size, largest.get(key, 0))
    return largest


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", ["matmul_even", "softmax", "layer_norm_even", "quantise_even", "swiglu"])
def test_vectors_are_those_of_compiled_code(name, known):
    """Where Triton is told which arguments are multiples of 16, and where it is not."""
    case = CASES[name]
    given = {one: StandIn(value.type, value.size) if hasattr(value, "size") else value
             for one, value in {**case.arguments, **case.constexprs}.items()}  # fmt: skip
    numbers = [one for one, value in case.arguments.items() if not hasattr(value, "size")]
    kernel = case.kernel if known else triton.jit(case.kernel.fn, do_not_specialize_on_alignment=numbers)
    made = triton_source(kernel, given, {})
    names = [one for one, kind in made.ast.signature.items() if kind != "constexpr"]
    options = {"num_warps": case.warps, "num_stages": case.stages}
    compiled = triton.compile(made.ast, target=GPUTarget("cuda", 80, 32), options=options)
    true = sizes_in(compiled.asm["ptx"], names)
    launch = Launch({one: case.arguments[one] for one in numbers}, {}, (*case.grid, 1, 1)[:3])
    found = {}
    for one in made.code().program(launch, most=16).accesses:
        # Of a small tile a work-item has less.
        most = max(one.itemsize, math.prod(one.shape) * one.itemsize // (32 * case.warps))
        key = one.array, one.direction
        found[key] = max(min(one.vector, most), found.get(key, 0))
    assert true.items() >= found.items()


def test_five_configurations_stay_and_the_best_come_first():
    tuner = perflex.triton.prune(machine="A100-80GB", keep=5)(tuned())
    chosen = kept(tuner)
    assert len(chosen) == 5
    assert len(tuner.ranking) + len(tuner.ranking.variants.missing) == len(CONFIGS)
    assert [str(configuration_of(one)) for one in chosen] == [one.name for one in tuner.ranking[:5]]
    # An A100 does this product in 0.44 ms at its peak, and in about half as much again.
    assert 0.44e-3 < tuner.ranking[0].predicted < 0.9e-3


@pytest.mark.filterwarnings("ignore:.*not judged with spilt registers")
@pytest.mark.parametrize(("keep", "count"), [(0.25, 7), (1, 1), (100, 28)])
def test_shares_and_numbers_are_kept(keep, count):
    tuner = perflex.triton.prune(machine="A100-80GB", keep=keep)(tuned())
    chosen = kept(tuner)
    assert len(chosen) == min(count, len(tuner.ranking))


@pytest.mark.filterwarnings("ignore:.*not judged with spilt registers")
def test_configurations_that_the_machine_cannot_run_are_named():
    tuner = perflex.triton.prune(machine="RTX-3090", keep=100)(tuned())
    with pytest.warns(PerflexWarning, match="RTX-3090 is of another architecture"):
        chosen = kept(tuner)
    refused = tuner.ranking.variants.missing
    assert len(chosen) + len(refused) == len(CONFIGS)
    assert {one.kernel.configuration.constants["BLOCK_SIZE_N"] for one in refused} >= {256}
    assert all("B of shared memory, RTX-3090 has" in one.reason for one in refused)


def test_a_kernels_own_pruning_comes_first():
    def own(configs, _named, **_given):
        return [config for config in configs if config.num_warps == 8]

    tuner = perflex.triton.prune(machine="A100-80GB", keep=3)(tuned(prune_configs_by={"early_config_prune": own}))
    assert {config.num_warps for config in kept(tuner)} == {8}


def test_what_cannot_be_predicted_is_left_as_it_is_and_said_once():
    tuner = perflex.triton.prune()(tuned())
    with pytest.warns(PerflexWarning, match="all 28 configurations are kept: there is no GPU here; name a machine"):
        assert kept(tuner) == CONFIGS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kept(tuner) == CONFIGS


def test_without_an_autotuner_it_is_refused():
    with pytest.raises(UnsupportedKernelError, match="stands above @triton"):
        perflex.triton.prune(machine="A100-80GB")(matmul_kernel)


@pytest.mark.parametrize("keep", [1, 2])
def test_where_all_that_are_kept_fail_the_next_are_tried(keep, monkeypatch):
    from triton.runtime.errors import OutOfResources

    ran = []

    def run(*_args, **given):
        config = given["BLOCK_SIZE_M"], given["BLOCK_SIZE_N"], given["BLOCK_SIZE_K"]
        ran.append(config)
        if config[0] == 128:
            raise OutOfResources(300000, 166912, "shared memory")

    tuner = perflex.triton.prune(machine="A100-80GB", keep=keep)(tuned(do_bench=bench))
    monkeypatch.setattr(tuner, "fn", type("Kernel", (), {"run": staticmethod(run), "fn": matmul_kernel})())
    monkeypatch.setattr(
        "perflex.search.triton_configurations.launch_of", lambda _, *rest: launch_of(matmul_kernel, *rest)
    )
    given = arguments()
    tuner.run(*given.values(), grid=grid, warmup=False)
    # Tiles of 128 rows are predicted best, and fail.
    assert ran[0][0] == 128
    assert ran[-1][0] < 128


def test_a_library_with_a_cache_of_its_own_gets_the_kernels_error(monkeypatch):
    from triton.runtime.errors import OutOfResources

    def run(*_args, **_given):
        raise OutOfResources(300000, 166912, "shared memory")

    tuner = perflex.triton.prune(machine="A100-80GB", keep=1)(tuned(do_bench=bench))
    monkeypatch.setattr(tuner, "fn", type("Kernel", (), {"run": staticmethod(run), "fn": matmul_kernel})())
    monkeypatch.setattr(
        "perflex.search.triton_configurations.launch_of", lambda _, *rest: launch_of(matmul_kernel, *rest)
    )
    held = {}
    ways = {"__contains__": held.__contains__, "__getitem__": held.__getitem__, "__setitem__": held.__setitem__}
    tuner.cache = type("Cache", (), {name: staticmethod(way) for name, way in ways.items()})()
    with pytest.raises(OutOfResources):
        tuner.run(*arguments().values(), grid=grid, warmup=False)


class Tensor(StandIn):
    """Tells what hooks do with it."""

    def __init__(self, *shape):
        super().__init__("fp16", *shape)
        self.seen = []

    def __getattr__(self, name):
        if name not in {"zero_", "clone", "copy_"}:
            raise AttributeError(name)
        return lambda *_: self.seen.append(name)


def test_hooks_run_for_what_is_kept_alone(monkeypatch):
    hooked = []
    configs = [
        triton.Config(one.kwargs, one.num_warps, one.num_stages, pre_hook=lambda _, one=one: hooked.append(one))
        for one in CONFIGS
    ]
    options = {"reset_to_zero": ["c_ptr"], "restore_value": ["b_ptr"], "do_bench": bench}
    tuner = perflex.triton.prune("A100-80GB", keep=2)(triton.autotune(configs, ["M"], **options)(matmul_kernel))
    ran = []
    run = staticmethod(lambda *_, **given: ran.append(given["BLOCK_SIZE_M"]) or 1.0)
    monkeypatch.setattr(tuner, "fn", type("Kernel", (), {"run": run, "fn": matmul_kernel})())
    monkeypatch.setattr(
        "perflex.search.triton_configurations.launch_of", lambda _, *rest: launch_of(matmul_kernel, *rest)
    )
    given = arguments() | {"b_ptr": Tensor(4096, 4096), "c_ptr": Tensor(4096, 4096)}
    tuner.run(*given.values(), grid=grid, warmup=False)
    # Two are measured, and the faster of them runs.
    assert len(ran) == 3
    assert [hooked[0], hooked[1]] != [hooked[0]] * 2
    assert hooked[2] in hooked[:2]
    assert given["c_ptr"].seen == ["zero_"] * 3
    assert given["b_ptr"].seen == ["clone", "copy_"] * 2


@triton.jit
def through_descriptors(source, target, BLOCK: tl.constexpr):  # noqa: N803
    row = tl.program_id(0) * BLOCK
    target.store([row, 0], source.load([row, 0]))


def test_hooks_say_which_blocks_descriptors_have():
    def hook(given):
        for name in ("source", "target"):
            given[name].block_shape = [given["BLOCK"], 64]

    def broken(given):
        del given["other"]

    described = [
        SimpleNamespace(base=StandIn("fp16", 4096, 64), shape=[4096, 64], strides=[64, 1], block_shape=[1, 1])
        for _ in range(2)
    ]
    configs = [triton.Config({"BLOCK": size}, pre_hook=hook) for size in (32, 128)]
    configs.append(triton.Config({"BLOCK": 64}, pre_hook=broken))
    tuner = triton.autotune(configs, [])(through_descriptors)
    launch = launch_of(
        tuner, dict(zip(("source", "target"), described, strict=True)), lambda meta: (4096 // meta["BLOCK"],)
    )
    with pytest.warns(PerflexWarning, match="left out: .* a pre_hook fails"):
        (missing,) = perflex.triton.rank(launch, "H100-SXM").variants.missing
    assert missing.kernel.configuration == launch.configurations[2]
    assert "a pre_hook fails (KeyError: 'other')" in missing.reason
    programs = [TritonKernel(launch, one, 90).program({}) for one in launch.configurations[:2]]
    assert [one.accesses[0].shape for one in programs] == [(32, 64), (128, 64)]
    assert [one.accesses[0].bytes for one in programs] == [4096 * 64 * 2] * 2
    assert described[0].block_shape == [1, 1]


@pytest.mark.parametrize("form", ["tuple", "function", "one", "names", "warmup"])
def test_launches_of_any_form_are_pruned_alike(form):
    """Arguments by place or name, the grid as a number of programs or a function, to run or to compile only."""
    asked = kept(perflex.triton.prune("A100-80GB", keep=3)(tuned()), m=1024)
    tuner, given = perflex.triton.prune("A100-80GB", keep=3)(tuned()), arguments(1024)
    compiled = []

    class Kernel:
        def run(self, *_args, **named):
            compiled.append(named)
            return 1.0

        warmup = run

    tuner._do_bench, original = bench, tuner.prune_configs

    def pruned(named):
        found = original(named)
        tuner.fn = Kernel()
        return found

    tuner.prune_configs = pruned
    places = () if form == "names" else tuple(given.values())
    named = given if form == "names" else {}
    programs = {"tuple": (8, 8), "one": (64,)}.get(form, grid)
    if form == "warmup":
        tuner.warmup(*places, grid=programs)
    else:
        tuner.run(*places, grid=programs, warmup=False, **named)
    sizes = [tuple(one[f"BLOCK_SIZE_{axis}"] for axis in "MNK") for one in compiled[:3]]
    if callable(programs):
        assert sizes == [tuple(one.kwargs[f"BLOCK_SIZE_{axis}"] for axis in "MNK") for one in asked]
    assert len(compiled) == (3 if form == "warmup" else 4)


def test_what_is_recorded_is_read_again(tmp_path, monkeypatch):
    def launch(M, N, K):  # noqa: N803 - the autotuner's keys
        tuned()[grid](**arguments(M, N, K))

    if not hasattr(triton.knobs.autotuning, "listener"):  # before 3.8
        with pytest.raises(MissingExtraError, match="TRITON_CACHE_AUTOTUNING"):
            perflex.triton.record(tmp_path / "times.jsonl")
        return
    told = []
    monkeypatch.setattr(triton.knobs.autotuning, "listener", lambda **given: told.append(given["key"]))
    perflex.triton.record(tmp_path / "times.jsonl")
    limited = triton.Config(CONFIGS[1].kwargs, maxnreg=64)
    times = {CONFIGS[0]: [0.5, 0.4, 0.6], limited: [0.25], triton.Config({}, num_ctas=2): [0.1]}
    triton.knobs.autotuning.listener(fn=matmul_kernel, key=(512, 256, 128, "torch.float16"), configs_timings=times)
    rows = load_times(tmp_path / "times.jsonl", {"launch": launch}).rows
    assert [row.kernel.configuration for row in rows] == [configuration_of(one) for one in (CONFIGS[0], limited)]
    assert [row.seconds for row in rows] == [0.5e-3, 0.25e-3]
    assert rows[0].kernel.program({}).registers is None
    assert rows[1].kernel.program({}).registers == 64
    assert told == [(512, 256, 128, "torch.float16")]


def test_a_launch_is_captured_and_predicted_exactly():
    def launch(n=1000):
        given = arguments(n, 512, 256)
        matmul_kernel[grid](*given.values(), 64, 32, 32, 8, "", num_warps=8)

    made = perflex.triton.capture(launch, {"n": 512})
    program = TritonKernel(made, made.configurations[0]).program({})
    assert program.exact
    assert program.grid == (8 * 16, 1, 1)
    assert program.warps == 8
    assert sum(dot.flops for dot in program.dots) == 2 * 512 * 512 * 256


@pytest.mark.parametrize(
    ("places", "named", "said"),
    [(30, {}, "too many positional arguments"), (0, {"other": 1}, "unexpected keyword argument 'other'")],
)
def test_arguments_that_a_kernel_has_not_are_named(places, named, said):
    def launch():
        matmul_kernel[grid](*range(places), **named)

    with pytest.raises(UnsupportedKernelError, match=f"launch launches kernel 'matmul_kernel' .* it has not: .*{said}"):
        perflex.triton.capture(launch, {})


def test_thirty_configurations_take_no_longer_than_promised():
    """From the decorator to the kept ones: the processor's time, which other work on the machine does not change."""
    tuner = perflex.triton.prune(machine="A100-80GB", keep=5)(tuned())
    kept(perflex.triton.prune(machine="A100-80GB")(tuned()), m=128, n=128, k=128)
    begin = time.process_time()
    kept(tuner, m=2048)
    assert time.process_time() - begin < 2.0


def test_compiled_code_says_what_it_takes():
    """Two stages of tiles of fp16 stand in shared memory; no work-item has over 255 registers."""
    launch = launch_of(matmul_kernel, arguments(), grid)
    for config in (CONFIGS[0], triton.Config(CONFIGS[0].kwargs, 4, 3, maxnreg=128)):
        program = TritonKernel(launch, configuration_of(config), compiled=True).program({})
        assert program.resources.local_bytes == 2 * (128 + 128) * 32 * 2
        assert 128 <= program.resources.registers <= (config.maxnreg or 255)
        assert (program.resources.spilt_bytes > 0) == (config.maxnreg is not None)
    source, _ = TritonKernel(launch, configuration_of(CONFIGS[0]))._launched
    with pytest.raises(UnsupportedKernelError, match="cannot compile kernel 'matmul_kernel': num_warps must be"):
        source.resources({"num_warps": 3})


def test_contents_of_arrays_are_taken_from_the_host():
    case = CASES["fused_moe"]
    given = {name: np.array(value.values) if value.values else StandIn(value.type, value.size)
             for name, value in case.arrays.items()}  # fmt: skip
    numbers = {name: value for name, value in case.arguments.items() if name not in given}
    made = launch_of(case.kernel, {**given, **numbers, **case.constexprs}, case.grid)
    configuration = perflex.triton.Configuration({})
    program = TritonKernel(made, configuration).program({})
    truth = stored("fused_moe")["truth"]["arrays"]["a_ptr"]["load"]
    assert sum(one.elements for one in program.accesses if one.array == "a_ptr") == truth["elements"]


def test_commands_take_functions_that_launch(tmp_path, capsys):
    from perflex.__main__ import main

    path = tmp_path / "launches.py"
    path.write_text(
        "import triton\nfrom perflex.triton import tensor\n"
        "from support.triton_products import matmul_kernel\n"
        "tiles = [(64, 64, 32), (128, 128, 64)]\n"
        "configs = [triton.Config({'BLOCK_SIZE_M': m, 'BLOCK_SIZE_N': n, 'BLOCK_SIZE_K': k, 'GROUP_SIZE_M': 8,"
        " 'ACTIVATION': ''}) for m, n, k in tiles]\n"
        "tuned = triton.autotune(configs=configs, key=['M'])(matmul_kernel)\n\n\n"
        "def launch(M, N=1024, K=512):\n"
        "    a, b, c = (tensor('fp16', *shape) for shape in ((M, K), (K, N), (M, N)))\n"
        "    tuned[lambda meta: (triton.cdiv(M, meta['BLOCK_SIZE_M']) * triton.cdiv(N, meta['BLOCK_SIZE_N']),)](\n"
        "        a, b, c, M, N, K, K, 1, N, 1, N, 1)\n"
    )
    word = f"{path}:launch"
    assert main(["rank", "--machine", "A100-80GB", word, "M=4096"]) == 0
    assert sum(line.startswith("BLOCK_SIZE_M=") for line in capsys.readouterr().out.splitlines()) == 2
    choice = [word, "M=4096", "BLOCK_SIZE_M=64", "--confidence", "0.95"]
    assert main(["predict", "--machine", "A100-80GB", *choice]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^sizes +predicted \(µs\) +from \(µs\) +to \(µs\)$", shown, re.MULTILINE)
    assert "the model's usual values alone" in shown
    assert "f_tile_" in shown
    assert main(["features", word, "M=4096", "BLOCK_SIZE_M=64", "-f", "f_tile_flops"]) == 0
    assert str(2 * 4096 * 1024 * 512) in capsys.readouterr().out
    for name in ("tuned", "matmul_kernel"):
        assert main(["rank", "--machine", "A100-80GB", f"{path}:{name}"]) == 2
        assert f"{name} is a kernel of Triton; name a function that launches it" in capsys.readouterr().err
    assert main(["predict", "--machine", "A100-80GB", word, "M=4096"]) == 2
    assert "launch has 2 configurations; choose one" in capsys.readouterr().err
