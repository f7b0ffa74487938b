"""Mutated inputs of every kind that perflex reads: valid inputs, what is done to them, and who reads them."""
