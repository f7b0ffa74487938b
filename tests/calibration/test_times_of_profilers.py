"""Reports of NVIDIA's profilers as tables of times, in the forms that Nsight Compute and ``nsys stats`` write."""

import math
import warnings

import pytest

from perflex import load_times
from perflex.errors import FileFormatError, PerflexWarning
from sample_kernels import pointwise

KERNELS = {"saxpy": lambda: pointwise("2*x[i] + y[i]"), "scale": lambda: pointwise("2*x[i]")}
HEAD = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device"'
TIME, REGISTERS = "gpu__time_duration.sum", "launch__registers_per_thread"


def launch(number, name, device=0):
    return f'"{number}","108","app","127.0.0.1","{name}","1","7","(256, 1, 1)","(4096, 1, 1)","{device}","8.9"'


def long(*metrics, sizes="1048576", name="saxpy(int, float *)"):
    """Return what ``ncu --csv`` writes: noise, and a row for each metric of each launch, here with a column added."""
    rows = [
        f'{launch(int(number), name)},"Command line profiler metrics","{metric}","{unit}","{value}",{sizes}'
        for number, metric, unit, value in metrics
    ]
    head = f'{HEAD},"CC","Section Name","Metric Name","Metric Unit","Metric Value",n'
    return "\n".join(["==PROF== Connected to process 108", "the program's own", head, *rows, "==PROF== Disconnected"])


def wide(unit, *values):
    """Return what ``ncu --page raw --csv`` writes: a row of units, then a row for each launch."""
    rows = [f'{launch(at, name)},"{time}","{registers}",64' for at, (name, time, registers) in enumerate(values)]
    units = ",".join(['""'] * 11) + f',"{unit}","register/thread",'
    return "\n".join([f'{HEAD},"CC","{TIME}","{REGISTERS}",n', units, *rows])


def read(folder, text, kernels=KERNELS, **more):
    (folder / "report.csv").write_text(text, encoding="utf-8")
    return load_times(folder / "report.csv", kernels, **more)


@pytest.mark.parametrize(
    ("unit", "text", "seconds", "also"),
    [
        ("ns", "117344", 117344e-9, "9"),
        ("nsecond", "1,117,344", 1117344e-9, "9"),
        ("us", "12.51", 12.51e-6, "98,304"),
        ("usecond", "12.345", 12.345e-6, "9"),
        ("ms", "1.5", 1.5e-3, "9"),
        ("second", "2", 2.0, "9"),
        # Where the system's language has a decimal comma.
        ("us", "12,51", 12.51e-6, "98.304"),
        ("ns", "117.344", 117344e-9, "9,00"),
        ("ns", "1.117.344", 1117344e-9, "9"),
        ("ns", "98,304", 98304e-9, "9.00"),
    ],
)
def test_nsight_compute_in_rows_of_metrics(unit, text, seconds, also, tmp_path):
    metrics = [
        ("0", "dram__bytes.sum", "byte", also),
        ("0", TIME, unit, text),
        ("0", REGISTERS, "register/thread", "24"),
    ]
    (row,) = read(tmp_path, long(*metrics)).rows
    assert row.seconds == pytest.approx(seconds)
    assert (row.name, row.registers, row.sizes) == ("saxpy(n=1048576)", 24, {"n": 1048576})


def test_nsight_computes_page_of_details_and_summaries(tmp_path):
    details = [
        ("0", "DRAM Frequency", "Ghz", "1.21"),
        ("0", "Duration", "us", "7.25"),
        ("1", "Duration", "us", "7.5"),
        ("0", "Registers Per Thread", "register/thread", "16"),
    ]
    assert [(row.seconds, row.registers) for row in read(tmp_path, long(*details)).rows] == [
        (pytest.approx(7.25e-6), 16),
        (pytest.approx(7.5e-6), None),
    ]
    summary = (
        '"Process ID","Process Name","Host Name","Kernel Name","Block Size","Grid Size","Device","CC","Invocations",'
        '"Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average",n\n'
        '"1","app","h","saxpy","(256, 1, 1)","(4096, 1, 1)","0","9.0","14","S","Duration","us","7.00","9.00","7.5",64\n'
    )
    assert [row.seconds for row in read(tmp_path, summary).rows] == [pytest.approx(7.5e-6)]


def test_nsight_computes_raw_page(tmp_path):
    report = wide(
        "us", ("void saxpy<float>(int, T1 *)", "12.5", "32"), ("(anonymous namespace)::scale(int)", "3.2", "16")
    )
    times = read(tmp_path, report)
    assert [(row.name, row.registers) for row in times.rows] == [("saxpy(n=64)", 32), ("scale(n=64)", 16)]
    assert [row.seconds for row in times.rows] == pytest.approx([12.5e-6, 3.2e-6])


TRACE = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name,n\n"
    "1134711990,661398,123,,,,,,,,,,4.194,6337.593,Pinned,Device,NVIDIA H100 (0),1,,13,[CUDA memcpy HtoD],\n"
    '1136125733,7072,128,4096,1,1,256,1,1,16,0.000,0.000,,,,,NVIDIA H100 (0),1,,13,"<unnamed>::saxpy(int, long)",64\n'
)


@pytest.mark.parametrize(
    ("head", "row", "seconds"),
    [
        ("Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Name", "50.0,1200,4,300.0,280.0,9", 280e-9),
        ("Time(%),Total Time (ns),Instances,Average (ns),Minimum (ns),Name", "50.0,1200,4,300.0,9", 300e-9),
        ("Time(%),Total Time (us),Instances,Average,Minimum,Name", "50.0,1200,4,300.0,9", 300e-6),
    ],
)
def test_a_trace_and_a_summary_of_nsys(head, row, seconds, tmp_path):
    noise = "\nNOTICE: Existing SQLite export found\n\nProcessing [x.sqlite] with [cuda_gpu_trace.py]...\n"
    times = read(tmp_path, noise + TRACE)
    (one,) = times.rows
    assert (one.name, one.registers, one.seconds) == ("saxpy(n=64)", 16, pytest.approx(7072e-9))
    assert times.device == "NVIDIA H100 (0)"
    other = "Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n90.0,10000,2,5000.0,cudaMalloc\n\n"
    text = f"{other}{head},n\n{row},saxpy,64\n\nProcessing [x.sqlite] with [nvtx_sum.py]... \nTime (%),Style\n1,2\n"
    assert [one.seconds for one in read(tmp_path, text).rows] == [pytest.approx(seconds)]


def test_launches_of_other_kernels_are_left_out_and_named(tmp_path):
    report = wide("us", ("saxpy", "12.5", "32"), ("void cub::Reduce<int>(int)", "3.2", "16"))
    with pytest.warns(PerflexWarning, match="launches of Reduce are left out"):
        assert len(read(tmp_path, report)) == 1
    with pytest.raises(FileFormatError, match=r"no launch of a kernel that is given \(mine\), but of saxpy, Reduce"):
        read(tmp_path, report, {"mine": KERNELS["saxpy"]})
    several = wide("us", ("saxpy<float>(int)", "12.5", "32"), ("saxpy<double>(int)", "25", "32"))
    with pytest.raises(
        FileFormatError, match=r"'saxpy<double>\(int\)' and 'saxpy<float>\(int\)' are both called saxpy"
    ):
        read(tmp_path, several)
    whole = {"saxpy<float>(int)": KERNELS["saxpy"], "saxpy<double>(int)": KERNELS["scale"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PerflexWarning)
        assert [row.seconds for row in read(tmp_path, several, whole).rows] == pytest.approx([12.5e-6, 25e-6])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (long(("0", TIME, "ns", "117.344")), "may have a decimal mark or one of thousands; .*LC_ALL=C ncu"),
        (long(("0", TIME, "us", "1,234")), "may have a decimal mark or one of thousands"),
        (long(("0", TIME, "us", "9,5"), ("1", TIME, "us", "9.5")), "decimal commas and such with decimal points"),
        (long(("0", TIME, "us", "n/a")), "'n/a', which is no number; profile the kernel again"),
        (long(("0", TIME, "cycle", "12")), "has the unit 'cycle'; known are"),
        (long(("0", "dram__bytes.sum", "byte", "12")), "the launch has no time; profile with --metrics gpu__time_dur"),
        (long(("0", TIME, "us", "12"), sizes=""), "needs a value for size n; give a column of that name"),
        ("==PROF== Disconnected\n", "report without a table of kernels' times; write one with nsys stats"),
        ("Time (%),Total Time (ns),Num Calls,Name\n90.0,10,2,cudaMalloc\n", "without a table of kernels' times"),
        (" Time (%)  Total Time (ns)  Name\n -----  ---  ---\n 9.0  1,200  saxpy\n", "nsys stats --report cuda_gpu_tr"),
        (wide("", ("saxpy", "12.5", "32")), "has the unit ''"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(text, message, tmp_path):
    with pytest.raises(FileFormatError, match=message):
        read(tmp_path, text)


def test_files_that_are_no_tables(tmp_path):
    for name, message in (
        ("a.ncu-rep", "ncu --import a.ncu-rep --page raw --csv > times.csv"),
        ("a.nsys-rep", "nsys stats --report cuda_gpu_trace --format csv a.nsys-rep"),
        ("a.sqlite", "--format csv a.sqlite"),
        ("a.json", "perflex rank, prune and tune read what tuners write"),
    ):
        (tmp_path / name).write_bytes(b"\0\1")
        with pytest.raises(FileFormatError, match=message):
            load_times(tmp_path / name, KERNELS)


def test_a_table_of_ones_own_may_have_such_words(tmp_path):
    text = 'kernel,n,time_us,Name,Duration (ns)\nsaxpy,64,2.5,"x, y",7\n'
    with pytest.warns(PerflexWarning, match=r"called Name, Duration \(ns\)"):
        (row,) = read(tmp_path, text).rows
    assert (row.seconds, math.isnan(row.spread)) == (2.5e-6, True)
