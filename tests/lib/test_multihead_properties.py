"""What holds for every kind of multi-head attention: rows without a key, causality, one meaning in every mode, the cache."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib import masks
from lib.cache import KVCache
from lib.multihead import MultiHeadAttention, with_causal
from tests.lib.reference import assert_close
from tests.lib.test_multihead import KINDS, build


class TestRowsWithoutAKey:
    # https://github.com/pytorch/pytorch/issues/41508 (and 27968, 42323); with dropout, 152028; d2l-en/issues/2423: length 0
    @pytest.mark.parametrize("dropout", [0.0, 0.5])
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    def test_a_sample_that_is_all_padding_gives_zero_and_finite_gradients(self, need_weights, training, dropout, device):
        attention = MultiHeadAttention(8, 2, dropout=dropout).to(device).train(training)
        x = torch.randn(2, 3, 8, device=device, requires_grad=True)
        before = x.detach().clone()
        output, weights = attention(x, mask=masks.padding([3, 0], device=device), need_weights=need_weights)
        assert not output[1].any()
        assert weights is None or not weights[1].any()
        output.square().sum().backward()
        assert all(y.grad.isfinite().all() for y in (x, *attention.parameters()))
        assert x.grad[0].any()
        assert torch.equal(x.detach(), before)

    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    def test_more_queries_than_keys_leave_the_first_without(self, need_weights):
        query, context = torch.randn(1, 5, 12, requires_grad=True, dtype=torch.float64), torch.randn(1, 2, 12).double()
        output, _ = build("plain")(query, context, is_causal=True, need_weights=need_weights)
        assert not output[0, :3].any()
        assert output[0, 3:].any()
        output.sum().backward()
        assert query.grad.isfinite().all()

    # https://github.com/pytorch/pytorch/issues/101967
    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    def test_finite_rubbish_in_the_padding_moves_nothing(self, need_weights):
        attention, query = build("plain"), torch.randn(2, 4, 12, dtype=torch.float64)
        context, mask = torch.randn(2, 5, 12, dtype=torch.float64), masks.padding([3, 5], 5)
        spoilt = context.clone()
        spoilt[0, 3:] = 1e10
        options = {"mask": mask, "need_weights": need_weights}
        assert torch.equal(attention(query, spoilt, **options)[0], attention(query, context, **options)[0])


class TestCausality:
    # https://github.com/rasbt/LLMs-from-scratch/issues/1062, https://github.com/shiyu-coder/Kronos/issues/199
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    @pytest.mark.parametrize("lengths", [None, [6, 4]], ids=["full", "padded"])
    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    def test_no_output_has_a_gradient_at_a_later_input(self, kind, training, lengths, need_weights):
        attention = build(kind, dropout=0.3).train(training)
        mask = None if lengths is None else masks.padding(lengths)
        x = torch.randn(2, 6, 12, dtype=torch.float64, requires_grad=True)
        output, _ = attention(x, mask=mask, is_causal=True, need_weights=need_weights)
        for i in range(6):
            (gradient,) = torch.autograd.grad(output[:, i].sum(), x, retain_graph=True)
            assert not gradient[:, i + 1 :].any()
            assert gradient[0, : i + 1].any()

    # https://github.com/pytorch/pytorch/issues/99282, https://github.com/pytorch/pytorch/issues/172338
    @pytest.mark.parametrize("kind", KINDS)
    def test_weights_are_lower_triangular(self, kind):
        _, weights = build(kind)(torch.randn(2, 5, 12, dtype=torch.float64), is_causal=True, need_weights=True)
        assert not weights.triu(1).any()
        assert (weights.tril() > 0).sum() == 2 * 6 * 15

    # https://github.com/pytorch/pytorch/issues/92554
    @pytest.mark.parametrize("as_float", [False, True], ids=["boolean", "float"])
    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    def test_padding_of_either_type_counts_beside_it(self, as_float, need_weights):
        attention, x = build("plain"), torch.randn(2, 4, 12, dtype=torch.float64)
        mask = masks.padding([4, 2])
        both = masks.combine(mask, masks.causal(4))
        given_mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf) if as_float else mask
        output, weights = attention(x, mask=given_mask, is_causal=True, need_weights=need_weights)
        assert_close(output, attention(x, mask=both)[0])
        assert weights is None or not weights.masked_select(~both).any()

    @pytest.mark.parametrize(
        ("mask", "L", "S", "fused", "expected"),
        [
            (None, 4, 4, True, (None, True)),  # the fused kernels know this one
            (None, 4, 4, False, (masks.causal(4), False)),
            (None, 1, 9, True, (None, False)),  # a cached step sees everything
            (None, 2, 5, True, (masks.causal(2, 5), False)),
            (masks.causal(4), 4, 4, True, (masks.causal(4), False)),
        ],
    )
    def test_a_mask_is_built_where_it_is_needed_alone(self, mask, L, S, fused, expected):
        answer = with_causal(mask, True, L, S, fused=fused)
        assert answer[1] == expected[1]
        assert answer[0] is expected[0] is None or torch.equal(answer[0], expected[0])
        assert with_causal(mask, False, L, S) == (mask, False)


class TestOneMeaning:
    # https://github.com/pytorch/pytorch/issues/96941 (and 86120, 97111, 128209): eval is another code path in torch
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("lengths", [None, [5, 3]], ids=["full", "padded"])
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_train_eval_and_every_gradient_mode_give_the_same(self, kind, lengths, is_causal):
        attention, x = build(kind), torch.randn(2, 5, 12, dtype=torch.float64)
        mask = None if lengths is None else masks.padding(lengths)
        expected, _ = attention(x, mask=mask, is_causal=is_causal)
        for training, mode in itertools.product((True, False), (torch.enable_grad, torch.no_grad, torch.inference_mode)):
            attention.train(training)
            for need_weights in (True, False):
                with mode():
                    output, _ = attention(x, mask=mask, is_causal=is_causal, need_weights=need_weights)
                assert output.shape == (2, 5, 12)
                assert_close(output, expected)

    # https://github.com/pytorch/pytorch/issues/42929 (and 33360, 90842)
    def test_weights_are_taken_before_dropout(self):
        attention, x = build("plain", dropout=0.5), torch.randn(2, 5, 12, dtype=torch.float64)
        _, weights = attention(x, need_weights=True)
        assert_close(weights.sum(dim=-1), torch.ones(2, 6, 5, dtype=torch.float64))

    # https://github.com/pytorch/pytorch/issues/124464, https://github.com/huggingface/pytorch-image-models/issues/1978,
    # https://github.com/pytorch/torchtune/issues/1791
    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    def test_dropout_is_for_training_alone(self, need_weights):
        attention, x = build("plain", dropout=0.9), torch.randn(2, 5, 12, dtype=torch.float64)
        one, other = (attention(x, need_weights=need_weights)[0] for _ in range(2))
        assert not torch.equal(one, other)
        attention.eval()
        one, other = (attention(x, need_weights=need_weights)[0] for _ in range(2))
        assert torch.equal(one, other)
        attention.dropout = 0.0
        assert torch.equal(one, attention(x, need_weights=need_weights)[0])

    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    def test_dropout_keeps_the_mean(self, need_weights):
        attention, x = build("plain", dropout=0.3), torch.randn(1, 4, 12, dtype=torch.float64)
        draws = attention(x.expand(4000, 4, 12), need_weights=need_weights)[0].detach()
        expected = attention.eval()(x)[0]
        spread = draws.std(dim=0) / 4000**0.5
        assert ((draws.mean(dim=0) - expected[0]).abs() < 5 * spread).all()
        assert (spread > 0).all()

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_sample_alone_is_itself_in_a_padded_batch(self, kind):
        attention, x = build(kind), torch.randn(3, 6, 12, dtype=torch.float64)
        lengths = [2, 6, 5]
        right, _ = attention(x, mask=masks.padding(lengths))
        left, _ = attention(x, mask=masks.padding(lengths).flip(-1))
        for i, length in enumerate(lengths):
            assert_close(right[i, :length], attention(x[i : i + 1, :length])[0][0])
            assert_close(left[i, 6 - length :], attention(x[i : i + 1, 6 - length :])[0][0])

    @pytest.mark.parametrize("kind", ["plain", "with bias", "grouped", "own widths"])
    def test_a_permuted_input_gives_the_permuted_output(self, kind):
        attention, x, order = build(kind), torch.randn(2, 6, 12, dtype=torch.float64), torch.randperm(6)
        assert_close(attention(x[:, order])[0], attention(x)[0][:, order])
        context = torch.randn(2, 6, 12, dtype=torch.float64)
        assert_close(attention(x, context[:, order])[0], attention(x, context)[0])

    @pytest.mark.parametrize("kind", ["rotary", "alibi"])
    def test_with_positions_it_does_not(self, kind):
        attention, x = build(kind), torch.randn(2, 6, 12, dtype=torch.float64)
        assert (attention(x.flip(1))[0] - attention(x)[0].flip(1)).abs().max() < 1e-12 or kind == "rotary"
        order = torch.tensor([1, 0, 2, 3, 4, 5])
        assert (attention(x[:, order])[0] - attention(x)[0][:, order]).abs().max() > 1e-4


class TestCache:
    # https://github.com/lucidrains/x-transformers/issues/187 (and 219, 311); alibi with a cache: 298, 153, 85;
    # https://github.com/pytorch/pytorch/issues/103082, https://github.com/pytorch/pytorch/issues/108108
    @pytest.mark.parametrize("kind", KINDS)
    @given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=5), pad=st.integers(0, 3), need_weights=st.booleans())
    def test_any_split_of_the_sequence_equals_the_whole(self, kind, lengths, pad, need_weights):
        S = sum(lengths)
        attention, x = build(kind), torch.randn(2, S, 12, dtype=torch.float64)
        mask = masks.padding([S, max(S - pad, 0)], S).flip(-1) if pad else None
        cache, done = KVCache(S), 0
        with torch.no_grad():
            whole, _ = attention(x, mask=mask, is_causal=True)
            for part in x.split(lengths, dim=1):
                seen = done + part.size(1)
                so_far = None if mask is None else mask[..., :seen]
                output, weights = attention(part, mask=so_far, is_causal=True, cache=cache, need_weights=need_weights)
                assert_close(output, whole[:, done:seen])
                assert weights is None or weights.shape == (2, 6, part.size(1), seen)
                done = seen

    @pytest.mark.parametrize("d_context", [12, 9])
    def test_a_context_is_projected_once(self, d_context):
        attention = MultiHeadAttention(12, 3, d_context=d_context, num_kv_heads=1, bias=True).double()
        query, context = (torch.randn(2, n, d, dtype=torch.float64) for n, d in ((5, 12), (4, d_context)))
        cache = KVCache(4)
        with torch.no_grad():
            whole, _ = attention(query, context)
            steps = [attention(step, context, cache=cache)[0] for step in query.split(1, dim=1)]
            assert_close(torch.cat(steps, dim=1), whole)
            again, _ = attention(query, torch.full_like(context, torch.nan), cache=cache)
        assert_close(again, whole)

    def test_another_context_than_the_cached_is_an_error(self):
        attention, cache, x = build("plain"), KVCache(4), torch.randn(1, 4, 12, dtype=torch.float64)
        with torch.no_grad():
            attention(x, x, cache=cache)
            with pytest.raises(ValueError, match=r"\(B, S\) = \(1, 4\), this one has \(1, 3\)"):
                attention(x, x[:, :3], cache=cache)
