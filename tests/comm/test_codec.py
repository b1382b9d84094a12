"""The gradient codec: nothing is lost over the steps, the bits are those of its definition, and so on a GPU."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.comm.codec import CHUNK_ELEMENTS, add_decoded, encode
from raymega.comm.codec_cuda import FILE
from raymega.comm.coded import BLOCK, encoded_bytes
from raymega.comm.kernels import THREADS, source
from tests.comm.ptx import ptx_of

CODECS = ["fp32", "bf16", "fp16", "int8"]
SIZES = [1, BLOCK - 1, BLOCK, 3 * BLOCK + 17, CHUNK_ELEMENTS + 5]


def gradient(size: int, *, seed: int = 0) -> torch.Tensor:
    """Of many magnitudes, with zeros."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(size, generator=rng) * 10.0 ** torch.randint(-6, 1, (size,), generator=rng)
    return x.masked_fill_(torch.rand(size, generator=rng) < 0.1, 0.0)


def sent_and_left(grad: torch.Tensor, *, codec: str, residual: torch.Tensor | None = None, scale: float = 1.0):
    wire = torch.empty(encoded_bytes(grad.numel(), codec=codec), dtype=torch.uint8, device=grad.device)
    left = torch.full_like(grad, torch.nan)
    held = torch.zeros_like(grad) if residual is None else residual
    encode(grad, residual=held, scale=scale, codec=codec, wire=wire, left=left)
    sent = torch.zeros_like(grad)
    add_decoded(wire, codec=codec, out=sent)
    return wire, sent, left


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=10)
@given(size=st.sampled_from(SIZES[:4]), seed=st.integers(0, 99))
def test_what_was_sent_and_what_is_left_add_up_to_all_gradients(codec: str, size: int, seed: int) -> None:
    residual = torch.zeros(size)
    total, true = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    for step in range(20):
        grad = gradient(size, seed=100 * seed + step)
        _, sent, residual = sent_and_left(grad, codec=codec, residual=residual)
        total, true = total + sent, true + grad
    assert ((total + residual - true).abs().max() / true.abs().max()) < 1e-6
    assert codec != "fp32" or not residual.any()


@pytest.mark.parametrize(
    ("codec", "each"), [("fp16", 10_000.0), ("bf16", 10_000.0), ("int8", 10_000.0), ("int8", 100.0)]
)
def test_a_sum_may_be_larger_than_its_format_holds(codec: str, each: float) -> None:
    total = torch.zeros(BLOCK)
    for _ in range(8):
        wire, *_ = sent_and_left(torch.full((BLOCK,), each), codec=codec)
        add_decoded(wire, codec=codec, out=total)
    assert torch.allclose(total / 8, torch.full((BLOCK,), each), rtol=4e-3 if codec == "bf16" else 1e-3)


def test_what_is_less_than_half_a_step_of_int8_is_sent_in_the_mean_and_waits_bounded() -> None:
    grad = torch.full((BLOCK,), 0.3)
    grad[0] = 127.0  # so that a step is 1
    residual, total = torch.zeros(BLOCK), torch.zeros(BLOCK)
    for _ in range(100):
        _, sent, residual = sent_and_left(grad, codec="int8", residual=residual)
        total += sent
        assert residual.abs().max() <= 0.5 + 1e-4
    assert torch.allclose(total[1:] / 100, torch.tensor(0.3), atol=0.5 / 100)


def test_a_convex_problem_reaches_its_minimum_though_large_gradients_hide_the_others() -> None:
    wanted = [gradient(BLOCK, seed=seed) for seed in (1, 2)]  # of two contributors; the minimum is their mean
    wanted[0][0], wanted[1][0] = 100.0, -100.0  # they pull for ever, so that a step of int8 is 0.4
    x, left = torch.zeros(BLOCK), [torch.zeros(BLOCK)] * 2
    for _ in range(500):
        total = torch.zeros(BLOCK)
        for member in (0, 1):
            wire, _, left[member] = sent_and_left((x - wanted[member]) / 2, codec="int8", residual=left[member])
            add_decoded(wire, codec="int8", out=total)
        x = x - 0.02 * total
    best = torch.stack(wanted).mean(0)
    assert (x - best).square().sum() < 0.01 * best.square().sum()


def test_the_loss_scale_is_taken_out_before_rounding() -> None:
    grad = gradient(1000)
    for codec in CODECS:
        _, *plain = sent_and_left(grad, codec=codec)
        _, *scaled = sent_and_left(grad * 1024, codec=codec, scale=1024.0)
        assert all(torch.equal(a, b) for a, b in zip(plain, scaled, strict=True))


def by_definition(values: np.ndarray) -> np.ndarray:
    """What int8 sends, element by element in fp32."""
    out = np.zeros_like(values)
    for first in range(0, len(values), BLOCK):
        block = values[first : first + BLOCK]
        scale = np.float32(np.abs(block).max() / np.float32(127.0))
        to_code = np.float32(1.0) / scale if scale >= np.finfo(np.float32).tiny else np.float32(0.0)
        out[first : first + BLOCK] = np.clip(np.rint(block * to_code), -127, 127).astype(np.float32) * scale
    return out


@pytest.mark.parametrize("size", SIZES)
def test_int8_has_the_bits_of_its_definition(size: int) -> None:
    grad = gradient(size)
    _, sent, left = sent_and_left(grad, codec="int8")
    expected = torch.from_numpy(by_definition(grad.numpy()))
    assert torch.equal(sent, expected)
    assert torch.equal(left, grad - expected)


def test_bytes_are_those_that_it_says() -> None:
    assert [encoded_bytes(BLOCK * 100, codec=codec) for codec in CODECS] == [102400, 51200, 51200, 26000]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_reaches_the_others(codec: str, bad: float) -> None:
    grad = gradient(3 * BLOCK)
    grad[BLOCK + 3] = bad
    _, sent, _ = sent_and_left(grad, codec=codec)
    assert not sent[BLOCK + 3].isfinite()
    assert sent[:BLOCK].isfinite().all()


@pytest.mark.parametrize("least", [0.0, 1e-45, 1e-37])
def test_blocks_too_small_for_a_scale_wait_in_the_residual(least: float) -> None:
    grad = torch.full((BLOCK,), least)
    _, sent, left = sent_and_left(grad, codec="int8")
    assert not sent.any()
    assert torch.equal(left, grad)


def test_the_kernels_compile_to_ptx(tmp_path: Path) -> None:
    ptx = ptx_of(source(FILE), folder=tmp_path)
    assert BLOCK == THREADS, "a block of threads has a block of elements"
    for name in ("bf16", "fp16", "int8"):
        assert f".entry encode_{name}(" in ptx
        assert f".entry add_{name}(" in ptx
    assert not re.findall(r"\bfma\.\S*f32", ptx), "each operation is rounded by itself"
    assert not re.findall(r"\b(?:add|sub|mul|div)\.\S*ftz\S*", ptx), "subnormal numbers count, as on a CPU"


@pytest.mark.gpu
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", SIZES)
def test_a_gpu_gives_the_bits_of_the_cpu(codec: str, size: int) -> None:
    pytest.importorskip("cupy")
    grad, residual = gradient(size), gradient(size, seed=1)
    for x in (grad, residual):
        x[: size // 2] *= 1e-36  # what is left of these is subnormal
    here = sent_and_left(grad, codec=codec, residual=residual, scale=2.0)
    there = sent_and_left(grad.cuda(), codec=codec, residual=residual.cuda(), scale=2.0)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here[1:], there[1:], strict=True))


@pytest.mark.gpu
def test_a_gpu_codes_on_the_stream_in_use() -> None:
    pytest.importorskip("cupy")
    grad, stream = gradient(SIZES[-1]).cuda(), torch.cuda.Stream()
    expected = sent_and_left(grad, codec="int8")[1]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # what follows waits for it, on this stream only
        doubled = grad * 2
        sent = sent_and_left(doubled, codec="int8")[1]
    stream.synchronize()
    assert torch.equal(sent, 2 * expected)
