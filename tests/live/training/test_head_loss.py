"""The chunked loss is cross-entropy, gradient included."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported, which no test has done yet

from specsim.live.training import head_loss as module
from specsim.live.training.head_loss import gradient_in_place, head_loss


def inputs(rows=11, hidden=6, vocab=300, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(rows, hidden, generator=generator, dtype=dtype)
    head = torch.randn(vocab, hidden, generator=generator, dtype=dtype)
    labels = torch.randint(vocab, (rows,), generator=generator)
    labels[: rows // 2] = (states @ head.T).argmax(-1)[: rows // 2]
    return states, head, labels, torch.rand(rows, generator=generator)


@pytest.mark.parametrize("chunk", [4, 8192])
def test_loss_and_gradient_are_those_of_cross_entropy(monkeypatch, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    states, head, labels, weights = inputs()
    a, b = states.clone().requires_grad_(), states.clone().requires_grad_()
    loss, hits = head_loss(a, head, labels, weights)
    expected = (torch.nn.functional.cross_entropy(b @ head.T, labels, reduction="none") * weights).sum()
    (3 * loss).backward()
    (3 * expected).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(a.grad, b.grad)
    assert hits.tolist() == ((states @ head.T).argmax(-1) == labels).tolist()
    assert hits.any()
    assert not hits.all()


def test_no_drafts_give_no_loss():
    states, head, labels, weights = inputs()
    loss, hits = head_loss(states[:0].requires_grad_(), head, labels[:0], weights[:0])
    loss.backward()
    assert (float(loss.detach()), len(hits)) == (0.0, 0)


@pytest.mark.parametrize("vocab", [300, 4096, 9000, pytest.param(49152, marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_triton_twin_gives_the_definitions_losses_and_gradients(vocab, dtype):
    from specsim.live.training.head_loss_triton import gradient_in_place as twin

    if vocab > 10000 and not torch.cuda.is_available():
        pytest.skip("a vocabulary of this size needs a CUDA device: the interpreter is slow")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    states, head, labels, weights = (value.to(device) for value in inputs(7, 32, vocab, torch.float32))
    logits = (states @ head.T).to(dtype)
    expected, computed = logits.clone(), logits.clone()
    losses, hits = gradient_in_place(expected, labels, weights)
    twin_losses, twin_hits = twin(computed, labels, weights)
    torch.testing.assert_close(twin_losses, losses.float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(computed, expected, rtol=1e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-6)
    assert torch.equal(twin_hits, hits)
