"""Parts of the any-kernel benchmark: families of kernels, recording their times, judging predictions of them."""
