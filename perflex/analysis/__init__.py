"""What estimates say of one kernel: roofline, limiters, layer conditions, ECM models, block sizes."""
