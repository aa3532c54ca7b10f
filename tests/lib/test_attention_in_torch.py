"""The function inside torch: put in the place of torch's own, below torch's modules, and compiled."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lib import masks
from lib.attention import SelfAttention
from lib.attention import scaled_dot_product_attention as attention
from tests.lib.reference import assert_close, random_inputs


@contextmanager
def ours_in_the_place_of_torchs(backend: str) -> Iterator[list]:
    """Ours as `torch.nn.functional.scaled_dot_product_attention`. Yields a list that grows by the arguments of each call."""
    calls = []

    def ours(*args, **options):
        calls.append(args)
        return attention(*args, backend=backend, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", ours)
        yield calls


# Torch says so of itself when its compiler is first loaded.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")

IGNORED = ~masks.padding([5, 3])[:, 0, 0]  # torch's modules say True = ignore
LAYER_CALLS = {
    "plain": {},
    "causal": {"src_mask": ~masks.causal(5), "is_causal": True},
    "float mask": {"src_mask": torch.linspace(-1, 1, 25).reshape(5, 5).double()},
    "padding": {"src_key_padding_mask": IGNORED},
    "causal and padding": {"src_mask": ~masks.causal(5), "src_key_padding_mask": IGNORED},
}


@pytest.mark.parametrize("options", LAYER_CALLS.values(), ids=LAYER_CALLS)
@pytest.mark.parametrize("norm_first", [False, True])
def test_torchs_encoder_layer_computes_the_same_with_ours_inside(options, norm_first, backend, device):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    layer = layer.to(device, torch.float64)
    options = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
    x = torch.randn(2, 5, 8, dtype=torch.float64, device=device)
    expected = layer(x, **options)
    expected.sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()

    with ours_in_the_place_of_torchs(backend) as calls:
        output = layer(x, **options)
    output.sum().backward()
    assert len(calls) == 1, "ours was not called"
    assert_close(output, expected)
    for p, gradient in zip(layer.parameters(), gradients, strict=True):
        assert_close(p.grad, gradient)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_torchs_multihead_attention_with_ours_inside_survives_a_sequence_of_padding(training, backend, device):
    # https://github.com/pytorch/pytorch/issues/41508, https://github.com/pytorch/pytorch/issues/27968
    # https://github.com/pytorch/pytorch/issues/42323
    module = nn.MultiheadAttention(8, 2, batch_first=True).to(device).train(training)
    x = torch.randn(2, 5, 8, device=device)
    ignored = torch.tensor([[False] * 5, [True] * 5], device=device)
    with ours_in_the_place_of_torchs(backend) as calls:
        output, _ = module(x, x, x, key_padding_mask=ignored, need_weights=False)
    assert len(calls) == 1
    assert_close(output[1], module.out_proj.bias.expand(5, 8))
    assert_close(output[0], module(x[:1], x[:1], x[:1], need_weights=False)[0][0])
    output.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in module.parameters())


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_torchs_cross_attention_computes_the_same_with_ours_inside(training, backend, device):
    module = nn.MultiheadAttention(8, 2, kdim=5, vdim=7, batch_first=True).to(device, torch.float64).train(training)
    query = torch.randn(2, 3, 8, dtype=torch.float64, device=device)
    key, value = (torch.randn(2, 6, width, dtype=torch.float64, device=device) for width in (5, 7))
    expected = module(query, key, value, need_weights=False)[0]
    with ours_in_the_place_of_torchs(backend) as calls:
        output = module(query, key, value, need_weights=False)[0]
    assert len(calls) == 1
    assert_close(output, expected)


def test_ours_in_the_place_of_torchs_does_not_call_itself(backend, device):
    inputs = random_inputs(torch.float64, device)
    expected = F.scaled_dot_product_attention(*inputs, is_causal=True)
    with ours_in_the_place_of_torchs(backend) as calls:
        assert_close(F.scaled_dot_product_attention(*inputs, is_causal=True), expected)
    assert len(calls) == 1


# The fast compiler needs a C++ compiler (on the GPU: none); where there is one, the module goes through it.
COMPILERS = ("aot_eager", "inductor") if shutil.which("g++") or shutil.which("clang++") else ("aot_eager",)


@pytest.mark.parametrize("mask", [None, masks.causal(5), torch.randn(5, 5).tril() - 1], ids=["none", "boolean", "float"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_compiled_function_is_one_graph_and_gives_the_same(mask, is_causal, backend, device):
    torch._dynamo.reset()
    mask = None if mask is None else mask.to(device)
    function = partial(attention, is_causal=is_causal, backend=backend)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    inputs, copies = (random_inputs(torch.float32, device, grad=True) for _ in range(2))
    for x, copy in zip(inputs, copies, strict=True):
        copy.data.copy_(x.data)
    output, expected = compiled(*inputs, mask), function(*copies, mask)
    output.sum().backward()
    expected.sum().backward()
    assert_close(output, expected)
    for x, copy in zip(inputs, copies, strict=True):
        assert_close(x.grad, copy.grad)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_compiled_module_is_one_graph_and_gives_the_same(compiler, device):
    torch._dynamo.reset()
    module = SelfAttention(8, 4, 5).to(device)
    compiled = torch.compile(module, fullgraph=True, backend=compiler)
    x, mask = torch.randn(2, 5, 8, device=device), masks.padding([5, 0], device=device)
    results = []
    for forward in (compiled, module):
        module.zero_grad()
        output, weights = forward(x, mask)
        output.sum().backward()
        results.append([output, weights, *(p.grad.clone() for p in module.parameters())])
    for one, other in zip(*results, strict=True):
        assert_close(one, other)
    assert not results[0][0][1].any(), "the sequence of padding is 0 when compiled too"


def test_the_compiled_module_takes_another_length_without_a_break(device):
    torch._dynamo.reset()
    module = SelfAttention(8, 4, 5).to(device)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    for L in (5, 9, 17):
        x, mask = torch.randn(2, L, 8, device=device), masks.causal(L, device=device)
        assert_close(compiled(x, mask)[0], module(x, mask)[0])
