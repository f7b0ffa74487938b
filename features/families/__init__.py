"""Every feature, one file per family of identifiers, and the registry that finds them."""
