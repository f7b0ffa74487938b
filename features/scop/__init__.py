"""The Scop: what every feature reads of a kernel; its text and YAML forms."""
