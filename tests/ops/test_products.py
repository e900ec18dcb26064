"""Products by oneDNN are torch's own, gradients too, however the factors lie in memory."""

# ruff: noqa: E402
from __future__ import annotations

import platform

import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from gristmill.ops import products
from gristmill.ops.products import linear, product


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors keep torch's own products")
def test_the_torch_at_hand_has_what_is_fast() -> None:
    """Its name is private: a torch without it would train correctly and at half the speed."""
    assert products._by_onednn(random(2, 3), random(4, 3))


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 3, 7), (64, 48, 96), (96, 33, 17)])
def test_product(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    wide = random(m, k + 3)
    factors = {
        "rows": random(m, k),
        "columns": random(k, m).t(),
        "part of a wider one": wide[:, 1 : k + 1],
        "every other row": random(2 * m, k)[::2],
        "one row again and again": random(1, k).expand(m, k),
    }
    w = random(n, k, seed=1)
    for name, x in factors.items():
        for other in (w, w.t().contiguous().t(), random(n, k + 2, seed=2)[:, :k]):
            expected = x.double() @ other.double().t()
            torch.testing.assert_close(product(x, other).double(), expected, rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize(("d_in", "d_out"), [(12, 40), (40, 12)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_gradients(d_in: int, d_out: int, has_bias: bool) -> None:
    x, w, bias = random(20, d_in), random(d_out, d_in, seed=1), random(d_out, seed=2) if has_bias else None
    given = [values.requires_grad_() for values in (x, w, bias) if values is not None]
    y = linear(x, w, bias)
    found = torch.autograd.grad((y * y).sum() + y.sum(), given)
    exact = [values.detach().double().requires_grad_() for values in given]
    z = torch.nn.functional.linear(*exact)
    for a, b in zip(found, torch.autograd.grad((z * z).sum() + z.sum(), exact), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-4)


def test_what_is_no_float32_keeps_its_type() -> None:
    x, w = random(6, 8), random(5, 8, seed=1)
    assert linear(x.double(), w.double(), None).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        y = linear(x, w, None)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), x @ w.t(), rtol=0.02, atol=0.05)


@pytest.mark.filterwarnings("ignore")  # torch's compiler uses what torch warns of
def test_what_is_compiled_uses_it_too() -> None:
    x, w = random(6, 8).requires_grad_(), random(5, 8, seed=1).requires_grad_()
    compiled = torch.compile(linear, backend="aot_eager", fullgraph=True)
    found, expected = compiled(x, w, None), x @ w.t()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad(y.square().sum(), (x, w)) for y in (found, expected)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)
