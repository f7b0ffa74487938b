"""Features: what a kernel does, counted symbolically from its polyhedral description.

>>> scop = extract_scop(kernel)                       # a loopy TranslationUnit
>>> feature = parse_feature("f_op_float32_madd")
>>> feature.value(scop, {"n": 1024}, sub_group_size=32)

A kernel that loopy never saw is described by hand as a `Scop`. A user's own feature is registered with
`register_feature`.
"""

from __future__ import annotations

from perflex.features._block_features import BlockFamily
from perflex.features._build_features import BuildFamily
from perflex.features._certainty import Certainty
from perflex.features._chain_features import ChainFamily
from perflex.features._counted import CountedFeature, CountedFootprint, Quantity
from perflex.features._counts import AccessCounts, ScopCounts, counts_of
from perflex.features._ecm_features import EcmFamily
from perflex.features._feature import (
    Amount,
    Feature,
    FeatureFamily,
    parse_feature,
    register_family,
    register_feature,
    unregister_feature,
)
from perflex.features._footprint_features import FootprintFamily
from perflex.features._footprints import Footprint
from perflex.features._instruction_features import InstructionFamily
from perflex.features._launch_features import LaunchFamily
from perflex.features._loopy_extract import extract_scop
from perflex.features._machine_features import MachineFamily
from perflex.features._memory_features import MemoryAccessFamily, describe_access
from perflex.features._operation_features import OperationFamily
from perflex.features._options import AnnotatedKernel, CountingOptions, InstructionCounts, annotate
from perflex.features._quasipolynomial import QuasiPolynomial
from perflex.features._ratio import Ratio
from perflex.features._report import count_features
from perflex.features._scop import Access, Array, Barrier, Launch, Operation, Recurrence, Scop, Statement
from perflex.features._scop_text import content_hash
from perflex.features._scop_yaml import scop_from_yaml, scop_to_yaml

__all__ = [
    "Access",
    "AccessCounts",
    "Amount",
    "AnnotatedKernel",
    "Array",
    "Barrier",
    "Certainty",
    "CountedFeature",
    "CountedFootprint",
    "CountingOptions",
    "Feature",
    "FeatureFamily",
    "Footprint",
    "InstructionCounts",
    "Launch",
    "Operation",
    "Quantity",
    "QuasiPolynomial",
    "Ratio",
    "Recurrence",
    "Scop",
    "ScopCounts",
    "Statement",
    "annotate",
    "content_hash",
    "count_features",
    "counts_of",
    "describe_access",
    "extract_scop",
    "parse_feature",
    "register_family",
    "register_feature",
    "scop_from_yaml",
    "scop_to_yaml",
    "unregister_feature",
]

register_family(OperationFamily())
register_family(ChainFamily())
register_family(MemoryAccessFamily())
register_family(FootprintFamily())
register_family(LaunchFamily())
register_family(MachineFamily())
register_family(InstructionFamily())
register_family(EcmFamily())
register_family(BuildFamily())
register_family(BlockFamily())
