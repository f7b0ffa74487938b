"""Bad input on the command line: one line on standard error, the right exit code, nothing executed or written."""

import shlex
from pathlib import Path

import pytest

from perflex.__main__ import main
from support.own_model import MODEL
from support.saved_calibrations import saved_text
from support.small_source_space import SPACE

EXAMPLES = Path(__file__).parents[2] / "examples"
CL = """
__kernel void saxpy(int n, float a, __global const float *x, __global float *y) {
  int i = get_global_id(0);
  if (i < n) y[i] += a*x[i];
}
__kernel void twice(int n, __global float *x) { int i = get_global_id(0); if (i < n) x[i] *= 2; }
"""
CU = "\n__global__ void saxpy(int n, float *y) { y[blockIdx.x*blockDim.x + threadIdx.x] = 1; }\n"
KERNELS = """
import json

import loopy as lp
import numpy as np

def sequential():
    return lp.make_kernel("{[i]: 0 <= i < n}", "b[i] = a[i]",
                          [lp.GlobalArg("a, b", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
                          lang_version=(2018, 2), target=lp.PyOpenCLTarget())

def needs(n):
    return sequential()

def wrong():
    return 3

def fails():
    return json.loads("{mine")

number = 5
"""
FILES = {
    "c.yaml": saved_text("matmul_sq_amd_epyc_4cores_intel_opencl"), "k.py": KERNELS, "broken.py": "def make(:\n",
    "at_once.py": "\n{}['mine']\n", "my.cl": CL, "my.cu": CU, "none.cl": "void helper(int n) {}", "file": "in the way",
    "t.csv": "kernel,seconds\nsaxpy,1e-6\n", "mine.yaml": MODEL, "log.csv": "kernel,n,time_us\nnaive,128,70\n",
    "space.yaml": SPACE, "tag.yaml": "!!python/object/apply:os.system ['touch executed']\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


MATMUL, JACOBI = "examples/matmul.py", "layers examples/jacobi.py:seven_point"
SAMPLES = f"calibrate mine.yaml --times log.csv --kernels {MATMUL}"
TRANSFER = "transfer c.yaml --machine A40 -o new.yaml"
KEEP = "write 5%, 20, promise, or promise:0.05,0.95"
IS_A_SPACE = "is a space of variants, and not one kernel; 'perflex prune' predicts"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("list generators matmull", "matmull"),
        ("list generators n:3", "n:3"),
        # Kernels and sizes
        (f"predict c.yaml {MATMUL}:naive", "needs a value for size n"),
        (f"features {MATMUL}:naive n=x", "size 'n' must be an integer"),
        (f"features {MATMUL}:none n=16", "has no 'none'; it has "),
        ("features k.py:number", "number is a int; name a function that returns a loopy TranslationUnit"),
        ("features k.py:needs", "k.py: missing a required argument: 'n'; give its arguments defaults"),
        ("features k.py:wrong", "wrong is a int; name a function"),
        # The error is raised below the user's file; its line is that of the file's own call.
        ("features k.py:fails", "k.py, line 19 in fails: JSONDecodeError: Expecting"),
        ("features k.py", "write KERNEL.py:function"),
        ("features absent.py:make", "there is no file absent.py"),
        ("features file:make", "is no Python file"),
        ("features broken.py:make", "broken.py, line 1"),
        ("features at_once.py:make", "at_once.py, line 2: KeyError: 'mine'"),
        (f"features {MATMUL}:naive n=16 -f f_waves", "f_waves needs a machine"),
        (f"features {MATMUL}:naive n=16 --code machine", "give --machine NAME"),
        (f"features {MATMUL}:naive n=16 --code machine --machine rome", "code is compiled for GPUs of NVIDIA and AMD"),
        (f"features {MATMUL}:naive n=16 --machine H200 -f f_code_cycles", "known of code for a CPU only"),
        (f"features {MATMUL}:naive n=16 -f f_code_barriers", "--code machine --machine NAME"),
        # Source code
        ("features my.cl n=4", "my.cl names no kernel of the file; name one: my.cl:saxpy, my.cl:twice"),
        ("volumes my.cu n=4 --machine V100", "name one: my.cu:saxpy"),
        ("roofline my.cl n=4 --machine V100", "name one: my.cl:saxpy, my.cl:twice"),
        ("predict --machine A100-40GB my.cl n=4", "name one: my.cl:saxpy, my.cl:twice"),
        ("rank --machine A100-40GB my.cl:saxpy my.cu n=4 --local 64 --global n", "name one: my.cu:saxpy"),
        ("features none.cl n=4", "none.cl names no kernel of the file; it has none"),
        ("features not_there.cl n=4", "cannot read not_there.cl: No such file"),
        ("features my.cl:saxpz n=4", "my.cl has no kernel 'saxpz'; it has saxpy, twice"),
        ("features my.cl:saxpy n=4", "kernel 'saxpy' needs its launch; give local=(32, 8) and groups=..., on the"),
        ("prune --machine A100-40GB my.cl n=4", "schema: perflex-source/1"),
        ("prune --machine A100-40GB my.cu:saxpy n=4", "schema: perflex-source/1"),
        ("tune --machine A100-40GB my.cl:saxpy n=4", "schema: perflex-source/1"),
        ("tune space.yaml --compile 3", "--compile takes what a calibration expects to be fast"),
        (
            "calibrate general_gpu --times t.csv --kernels my.cl --machine V100 -o new.yaml",
            "perflex.source_kernel('my.cl'",
        ),
        # Calibrations
        (f"predict c.yaml {MATMUL}:naive n=1000", "not valid for n=1000: it assumes"),
        (f"predict no.yaml {MATMUL}:naive n=16", "no.yaml"),
        (f"predict {MATMUL} {MATMUL}:naive n=16", "matmul.py"),
        (f"predict tag.yaml {MATMUL}:naive n=16", "tag.yaml, line 1"),
        ("rank c.yaml n=16", "there is no kernel"),
        # Options that would be of no effect
        *(
            (f"{command} {option}", f"{option.split()[0]}: only for kernels in files of OpenCL C or CUDA C")
            for command, option in (
                (f"predict c.yaml {MATMUL}:naive n=16", "--local 7,7"),
                (f"predict c.yaml {MATMUL}:naive n=16", "--groups 7"),
                (f"rank c.yaml {MATMUL}:naive n=16", "--global n"),
                (f"features {MATMUL}:naive n=16", "-D TILE=4"),
                (f"{JACOBI} --machine rome M=100 N=200", "-I nowhere"),
                (f"roofline {MATMUL}:naive n=16 --machine V100", "--language cuda"),
                ("rank --machine V100 space.yaml", "--local 4"),
            )
        ),
        ("rank --machine V100 space.yaml --state 3=4", "--state is for loopy kernels and for source code"),
        ("predict my.cl:saxpy n=4", "my.cl:saxpy is no calibration; name a calibration's file before the kernel"),
        ("rank my.cl my.cu n=4", "my.cl is no calibration; name a calibration's file before the kernel"),
        ("prune my.cl n=4", "my.cl is no calibration; name a calibration's file before the kernel"),
        ("prune tuner.py", "tuner.py is no calibration"),
        ("predict absent.yaml x.py:f --json", "cannot read absent.yaml: No such file or directory"),
        ("rank --machine A100-40GB absent.yaml", "cannot read absent.yaml: No such file or directory"),
        (f"predict {'c' * 300} x.py:f", "no calibration is called 'ccc"),
        ("predict general_gpuu x.py:f", "no calibration is called 'general_gpuu'; there are general_"),
        ("calibrate no_model -o new.yaml", "no model is called 'no_model'"),
        ("calibrate madd_only -o new.yaml --device zz", "zz"),
        ("calibrate madd_only -o new.yaml", "no usable device"),
        ("calibrate madd_only -o new.yaml", "perflex[cpu]"),
        ("calibrate tag.yaml -o new.yaml", "tag.yaml, line 1"),
        ("calibrate matmul_sq --budget soon -o new.yaml", "cannot read --budget 'soon'"),
        # Found before a device is looked for, of which there is none.
        ("calibrate madd_only -o absent/c.yaml", "cannot write absent/c.yaml: No such"),
        ("calibrate madd_only -o .", "cannot write .: it is a folder"),
        ("calibrate madd_only -o file/c.yaml", "Not a directory"),
        ("demo --out file", "cannot write to file"),
        ("demo --out file/out", "cannot write to file/out"),
        ("demo --out new/folder", "no usable device"),
        ("evaluate matmul -d all --out new", "no usable device"),
        ("demo --out new/folder --device no_such_device", "no_such_device"),
        ("demo --sizes 100", "cannot read sizes '100'; give positive multiples of 16"),
        ("demo --sizes a,b", "cannot read sizes 'a,b'"),
        ("demo --sizes 0", "cannot read sizes '0'"),
        ("diagnose none.yaml", "none.yaml"),
        ("diagnose c.yaml --out c.yaml", "cannot write to"),
        # Times of others, and other devices
        (f"{SAMPLES} -o c.csv --budget 3s", "--budget: about measuring"),
        ("calibrate mine.yaml -o new.yaml --only a=b", "--only: only for tables; name one with --times"),
        (f"{SAMPLES} -o new.yaml --only node", "cannot read --only 'node'"),
        ("calibrate mine.yaml --times log.csv --kernels absent.py -o new.yaml", "there is no file absent.py"),
        (
            "calibrate mine.yaml --times log.csv -o new.yaml",
            "log.csv, line 2: no kernel is called 'naive': no generator has the tag",
        ),
        (f"{SAMPLES} -o absent/c.yaml", "cannot write absent"),
        ("calibrate mine.yaml --times absent.csv -o new.yaml", "cannot read absent.csv: No such file"),
        (f"{TRANSFER} --suggest 2", "--suggest and --candidates go together"),
        ("transfer c.yaml --machine no-such-gpu -o new.yaml", "no-such-gpu"),
        # Estimates
        (f"{JACOBI} --machine clx M=10", "needs a value for size N"),
        (f"{JACOBI} --machine V100 M=10 N=10", "no cache levels"),
        (f"{JACOBI} --machine clx M=10 N=10 --out x.png", "one series of sizes"),
        (f"{JACOBI} --machine clx M=10 N=10 --block x=4", "no loop 'x'"),
        (f"{JACOBI} --machine clx M=10 N=1-5", "series first:last:step, not '1-5'"),
        (
            "block examples/jacobi.py:seven_point --machine Gold-6248 N=6 M=16:48:16",
            "M=16:48:16 has several values, which this command does not take",
        ),
        (f"{JACOBI} --machine clx M=10 N=10:20:5 --out x.txt", "--out x.png"),
        (f"{JACOBI} --machine clx M=10 N=10:20:5 --out nowhere/x.png", "cannot write"),
        ("volumes examples/stencil.py:star25 --machine V100 nx=64", "needs a value for size ny, nz"),
        ("roofline examples/transposes.py:naive --machine V100", "needs a value for size n"),
        ("roofline n=64 --machine V100", "there is no kernel"),
        ("roofline k.py:sequential n=64 --machine V100", "no grid of work-groups and work-items"),
        ("roofline examples/transposes.py:naive n=64 --machine V100 --time predicted", "give --calibration FILE"),
        ("roofline examples/transposes.py:naive n=64 --machine V10", "V100"),
        ("machine show K2O", "did you mean K20"),
        # Spaces and tables of variants
        ("predict --machine V100 space.yaml", f"space.yaml {IS_A_SPACE}"),
        ("volumes --machine V100 space.yaml", f"space.yaml {IS_A_SPACE}"),
        ("features space.yaml", f"space.yaml {IS_A_SPACE}"),
        ("features examples/matmul_space.py:space n=512", "is a space of variants, and not one kernel; 'perflex pr"),
        ("features space.yaml:tiled", "stands for all that it describes; name it without ':tiled'"),
        ("prune --machine EPYC-7452 examples/convolution_tuner.py", "EPYC-7452 is no GPU"),
        ("prune --machine A100-40GB nothing.py", "there is no file nothing.py"),
        ("prune c.yaml k.py:nothing n=128", "has no 'nothing'; it has"),
        ("prune c.yaml k.py:number n=128", "is a int; it must be"),
        ("prune c.yaml x.csv.gz n=3", "x.csv.gz is a table of times: give it as --times"),
        ("prune c.yaml space.yaml --times missing.json.gz", "cannot read missing.json.gz: "),
        ("rank c.yaml space.yaml --times times.csv --measure 3", "--times gives times of some; give one of them"),
        *(
            (f"prune c.yaml space.yaml --keep '{word}'", f"cannot read --keep '{word}'")
            for word in (
                "", "nonsense", "5 %", "%", "1.2.3%", "0", "0%", "101%", "nan%", "-5", "1.5", "promises", "promise:x",
                "promise:-1", "promise:nan", "promise:0.05,2", "promise:0.05,0.9,1",
            )
        ),
    ],
)  # fmt: skip
def test_bad_words_are_one_line(words, message, folder, refused):
    before = sorted(folder.iterdir())
    error = refused(*shlex.split(words))
    assert message in error
    assert "--keep" not in words or KEEP in error
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("words", [["no-such-command"], ["devices", "--no-such-option"]])
def test_unknown_words_are_bad_input(words, run):
    code, _, err = run(*words)
    assert code == 2
    assert "no-such" in err


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("p_launch * f_op_float32_madd $ 3", "at character 30: '$' is not allowed"),
        ("p_launch * f_op_float32_mad", "unknown operation 'mad'; did you mean madd"),
        ('__import__("os").system("touch executed") * p_launch', "at character 1"),
    ],
)
def test_bad_and_hostile_model_strings_are_named_by_their_line(expression, message, folder, refused):
    (old,) = (line for line in MODEL.splitlines() if line.startswith("expression: "))
    Path("mine.yaml").write_text(MODEL.replace(old, f"expression: '{expression}'"), encoding="utf-8")
    before = sorted(folder.iterdir())
    error = refused("calibrate", "mine.yaml", "-o", "new.yaml")
    assert "line 5, field expression" in error
    assert message in error
    assert sorted(folder.iterdir()) == before


def test_what_a_file_imports_is_not_called(folder, refused):
    Path("k.py").write_text("from os import mkdir\n\ndef mine():\n    raise SystemExit\n")
    Path("evil.csv").write_text("kernel,path,seconds\nmkdir,made,1\n")
    words = ["calibrate", "mine.yaml", "--times", "evil.csv", "--kernels", "k.py", "-o", "new.yaml"]
    assert "no kernel is called 'mkdir': the functions are mine" in refused(*words)
    assert not (folder / "made").exists()


def test_with_debug_errors_are_raised(folder):
    with pytest.raises(Exception, match="matmull"):
        main(["--debug", "list", "generators", "matmull"])
