"""From a loopy translation unit to a Scop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import finalize

from perflex.features.annotation import AnnotatedKernel, CountingOptions
from perflex.features.count_store import stored_scop
from perflex.features.scop.scop import Scop

# By identity, as long as the kernel lives: comparing kernels by value is slow.
_scops: dict[tuple[int, CountingOptions], Scop] = {}


def extract_scop(kernel: Any, sizes: Mapping[str, Any] | None = None) -> Scop:
    """Describe a kernel as a Scop.

    Parameters
    ----------
    kernel
        A loopy ``TranslationUnit`` with one entry point; it need not be preprocessed or scheduled. Calls
        to other loopy kernels are inlined. Or one that the user annotated (`annotate`), one of `source_kernel`, a
        measurement kernel, or a Scop.
    sizes
        Values of its sizes, if they are known: kernels from source code may need them.

    Returns
    -------
    Scop
        The description of what the generated code executes; the same object as long as `kernel` lives.

    Raises
    ------
    UnsupportedKernelError
        Something cannot be described exactly; the access, loop or instruction is named.
    """
    kernel = getattr(kernel, "kernel", kernel)  # of a measurement kernel
    if isinstance(kernel, Scop):
        return kernel
    if hasattr(kernel, "scop"):  # one that describes itself, such as one in OpenCL C, perhaps for these sizes only
        described: Scop = kernel.scop(sizes)
        return described
    options = CountingOptions()
    if isinstance(kernel, AnnotatedKernel):
        kernel, options = kernel.translation_unit, kernel.options

    def describe() -> Scop:
        # It imports loopy, which kernels of other kinds do without.
        from perflex.features.from_loopy import extraction

        return extraction.described(kernel, options)

    key = id(kernel), options
    if key not in _scops:
        # The options' repr is the same in every process; their hash is not, since Python salts the hashes of strings.
        _scops[key] = stored_scop(kernel, repr(options), describe)
        # A later kernel may get the same id: the entry goes with this one.
        finalize(kernel, _scops.pop, key, None)
    return _scops[key]
