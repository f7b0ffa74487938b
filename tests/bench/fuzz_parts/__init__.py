"""Parts of the fuzz benchmark: valid inputs, what is done to them, and who reads them."""
