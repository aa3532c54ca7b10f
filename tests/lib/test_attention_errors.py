"""Bad input gets an error that names the offending numbers and what to do, on every backend; never a wrong result."""

import pytest
import torch

from lib.attention import BACKENDS
from lib.attention import scaled_dot_product_attention as attention

Q = torch.zeros(2, 2, 5, 8)
ERRORS = {
    "key of another width": (
        {"key": torch.zeros(2, 2, 5, 6)},
        ValueError,
        r"d_k is 8 in the query and 6 in the key .*query \(2, 2, 5, 8\), key \(2, 2, 5, 6\).*Only the value",
    ),
    "more keys than values": ({"value": torch.zeros(2, 2, 4, 8)}, ValueError, r"got 5 keys and 4 values"),
    "no length": (
        {name: torch.zeros(8) for name in ("query", "key", "value")},
        ValueError,
        r"at least 2 \(length, width\), got query \(8,\)",
    ),
    "axes differ": (
        {"key": torch.zeros(2, 5, 8)},
        ValueError,
        r"same number of axes.*query \(2, 2, 5, 8\), key \(2, 5, 8\)",
    ),
    "another batch": (
        {"key": torch.zeros(3, 2, 5, 8), "value": torch.zeros(3, 2, 5, 8)},
        ValueError,
        r"do not agree: query \(2, 2, 5, 8\), key \(3, 2, 5, 8\)",
    ),
    "fewer heads of the key": (
        {"query": torch.zeros(2, 4, 5, 8)},
        ValueError,
        r"query \(2, 4, 5, 8\), key \(2, 2, 5, 8\).*pass enable_gqa=True",
    ),
    "heads that do not divide": (
        {"query": torch.zeros(2, 3, 5, 8), "enable_gqa": True},
        ValueError,
        r"divides that of the query, got query \(2, 3, 5, 8\), key \(2, 2, 5, 8\)",
    ),
    "key and value heads differ": (
        {"query": torch.zeros(2, 4, 5, 8), "value": torch.zeros(2, 4, 5, 8), "enable_gqa": True},
        ValueError,
        r"same number of heads.*value \(2, 4, 5, 8\)",
    ),
    "groups without a head axis": (
        {name: torch.zeros(5, 8) for name in ("query", "key", "value")} | {"enable_gqa": True},
        ValueError,
        r"with enable_gqa.*query \(5, 8\)",
    ),
    "integers": ({"query": Q.long()}, TypeError, r"floating dtype, got torch.int64, torch.float32"),
    "all integers": ({name: Q.long() for name in ("query", "key", "value")}, TypeError, r"floating dtype, got torch.int64"),
    "mixed dtypes": ({"value": Q.half()}, TypeError, r"got torch.float32, torch.float32, torch.float16"),
    "dropout above 1": ({"dropout_p": 1.5}, ValueError, r"0 … 1, got 1.5"),
    "dropout below 0": ({"dropout_p": -0.1}, ValueError, r"0 … 1, got -0.1"),
    "dropout not a number": ({"dropout_p": float("nan")}, ValueError, r"0 … 1, got nan"),
    "a mask with 3 axes": (
        {"attn_mask": torch.ones(2, 5, 5, dtype=torch.bool)},
        ValueError,
        r"3-D mask is ambiguous: \(2, 5, 5\).*mask\[:, None\].*mask\[None\]",
    ),
    "a mask with 1 axis": (
        {"attn_mask": torch.ones(5, dtype=torch.bool)},
        ValueError,
        r"2 axes or the 4 axes of the scores \(2, 2, 5, 5\), got \(5,\)",
    ),
    "a mask of integers": (
        {"attn_mask": torch.ones(5, 5, dtype=torch.int64)},
        TypeError,
        r"boolean .* or float .*got torch.int64.*mask\.bool\(\)",
    ),
    "a mask that is a list": ({"attn_mask": [[True]]}, TypeError, r"a mask is a tensor, got list"),
    "a mask for other keys": (
        {"attn_mask": torch.ones(5, 4, dtype=torch.bool)},
        ValueError,
        r"shape \(5, 4\) does not fit scores of shape \(2, 2, 5, 5\).*the 5 keys",
    ),
    "a mask for other queries": (
        {"attn_mask": torch.ones(4, 5, dtype=torch.bool)},
        ValueError,
        r"shape \(4, 5\) does not fit scores of shape \(2, 2, 5, 5\)",
    ),
    "a mask for other heads": (
        {"attn_mask": torch.ones(1, 3, 5, 5, dtype=torch.bool)},
        ValueError,
        r"shape \(1, 3, 5, 5\) does not fit scores of shape \(2, 2, 5, 5\)",
    ),
    "a mask that would broadcast over the keys": (
        {"attn_mask": torch.ones(5, 1, dtype=torch.bool)},
        ValueError,
        r"shape \(5, 1\) does not fit.*last axis must be the 5 keys",
    ),
}


@pytest.mark.parametrize(("change", "error", "message"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("need_weights", [False, True])
def test_bad_input_is_refused_by_name_and_number(change, error, message, need_weights, backend):
    chosen = {"need_weights": True} if need_weights else {"backend": backend}
    with pytest.raises(error, match=f"(?s){message}"):
        attention(**({"query": Q, "key": Q, "value": Q} | chosen | change))


def test_an_unknown_backend_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=f"one of {', '.join(BACKENDS)}, got 'flash'"):
        attention(Q, Q, Q, backend="flash")


def test_weights_of_the_fused_function_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r'never forms the weights.*backend="auto" or "eager"'):
        attention(Q, Q, Q, backend="sdpa", need_weights=True)


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_scale_that_asks_for_a_gradient_is_refused_with_the_remedy(need_weights):
    with pytest.raises(TypeError, match=r"scale is a number.*multiply the query"):
        attention(Q, Q, Q, scale=torch.tensor(0.5, requires_grad=True), need_weights=need_weights)


@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
@pytest.mark.parametrize("mask", [None, torch.ones(3, 3, dtype=torch.bool)], ids=["", "mask"])
def test_on_the_meta_device_the_shapes_come_out(mask, dropout_p, backend):
    q = torch.zeros(2, 2, 3, 4, device="meta")
    output = attention(q, q, q, None if mask is None else mask.to("meta"), dropout_p, backend=backend)
    assert output.shape == (2, 2, 3, 4)
    assert output.is_meta


def test_the_options_that_torch_lacks_are_by_keyword_only():
    with pytest.raises(TypeError, match="positional"):
        attention(Q, Q, Q, None, 0.0, False, None, False, True)
