"""Process that compiles as it is asked to: a compiler may crash or hang there, and several work at once."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from typing import Any

from perflex.child_process import end_with_parent


def main(descriptor: int) -> None:
    """Compile until the connection ends."""
    end_with_parent()
    connection: Connection[Any, Any]
    with Connection(descriptor) as connection:
        while True:
            try:
                make, arguments = connection.recv()
            except (EOFError, ConnectionResetError):
                return
            connection.send(make(*arguments))


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)
