"""A space of few variants of source code, for tests."""

from pathlib import Path

MATMUL = Path(__file__).parents[2] / "examples" / "matmul.cl"
SPACE = f"""schema: perflex-source/1
source: {MATMUL}
kernel: tiled
local: [TILE, TILE]
global: [n, n]
tunables: {{TILE: [4, 8, 16]}}
sizes: {{n: 256}}
"""
