"""What the heads look at: measures against cases worked by hand, and a profile that gives each sentence the same say."""

import math

import pytest
import torch

from lib.multihead import recorded_weights
from lib.study import heads, heads_letters

L = 7


def shifted(offset: int) -> torch.Tensor:
    """(1, 1, L, L) all weight on the token `offset` places on, on the nearest where there is none."""
    weights = torch.zeros(1, 1, L, L)
    for i in range(L):
        weights[0, 0, i, min(max(i + offset, 0), L - 1)] = 1
    return weights


@pytest.mark.parametrize(("name", "offset"), heads.OFFSETS.items())
def test_a_head_on_one_offset_has_all_its_weight_there(name, offset):
    found = heads.measures(shifted(offset))
    assert found[name].item() == 1
    assert found["distance"].item() == abs(offset)
    assert found["entropy"].item() == 0
    assert all(found[other].item() == 0 for other in heads.OFFSETS if other != name)


@pytest.mark.parametrize(("name", "key"), [("first", 0), ("last", L - 1)])
def test_a_head_on_the_first_or_last_token(name, key):
    weights = torch.zeros(1, 1, L, L)
    weights[..., key] = 1
    found = heads.measures(weights)
    assert found[name].item() == 1
    # queries 1 … L − 2 are at distances 1 … L − 2 from either end
    assert found["distance"].item() == pytest.approx(sum(range(1, L - 1)) / (L - 2))


def test_equal_weights_have_the_greatest_entropy_and_the_mean_distance():
    found = heads.measures(torch.full((2, 3, L, L), 1 / L))
    distance = sum(abs(i - j) for i in range(1, L - 1) for j in range(L)) / L / (L - 2)
    assert found["entropy"].tolist() == pytest.approx([math.log(L)] * 3)
    assert found["distance"].tolist() == pytest.approx([distance] * 3)
    assert found["first"].tolist() == pytest.approx([1 / L] * 3)


def test_heads_keep_apart_and_sentences_are_averaged():
    two = torch.cat([torch.cat([shifted(-1), shifted(1)], dim=1), torch.cat([shifted(-1), shifted(-1)], dim=1)])
    found = heads.measures(two)  # two sentences, two heads
    assert found["before"].tolist() == [1, 0.5]
    assert found["after"].tolist() == [0, 0.5]


def test_queries_of_the_markers_do_not_count():
    weights = shifted(0)
    weights[0, 0, 0] = weights[0, 0, -1] = 1 / L
    assert heads.measures(weights)["itself"].item() == 1


@pytest.mark.parametrize("shape", [(2, 5, 5), (1, 1, 5, 4), (1, 1, 2, 2)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="weights must be"):
        heads.measures(torch.zeros(shape))


def test_a_profile_is_the_measures_of_each_layer_with_each_sentence_counted_once():
    torch.manual_seed(0)
    model = heads_letters.LetterGuesser(num_heads=2, num_layers=2).eval()
    batches = [torch.randint(20, (3, 6)), torch.randint(20, (1, 9))]
    table = heads.profile(model, batches)
    assert table[["layer", "head"]].to_numpy().tolist() == [[1, 1], [1, 2], [2, 1], [2, 2]]
    sums = 0
    for tokens in batches:
        with recorded_weights(model) as weights, torch.no_grad():
            model(tokens)
        second = heads.measures(weights["encoder.layers.1.self_attn"])["entropy"]
        sums = sums + second * len(tokens)
    assert table.query("layer == 2")["entropy"].tolist() == pytest.approx((sums / 4).tolist())


def test_the_uniform_head_is_a_profile_of_equal_weights():
    batches = [torch.zeros(3, 6), torch.zeros(1, 9)]
    found = heads.uniform(batches)
    assert found["entropy"] == pytest.approx((3 * math.log(6) + math.log(9)) / 4)
    assert found["last"] == pytest.approx((3 / 6 + 1 / 9) / 4)


def test_no_sentences_have_no_profile():
    with pytest.raises(ValueError, match="no phrases"):
        heads.profile(torch.nn.Linear(1, 1), [])
