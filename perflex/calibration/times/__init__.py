"""Times that others measured: tables of them, reading and writing them."""
