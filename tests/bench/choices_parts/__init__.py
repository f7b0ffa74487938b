"""The spaces that choices are judged on."""
