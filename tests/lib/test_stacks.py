"""Stacks that skip padding, against the same stacks that do not. The rest of `lib.stacks` is tested beside the models."""

import math

import pytest
import torch
from torch import nn

from lib import masks
from lib.cache import DecoderCache
from lib.multihead import MultiHeadAttention, recorded_weights
from lib.stacks import POSITIONAL, Decoder, Encoder, Stack, TransformerConfig
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


@pytest.mark.parametrize(
    ("lengths", "runs"), [([3, 7, 1, 3], [(2, 3), (1, 7), (1, 1)]), ([7, 7], [(2, 7)]), ([0, 2], [(1, 2)])]
)
def test_products_are_made_for_real_tokens_alone_and_equal_extents_together(lengths, runs):
    _, stack = pair()
    seen = []
    stack.layers[0].feed_forward.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[:2]))
    stack(torch.randn(len(lengths), L, 12, dtype=torch.float64), masks.padding(lengths, L))
    assert seen == runs


@pytest.mark.parametrize("shape", [(0, L, 12), (2, 0, 12)])
def test_an_empty_batch_stays_empty(shape):
    plain, skipping = pair()
    x, mask = torch.randn(shape, dtype=torch.float64), torch.ones(shape[0], 1, 1, shape[1], dtype=torch.bool)
    assert skipping(x, mask).shape == plain(x, mask).shape == shape


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


@pytest.mark.parametrize("switch", ["checkpointing", "skip_padding"])
def test_weights_are_recorded_of_the_whole_batch_and_the_switch_is_on_again_afterwards(switch):
    model = randomized(DecoderLM(TransformerConfig(11, d_model=12, num_heads=3, dropout=0.0, **{switch: True})))
    words, mask, gradients = torch.randint(11, (3, L)), masks.padding([3, L, 2], L), []
    for recorded in (True, False):
        model.zero_grad()
        if recorded:
            with recorded_weights(model) as weights:
                logits = model(words, mask)
        else:
            logits = model(words, mask)
        logits[mask[:, 0, 0]].square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert len(weights) == 6
    assert all(x.shape == (3, 3, L, L) for x in weights.values())
    assert getattr(model.decoder, switch) is True
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, 1e-4)


@pytest.mark.parametrize(
    "kind", [lambda: MultiHeadAttention(12, 12, alibi=True), lambda: pair(num_heads=12, positional="alibi")[0]]
)
def test_alibi_keeps_the_digits_of_float64(kind):
    module = nn.ModuleDict({"it": kind()}).double()
    for name, parameter in module.named_parameters():
        if "in_proj" in name:  # all scores 0: the weights are those of the distance alone
            nn.init.zeros_(parameter)
    with recorded_weights(module) as weights:
        module["it"](torch.randn(1, 50, 12, dtype=torch.float64))
    slopes = [2.0**-k for k in range(1, 9)] + [2.0 ** (-k / 2) for k in (1, 3, 5, 7)]
    for h, slope in enumerate(slopes):
        expected = torch.tensor([math.exp(-slope * j) for j in range(50)], dtype=torch.float64)
        for found in weights.values():
            assert_close(found[0, h, 0], expected / expected.sum(), 1e-14)


class TestWhatDoesNotBelongTogether:
    """A decoder without a memory attended to its own input, later tokens included, and a foreign cache moved the positions."""

    def test_decoder_layers_without_a_memory_are_an_error(self):
        decoder, _ = pair(Decoder)
        x, mask = torch.randn(1, 4, 12, dtype=torch.float64), masks.causal(4)
        for call in (lambda: decoder(x), lambda: decoder(x, mask), lambda: decoder.layers[0](x, None, mask)):
            with pytest.raises(ValueError, match="memory"):
                call()
        with pytest.raises(ValueError, match="memory"):
            decoder(x, mask, cache=DecoderCache(2, 8))
        with pytest.raises(ValueError, match="memory"):
            pair(Transformer)[0].decode(torch.tensor([[1, 2]]), memory=None)

    def test_encoder_layers_with_a_memory_are_an_error(self):
        encoder, _ = pair()
        x = torch.randn(1, 4, 12, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"no memory.*\(1, 4, 12\)"):
            encoder(x, memory=x)

    @pytest.mark.parametrize("layers", [1, 3])
    def test_a_cache_of_other_layers_is_an_error(self, layers):
        lm, _ = pair(DecoderLM)
        with torch.no_grad(), pytest.raises(ValueError, match=f"cache of {layers} layers .* stack of 2"):
            lm(torch.tensor([[1, 2]]), cache=DecoderCache(layers, 8))

    def test_after_a_step_that_broke_off_the_cache_refuses_to_go_on(self):
        model, _ = pair(Transformer)
        cache, words, memory = model.new_cache(4, 3), torch.tensor([[1, 2]]), torch.randn(1, 3, 12, dtype=torch.float64)
        with torch.no_grad():
            with pytest.raises(ValueError, match="0 of 3 positions are taken and 4 more"):
                model.decode(words, memory=torch.randn(1, 4, 12, dtype=torch.float64), cache=cache)
            with pytest.raises(ValueError, match=r"\[2, 0\].*reset"):
                model.decode(words, memory=memory, cache=cache)
            cache.reset()
            assert_close(model.decode(words, memory=memory, cache=cache), model.decode(words, memory=memory))

    def test_no_layers_are_an_error(self):
        with pytest.raises(ValueError, match="at least 1 layer"):
            Stack([])

    @pytest.mark.parametrize("sizes", [{"d_model": 10, "num_heads": 16}, {"d_model": 12, "num_heads": 4}])
    def test_rotary_names_the_numbers_that_one_can_set(self, sizes):
        with pytest.raises(ValueError, match=f"{sizes['d_model']} / {sizes['num_heads']}.*Nearest d_model"):
            Encoder(TransformerConfig(11, positional="rotary", **sizes))
