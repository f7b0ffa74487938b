"""Data volumes of GPU kernels in the memory hierarchy, from address expressions."""

from perflex.features.gpu.estimate import estimate_volumes
from perflex.features.gpu.result import ArrayVolumes, Volumes

__all__ = ["ArrayVolumes", "Volumes", "estimate_volumes"]
