"""Which variants of a kernel to keep: predicted, ranked, with a promise."""
