"""The Scop: what every feature reads of a kernel; its JSON and YAML forms."""

from perflex.features.scop import scop_file as scop_file  # it tells pickle how Scops travel
