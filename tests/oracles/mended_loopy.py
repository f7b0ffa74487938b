"""Methods that loopy 2025.2 uses and newer islpy has not: without them transformations and code generation fail.

Imported by the Oclgrind process, too, so nothing of perflex is used.
"""

import islpy as isl


def _as_set(method):
    def call(basic_set, *arguments):
        others = [isl.Set.from_basic_set(a) if isinstance(a, isl.BasicSet) else a for a in arguments]
        return getattr(isl.Set.from_basic_set(basic_set), method)(*others)

    return call


def mend():
    """Add them, where they are missing."""
    if not hasattr(isl.Aff, "is_equal"):
        isl.Aff.is_equal = isl.Aff.plain_is_equal
    for method in ("find_dim_by_name", "dim_min", "dim_max", "subtract"):
        if not hasattr(isl.BasicSet, method):
            setattr(isl.BasicSet, method, _as_set(method))
