"""What compilers of CPU runtimes make of a kernel: vectors of work-items along axis 0, scalar code, loops."""
