"""Weights that are a function of their name, so that a file of expected numbers need not hold them."""

import zlib

import pytest
import torch


@pytest.fixture(scope="session")
def draw():
    """Random numbers of a shape by a name: norms (vectors) around one, matrices scaled by their input's width."""

    def draw(name, shape):
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        values = torch.randn(tuple(shape), generator=generator, dtype=torch.float64).float()
        return 1 + 0.1 * values if len(shape) == 1 else values * shape[-1] ** -0.5

    return draw
