"""Parts of the benchmark of Triton configurations: problems as tile programs, baselines, code to compare with."""
