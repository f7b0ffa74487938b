"""Which devices there are, whether they work, and how one is named."""
