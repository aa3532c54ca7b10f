"""Stacks that skip padding, against the same stacks that do not. The rest of `lib.stacks` is tested beside the models."""

import pytest
import torch
from torch import nn

from lib import masks
from lib.stacks import POSITIONAL, Encoder, TransformerConfig
from lib.transformer import DecoderLM, EncoderClassifier, Transformer
from tests.lib.reference import assert_close
from tests.lib.test_layers import randomized

L = 7
REAL = {  # rows with True = a real token: on the left, on the right, on both sides, with a hole, full, empty
    "behind": [3, 7, 1],
    "anywhere": [[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0, 1]],
    "an empty one": [4, 0, 7],
}


def mask_of(rows: list) -> torch.Tensor:
    """(B, 1, 1, L)."""
    return masks.padding(rows, L) if isinstance(rows[0], int) else torch.tensor(rows, dtype=torch.bool)[:, None, None]


def causal_encoder(config: TransformerConfig) -> Encoder:
    return Encoder(config, is_causal=True)


def pair(kind=Encoder, *args, **options) -> tuple[nn.Module, nn.Module]:
    """The same model twice, in float64 and without dropout: one that reads its padding, one that skips it."""
    sizes = {"d_model": 12, "num_heads": 3, "dim_feedforward": 20, "num_encoder_layers": 2, "num_decoder_layers": 2}
    config = {**sizes, "max_len": 16, "dropout": 0.0, **options}
    plain = randomized(kind(TransformerConfig(11, **config), *args).double())
    skipping = kind(TransformerConfig(11, **config, skip_padding=True), *args).double()
    skipping.load_state_dict(plain.state_dict())
    return plain, skipping


@pytest.mark.parametrize("rows", REAL.values(), ids=REAL)
@pytest.mark.parametrize("positional", POSITIONAL)
@pytest.mark.parametrize("kind", [Encoder, causal_encoder], ids=["both ways", "causal"])
class TestSkipPadding:
    def test_real_tokens_and_all_gradients_are_the_same_and_padding_is_zero(self, rows, positional, kind):
        mask, x = mask_of(rows), torch.randn(len(rows), L, 12, dtype=torch.float64)
        upstream, answers = torch.randn_like(x), []
        options = {"positional": positional, "norm_first": True, "checkpointing": True}
        for stack in pair(kind, **options):
            leaf = x.clone().requires_grad_()
            output = stack(leaf, mask)
            real = mask[:, 0, 0, :, None]
            output.backward(upstream * real)
            answers.append([output * real, leaf.grad, *(parameter.grad for parameter in stack.parameters())])
        for plain, skipping in zip(*answers, strict=True):
            assert_close(skipping, plain)
        first, last = (real.cumsum(1) == 0), (real.flip(1).cumsum(1) == 0).flip(1)
        assert not output[(first | last).expand_as(output)].any()

    def test_padding_around_a_text_is_never_read(self, rows, positional, kind):
        mask, x = mask_of(rows), torch.randn(len(rows), L, 12, dtype=torch.float64)
        _, stack = pair(kind, positional=positional)
        real = mask[:, 0, 0]
        around = (real.cumsum(1) == 0) | (real.flip(1).cumsum(1) == 0).flip(1)
        assert torch.equal(stack(x.masked_fill(around[..., None], torch.nan), mask), stack(x, mask))


def test_products_are_made_for_real_tokens_alone():
    _, stack = pair()
    seen = []
    stack.layers[0].feed_forward.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[:2]))
    stack(torch.randn(3, L, 12, dtype=torch.float64), masks.padding([3, 7, 1], L))
    assert seen == [(1, 3), (1, 7), (1, 1)]


@pytest.mark.parametrize("mask", [None, masks.causal(L), torch.zeros(2, 1, 1, L)], ids=["no mask", "causal", "float"])
def test_another_mask_than_padding_is_used_as_it_is(mask):
    plain, skipping = pair()
    x = torch.randn(2, L, 12, dtype=torch.float64)
    assert torch.equal(skipping(x, mask), plain(x, mask))


def test_models_with_it_give_the_same_logits():
    words, target, mask = torch.randint(11, (3, L)), torch.randint(11, (3, 4)), masks.padding([3, 7, 0], L)
    plain, skipping = pair(EncoderClassifier, 4)
    assert_close(skipping(words, mask), plain(words, mask))
    plain, skipping = pair(Transformer)
    assert_close(skipping(words, target, mask), plain(words, target, mask))
    assert not skipping.decoder.skip_padding
    plain, skipping = pair(DecoderLM)
    assert_close(skipping(words, mask)[:2][mask[:2, 0, 0]], plain(words, mask)[:2][mask[:2, 0, 0]])


def test_a_mask_that_does_not_fit_is_still_refused():
    _, stack = pair()
    with pytest.raises(ValueError, match=r"\(2, 1, 1, 6\)"):
        stack(torch.randn(2, L, 12, dtype=torch.float64), masks.padding([3, 6], 6))
