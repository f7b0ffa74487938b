"""Which variants to measure next, and measuring them."""
