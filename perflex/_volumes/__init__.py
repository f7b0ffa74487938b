"""Data volumes of GPU kernels in the memory hierarchy, from address expressions."""

from perflex._volumes.estimate import estimate_volumes
from perflex._volumes.result import ArrayVolumes, Volumes

__all__ = ["ArrayVolumes", "Volumes", "estimate_volumes"]
