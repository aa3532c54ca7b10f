"""The small attention is right without a fault, and each planted fault keeps the shapes and changes the numbers."""

import pytest
import torch

from lib import masks
from lib.multihead import MultiHeadAttention
from lib.study import mask_trials
from lib.study.mask_checks import CHECKS, D, H, found, table
from lib.study.mask_faults import (
    CACHED_STEP,
    FAULTS,
    MEAN_ROW,
    NAN_ROW,
    NO_MASK,
    NONE,
    NOT_IN_EVAL,
    MaskedAttention,
    MiniTransformer,
)

LENGTHS = torch.tensor([5, 3, 0])


def attention(fault: str = NONE) -> MaskedAttention:
    torch.manual_seed(0)
    return MaskedAttention(D, H, fault).double()


def library_with_the_weights_of(small: MaskedAttention) -> MultiHeadAttention:
    ours = MultiHeadAttention(D, H).double()
    with torch.no_grad():
        ours.in_proj.weight.copy_(torch.cat([p.weight for p in (small.q_proj, small.k_proj, small.v_proj)]))
        ours.out_proj.weight.copy_(small.out_proj.weight)
    return ours


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_without_a_fault_it_is_the_librarys_attention(training, causal, lengths):
    small = attention().train(training)
    x = torch.randn(3, 5, D, dtype=torch.float64)
    mask = None if lengths is None else masks.padding(lengths, 5)
    expected, weights = library_with_the_weights_of(small)(x, mask=mask, is_causal=causal, need_weights=True)
    output, small_weights = small(x, lengths=lengths, causal=causal)
    torch.testing.assert_close(output, expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(small_weights, weights, atol=1e-12, rtol=0)


def test_attention_to_a_context_of_another_length_is_the_librarys_too():
    small = attention()
    x, context = torch.randn(3, 4, D, dtype=torch.float64), torch.randn(3, 5, D, dtype=torch.float64)
    expected, _ = library_with_the_weights_of(small)(x, context, mask=masks.padding(LENGTHS, 5))
    torch.testing.assert_close(small(x, context, lengths=LENGTHS)[0], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("fault", [*FAULTS, NO_MASK])
def test_every_fault_keeps_the_shapes(fault):
    x = torch.randn(3, 5, D, dtype=torch.float64)
    output, weights = attention(fault)(x, lengths=LENGTHS, causal=True)
    assert output.shape == x.shape
    assert weights.shape == (3, H, 5, 5)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_found_by_some_check_and_none_by_that_of_shapes(fault):
    row = table([fault])[fault]
    assert any(row.values())
    assert not row["shapes are right"]


@pytest.mark.parametrize("seed", range(3))
def test_sound_attention_passes_every_check(seed):
    torch.manual_seed(seed)
    sound = MaskedAttention(D, H).double()
    assert [check for check in CHECKS if found(check, sound)] == []


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (NAN_ROW, "empty sequence: 0, no NaN"),
        (MEAN_ROW, "empty sequence: 0, no NaN"),
        (CACHED_STEP, "step by step as all at once"),
    ],
)
def test_some_faults_are_found_by_one_check_alone(fault, check):
    assert [name for name, was_found in table([fault])[fault].items() if was_found] == [check]


def test_a_fault_of_one_mode_does_not_show_in_another():
    row = table([NOT_IN_EVAL])[NOT_IN_EVAL]
    assert not row["future changed, training mode"]
    assert row["future changed, eval mode"]


def test_a_fault_without_gradients_is_found_without_gradients_alone():
    row = table(["causal ignored on a fast path"])["causal ignored on a fast path"]
    assert [check for check, was_found in row.items() if was_found] == [
        "future changed, eval and no_grad",
        "step by step as all at once",
    ]


def test_both_masks_forgotten_is_attention_without_a_mask():
    x = torch.randn(3, 5, D, dtype=torch.float64)
    forgotten = attention(NO_MASK)(x, lengths=LENGTHS, causal=True)[0]
    torch.testing.assert_close(forgotten, attention()(x)[0], atol=0, rtol=0)


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match="fault must be"):
        MaskedAttention(D, H, "upside down")


def test_the_small_transformer_writes_step_by_step_what_it_computes_at_once():
    model = mask_trials.build(NONE, seed=0).double().eval()
    model.positions = model.positions.double()
    assert isinstance(model, MiniTransformer)
    batch = mask_trials.words(torch.Generator().manual_seed(0), torch.tensor([4, 7]))
    memory = model.encode(batch.source, batch.lengths)
    whole = model.decode(batch.target, memory, batch.lengths)
    caches = [{} for _ in model.decoder]
    steps = [model.decode(batch.target[:, t : t + 1], memory, batch.lengths, caches) for t in range(batch.target.size(1))]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-12, rtol=0)
