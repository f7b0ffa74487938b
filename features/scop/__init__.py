"""The Scop: what every feature reads of a kernel; its text and YAML forms."""

from perflex.features.scop import text as text  # it tells pickle how Scops travel
