"""A description of a kernel with few variants, for tests, and a space of variants of source code."""

from pathlib import Path

MATMUL = Path(__file__).parents[2] / "examples" / "matmul.cl"
DESCRIPTION = """
schema: perflex-description/1
name: small
description: a kernel
tunables:
  items: {meaning: work-items, values: [32, 64, 128]}
  depth: {meaning: unrolling, values: [1, 2, 4], dead_when: items == 32}
constants: {size: 1024}
constraints: [items*depth <= 256]
features:
  f_groups: ceil_div(size, items*depth)
  f_work: f_groups*items*depth
model: p_time*(f_work + p_group*f_groups)
parameters:
  p_time: {meaning: time of an item, unit: ms, prior: 0.001, spread: 2}
  p_group: {meaning: a work-group, unit: item, prior: 10, spread: 1}
"""
SPACE = f"""schema: perflex-source/1
source: {MATMUL}
kernel: tiled
local: [TILE, TILE]
global: [n, n]
tunables: {{TILE: [4, 8, 16]}}
sizes: {{n: 256}}
"""
