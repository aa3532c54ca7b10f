"""Positions: each encoding against a slow form of its formula, its defining property, and the faults of other people's code."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lib import masks, positional
from lib.positional import (
    LearnedEncoding,
    RotaryEncoding,
    SinusoidalEncoding,
    alibi_bias,
    alibi_slopes,
    half_split_order,
    positions_from_padding,
)
from tests.lib.reference import assert_close

HALF = (torch.bfloat16, torch.float16)


def slow_sinusoid(p: float, d_model: int, base: float = 10000) -> list[float]:
    angles = [p / base ** (2 * (column // 2) / d_model) for column in range(d_model)]
    return [math.cos(angle) if column % 2 else math.sin(angle) for column, angle in enumerate(angles)]


def slow_rotation(x: list[float], p: float, pairs: list[tuple[int, int]], base: float = 10000) -> list[float]:
    turned = list(x)
    for i, (a, b) in enumerate(pairs):
        z = complex(x[a], x[b]) * complex(math.cos(p * base ** (-2 * i / len(x))), math.sin(p * base ** (-2 * i / len(x))))
        turned[a], turned[b] = z.real, z.imag
    return turned


class TestSinusoidalEncoding:
    # Widths 1 and 7: https://github.com/codertimo/BERT-pytorch/issues/78, https://github.com/thuml/Time-Series-Library/issues/549,
    # https://github.com/pytorch/pytorch/issues/173958
    @pytest.mark.parametrize("d_model", [1, 2, 7, 8])
    def test_is_the_formula_in_even_and_odd_widths(self, d_model, device):
        table = SinusoidalEncoding(d_model).table(6, dtype=torch.float64, device=device)
        expected = torch.tensor([slow_sinusoid(p, d_model) for p in range(6)], dtype=torch.float64)
        assert_close(table, expected)

    def test_base_sets_the_slowest_turn(self):
        table = SinusoidalEncoding(6, base=50).table(4, dtype=torch.float64)
        assert_close(table, torch.tensor([slow_sinusoid(p, 6, 50) for p in range(4)], dtype=torch.float64))

    def test_a_shift_is_the_same_rotation_at_every_position(self):
        table = SinusoidalEncoding(8).table(40, dtype=torch.float64)
        shift = torch.linalg.lstsq(table[:-5], table[5:]).solution  # (8, 8): table[p + 5] = table[p] · shift
        assert_close(table[:-5] @ shift, table[5:], 1e-9)
        assert_close(shift @ shift.T, torch.eye(8, dtype=torch.float64), 1e-9)

    def test_the_table_of_given_positions(self):
        encoding = SinusoidalEncoding(6)
        assert torch.equal(encoding.table(2, positions=torch.tensor([5, 2])), encoding.table(6)[[5, 2]])

    def test_is_added_to_each_sequence(self):
        encoding, x = SinusoidalEncoding(7), torch.randn(2, 5, 7)
        assert_close(encoding(x), x + torch.tensor([slow_sinusoid(p, 7) for p in range(5)]))


class TestLearnedEncoding:
    def test_adds_the_row_of_the_position(self, device):
        encoding = LearnedEncoding(6, 4).to(device)
        x = torch.randn(2, 3, 4, device=device)
        assert torch.equal(encoding(x), x + encoding.weight[:3])
        assert torch.equal(encoding(x, offset=3), x + encoding.weight[3:])

    # https://github.com/SamLynnEvans/Transformer/issues/8
    @pytest.mark.parametrize("where", [{"offset": 2}, {"positions": torch.arange(2, 12)}], ids=["offset", "positions"])
    def test_past_its_end_the_error_names_both_lengths_and_the_remedy(self, where):
        with pytest.raises(ValueError, match=r"length 10 at positions 2 … 11 .* table of 8 .*max_len=12.*resized\(12\)"):
            LearnedEncoding(8, 4)(torch.randn(1, 10, 4), **where)

    def test_a_negative_position_is_an_error(self):
        with pytest.raises(ValueError, match="positions -1 … 1"):
            LearnedEncoding(8, 4)(torch.randn(1, 3, 4), positions=torch.arange(-1, 2))

    def test_resized_interpolates_and_keeps_both_ends(self):
        encoding = LearnedEncoding(3, 4).double()
        longer = encoding.resized(5)
        first, middle, last = encoding.weight
        assert_close(longer.weight, torch.stack([first, (first + middle) / 2, middle, (middle + last) / 2, last]))
        assert longer.weight.requires_grad
        assert longer.weight.dtype == torch.float64
        assert longer.resized(3).weight.equal(encoding.weight)

    @pytest.mark.parametrize("frozen", [True, False])
    def test_resized_stays_frozen_and_in_its_mode_and_draws_nothing(self, frozen):
        encoding, state = LearnedEncoding(3, 4).requires_grad_(not frozen).train(frozen), torch.get_rng_state()
        longer = encoding.resized(5)
        assert (longer.weight.requires_grad, longer.training) == (not frozen, frozen)
        assert (longer.weight.is_leaf, longer.max_len) == (True, 5)
        assert torch.equal(torch.get_rng_state(), state)
        with torch.no_grad():
            encoding.resized(3).weight.zero_()
        assert encoding.weight.all()  # a copy of its own
        with pytest.raises(ValueError, match="max_len is at least 1, got 0"):
            encoding.resized(0)

    def test_positions_without_values_are_not_looked_at(self):
        encoding = LearnedEncoding(8, 4).to("meta")
        assert encoding(
            torch.empty(2, 3, 4, device="meta"), positions=torch.empty(2, 3, dtype=torch.long, device="meta")
        ).is_meta

    def test_starts_at_the_size_of_a_sinusoid(self):
        learned, fixed = LearnedEncoding(256, 64).weight, SinusoidalEncoding(64).table(256)
        assert learned.square().mean().item() == pytest.approx(fixed.square().mean().item(), rel=0.05)


class TestRotaryEncoding:
    @pytest.mark.parametrize("interleaved", [True, False])
    def test_turns_each_pair_by_its_angle(self, interleaved, device):
        x = torch.randn(2, 3, 5, 6, dtype=torch.float64)
        pairs = [(0, 1), (2, 3), (4, 5)] if interleaved else [(0, 3), (1, 4), (2, 5)]
        expected = [[[slow_rotation(row, p, pairs) for p, row in enumerate(head)] for head in heads] for heads in x.tolist()]
        turned = RotaryEncoding(6, interleaved=interleaved)(x.to(device))
        assert_close(turned, torch.tensor(expected, dtype=torch.float64))
        assert_close(turned.norm(dim=-1), x.norm(dim=-1))

    @given(shift=st.integers(0, 5000), interleaved=st.booleans())
    def test_scores_depend_on_the_distance_alone(self, shift, interleaved):
        rotary = RotaryEncoding(8, interleaved=interleaved)
        q, k = torch.randn(2, 1, 1, 6, 8, dtype=torch.float64)
        scores = [rotary(q, offset=offset) @ rotary(k, offset=offset).mT for offset in (0, shift)]
        assert_close(*scores, 1e-10)  # the angle itself is rounded

    def test_the_permutation_leads_from_one_layout_to_the_other_and_back(self):
        order, x = half_split_order(8), torch.randn(2, 3, 5, 8)
        one, other = RotaryEncoding(8), RotaryEncoding(8, interleaved=False)
        assert torch.equal(one(x)[..., order], other(x[..., order]))
        assert torch.equal(x[..., order][..., order.argsort()], x)

    # https://github.com/huggingface/transformers/issues/29285, https://github.com/vllm-project/vllm/issues/863,
    # https://github.com/Dao-AILab/flash-attention/issues/846
    @pytest.mark.parametrize("dtype", HALF)
    def test_half_precision_does_not_round_the_tables(self, dtype, device):
        model = nn.ModuleList([RotaryEncoding(64), SinusoidalEncoding(64)]).to(device, dtype)
        exact = 4095 * 10000.0 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
        one_pair = torch.tensor([1.0, 0.0], dtype=dtype, device=device).repeat(32)
        turned = model[0](one_pair.view(1, 1, 1, 64), offset=4095).view(32, 2)  # the cosine and the sine of each pair
        assert_close(turned.float(), torch.stack((exact.cos(), exact.sin()), dim=-1).to(dtype).float(), 1e-6)
        for cos, sin in (model[0].cos_sin(4096, device=device), model[0].cos_sin(1, offset=4095, device=device)):
            assert_close(cos[-1], exact.cos(), 1e-6)
            assert_close(sin[-1], exact.sin(), 1e-6)
        assert_close(model[1].table(4096, device=device)[-1, 0::2], exact.sin(), 1e-6)
        x = torch.zeros(1, 1, 64, dtype=dtype, device=device)
        assert model[1](x, offset=4095).dtype == dtype

    @pytest.mark.parametrize("dtype", HALF)
    @pytest.mark.parametrize("encoding", [RotaryEncoding(64), SinusoidalEncoding(64)], ids=repr)
    def test_half_precision_is_rounded_once_at_the_end(self, encoding, dtype, device):
        x = torch.randn(1, 8, 64, device=device).to(dtype)
        assert torch.equal(encoding(x, offset=100), encoding(x.float(), offset=100).to(dtype))

    def test_an_odd_width_is_an_error_that_names_it(self):
        with pytest.raises(ValueError, match="d_head is even, got 7"):
            RotaryEncoding(7)

    @pytest.mark.parametrize("where", [{}, {"offset": 3}, {"positions": torch.arange(3)}], ids=str)
    def test_cosines_handed_out_are_not_those_in_use(self, where):
        rotary, x = RotaryEncoding(4), torch.randn(1, 1, 3, 4)
        before = rotary(x, **where)
        for table in rotary.cos_sin(3, **where):
            table.zero_()
        assert torch.equal(rotary(x, **where), before)


class TestAlibi:
    # https://github.com/lucidrains/x-transformers/issues/298 (and 153, 85), https://github.com/ml-explore/mlx/issues/343
    def test_slopes_of_six_heads_are_those_of_four_and_two_from_between(self):
        assert alibi_slopes(6).tolist() == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]

    @pytest.mark.parametrize("num_heads", [1, 2, 8, 16])
    def test_slopes_of_a_power_of_two_are_geometric_and_end_at_one_over_256(self, num_heads):
        slopes = alibi_slopes(num_heads).double()
        assert slopes[-1] == 2**-8
        assert_close(
            slopes, torch.tensor([2 ** (-8 * (i + 1) / num_heads) for i in range(num_heads)], dtype=torch.float64), 1e-7
        )

    @given(num_heads=st.integers(1, 70))
    def test_any_number_of_heads_has_distinct_slopes_below_one(self, num_heads):
        slopes = alibi_slopes(num_heads).tolist()
        assert len(set(slopes)) == num_heads
        assert all(0 < slope < 1 for slope in slopes)

    @given(L=st.integers(1, 5), S=st.integers(1, 5), offset=st.none() | st.integers(0, 9), num_heads=st.integers(1, 6))
    def test_bias_is_the_slope_times_the_distance(self, L, S, offset, num_heads):
        bias, slopes = alibi_bias(num_heads, L, S, offset=offset), alibi_slopes(num_heads).tolist()
        start = S - L if offset is None else offset
        expected = [[[-slope * abs(start + i - j) for j in range(S)] for i in range(L)] for slope in slopes]
        assert_close(bias, torch.tensor([expected]), 1e-6)

    @pytest.mark.parametrize("num_heads", [1, 6, 12])
    def test_in_float64_it_is_exact_far_away(self, num_heads, device):
        bias = alibi_bias(num_heads, 1, 1001, dtype=torch.float64, device=device)
        below = 2 ** int(math.log2(num_heads))
        slopes = [2 ** (-8 * (i + 1) / below) for i in range(below)]
        slopes += [2 ** (-8 * (2 * i + 1) / (2 * below)) for i in range(num_heads - below)]
        assert bias[0, :, 0, 0].tolist() == [-1000 * slope for slope in slopes]

    def test_slopes_handed_out_are_not_those_in_use(self, device):
        before = alibi_bias(4, 3, device=device)
        alibi_slopes(4, device=device).zero_()
        before.clone().zero_()
        assert torch.equal(alibi_bias(4, 3, device=device), before)

    def test_slopes_are_copied_to_the_device_once(self, monkeypatch):
        monkeypatch.setattr(positional, "_tables", {})
        made, tensor = [], torch.tensor
        monkeypatch.setattr(torch, "tensor", lambda *args, **options: made.append(1) or tensor(*args, **options))
        for L in range(1, 5):
            alibi_bias(4, L)
        assert len(made) == 1


class TestPositions:
    ENCODINGS = (SinusoidalEncoding(6), LearnedEncoding(32, 6), RotaryEncoding(6), RotaryEncoding(6, interleaved=False))

    @pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
    @given(offset=st.integers(0, 20), cut=st.integers(0, 7))
    def test_offset_positions_and_any_cut_of_the_sequence_agree(self, encoding, offset, cut):
        encoding = copy.deepcopy(encoding).double()
        x = torch.randn(2, 1, 7, 6, dtype=torch.float64)
        x = x if isinstance(encoding, RotaryEncoding) else x[:, 0]
        whole = encoding(x, offset=offset)
        parts = [encoding(part, offset=offset + start) for part, start in zip(x.tensor_split([cut], -2), (0, cut), strict=True)]
        assert_close(torch.cat(parts, dim=-2), whole)
        positions = torch.arange(offset, offset + 7)
        assert_close(encoding(x, positions=positions), whole)
        assert_close(encoding(x, positions=positions.expand(2, 7)), whole)

    @pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
    def test_each_sequence_of_a_batch_may_have_its_own(self, encoding, device):
        encoding = copy.deepcopy(encoding).to(device)
        x = torch.randn(2, 4, 3, 6, device=device)
        x = x if isinstance(encoding, RotaryEncoding) else x[:, 0]
        positions = torch.tensor([[4, 0, 9], [1, 1, 7]], device=device)
        expected = torch.cat([encoding(row[None], positions=own) for row, own in zip(x, positions, strict=True)])
        assert_close(encoding(x, positions=positions), expected)

    def test_padding_on_either_side_is_not_counted(self):
        real = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
        positions = positions_from_padding(real[:, None, None])
        assert positions.tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 0, 0, 1, 2], [0, 0, 0, 0, 0]]
        assert torch.equal(positions_from_padding(masks.padding([5])), torch.arange(5)[None])

    # Each would broadcast: to an output of another shape, or over the heads.
    @pytest.mark.parametrize("encoding", ENCODINGS, ids=repr)
    def test_positions_of_another_batch_are_refused(self, encoding):
        x = torch.randn(2, 1, 3, 6)
        x = x if isinstance(encoding, RotaryEncoding) else x[:, 0]
        one = torch.arange(3)[None]
        assert torch.equal(encoding(x, positions=one), encoding(x))
        for wrong, batch in ((x[:1], 3), (x, 3), (x[:1], 2), (x[:0], 2), (x[0], 1), (x[0], 2), (x[None], 2)):
            with pytest.raises(ValueError, match=r"positions \(B or 1, L\) go with x of (3|4) axes"):
                encoding(wrong, positions=one.expand(batch, 3))

    @pytest.mark.parametrize("mask", [torch.ones(2, 3), torch.ones(3, 3).bool(), torch.ones(2, 1, 1, 3)])
    def test_what_is_no_padding_mask_is_an_error(self, mask):
        with pytest.raises(ValueError, match=r"boolean of shape \(B, 1, 1, S\)"):
            positions_from_padding(mask)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: SinusoidalEncoding(0), "d_model is at least 1, got 0"),
            (lambda: SinusoidalEncoding(4, base=0), "base is a positive number, got 0"),
            (lambda: LearnedEncoding(0, 4), "max_len is at least 1, got 0"),
            (lambda: alibi_slopes(0), "num_heads is at least 1, got 0"),
            (lambda: alibi_bias(2, -1), "at least 0, got -1 and -1"),
            (lambda: alibi_bias(2, 3, -4), "at least 0, got 3 and -4"),
            (lambda: half_split_order(5), "d_head is even, got 5"),
            (lambda: half_split_order(0), "d_head is at least 1, got 0"),
            (lambda: SinusoidalEncoding(4)(torch.randn(2, 3, 5)), r"\(L, d_model = 4\), got shape \(2, 3, 5\)"),
            (lambda: RotaryEncoding(4)(torch.randn(2, 1, 3, 6)), r"\(L, d_head = 4\), got shape \(2, 1, 3, 6\)"),
            (lambda: RotaryEncoding(4)(torch.randn(2, 1, 3, 4), offset=-1), "at least 0, got -1"),
            (lambda: SinusoidalEncoding(4)(torch.randn(2, 3, 4), positions=torch.arange(2)), r"L = 3 tokens, got shape \(2,\)"),
        ],
    )
    def test_an_error_names_the_numbers(self, call, message):
        with pytest.raises(ValueError, match=message):
            call()


class TestTables:
    def test_are_neither_parameters_nor_buffers_and_do_not_travel_with_a_module(self):
        for encoding in (SinusoidalEncoding(6), RotaryEncoding(6)):
            small = len(pickle.dumps(encoding))
            encoding(torch.randn(1, 1000, 6))
            assert not encoding.state_dict()
            assert not list(encoding.buffers())
            assert len(pickle.dumps(encoding)) == small

    @pytest.mark.parametrize("encoding", [SinusoidalEncoding(6), RotaryEncoding(6)], ids=repr)
    def test_one_made_in_inference_mode_serves_training_afterwards(self, encoding, monkeypatch):
        monkeypatch.setattr(positional, "_tables", {})
        x = torch.randn(1, 4, 6, requires_grad=True)
        with torch.inference_mode():
            encoding(x)
        encoding(x).square().sum().backward()
        assert x.grad.isfinite().all()

    def test_a_growing_sequence_asks_for_few(self, monkeypatch):
        monkeypatch.setattr(positional, "_tables", {})
        for offset in range(1000):
            RotaryEncoding(6).cos_sin(1, offset=offset)
        assert len(positional._tables) == 5  # of 64, 128, 256, 512 and 1024 positions

    def test_stand_ins_without_numbers_are_not_kept(self, monkeypatch):
        from torch._subclasses.fake_tensor import FakeTensorMode

        monkeypatch.setattr(positional, "_tables", {})
        with FakeTensorMode():
            RotaryEncoding(6)(torch.randn(1, 4, 6))
        assert not positional._tables

    @pytest.mark.parametrize("encoding", [SinusoidalEncoding(6), RotaryEncoding(6), LearnedEncoding(9, 6)], ids=repr)
    def test_compile_into_one_graph(self, encoding):
        x = torch.randn(1, 4, 6)
        compiled = torch.compile(encoding, fullgraph=True, backend="aot_eager")
        assert_close(compiled(x, offset=2), encoding(x, offset=2))
        assert_close(compiled(x, positions=torch.arange(4)), encoding(x))
