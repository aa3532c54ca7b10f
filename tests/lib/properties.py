"""What holds for every attention, whatever its inputs: each property is a function that asserts it for one implementation.

An implementation is called as `attend(query, key, value, mask, is_causal=…, scale=…)` with 4-D float64 tensors; heads are
shared where the key has fewer. `PROPERTIES` maps the words for a property to its function.
"""

import math
from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.lib.reference import BOUND, assert_close, attention_by_loops, furthest

EXACT = BOUND[torch.float64]


@dataclass
class Problem:
    """One random input. `mask` is None, boolean or float; `allowed` (B, H, L, S) says what mask and `is_causal` leave."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    is_causal: bool
    scale: float | None
    generator: torch.Generator

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        return self.query, self.key, self.value, self.mask

    @property
    def options(self) -> dict:
        return {"is_causal": self.is_causal, "scale": self.scale}

    @property
    def allowed(self) -> Tensor:
        B, H, L, S = *self.query.shape[:3], self.key.size(2)
        allowed = torch.ones(L, S, dtype=torch.bool)
        if self.is_causal:
            allowed = allowed.tril()
        if self.mask is not None:
            allowed = allowed & (self.mask if self.mask.dtype == torch.bool else self.mask > -math.inf)
        return allowed.expand(B, H, L, S)

    @property
    def group(self) -> int:
        return self.query.size(1) // self.key.size(1)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=self.generator)


@st.composite
def problems(draw) -> Problem:
    B, H_kv, group = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    L, S, d_k, d_v = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.integers(1, 5))
    size = draw(st.sampled_from([0.1, 1.0, 5.0]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    H = H_kv * group
    problem = Problem(*[None] * 4, draw(st.booleans()), draw(st.sampled_from([None, None, 0.3, 2.0])), generator)
    problem.query, problem.key = problem.normal(B, H, L, d_k) * size, problem.normal(B, H_kv, S, d_k) * size
    problem.value = problem.normal(B, H_kv, S, draw(st.sampled_from([d_k, d_v])))
    shape = draw(st.sampled_from([(L, S), (B, 1, 1, S), (1, H, L, S), (B, H, L, S)]))
    allowed = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.2, 0.5, 0.8]))
    kind = draw(st.sampled_from(["none", "boolean", "float"]))
    if kind != "none":
        problem.mask = allowed if kind == "boolean" else problem.normal(*shape).masked_fill(~allowed, -math.inf)
    return problem


def examine(holds, attend, **options) -> None:
    """Try a property of an implementation on random problems. Raises AssertionError where it does not hold.

    Args:
        holds: one of `PROPERTIES`.
        attend: the implementation.
        options: settings of hypothesis other than the suite's.
    """
    settings(**options)(given(problems())(lambda problem: holds(attend, problem)))()


def equals_the_loops(attend, p: Problem) -> None:
    assert_close(attend(*p.inputs, **p.options), attention_by_loops(*p.inputs, **p.options).output)


def weights_sum_to_one_or_to_zero_where_no_key_is_allowed(attend, p: Problem) -> None:
    output = attend(p.query, p.key, torch.ones_like(p.key), p.mask, **p.options)
    has_a_key = p.allowed.any(-1, keepdim=True)
    assert_close(output, has_a_key.double().expand_as(output))
    assert not output[~has_a_key.expand_as(output)].any(), "a row without a key is 0 exactly"


def output_lies_between_the_allowed_values(attend, p: Problem) -> None:
    output = attend(*p.inputs, **p.options)
    values = p.value.repeat_interleave(p.group, dim=1)[:, :, None]  # (B, H, 1, S, d_v)
    hidden = ~p.allowed[..., None]  # (B, H, L, S, 1)
    lowest = values.masked_fill(hidden, math.inf).amin(3)
    highest = values.masked_fill(hidden, -math.inf).amax(3)
    has_a_key = p.allowed.any(-1)
    assert ((output >= lowest - EXACT) & (output <= highest + EXACT))[has_a_key].all()


def order_of_keys_does_not_matter(attend, p: Problem) -> None:
    order = torch.randperm(p.key.size(2), generator=p.generator)
    mask = p.allowed if p.mask is None or p.mask.dtype == torch.bool else p.mask.where(p.allowed, -math.inf)
    one = attend(p.query, p.key, p.value, mask, scale=p.scale)
    other = attend(p.query, p.key[:, :, order], p.value[:, :, order], mask[..., order], scale=p.scale)
    assert_close(one, other)


def order_of_queries_is_that_of_the_outputs(attend, p: Problem) -> None:
    order = torch.randperm(p.query.size(2), generator=p.generator)
    one = attend(p.query, p.key, p.value, p.allowed, scale=p.scale)
    other = attend(p.query[:, :, order], p.key, p.value, p.allowed[:, :, order], scale=p.scale)
    assert_close(one[:, :, order], other)


def same_vector_added_to_every_key_changes_nothing(attend, p: Problem) -> None:
    one = attend(*p.inputs, **p.options)
    other = attend(p.query, p.key + p.normal(p.key.size(3)), p.value, p.mask, **p.options)
    assert_close(one, other, 1e-11)  # the scores grow and lose a digit


def constant_added_to_a_float_mask_changes_nothing(attend, p: Problem) -> None:
    mask = torch.zeros(p.allowed.shape, dtype=torch.float64).masked_fill(~p.allowed, -math.inf)
    one = attend(p.query, p.key, p.value, mask, scale=p.scale)
    other = attend(p.query, p.key, p.value, mask + p.normal(mask.size(2), 1), scale=p.scale)
    assert_close(one, other)


def mask_and_causality_both_hold(attend, p: Problem) -> None:
    alone = attend(*p.inputs, scale=p.scale, is_causal=True)
    shape = p.query.size(2), p.key.size(2)
    lower = torch.ones(shape, dtype=torch.bool).tril()
    mask = lower if p.mask is None else p.mask & lower if p.mask.dtype == torch.bool else p.mask.where(lower, -math.inf)
    assert_close(alone, attend(p.query, p.key, p.value, mask, scale=p.scale))


def boolean_mask_is_a_float_mask_of_zero_and_minus_infinity(attend, p: Problem) -> None:
    bias = torch.zeros(p.allowed.shape, dtype=torch.float64).masked_fill(~p.allowed, -math.inf)
    assert_close(*(attend(p.query, p.key, p.value, mask, scale=p.scale) for mask in (p.allowed, bias)))


def full_mask_is_no_mask(attend, p: Problem) -> None:
    full = torch.ones(p.query.size(2), p.key.size(2), dtype=torch.bool)
    assert_close(attend(p.query, p.key, p.value, full, **p.options), attend(p.query, p.key, p.value, None, **p.options))


def hidden_keys_have_no_influence_and_no_gradient(attend, p: Problem) -> None:
    before = attend(*p.inputs, **p.options)
    for i in range(p.query.size(2)):
        hidden = ~p.allowed[:, :, i].unflatten(1, (-1, p.group)).any(2)[..., None]  # (B, H_kv, S, 1): from every head
        key, value = p.key.clone().requires_grad_(), p.value.clone().requires_grad_()
        attend(p.query, key, value, p.mask, **p.options)[:, :, i].sum().backward()
        assert not key.grad.where(hidden, 0).any(), "a gradient reaches a hidden key"
        assert not value.grad.where(hidden, 0).any(), "a gradient reaches a hidden value"
        rubbish = [torch.where(hidden, 1e10 * p.normal(*x.shape), x) for x in (p.key, p.value)]
        after = attend(p.query, *rubbish, p.mask, **p.options)
        assert torch.equal(after[:, :, i], before[:, :, i]), "the content of a hidden position shows"


def amount_of_padding_does_not_matter(attend, p: Problem) -> None:
    B, _, S, _ = p.key.shape
    shape = p.query.size(2), S
    key, value = (torch.cat([x, 50 * p.normal(*x.shape[:2], 3, x.size(3))], dim=2) for x in (p.key, p.value))
    real = (torch.arange(S + 3) < S).expand(B, 1, 1, S + 3)
    full = torch.ones(shape, dtype=torch.bool)
    one = attend(p.query, p.key, p.value, full, scale=p.scale)
    assert_close(one, attend(p.query, key, value, real, scale=p.scale))


def gradients_are_those_of_the_loops_and_finite(attend, p: Problem) -> None:
    inputs = [x.clone().requires_grad_() for x in (p.query, p.key, p.value)]
    output = attend(*inputs, p.mask, **p.options)
    upstream = p.normal(*output.shape)
    output.backward(upstream)
    exact = attention_by_loops(*p.inputs, **p.options, upstream=upstream)
    for x, gradient in zip(inputs, exact.gradients, strict=True):
        assert_close(x.grad, gradient)


def default_scale_is_one_over_the_root_of_the_width(attend, p: Problem) -> None:
    options = p.options | {"scale": None}
    plain = attend(p.query / math.sqrt(p.query.size(-1)), *p.inputs[1:], **(options | {"scale": 1.0}))
    assert_close(attend(*p.inputs, **options), plain)


def shared_heads_are_repeated_neighbors(attend, p: Problem) -> None:
    key, value = (x.repeat_interleave(p.group, dim=1) for x in (p.key, p.value))
    assert_close(attend(*p.inputs, **p.options), attend(p.query, key, value, p.mask, **p.options))


def output_is_linear_in_the_values(attend, p: Problem) -> None:
    other = p.normal(*p.value.shape)
    both = attend(p.query, p.key, 2 * p.value - 3 * other, p.mask, **p.options)
    parts = [attend(p.query, p.key, value, p.mask, **p.options) for value in (p.value, other)]
    assert_close(both, 2 * parts[0] - 3 * parts[1])


def huge_scores_stay_finite(attend, p: Problem) -> None:
    output = attend(1e4 * p.query, *p.inputs[1:], **p.options)
    assert furthest(output, torch.zeros_like(output)) <= p.value.abs().max() + EXACT


PROPERTIES = {
    holds.__name__.replace("_", " "): holds
    for holds in (
        equals_the_loops,
        weights_sum_to_one_or_to_zero_where_no_key_is_allowed,
        output_lies_between_the_allowed_values,
        order_of_keys_does_not_matter,
        order_of_queries_is_that_of_the_outputs,
        same_vector_added_to_every_key_changes_nothing,
        constant_added_to_a_float_mask_changes_nothing,
        mask_and_causality_both_hold,
        boolean_mask_is_a_float_mask_of_zero_and_minus_infinity,
        full_mask_is_no_mask,
        hidden_keys_have_no_influence_and_no_gradient,
        amount_of_padding_does_not_matter,
        gradients_are_those_of_the_loops_and_finite,
        default_scale_is_one_over_the_root_of_the_width,
        shared_heads_are_repeated_neighbors,
        output_is_linear_in_the_values,
        huge_scores_stay_finite,
    )
}
