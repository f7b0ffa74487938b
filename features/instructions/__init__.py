"""Instructions and addresses of sub-groups, as the instruction roofline counts them."""
