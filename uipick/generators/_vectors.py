"""What generators of kernels with one work-item per vector element share."""

from __future__ import annotations

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint

VECTOR_LSIZE = Argument("lsize_0", "int", "work-group size along lid(0), the only axis", integers(1, 1024), (256,))
VECTOR_SIZE = Argument("n", "int", "elements of each vector", multiples_of(1), (1048576, 2097152, 3145728, 4194304))
VECTOR_FITS = Constraint(
    "groups_fit:True needs n to be a multiple of lsize_0", lambda a: not a["groups_fit"] or a["n"] % a["lsize_0"] == 0
)
