"""The exercise checks: right answers of any style pass, wrong ones never do and get the advice that fits, nothing is raised."""

import inspect
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib.study.exercises import self_attention as check
from lib.study.exercises import verdict
from lib.study.exercises.self_attention.head import SELF_ATTENTION
from lib.study.exercises.self_attention.lookup import SOFT_LOOKUP
from lib.study.exercises.self_attention.maps import QKV
from lib.study.exercises.self_attention.shape_table import SHAPES
from lib.study.exercises.self_attention.weights import ATTENTION_WEIGHTS
from lib.study.exercises.table import table_verdict
from tests.lib.study.exercise_answers import assert_advice, pairs

EXERCISES = {
    "qkv": QKV,
    "attention_weights": ATTENTION_WEIGHTS,
    "soft_lookup": SOFT_LOOKUP,
    "self_attention": SELF_ATTENTION,
}
RIGHT_SHAPES = {
    "x": (2, 5, 12),
    "W_q": (12, 4),
    "W_k": (12, 4),
    "W_v": (12, 6),
    "Q": (2, 5, 4),
    "K": (2, 5, 4),
    "V": (2, 5, 6),
    "scores": (2, 5, 5),
    "weights": (2, 5, 5),
    "output": (2, 5, 6),
}


# ---- right answers, in several styles


def qkv_by_matmul(x, w_q, w_k, w_v):
    return x @ w_q, x @ w_k, x @ w_v


def qkv_by_einsum_as_list(x, w_q, w_k, w_v):
    return [torch.einsum("...d,de->...e", x, w) for w in (w_q, w_k, w_v)]


def qkv_in_one_product(x, w_q, w_k, w_v):
    return torch.split(x @ torch.cat([w_q, w_k, w_v], dim=1), [w_q.size(1), w_k.size(1), w_v.size(1)], dim=-1)


def weights_by_softmax(query, key):
    return torch.softmax(query @ key.transpose(-2, -1) / query.size(-1) ** 0.5, dim=-1)


def weights_by_exp(query, key):
    scores = torch.einsum("...id,...jd->...ij", query, key) * query.shape[-1] ** -0.5
    shares = (scores - scores.amax(-1, keepdim=True)).exp()
    return shares / shares.sum(-1, keepdim=True)


def weights_of_scaled_query_in_double(query, key):
    return F.softmax((query / math.sqrt(key.size(-1))).double() @ key.double().mT, -1)


def lookup_by_softmax(query, keys, values, temperature):
    return torch.softmax(keys @ query / temperature, dim=0) @ values


def lookup_by_loop(query, keys, values, temperature):
    matches = torch.stack([(key * query).sum() for key in keys])
    shares = ((matches - matches.max()) / temperature).exp()
    shares = shares / shares.sum()
    return sum(share * value for share, value in zip(shares, values, strict=True))


def head_by_masked_fill(x, w_q, w_k, w_v, mask):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = (q @ k.transpose(-2, -1) / q.size(-1) ** 0.5).masked_fill(~mask, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v


def head_by_added_mask(x, w_q, w_k, w_v, mask):
    bias = torch.zeros(mask.shape).masked_fill(mask.logical_not(), -1e9)
    return F.softmax((x @ w_q / w_q.size(1) ** 0.5) @ (x @ w_k).mT + bias, dim=-1) @ x @ w_v


def head_by_renormalizing(x, w_q, w_k, w_v, mask):
    shares = ((x @ w_q) @ (x @ w_k).mT / w_q.size(1) ** 0.5).exp() * mask
    return (shares / shares.sum(-1, keepdim=True)) @ (x @ w_v)


RIGHT = {
    "qkv": [qkv_by_matmul, qkv_by_einsum_as_list, qkv_in_one_product],
    "attention_weights": [weights_by_softmax, weights_by_exp, weights_of_scaled_query_in_double],
    "soft_lookup": [lookup_by_softmax, lookup_by_loop],
    "self_attention": [head_by_masked_fill, head_by_added_mask, head_by_renormalizing],
}


@pytest.mark.parametrize(("name", "answer"), pairs(RIGHT))
def test_a_right_answer_of_any_style_passes(name, answer, capsys):
    getattr(check, name)(answer)
    assert capsys.readouterr().out == f"Right. {EXERCISES[name].why}\n"


# ---- wrong answers, written as a reader would, with words that the advice must hold


def scores_of(query, key):
    return query @ key.transpose(-2, -1)


def no_result_kept(x, w_q, w_k, w_v, mask):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    scores = scores_of(q, k) / q.size(-1) ** 0.5
    scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v


def head_with(mask_scores, scale=lambda x, w_q, w_v: w_q.size(1) ** 0.5, after=lambda w, mask: w, dim=-1, value=torch.matmul):
    def head(x, w_q, w_k, w_v, mask):
        scores = mask_scores(scores_of(x @ w_q, x @ w_k) / scale(x, w_q, w_v), mask)
        return after(scores.softmax(dim), mask) @ value(x, w_v)

    return head


def fill(scores, mask):
    return torch.where(mask, scores, -torch.inf)


WRONG = {
    "qkv": [
        (lambda x, a, b, c: (x, x, x), "return x three times"),
        (lambda x, a, b, c: (x @ a, x @ c, x @ b), "K and V are swapped"),
        (lambda x, a, b, c: (x @ a, (x @ a) @ b, x @ c), "made from the query"),
        (lambda x, a, b, c: (x @ a, x @ a @ b, x @ a @ b @ c), "chained"),
        (lambda x, a, b, c: (x @ a.T, x @ b.T, x @ c.T), "transposed"),
        (lambda x, a, b, c: (F.linear(x, a), F.linear(x, b), F.linear(x, c)), "transposed"),
        (lambda x, a, b, c: (x * a, x * b, x * c), "entry by entry"),
        (lambda x, a, b, c: [x @ a] * 3, "One weight makes all three"),
        (lambda x, a, b, c: torch.cat([x @ a, x @ b, x @ c], -1), "a Tensor, not the 3 tensors Q, K, V"),
    ],
    "attention_weights": [
        (lambda q, k: scores_of(q, k).softmax(-1), "no scale"),
        (lambda q, k: (scores_of(q, k) / q.size(-1)).softmax(-1), "scale is d_k, not √d_k"),
        (lambda q, k: (scores_of(q, k) * q.size(-1) ** 0.5).softmax(-1), "multiply the scores by √d_k"),
        (lambda q, k: (scores_of(q, k) / q.size(-2) ** 0.5).softmax(-1), "√n"),
        (lambda q, k: (scores_of(q, k) / q.size(-1) ** 0.5).softmax(-2), "columns sum to 1"),
        (lambda q, k: (scores_of(q, k) / q.size(-1) ** 0.5).softmax(0), "dim=0"),
        (lambda q, k: (scores_of(q, k) / q.size(-1) ** 0.5).softmax(1), "dim=1 is the axis of the keys only"),
        (lambda q, k: (scores_of(q, k) / q.size(-1) ** 0.5).mT.softmax(-1), "product is transposed"),
        (lambda q, k: (q.mT @ k / q.size(-1) ** 0.5).softmax(-1), "widths against widths"),
        (lambda q, k: F.normalize(scores_of(q, k) / q.size(-1) ** 0.5, p=1, dim=-1), "not to 1"),
        (lambda q, k: scores_of(q, k) / scores_of(q, k).sum(-1, keepdim=True), "without taking exp"),
        (lambda q, k: torch.sigmoid(scores_of(q, k) / q.size(-1) ** 0.5), "sigmoid judges each key alone"),
        (lambda q, k: torch.eye(k.size(-2))[scores_of(q, k).argmax(-1)], "hard look-up"),
        (lambda q, k: (scores_of(q, k) / 8).softmax(-1), "divided by 8 (√d_k is 2)"),
    ],
    "soft_lookup": [
        (lambda q, k, v, t: (k @ q * t).softmax(0) @ v, "multiply by the temperature"),
        (lambda q, k, v, t: (k @ q).softmax(0) / t @ v, "temperature comes after the softmax"),
        (lambda q, k, v, t: v[torch.argmax(k @ q)], "hard look-up"),
        (lambda q, k, v, t: v.sum(0) / len(v), "plain mean"),
        (lambda q, k, v, t: (k @ q / t) @ torch.softmax(v, 0), "softmax runs over the values"),
        (lambda q, k, v, t: (F.cosine_similarity(k, q[None]) / t).softmax(0) @ v, "cosine"),
        (lambda q, k, v, t: (k / k.norm(dim=1, keepdim=True) @ q / t).softmax(0) @ v, "length 1"),
        (lambda q, k, v, t: (k @ q / (len(q) ** 0.5 * t)).softmax(0) @ v, "√d as well"),
        (lambda q, k, v, t: torch.exp(k @ q / t) @ v / torch.exp(k @ q / t).sum(), "exp overflows"),
    ],
    "self_attention": [
        (no_result_kept, "keep what it returns"),
        (head_with(lambda s, m: s.masked_fill(m, -torch.inf)), "mask is inverted"),
        (head_with(lambda s, m: s, after=lambda w, m: w * m), "after the softmax"),
        (head_with(lambda s, m: s.masked_fill(~m, -1e-9)), "−1e-9, where −1e9 was meant"),
        (head_with(lambda s, m: s * m), "ordinary score"),
        (head_with(lambda s, m: s.masked_fill(~m.T, -torch.inf)), "Rows and columns of the mask are swapped"),
        (head_with(fill, scale=lambda x, w_q, w_v: 1), "no scale"),
        (head_with(fill, scale=lambda x, w_q, w_v: w_q.size(1)), "scale is d_k, not √d_k"),
        (head_with(fill, scale=lambda x, w_q, w_v: x.size(-1) ** 0.5), "√d_model"),
        (head_with(fill, scale=lambda x, w_q, w_v: w_v.size(1) ** 0.5), "√d_v"),
        (head_with(fill, dim=-2), "over the queries"),
        (head_with(fill, value=lambda x, w_v: x), "multiplied with x"),
        (lambda *a: (head_by_masked_fill(*a), None), "tuple, not a tensor"),
    ],
}


@pytest.mark.parametrize(("name", "answer"), pairs(WRONG))
def test_a_wrong_answer_gets_the_advice_that_fits(name, answer):
    function, words = answer
    assert_advice(verdict(EXERCISES[name], function), words)


def test_of_two_mistakes_in_one_answer_the_one_seen_first_is_told():
    def weights(query, key):
        return (query @ key.permute(*reversed(range(key.dim()))) / query.size(-1)).softmax(-1)

    text = verdict(ATTENTION_WEIGHTS, weights)
    assert "scale is d_k, not √d_k" in text
    assert "key.T" in verdict(ATTENTION_WEIGHTS, lambda q, k: weights(q * q.size(-1) ** 0.5, k))


# ---- mutants: right in outline, off in one detail


MUTANTS = {
    "qkv": [
        lambda x, a, b, c: (x @ a, x @ b, x @ c * 1.01),
        lambda x, a, b, c: (x @ a + 1e-3, x @ b, x @ c),
        lambda x, a, b, c: (x @ a, x @ b),
        lambda x, a, b, c: (x @ a, x @ b, x @ c, x),
        lambda x, a, b, c: tuple((x[:1] if x.dim() == 3 else x) @ w for w in (a, b, c)),
        lambda x, a, b, c: tuple((x @ w).flatten(0, -2) for w in (a, b, c)),
        lambda x, a, b, c: tuple(np.asarray(x @ w) for w in (a, b, c)),
        lambda x, a, b, c: tuple((x @ w).half() for w in (a, b, c)),
    ],
    "attention_weights": [
        lambda q, k: (scores_of(q, k) * q.size(-1) ** -0.49).softmax(-1),
        lambda q, k: (scores_of(q, k) / (q.size(-1) + 1) ** 0.5).softmax(-1),
        lambda q, k: weights_by_softmax(q, k) + 1e-4,
        lambda q, k: weights_by_softmax(q, k).round(decimals=2),
        lambda q, k: weights_by_softmax(q, k).flip(-1),
        lambda q, k: weights_by_softmax(q, k)[..., :1, :].expand(*q.shape[:-1], k.size(-2)),
        lambda q, k: (
            weights_by_softmax(q[:1], k[:1]).expand(*q.shape[:-1], k.size(-2)) if q.dim() == 3 else weights_by_softmax(q, k)
        ),
        lambda q, k: weights_by_softmax(q, k).tril(),
        lambda q, k: weights_by_softmax(q, q),
        lambda q, k: weights_by_softmax(q.flatten(0, -2), k.flatten(0, -2)),
        lambda q, k: weights_by_softmax(q, k).bfloat16(),
        lambda q, k: weights_by_softmax(q, k).tolist(),
        lambda q, k: torch.rand(*q.shape[:-1], k.size(-2)).softmax(-1),
    ],
    "soft_lookup": [
        lambda q, k, v, t: lookup_by_softmax(q, k, v, t * 1.02),
        lambda q, k, v, t: lookup_by_softmax(q, k, v, max(t, 1.0)),
        lambda q, k, v, t: lookup_by_softmax(q, k, v, t)[None],
        lambda q, k, v, t: lookup_by_softmax(q, k, v, t) * 1.001,
        lambda q, k, v, t: lookup_by_softmax(-q, k, v, t),
        lambda q, k, v, t: lookup_by_softmax(q, k[1:], v[1:], t),
        lambda q, k, v, t: lookup_by_softmax(q, k, v, t**2),
        lambda q, k, v, t: torch.nan_to_num((k @ q / t).exp() / (k @ q / t).exp().sum()) @ v,
    ],
    "self_attention": [
        lambda x, a, b, c, m: head_by_masked_fill(x, a, b, c, m.tril()),
        lambda x, a, b, c, m: head_by_masked_fill(x, a, b, c, torch.ones_like(m).tril()),
        lambda x, a, b, c, m: head_by_masked_fill(x, a, b, c, m | torch.eye(len(m), dtype=torch.bool).roll(1, 0)),
        head_with(lambda s, m: s.masked_fill(~m, -10.0)),
        head_with(lambda s, m: s.masked_fill(~m, -30.0)),
        head_with(lambda s, m: s.masked_fill(~m, torch.finfo(torch.float32).tiny)),
        head_with(lambda s, m: s.masked_fill(~m, torch.inf)),
        lambda x, a, b, c, m: head_by_masked_fill(x, a, b, c, m) + x @ c,
        lambda x, a, b, c, m: head_by_masked_fill(x[:1] if x.dim() == 3 else x, a, b, c, m).expand(*x.shape[:-1], c.size(1)),
        lambda x, a, b, c, m: head_by_masked_fill(x, a, b, c, m).squeeze(0)[..., :1],
        lambda x, a, b, c, m: torch.softmax(fill(scores_of(x @ a, x @ b) / a.size(1) ** 0.5, m), -1) @ (x @ b),
    ],
}


@pytest.mark.parametrize(("name", "mutant"), pairs(MUTANTS))
def test_an_answer_that_is_off_in_one_detail_does_not_pass(name, mutant):
    assert_advice(verdict(EXERCISES[name], mutant))


# ---- not answered yet


def test_a_blank_function_with_the_right_parameters_is_not_answered_either():
    def attention_weights(query, key): ...

    assert verdict(ATTENTION_WEIGHTS, attention_weights).startswith("Not answered yet. ")


def test_a_forgotten_return_is_told_from_an_empty_body():
    def weights(query, key):
        scores = query @ key.transpose(-2, -1)
        torch.softmax(scores, dim=-1)

    assert "returns None" in verdict(ATTENTION_WEIGHTS, weights)


def test_an_ellipsis_as_an_index_is_no_open_place():
    def weights(query, key):
        return weights_by_softmax(query[..., :], key)

    assert verdict(ATTENTION_WEIGHTS, weights).startswith("Right. ")


# ---- what a check must never do


def test_an_answer_with_other_parameters_gets_its_error_told():
    assert "it raises TypeError" in verdict(QKV, lambda x: x)


def overwrite_mask(x, w_q, w_k, w_v, mask):
    return head_by_masked_fill(x, w_q, w_k, w_v, mask.logical_not_().logical_not())


def overwrite_x(x, w_q, w_k, w_v, mask):
    output = head_by_masked_fill(x, w_q, w_k, w_v, mask)
    x *= 2
    return output


@pytest.mark.parametrize(("answer", "name"), [(overwrite_mask, "mask"), (overwrite_x, "x")])
def test_right_numbers_do_not_excuse_an_overwritten_input(answer, name):
    text = verdict(SELF_ATTENTION, answer)
    assert text.startswith(f"Not yet. Your function overwrites its input {name}, ")


def test_the_reader_need_not_keep_the_names_of_the_parameters():
    assert verdict(ATTENTION_WEIGHTS, lambda a, b: weights_by_softmax(a, b)).startswith("Right. ")
    assert list(inspect.signature(weights_by_softmax).parameters) == list(ATTENTION_WEIGHTS.cases()[0])


# ---- the table of shapes


def test_the_right_shapes_pass_as_tuples_lists_or_sizes(capsys):
    for kind in (tuple, list, torch.Size):
        check.shapes({name: kind(shape) for name, shape in RIGHT_SHAPES.items()})
        assert capsys.readouterr().out == f"Right. {SHAPES.why}\n"


def test_the_right_shapes_are_those_of_the_tensors():
    x, (w_q, w_k, w_v) = torch.zeros(2, 5, 12), (torch.zeros(12, d) for d in (4, 4, 6))
    q, k, v = qkv_by_matmul(x, w_q, w_k, w_v)
    weights = weights_by_softmax(q, k)
    tensors = [x, w_q, w_k, w_v, q, k, v, scores_of(q, k), weights, weights @ v]
    assert table_verdict(SHAPES, dict(zip(SHAPES.entries, (t.shape for t in tensors), strict=True))).startswith("Right. ")


@pytest.mark.parametrize(
    "answer", [None, ..., {}, dict.fromkeys(RIGHT_SHAPES, ...), dict.fromkeys(RIGHT_SHAPES, ()), {"x": (...,)}]
)
def test_an_open_table_prints_the_hint_alone(answer, capsys):
    check.shapes(answer)
    assert capsys.readouterr().out == f"Not answered yet. {SHAPES.hint}\n"


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("x", (5, 12), "batch is missing"),
        ("x", (2, 12, 5), "another order"),
        ("W_q", (4, 12), "nn.Linear"),
        ("W_q", (2, 12, 4), "no batch axis"),
        ("W_k", (12, 6), "as wide as a query"),
        ("W_v", (12, 4), "has its own, d_v"),
        ("Q", (2, 5, 6), "dot product"),
        ("K", (2, 4, 5), "transpose"),
        ("V", (2, 5, 4), "has its own, d_v"),
        ("scores", (2, 4, 4), "KᵀQ: widths against widths"),
        ("scores", (5, 5), "batch is missing"),
        ("weights", (2, 5, 6), "that is the output"),
        ("output", (2, 5, 12), "mean of values"),
        ("output", (2, 5, 4), "matching alone"),
        ("output", (2, 5, 5), "those are the weights"),
        ("scores", (9, 9, 9, 9), "its axes are batch, the token that asks"),
        ("scores", ("n", "n"), "its axes are"),
        ("scores", 25, "a shape is a tuple"),
        ("scores", ..., "not answered yet"),
    ],
)
def test_a_wrong_shape_gets_its_own_advice_and_the_others_none(name, shape, words):
    text = table_verdict(SHAPES, RIGHT_SHAPES | {name: shape})
    first, line = text.split("\n")
    assert first == "Not yet. 9 of 10 shapes are right."
    assert line.startswith(f"  {name}: ")
    assert words in line


def test_each_wrong_entry_has_its_line_and_missing_and_unknown_names_are_told():
    answer = RIGHT_SHAPES | {"scores": (2, 4, 4), "output": (2, 5, 12), "Z": (1,)}
    del answer["x"]
    lines = table_verdict(SHAPES, answer).split("\n")
    assert lines[0] == "Not yet. 7 of 10 shapes are right."
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["x", "scores", "output", "not in this table"]


def test_a_table_that_is_no_dict_gets_a_sentence():
    assert "a dict" in table_verdict(SHAPES, [(2, 5, 12)])


def test_no_known_wrong_shape_is_the_right_one():
    for name, entry in SHAPES.entries.items():
        assert entry.shape == RIGHT_SHAPES[name]
        assert entry.shape not in entry.mistakes
