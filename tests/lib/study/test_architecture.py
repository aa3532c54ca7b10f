"""The architecture read off a model: the order of its parts, their sizes, and that nothing is counted twice or left out."""

import matplotlib.pyplot as plt
import pytest
import torch

from lib.study.architecture import draw, first_layers, ledger, num_layers, walk
from lib.transformer import Transformer, TransformerConfig

SMALL = {"vocab_size": 50, "d_model": 16, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 3}


def model(**options):
    return Transformer(TransformerConfig(**SMALL, dim_feedforward=24, **options))


def kinds(parts, stack):
    return [part.kind for part in first_layers(parts) if part.stack == stack]


def test_post_norm_layers_are_called_in_the_papers_order():
    parts = walk(model())
    assert kinds(parts, "encoder") == ["self-attention", "norm", "feed-forward", "norm"]
    assert kinds(parts, "decoder") == [
        "masked self-attention", "norm", "cross-attention", "norm", "feed-forward", "norm",
    ]  # fmt: skip
    assert (num_layers(parts, "encoder"), num_layers(parts, "decoder")) == (2, 3)


def test_pre_norm_layers_begin_with_a_norm_and_a_last_one_follows():
    parts = walk(model(norm_first=True))
    assert kinds(parts, "encoder") == ["norm", "self-attention", "norm", "feed-forward", "norm"]
    assert [part.kind for part in parts if part.layer is None] == ["embedding", "norm", "embedding", "norm", "output"]


def test_only_cross_attention_reads_the_memory_and_lengths_may_differ():
    parts = walk(model(), S=7, L=5)
    reads = [part for part in parts if len(part.inputs) > 1]
    assert {(part.kind, part.inputs, part.output) for part in reads} == {
        ("cross-attention", ((1, 5, 16), (1, 7, 16)), (1, 5, 16))
    }
    assert len(reads) == 3


@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True}, {"tie_embeddings": False}, {"target_vocab_size": 30}, {"positional": "learned"}]
)
def test_the_ledger_counts_every_parameter_once(options):
    built = model(**options)
    assert sum(together for _, _, together in ledger(walk(built))) == sum(p.numel() for p in built.parameters())


def test_the_ledger_groups_the_parts_of_all_layers():
    lines = {name: (times, together) for name, times, together in ledger(walk(model()))}
    assert lines["decoder: norm"] == (9, 9 * 32)
    assert lines["target: embedding"] == (1, 0)  # the same table as the source's


def test_the_model_is_left_as_it_was():
    built = model().train()
    walk(built)
    assert built.training
    assert not any(module._forward_hooks for module in built.modules())


def test_a_model_without_memory_for_its_parameters_can_be_walked():
    with torch.device("meta"):
        big = Transformer(TransformerConfig())
    assert sum(together for _, _, together in ledger(walk(big))) == 63_082_496


@pytest.mark.parametrize(("options", "norms"), [({}, 5), ({"norm_first": True}, 7)])
def test_the_drawing_names_every_part_of_the_first_layers_with_its_size(options, norms):
    figure = draw(walk(model(**options)))
    written = [text.get_text() for text in figure.axes[0].texts]
    assert sum("norm, 16" in text for text in written) == norms
    assert "cross-attention\n2 heads of width 8" in written
    assert "feed-forward\n16 → 24 → 16" in written
    assert "decoder\n3 layers" in written
    assert written.count("+") == 5  # a residual connection for each sub-layer
    plt.close(figure)
