"""What was measured: samples and failures with all they depend on, and what keeps them."""
