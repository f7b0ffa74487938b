"""Run pickled loopy kernels on Oclgrind; started by `oclgrind.run_jobs`, never imported.

Arguments: the file with the pickled jobs (written by the parent a moment ago) and the file for the results.
Each job's output is captured at the file-descriptor level, because the simulator prints from C++.
"""

import ctypes
import json
import os
import pickle
import sys
import tempfile
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

# A size that is not given, such as the offset of an array.
OFFSET = 2


def _input_array(name, shape, dtype):
    """Small positive values, the same in every run, that stay in range under any of the operations tested."""
    count = int(np.prod(shape, dtype=np.int64))
    seed = sum(ord(letter) * (k + 1) for k, letter in enumerate(name))
    values = (np.arange(count) * 7 + seed) % 5 + 1
    return (values if dtype.kind in "iu" else values / 8).astype(dtype).reshape(shape)


def _run_loopy(queue, job):
    import loopy as lp
    from pymbolic import evaluate

    sizes, arguments = dict(job["sizes"]), {}
    t_unit = lp.set_options(lp.preprocess_program(job["kernel"]), build_options=job["options"], no_numpy=True)
    for arg in t_unit.default_entrypoint.args:
        dtype = arg.dtype.numpy_dtype
        if isinstance(arg, lp.ValueArg):
            arguments[arg.name] = dtype.type(sizes.get(arg.name, OFFSET if dtype.kind in "iu" else 0.5))
        elif isinstance(arg, lp.ArrayArg):
            shape = tuple(int(evaluate(extent, sizes)) for extent in arg.shape)
            arguments[arg.name] = _device_array(queue, arg, shape, dtype, sizes)
    t_unit(queue, **arguments)


def _device_array(queue, arg, shape, dtype, sizes):
    """Return an array with the strides that the kernel expects, contiguous in some order or padded."""
    import pyopencl.array as cla
    from loopy.kernel.array import get_strides
    from pymbolic import evaluate

    nesting = [getattr(tag, "layout_nesting_level", None) for tag in arg.dim_tags or ()]
    column_major = len(nesting) > 1 and nesting == list(range(len(nesting)))
    host = np.asarray(_input_array(arg.name, shape, dtype), order="F" if column_major else "C")
    steps = [int(evaluate(stride, sizes)) for stride in get_strides(arg)]
    strides = tuple(step * dtype.itemsize for step in steps)
    if (strides == host.strides and arg.offset in {None, 0}) or 0 in shape:
        return cla.to_device(queue, host)
    extent = OFFSET + 1 + sum((length - 1) * step for length, step in zip(shape, steps, strict=True))
    flat = cla.to_device(queue, _input_array(arg.name, (extent,), dtype))
    return cla.Array(queue, shape, dtype, strides=strides, data=flat.data)


def _run_source(queue, job):
    import pyopencl as cl
    import pyopencl.array as cla

    kernel = cl.Program(queue.context, job["source"]).build(options=job["options"]).all_kernels()[0]
    arrays = [_input_array(f"a{k}", (job["elements"],), np.dtype(name)) for k, name in enumerate(job["dtypes"])]
    buffers = [cla.to_device(queue, array) for array in arrays]
    local = [cl.LocalMemory(count) for count in job["local_bytes"]]
    scalars = [np.int32(value) for value in job["scalars"]]
    kernel(queue, job["global_size"], job["local_size"], *[b.data for b in buffers], *local, *scalars)


def _compiled(queue, job):
    """Return what Oclgrind compiles a source to, in LLVM's language; it writes both under a name that nobody knows."""
    import pyopencl as cl

    # Of other processes, even with the same source, nothing may be taken or deleted.
    mark = f"// {uuid.uuid4()}"
    cl.Program(queue.context, f"{job['compiled']}\n{mark}\n").build(options=job["options"])
    for path in Path("/tmp").glob("oclgrind_*.cl"):  # noqa: S108 - where Oclgrind writes
        with suppress(FileNotFoundError):  # of one that another process has deleted since
            if mark in path.read_text(encoding="utf-8", errors="replace"):
                code = path.with_suffix(".ll").read_text(encoding="utf-8")
                for suffix in (".cl", ".ll", ".bc"):
                    path.with_suffix(suffix).unlink()
                return code
    return ""


@contextmanager
def _captured(descriptor, result, name):
    """Put what the process writes to a file descriptor while the block runs into a result."""
    flush, saved = ctypes.CDLL(None).fflush, os.dup(descriptor)
    flush(None)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), descriptor)
        yield
        flush(None)
        os.dup2(saved, descriptor)
        os.close(saved)
        file.seek(0)
        result[name] = file.read().decode(errors="replace")


def _run_job(queue, job):
    result = {"error": "", "code": ""}
    with _captured(1, result, "stdout"), _captured(2, result, "stderr"):
        try:
            run = _compiled if "compiled" in job else _run_source if "source" in job else _run_loopy
            result["code"] = run(queue, job)
            queue.finish()
        except Exception as failure:  # noqa: BLE001 - whatever it is, the parent raises it
            result["error"] = f"{type(failure).__name__}: {failure}"
    return result


def main(jobs_path, results_path):
    import pyopencl as cl
    from mended_loopy import mend

    mend()
    jobs = pickle.loads(Path(jobs_path).read_bytes())
    platform = next(p for p in cl.get_platforms() if p.name == "Oclgrind")
    queue = cl.CommandQueue(cl.Context(platform.get_devices()))
    results = [_run_job(queue, job) for job in jobs]
    Path(results_path).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
