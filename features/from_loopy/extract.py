"""From a loopy translation unit to a Scop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from weakref import finalize

from perflex.features.annotation import AnnotatedKernel, CountingOptions
from perflex.features.count_store import keep_scop, kept_scop, scop_key
from perflex.features.scop.scop import Scop

if TYPE_CHECKING:
    from collections.abc import Mapping

# By identity, as long as the kernel lives: comparing kernels by value is slow.
_scops: dict[tuple[int, CountingOptions], Scop] = {}
_DEFAULT_OPTIONS = CountingOptions()


@runtime_checkable
class Described(Protocol):
    """A kernel that describes itself, such as one in OpenCL C."""

    def scop(self, sizes: Mapping[str, Any] | None = None) -> Scop:
        """Return its description, which may hold for some sizes only."""
        ...


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
    if isinstance(kernel, Described):
        return kernel.scop(sizes)
    options = _DEFAULT_OPTIONS
    if isinstance(kernel, AnnotatedKernel):
        kernel, options = kernel.translation_unit, kernel.options
    key = id(kernel), options
    if key not in _scops:
        _scops[key] = _from_store_or_extracted(kernel, options)
        # A later kernel may get the same id: the entry goes with this one.
        finalize(kernel, _scops.pop, key, None)
    return _scops[key]


def _from_store_or_extracted(kernel: Any, options: CountingOptions) -> Scop:
    # The options' repr is the same in every process; their hash is not, since Python salts the hashes of strings.
    key = scop_key(kernel, repr(options))
    scop = None if key is None else kept_scop(key)
    if scop is None:
        # It imports loopy, which kernels of other kinds do without.
        from perflex.features.from_loopy import extraction

        scop = extraction.described(kernel, options)
        if key is not None:
            keep_scop(key, scop)
    return scop
