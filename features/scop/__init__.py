"""The Scop: what every feature reads of a kernel; its JSON and YAML forms."""
