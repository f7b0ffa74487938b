"""Features: what a kernel does, counted symbolically from its polyhedral description.

>>> scop = extract_scop(kernel)                       # a loopy TranslationUnit
>>> feature = parse_feature("f_op_float32_madd")
>>> feature.value(scop, {"n": 1024}, Target(sub_group_size=32))

A kernel that loopy never saw is described by hand as a `Scop`. A user's own feature is registered with
`register_feature`.
"""

import lazy_loader

# The stub beside this file is the one list of public names. Families of features are in `families/registry`.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
