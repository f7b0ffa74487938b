"""Run a page: its Python blocks in one namespace and its ``perflex`` commands, in order, in this folder.

``python run_page.py PAGE`` ends with 1 and names the block where something fails. Files that blocks show by name are
written first.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])

from support.pages import blocks, commands  # noqa: E402

# The tests have a folder called uipick, too. What a page imports comes from its own folder, or is installed.
sys.path[0] = str(Path.cwd())

# A machine that is not fit to measure on is the doctor's finding, not a fault of the page.
MAY_END_WITH_1 = ("perflex doctor",)
# What refuses to write where times do not repeat.
MEASURING = ("perflex demo ", "perflex calibrate ", "perflex evaluate ")


def write_shown_file(block):
    if block.file_name:
        path = Path(block.file_name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")


def run_command(command):
    # Tests run beside other work; a reader measures alone.
    done = _shell(f"{command} --accept-noise" if command.startswith(MEASURING) else command)
    if done.returncode and not (done.returncode == 1 and command.startswith(MAY_END_WITH_1)):
        msg = f"$ {command}\nended with {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
        raise SystemExit(msg)


def _shell(command):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    shell = ["bash", "-e", "-o", "pipefail", "-c", command]
    return subprocess.run(shell, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})


def run(page):
    namespace = {"__name__": "__page__"}
    for block in blocks(page):
        if block.untested or block.is_cell:
            continue
        write_shown_file(block)
        sys.stderr.write(f"at {block.place}\n")
        if block.language == "python":
            exec(compile("\n" * block.line + block.code, str(page), "exec"), namespace)  # noqa: S102 - the project's own pages
        for command in commands(block):
            if command.startswith("perflex"):
                run_command(command)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
