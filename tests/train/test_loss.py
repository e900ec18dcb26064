"""The loss in chunks is torch's, and so are its gradients."""

# ruff: noqa: E402
from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

import gristmill.train.loss as loss_module
from gristmill.ops.autograd import AutogradLinear
from gristmill.train.loss import cross_entropy


@pytest.mark.parametrize("rows_at_once", [1, 7, 100])
def test_cross_entropy_in_chunks_is_torchs(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_NUMBERS", rows_at_once * 53)
    generator = torch.Generator().manual_seed(0)
    hidden, w = (torch.nn.Parameter(torch.randn(n, 12, generator=generator)) for n in (30, 53))
    targets = torch.randint(53, (30,), generator=generator)
    loss = 3 * cross_entropy(hidden, AutogradLinear(w, None), targets)
    expected = 3 * torch.nn.functional.cross_entropy(hidden @ w.T, targets)
    assert abs(loss.item() - expected.item()) < 1e-5
    for found, wanted in zip(
        torch.autograd.grad(loss, (hidden, w)), torch.autograd.grad(expected, (hidden, w)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
