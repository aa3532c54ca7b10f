"""Single figures of a diagnosis: dead projections, clear errors, randomness, the size of scores."""

import pytest
import torch
from torch import nn

from lib.diagnostics import FAILED, PASSED, diagnose
from tests.lib import checks
from tests.lib.faulty_module import D, H, PlainAttention, call


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 8, D)


class TestSingleFigures:
    def test_a_projection_behind_the_output_is_let_pass_and_a_dead_head_is_not(self, x):
        class Pooler(nn.Module):
            def __init__(self):
                super().__init__()
                self.dense = nn.Linear(D, D)

            def forward(self, x):
                return self.dense(x[:, 0])

        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention, self.pooler, self.out = PlainAttention(D, H, causal=False), Pooler(), nn.Linear(D, D)

            def forward(self, x):
                y = self.attention(x)
                return y, self.pooler(y), self.out(y)

        def of(call):
            return diagnose(Layer(), x, call, causal=False)[checks.REACH]

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = Layer()

            def forward(self, x):
                return self.layer(x)[:2]

        inside = diagnose(Model(), x, causal=False)[checks.REACH]
        assert "(layer.out.weight)" in inside.worst.what
        assert of(lambda m, x: m(x)).result == PASSED
        assert "(out.weight)" in of(lambda m, x: m(x)[:2]).worst.what
        assert "(out.weight)" in of(lambda m, x: m(x)[0]).worst.what

    @pytest.mark.parametrize("check", [checks.FUTURE, checks.CONTENT, checks.BATCH])
    def test_a_leak_too_small_to_move_an_output_has_a_gradient(self, check, x):
        class Leaky(PlainAttention):
            def forward(self, x, keep=None, cache=None):
                tiny = 1e-9 * x
                leak = {
                    checks.FUTURE: tiny.sum(1, True),
                    checks.CONTENT: tiny.cumsum(1),
                    checks.BATCH: tiny.roll(1, 0).cumsum(1),
                }[check]
                return super().forward(x, keep) + leak

        report = diagnose(Leaky(D, H), x, call)
        assert [one.what for one in report[check].measurements if not one.passed]
        assert all("gradient" in one.what for one in report[check].measurements if not one.passed)

    def test_a_count_of_calls_in_place_of_tokens_is_found_by_a_first_piece_of_many(self, x):
        class Placed(PlainAttention):
            def forward(self, x, keep=None, cache=None, start=0):
                at = torch.arange(start, start + x.size(1))[:, None]
                return super().forward(x + torch.sin(at + torch.arange(D)), keep, cache)

        def counting(tokens: bool):
            def step(m, x, state):
                cache, start = ({}, 0) if state is None else state
                return m(x, cache=cache, start=start), (cache, start + (x.size(1) if tokens else 1))

            return diagnose(Placed(D, H), x, call, positional=True, step=step)[checks.STEPS]

        assert counting(tokens=True).result == PASSED
        wrong = [one.what for one in counting(tokens=False).measurements if not one.passed]
        assert set(wrong) == {"difference from the full pass, 4 tokens, then one by one"}

    def test_a_joined_projection_with_one_dead_part_is_found(self, x):
        class Joined(PlainAttention):
            def __init__(self):
                super().__init__(D, H)
                self.in_proj = nn.Linear(D, 3 * D)

            def forward(self, x):
                q, k, v = self.in_proj(x).chunk(3, -1)
                q, k, v = self._split(k), self._split(k), self._split(v)
                return self.out_proj(self._join(self._weights(q, k, self._allowed(q, k, None)) @ v))

        module = Joined()
        del module.q_proj, module.k_proj, module.v_proj
        assert "(in_proj.weight)" in diagnose(module, x)[checks.REACH].worst.what

    def test_a_table_of_positions_longer_than_the_input_is_not_dead(self, x):
        class Placed(nn.Module):
            def __init__(self, *shape):
                super().__init__()
                self.table, self.attention = nn.Parameter(torch.randn(*shape)), PlainAttention(D, H)

            def forward(self, x):
                return self.attention(x + self.table[..., : x.size(1), :])

        for shape in ((300, D), (1, 300, D)):
            assert diagnose(Placed(*shape), x, positional=True)[checks.REACH].result == PASSED

    def test_a_clear_error_is_as_good_as_a_value(self, x):
        class Short(PlainAttention):
            message = "{} tokens, but 100 positions at most: cut the input."

            def forward(self, x, keep=None, cache=None):
                if x.size(1) > 100:
                    raise ValueError(self.message.format(x.size(1)))
                return super().forward(x, keep, cache)

        finding = diagnose(Short(D, H), x)[checks.LONG]
        assert finding.result == PASSED
        assert (
            finding.worst.what
            == "a clear error at 256 tokens: ValueError: 256 tokens, but 100 positions at most: cut the input."
        )
        Short.message = "too long"
        assert diagnose(Short(D, H), x)[checks.LONG].result == FAILED

    def test_a_random_network_is_random_in_eval_even_where_its_dropout_is_zero(self, x):
        module = PlainAttention(D, H, "dropout in eval", dropout=0.0)
        finding = diagnose(module, x)[checks.EVAL]
        assert finding.result == FAILED
        assert "raised to 0.5" in finding.worst.what

    def test_a_bias_of_distance_is_no_large_score(self):
        class Alibi(PlainAttention):
            def _weights(self, q, k, allowed):
                at = torch.arange(k.size(2))
                scores = q @ k.mT / q.size(-1) ** 0.5 - (at[:, None] - at).abs()
                return scores.masked_fill(~allowed, -torch.inf).softmax(-1)

        long = torch.randn(2, 64, D)
        assert diagnose(Alibi(D, H), long, positional=True)[checks.SCORES].result == PASSED
