"""Features: what a kernel does, counted symbolically from its polyhedral description.

>>> scop = extract_scop(kernel)                       # a loopy TranslationUnit
>>> feature = parse_feature("f_op_float32_madd")
>>> feature.value(scop, {"n": 1024}, sub_group_size=32)

A kernel that loopy never saw is described by hand as a `Scop`. A user's own feature is registered with
`register_feature`.
"""

from __future__ import annotations

from perflex.features.annotation import AnnotatedKernel, CountingOptions, InstructionCounts, annotate
from perflex.features.counted import CountedFeature, CountedFootprint, Quantity
from perflex.features.counting.certainty import Certainty
from perflex.features.counting.counts import AccessCounts, ScopCounts, counts_of
from perflex.features.counting.footprints import Footprint
from perflex.features.counting.ratio import Ratio
from perflex.features.families.blocks import BlockFamily
from perflex.features.families.build import BuildFamily
from perflex.features.families.chains import ChainFamily
from perflex.features.families.ecm import EcmFamily
from perflex.features.families.feature import (
    Amount,
    Feature,
    FeatureFamily,
    parse_feature,
    register_family,
    register_feature,
    unregister_feature,
)
from perflex.features.families.footprints import FootprintFamily
from perflex.features.families.instructions import InstructionFamily
from perflex.features.families.launches import LaunchFamily
from perflex.features.families.machine import MachineFamily
from perflex.features.families.memory import MemoryAccessFamily, describe_access
from perflex.features.families.operations import OperationFamily
from perflex.features.from_loopy.extract import extract_scop
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.report import count_features
from perflex.features.scop.scop import Access, Array, Barrier, Launch, Operation, Recurrence, Scop, Statement
from perflex.features.scop.text import content_hash
from perflex.features.scop.yaml import scop_from_yaml, scop_to_yaml

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
