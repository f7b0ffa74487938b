"""Kernels that several tests of launches share."""

import loopy as lp
import numpy as np


def two_programs():
    """Return a kernel of two device programs: one scales, the other adds both ends, a global barrier between."""
    kernel = lp.make_kernel(
        "{[i,j]: 0<=i,j<n}",
        """
        <> scaled[i] = 0.5*a[i] {id=first}
        ... gbarrier {id=bar, dep=first}
        b[j] = scaled[n-1-j] + scaled[j] {id=second, dep=bar}
        """,
        [lp.GlobalArg("a,b", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
        assumptions="n>=1",
        lang_version=(2018, 2),
        name="twice",
    )
    kernel = lp.set_temporary_address_space(kernel, "scaled", "global")
    kernel = lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(kernel, "j", 32, outer_tag="g.0", inner_tag="l.0")
