"""Model strings: text, tree, compiled functions, `Model`."""
