"""All launches of Triton kernels that tests know."""

from .triton_attention import ATTENTION
from .triton_case import Case
from .triton_loops import LOOPS
from .triton_more_products import MORE_PRODUCTS
from .triton_products import PRODUCTS
from .triton_rows import ROWS
from .triton_scatter import SCATTER

CASES: dict[str, Case] = {case.name: case for case in (*ROWS, *PRODUCTS, *MORE_PRODUCTS, *ATTENTION, *SCATTER, *LOOPS)}
