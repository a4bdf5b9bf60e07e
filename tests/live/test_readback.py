"""Several tensors come back to the host with their shapes, types and bits."""

import numpy as np
import pytest
import torch

from specsim.live.readback import Readback


def fetched(readback, tensors):
    readback.ask(tensors)
    return readback.fetch()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_comes_back_is_what_was_sent_and_stays_when_more_is_fetched(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    readback = Readback(torch.device(device))
    sent = [
        torch.tensor([3, -1, 2**62]),
        torch.tensor([[0.1, float("nan"), -0.0], [1.0, 5e-324, float("inf")]], dtype=torch.float64),
        torch.arange(8).reshape(2, 4)[:, 1:3],
        torch.zeros((2, 0), dtype=torch.float64),
        torch.tensor([7]),
    ]
    found = fetched(readback, [values.to(device) for values in sent])
    fetched(readback, [torch.full((40,), 9, device=device)])
    for values, came in zip(sent, found, strict=True):
        assert came.dtype == values.numpy().dtype
        assert came.shape == tuple(values.shape)
        assert np.ascontiguousarray(came).tobytes() == np.ascontiguousarray(values.numpy()).tobytes()
