"""What each attention of a model is told to hide: all of it, and the model runs as it did."""

import pytest
import torch

from lib import masks
from lib.multihead import recorded_weights
from lib.study.mask_records import links, recorded_masks
from lib.transformer import DecoderLM, Transformer, TransformerConfig

SIZES = {"vocab_size": 20, "d_model": 16, "num_heads": 2, "dim_feedforward": 16, "dropout": 0.0}
CONFIG = TransformerConfig(**SIZES, num_encoder_layers=2, num_decoder_layers=2)
TOKENS = torch.arange(12).reshape(2, 6)


def test_every_attention_of_a_transformer_is_recorded_and_obeys():
    model = Transformer(CONFIG).eval()
    source_mask, target_mask = masks.padding([6, 2]), masks.padding([4, 3])
    plain = model(TOKENS, TOKENS[:, :4], source_mask, target_mask)
    with recorded_masks(model) as received, recorded_weights(model) as weights:
        output = model(TOKENS, TOKENS[:, :4], source_mask, target_mask)
    torch.testing.assert_close(output, plain, atol=1e-5, rtol=0)
    assert len(received) == 6
    for name, mask in received.items():
        assert torch.equal((weights[name] != 0), mask[:, None].expand_as(weights[name]))


def test_hooks_are_gone_afterwards():
    model = DecoderLM(CONFIG).eval()
    with recorded_masks(model) as received:
        model(TOKENS)
    received.clear()
    model(TOKENS)
    assert received == {}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, torch.ones(2, 3, 4, dtype=torch.bool)),
        ({"is_causal": True}, masks.causal(3, 4).expand(2, 3, 4)),
        ({"mask": masks.padding([4, 1])}, (torch.arange(4) < torch.tensor([[4], [1]]))[:, None].expand(2, 3, 4)),
        ({"mask": torch.zeros(3, 4).masked_fill(~masks.causal(3, 4), -torch.inf)}, masks.causal(3, 4).expand(2, 3, 4)),
        (
            {"mask": masks.padding([4, 1]), "is_causal": True},
            masks.causal(3, 4) & (torch.arange(4) < torch.tensor([[4], [1]]))[:, None],
        ),
    ],
)
def test_mask_and_is_causal_are_joined(options, expected):
    assert torch.equal(links(2, 3, 4, options), expected)
