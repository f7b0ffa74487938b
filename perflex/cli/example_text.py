"""The example at the end of a command's help."""

from __future__ import annotations

# Help is at most 80 columns wide, and indented by two.
_WIDTH = 76


def example_text(command: str) -> str:
    """Return an example as an epilog; a long one takes several lines that a shell reads as one."""
    lines = ["Example:"]
    for word in command.split(" "):
        if len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines[-1] += " \\"
            lines.append("    " + word)
        else:
            lines[-1] += f" {word}"
    # A backspace keeps the lines of a paragraph as they are.
    return "\n".join(["\b", *lines] if len(lines) > 1 else lines)
