"""Kernels that a hostile but competent user of loopy would write; `NASTY` holds them all.

Where the simulator sees something else than what is counted, it is for one of these reasons (see also `oclgrind`):

* *signs*: loopy writes ``a - b`` as ``a + -1*b`` and ``-a`` as ``-1*a``, which executes as a multiplication; it is
  counted as a sign.
* *squares*: ``(a + b)**2`` is written ``(a + b)*(a + b)`` and its base executes twice without optimisation.
* *powers*: a power with an integer exponent is a call of a function of loopy's own, which multiplies in a loop.
* *zeros and ones*: products with 1 and sums with 0 execute without optimisation.
* *complex*: a product with a real number multiplies twice; divisions and absolute values take many operations.
* *vectors*: one instruction accesses all elements.
* *empty*: nothing is launched without work-groups.
"""

from oracles.mended_loopy import mend

mend()

from . import loops, memory, programs, statements  # noqa: E402 - they need a mended loopy
from .collection import NASTY, NastyKernel  # noqa: E402

__all__ = ["NASTY", "NastyKernel", "loops", "memory", "programs", "statements"]
