"""Spaces of variants from Kernel Tuner's scripts, T1 files, and perflex's own files of a source with tunables."""
