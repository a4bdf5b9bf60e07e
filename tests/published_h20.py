"""What the D-cut authors published for Qwen3-8B on one H20, batch by batch; temperature 0, mean of five data sets.

Source: the authors' page (Tencent AngelSlim documentation, dcut.html); paper arXiv 2607.14647.
"""

RATIOS = (0.25, 0.5, 0.75, 1.0)

STEP_MS = {
    4: (8.2, 8.7, 9.7, 10.9),
    8: (10.6, 12.8, 16.3, 19.6),
    16: (16.0, 22.7, 29.8, 35.8),
    32: (29.8, 43.1, 56.6, 70.1),
    64: (55.2, 82.2, 107.9, 133.9),
}
"""End-to-end milliseconds of a step, by share of its 16 tokens a request that is verified."""

TOKEN_THROUGHPUT = {
    "autoregressive": {4: 533.0, 8: 1017.9, 16: 1784.3, 32: 2663.1, 64: 3446.0},
    "fixed_depth:depth=15": {4: 1681.4, 8: 1904.9, 16: 2064.1, 32: 2137.4, 64: 2226.8},
    "dcut": {4: 1864.1, 8: 2560.4, 16: 2967.7, 32: 3209.1, 64: 3349.6},
}
"""Tokens a second of the rows AR, DFlash-B16 and D-Cut-B16."""
