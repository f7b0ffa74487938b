"""Cycles of straight code by LLVM's machine code analyzer, llvm-mca."""
