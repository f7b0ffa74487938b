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


def _arguments(queue, t_unit, sizes):
    import loopy as lp
    from pymbolic import evaluate

    arguments = {}
    for arg in t_unit.default_entrypoint.args:
        if isinstance(arg, lp.ValueArg):
            default = OFFSET if arg.dtype.numpy_dtype.kind in "iu" else 0.5
            arguments[arg.name] = arg.dtype.numpy_dtype.type(sizes.get(arg.name, default))
        elif isinstance(arg, lp.ArrayArg):
            shape = tuple(int(evaluate(extent, dict(sizes))) for extent in arg.shape)
            dtype = arg.dtype.numpy_dtype
            arguments[arg.name] = _device_array(queue, arg, shape, dtype, sizes)
    return arguments


def _device_array(queue, arg, shape, dtype, sizes):
    """Return an array with the strides that the kernel expects, contiguous in some order or padded."""
    import pyopencl.array as cla
    from loopy.kernel.array import get_strides
    from pymbolic import evaluate

    order = "F" if _is_column_major(arg) else "C"
    host = np.asarray(_input_array(arg.name, shape, dtype), order=order)
    strides = tuple(int(evaluate(stride, dict(sizes))) * dtype.itemsize for stride in get_strides(arg))
    if (strides == host.strides and arg.offset in {None, 0}) or 0 in shape:
        return cla.to_device(queue, host)
    extent = (
        OFFSET + 1 + sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True)) // dtype.itemsize
    )
    flat = cla.to_device(queue, _input_array(arg.name, (extent,), dtype))
    return cla.Array(queue, shape, dtype, strides=strides, data=flat.data)


def _is_column_major(arg):
    nesting = [getattr(tag, "layout_nesting_level", None) for tag in arg.dim_tags or ()]
    return len(nesting) > 1 and nesting == list(range(len(nesting)))


class _Capture:
    """Everything that the process writes to one file descriptor while the block runs."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.text = ""

    def __enter__(self):
        ctypes.CDLL(None).fflush(None)
        self.file = tempfile.TemporaryFile()
        self.saved = os.dup(self.descriptor)
        os.dup2(self.file.fileno(), self.descriptor)
        return self

    def __exit__(self, *details):
        ctypes.CDLL(None).fflush(None)
        os.dup2(self.saved, self.descriptor)
        os.close(self.saved)
        self.file.seek(0)
        self.text = self.file.read().decode(errors="replace")
        self.file.close()


def _run_loopy(queue, t_unit, sizes, options):
    import loopy as lp

    t_unit = lp.set_options(lp.preprocess_program(t_unit), build_options=options, no_numpy=True)
    t_unit(queue, **_arguments(queue, t_unit, sizes))


def _compiled(queue, source, options):
    """Return what Oclgrind compiles a source to, in LLVM's language; it writes both under a name that nobody knows."""
    import pyopencl as cl

    cl.Program(queue.context, source).build(options=options)
    found = ""
    for path in Path("/tmp").glob("oclgrind_*.cl"):  # noqa: S108 - where Oclgrind writes
        if path.read_text(encoding="utf-8", errors="replace").strip().rstrip("\0") == source.strip():
            found = path.with_suffix(".ll").read_text(encoding="utf-8")
            for suffix in (".cl", ".ll", ".bc"):
                path.with_suffix(suffix).unlink(missing_ok=True)
    return found


def _run_source(queue, source, job, options):
    import pyopencl as cl
    import pyopencl.array as cla

    program = cl.Program(queue.context, source).build(options=options)
    kernel = program.all_kernels()[0]
    buffers = [
        cla.to_device(queue, _input_array(f"a{k}", (job["elements"],), np.dtype(dtype)))
        for k, dtype in enumerate(job["dtypes"])
    ]
    local = [cl.LocalMemory(count) for count in job["local_bytes"]]
    scalars = [np.int32(value) for value in job["scalars"]]
    kernel(queue, job["global_size"], job["local_size"], *[b.data for b in buffers], *local, *scalars)


def _run_job(queue, job):
    error = code = ""
    with _Capture(1) as out, _Capture(2) as err:
        try:
            if "compiled" in job:
                code = _compiled(queue, job["compiled"], job["options"])
            elif "source" in job:
                _run_source(queue, job["source"], job, job["options"])
            else:
                _run_loopy(queue, job["kernel"], job["sizes"], job["options"])
            queue.finish()
        except Exception as failure:  # noqa: BLE001 - whatever it is, the parent raises it
            error = f"{type(failure).__name__}: {failure}"
    return {"stdout": out.text, "stderr": err.text, "error": error, "code": code}


def main(jobs_path, results_path):
    import pyopencl as cl
    from mended_loopy import mend

    mend()
    with Path(jobs_path).open("rb") as file:
        jobs = pickle.load(file)  # written by the parent a moment ago
    platform = next(p for p in cl.get_platforms() if p.name == "Oclgrind")
    queue = cl.CommandQueue(cl.Context(platform.get_devices()))
    results = [_run_job(queue, job) for job in jobs]
    Path(results_path).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
