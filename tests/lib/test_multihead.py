"""Multi-head attention against torch's module and against a loop over heads; what it costs; its errors."""

import copy
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lib import masks, multihead
from lib.cache import KVCache
from lib.multihead import MultiHeadAttention, recorded_weights
from lib.positional import RotaryEncoding, alibi_bias
from tests.lib.reference import assert_as_good_as, assert_close

# Every kind of self-attention, over d_model 12 in 6 heads.
KINDS = {
    "plain": {},
    "with bias": {"bias": True},
    "grouped": {"num_kv_heads": 2},
    "one key head": {"num_kv_heads": 1},
    "own widths": {"d_k": 3, "d_v": 5},
    "rotary": {"rotary": RotaryEncoding(2)},
    "rotary, grouped": {"rotary": RotaryEncoding(2, interleaved=False), "num_kv_heads": 3},
    "alibi": {"alibi": True},
    "alibi, grouped": {"alibi": True, "num_kv_heads": 2},
}


def build(kind: str, **options) -> MultiHeadAttention:
    attention = MultiHeadAttention(12, 6, **copy.deepcopy(KINDS[kind]), **options).double()
    for name, parameter in attention.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return attention


def copied(theirs: nn.MultiheadAttention, **options) -> MultiHeadAttention:
    """Ours with the weights of torch's module."""
    d_model, bias = theirs.embed_dim, theirs.in_proj_bias is not None
    ours = MultiHeadAttention(d_model, theirs.num_heads, d_context=theirs.kdim, bias=bias, dropout=theirs.dropout, **options)
    packed = theirs.in_proj_weight is not None
    state = {f"out_proj.{name}": x for name, x in theirs.out_proj.named_parameters()}
    biases = theirs.in_proj_bias
    if packed:
        state["in_proj.weight"] = theirs.in_proj_weight
        state |= {"in_proj.bias": biases} if bias else {}
    else:
        state["q_proj.weight"] = theirs.q_proj_weight
        state["kv_proj.weight"] = torch.cat((theirs.k_proj_weight, theirs.v_proj_weight))
        state |= {"q_proj.bias": biases[:d_model], "kv_proj.bias": biases[d_model:]} if bias else {}
    ours.to(theirs.out_proj.weight).load_state_dict(state)
    return ours


def gradients(module: nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of the inputs and parameters, in one order for torch's modules and for ours."""
    of = {name: parameter.grad for name, parameter in module.named_parameters()}
    order = ("in_proj", "q_proj", "k_proj", "kv_proj", "v_proj")
    projections = [of[name] for part in order for name in of if name.startswith(part)]
    joined = [torch.cat([g.flatten() for g in projections if g.dim() == n] or [torch.zeros(0)]) for n in (2, 1)]
    return [x.grad for x in inputs] + joined + [of[name] for name in of if name.startswith("out_proj")]


class TestAgainstTorch:
    # Heads split without a transpose pass shape tests: https://github.com/jsbaan/transformer-from-scratch/issues/6,
    # https://github.com/reczoo/FuxiCTR/issues/30
    @pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
    @pytest.mark.parametrize("masked", ["", "causal", "boolean", "float"])
    @pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
    @pytest.mark.parametrize("source", ["itself", "a context", "a context of another width"])
    def test_outputs_weights_and_every_gradient_are_those_of_copied_weights(self, source, bias, masked, padded, device):
        d_context = 9 if "width" in source else 12
        theirs = nn.MultiheadAttention(12, 3, bias=bias, kdim=d_context, vdim=d_context, batch_first=True).to(device).double()
        for name, parameter in theirs.named_parameters():
            if name.endswith("bias"):
                nn.init.normal_(parameter)
        ours = copied(theirs)
        check_against_torch(ours, theirs, source, masked, padded, device)

    def test_a_split_of_heads_without_its_transpose_is_found(self, monkeypatch):
        monkeypatch.setattr(multihead, "_heads", lambda x, width: x.reshape(x.size(0), -1, x.size(1), width))
        theirs = nn.MultiheadAttention(12, 3, bias=False, batch_first=True).double()
        with pytest.raises(AssertionError, match="away"):
            check_against_torch(copied(theirs), theirs, "itself", "", False, "cpu")

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_half_precision_is_as_good_as_theirs(self, dtype, is_causal, device):
        theirs = nn.MultiheadAttention(32, 4, bias=False, batch_first=True).to(device, dtype)
        ours, x = copied(theirs), torch.randn(2, 16, 32, device=device, dtype=dtype)
        exact, _ = copied(copy.deepcopy(theirs).double())(x.double(), is_causal=is_causal)
        mask = ~masks.causal(16, device=device) if is_causal else None
        yardstick, _ = theirs(x, x, x, attn_mask=mask)
        for need_weights in (False, True):
            assert_as_good_as(ours(x, is_causal=is_causal, need_weights=need_weights)[0], yardstick, exact, factor=2)


def check_against_torch(ours, theirs, source, masked, padded, device) -> None:
    L, S = 5, 5 if source == "itself" else 7
    query = torch.randn(2, L, 12, dtype=torch.float64, device=device, requires_grad=True)
    context = torch.randn(2, S, theirs.kdim, dtype=torch.float64, device=device, requires_grad=True)
    inputs = (query,) if source == "itself" else (query, context)

    allowed = {
        "": None,
        "causal": masks.causal(L, S, device=device),
        "boolean": torch.rand(L, S, device=device) < 0.7,
        "float": torch.randn(L, S, dtype=torch.float64, device=device),
    }[masked]
    if masked == "boolean":
        allowed[:, 0] = True  # torch's module gives NaN where a row is empty
    theirs_mask = ~allowed if masked in ("causal", "boolean") else allowed
    real = masks.padding([S, S - 2], S, device=device) if padded else None
    ignored = ~real[:, 0, 0] if padded else None
    if padded and masked == "float":  # torch warns where its two masks are of different types
        ignored = torch.zeros(2, S, dtype=torch.float64, device=device).masked_fill(ignored, -torch.inf)

    expected = theirs(
        query, inputs[-1], inputs[-1], attn_mask=theirs_mask, key_padding_mask=ignored, average_attn_weights=False
    )
    upstream = torch.randn_like(expected[0])
    expected[0].backward(upstream)
    expected_gradients = [g.clone() for g in gradients(theirs, *inputs)]

    mask = masks.combine(None if masked == "causal" else allowed, real)
    for need_weights in (False, True):
        for x in (*inputs, *ours.parameters()):
            x.grad = None
        output, weights = ours(*inputs, mask=mask, is_causal=masked == "causal", need_weights=need_weights)
        assert_close(output, expected[0])
        assert (weights is not None) == need_weights
        if need_weights:
            assert_close(weights, expected[1])
        output.backward(upstream)
        for actual, exact in zip(gradients(ours, *inputs), expected_gradients, strict=True):
            assert_close(actual, exact)


def by_a_loop_over_heads(attention: MultiHeadAttention, query, context=None, allowed=None) -> torch.Tensor:
    """Section 3.2.2 of the paper as it stands, one head after another, without bias."""
    d_k, d_v, context = attention.d_k, attention.d_v, query if context is None else context
    W_q, W_k, W_v = attention.projections()
    heads = []
    for h in range(attention.num_heads):
        g = h // (attention.num_heads // attention.num_kv_heads)
        q = query @ W_q[h * d_k : (h + 1) * d_k].T
        k = context @ W_k[g * d_k : (g + 1) * d_k].T
        v = context @ W_v[g * d_v : (g + 1) * d_v].T
        scores = q @ k.mT / d_k**0.5
        scores = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
        heads.append(scores.softmax(dim=-1) @ v)
    return torch.cat(heads, dim=-1) @ attention.out_proj.weight.T


class TestAgainstALoopOverHeads:
    # https://github.com/pytorch/pytorch/issues/27623, https://github.com/pytorch/pytorch/issues/60445,
    # https://github.com/d2l-ai/d2l-en/issues/2056
    @pytest.mark.parametrize("need_weights", [False, True])
    def test_widths_of_their_own_and_a_context_of_another(self, need_weights, device):
        attention = MultiHeadAttention(6, 2, d_k=5, d_v=7, d_context=9).double().to(device)
        query, context = (torch.randn(2, n, d, dtype=torch.float64, device=device) for n, d in ((4, 6), (3, 9)))
        output, _ = attention(query, context, need_weights=need_weights)
        assert_close(output, by_a_loop_over_heads(attention, query, context))
        assert sum(p.numel() for p in attention.parameters()) == 2 * (6 * 5 + 9 * 5 + 9 * 7 + 7 * 6)

    @pytest.mark.parametrize("kind", ["plain", "grouped", "one key head", "own widths"])
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_heads_that_share_keys_and_values(self, kind, is_causal):
        attention, x = build(kind), torch.randn(2, 4, 12, dtype=torch.float64)
        allowed = masks.causal(4) if is_causal else None
        assert_close(attention(x, is_causal=is_causal)[0], by_a_loop_over_heads(attention, x, allowed=allowed))

    def test_rotary_is_a_rotation_of_queries_and_keys(self):
        attention, x = MultiHeadAttention(4, 1, rotary=RotaryEncoding(4)).double(), torch.randn(1, 5, 4, dtype=torch.float64)
        q, k, v = (x @ W.T for W in attention.projections())
        q, k = (attention.rotary(y[:, None])[:, 0] for y in (q, k))
        weights = (q @ k.mT / 2).softmax(dim=-1)
        assert_close(attention(x)[0], weights @ v @ attention.out_proj.weight.T)

    def test_alibi_is_a_mask_that_falls_with_distance(self):
        with_alibi, x = build("alibi"), torch.randn(2, 5, 12, dtype=torch.float64)
        plain = build("plain")
        plain.load_state_dict(with_alibi.state_dict())
        assert_close(with_alibi(x)[0], plain(x, mask=alibi_bias(6, 5))[0])
        assert_close(with_alibi(x, is_causal=True)[0], plain(x, mask=alibi_bias(6, 5), is_causal=True)[0])


class Operations(TorchDispatchMode):
    """Counts what is really run, by its name."""

    def __enter__(self):
        self.counts = Counter()
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


class TestCost:
    @pytest.mark.parametrize("kind", ["plain", "grouped", "one key head"])
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_self_attention_takes_two_products_and_copies_nothing(self, kind, is_causal):
        attention, x = build(kind).float(), torch.randn(2, 64, 12)
        with torch.no_grad(), Operations() as run:
            attention(x, is_causal=is_causal)
        assert run.counts["mm"] + run.counts["addmm"] == 2
        assert run.counts["_scaled_dot_product_flash_attention_for_cpu"] == 1
        assert not run.counts.keys() & {"clone", "copy_", "_to_copy", "cat", "where", "arange"}

    def test_a_cached_step_copies_its_keys_and_values_alone(self):
        attention, cache = build("plain").float(), KVCache(8)
        with torch.no_grad():
            attention(torch.randn(1, 7, 12), is_causal=True, cache=cache)
            with Operations() as run:
                attention(torch.randn(1, 1, 12), is_causal=True, cache=cache)
        assert run.counts["copy_"] == 2
        assert not run.counts.keys() & {"clone", "cat", "where", "arange"}

    def test_a_cache_of_one_batch_is_not_read_by_another(self):
        attention, cache = MultiHeadAttention(12, 6, d_context=9), KVCache(5)
        with torch.no_grad():
            attention(torch.randn(1, 2, 12), torch.randn(1, 5, 9), cache=cache)
            for B, S in ((3, 5), (1, 4)):
                with pytest.raises(ValueError, match=rf"\(B, S\) = \(1, 5\), this one has \({B}, {S}\)"):
                    attention(torch.randn(B, 2, 12), torch.randn(B, S, 9), cache=cache)

    def test_a_cache_takes_nothing_on_beside_a_mask_that_does_not_fit(self):
        attention, cache = build("plain").float(), KVCache(8)
        with torch.no_grad():
            attention(torch.randn(1, 3, 12), cache=cache)
            with pytest.raises(ValueError, match=r"\(1, 1, 1, 4\)"):
                attention(torch.randn(1, 2, 12), mask=torch.ones(1, 1, 1, 4, dtype=torch.bool), cache=cache)
        assert cache.length == 3

    def test_a_context_is_multiplied_with_its_own_weights_alone(self):
        attention = MultiHeadAttention(12, 3)
        sizes = []

        class Products(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                if function.overloadpacket.__name__ == "mm":
                    sizes.append((args[0].size(0), args[1].size(1)))
                return function(*args, **(kwargs or {}))

        with torch.no_grad(), Products():
            attention(torch.randn(1, 4, 12), torch.randn(1, 7, 12))
        assert sizes == [(4, 12), (7, 24), (4, 12)]


class TestAsAModule:
    def test_state_dict_holds_parameters_under_clear_names(self):
        names = {f"{part}.{kind}" for part in ("in_proj", "out_proj") for kind in ("weight", "bias")}
        attention = build("rotary", bias=True)
        assert attention.state_dict().keys() == dict(attention.named_parameters()).keys() == names
        other = MultiHeadAttention(12, 2, d_context=9)
        assert list(other.state_dict()) == ["q_proj.weight", "kv_proj.weight", "out_proj.weight"]

    @pytest.mark.parametrize("d_context", [12, 9])
    def test_projections_are_views_of_the_three_matrices(self, d_context):
        attention = MultiHeadAttention(12, 6, num_kv_heads=2, d_k=3, d_v=5, d_context=d_context)
        assert [tuple(W.shape) for W in attention.projections()] == [(18, 12), (6, d_context), (10, d_context)]
        with torch.no_grad():
            attention.projections()[2].zero_()
        x, context = torch.randn(1, 2, 12), torch.randn(1, 3, d_context)
        assert not attention(x, context)[0].any()

    def test_starts_as_torch_does(self):
        ours, theirs = MultiHeadAttention(64, 4, bias=True), nn.MultiheadAttention(64, 4)
        assert ours.in_proj.weight.abs().max().item() == pytest.approx(theirs.in_proj_weight.abs().max().item(), rel=0.01)
        assert not ours.in_proj.bias.any()
        assert not ours.out_proj.bias.any()
        W_q, W_k, W_v = ours.projections()
        assert not torch.equal(W_q, W_k)
        assert not torch.equal(W_k, W_v)

    @pytest.mark.parametrize("kind", ["plain", "rotary, grouped", "alibi"])
    def test_compiles_into_one_graph(self, kind):
        torch.compiler.reset()  # what other tests compiled counts against a limit
        attention, x = build(kind), torch.randn(2, 5, 12, dtype=torch.float64)
        compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
        mask = masks.padding([5, 3])
        for options in ({}, {"is_causal": True}, {"mask": mask, "is_causal": True, "need_weights": True}):
            assert_close(compiled(x, **options)[0], attention(x, **options)[0])

    # https://github.com/pytorch/pytorch/issues/99012, https://github.com/pytorch/pytorch/issues/111276
    @pytest.mark.parametrize("kind", ["plain", "grouped", "rotary", "alibi"])
    @pytest.mark.parametrize("masked", ["", "boolean", "float"])
    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    def test_works_under_autocast(self, kind, masked, need_weights, device):
        attention, x = build(kind).float().to(device), torch.randn(2, 5, 12, device=device, requires_grad=True)
        mask = masks.padding([5, 3], device=device)
        mask = {"": None, "boolean": mask, "float": torch.zeros(mask.shape, device=device).masked_fill(~mask, -torch.inf)}[
            masked
        ]
        expected, _ = attention(x, mask=mask, is_causal=True)
        with torch.autocast(device, torch.bfloat16):
            output, _ = attention(x, mask=mask, is_causal=True, need_weights=need_weights)
        assert output.dtype == torch.bfloat16
        assert_close(output.float(), expected, 0.03)
        output.sum().backward()
        assert x.grad.isfinite().all()

    def test_gradient_of_a_float_mask(self):
        attention, x = build("plain"), torch.randn(1, 3, 12, dtype=torch.float64)
        bias = torch.randn(1, 6, 3, 3, dtype=torch.float64, requires_grad=True)
        for need_weights in (True, False):
            assert torch.autograd.gradcheck(lambda mask, n=need_weights: attention(x, mask=mask, need_weights=n)[0], bias)

    def test_its_weights_can_be_recorded_while_a_model_runs(self):
        model = nn.ModuleDict({"first": build("plain"), "second": build("grouped")})
        x = torch.randn(2, 3, 12, dtype=torch.float64)
        with recorded_weights(model) as weights:
            hidden, ours = model["first"](x)
            output, _ = model["second"](hidden)
        assert weights.keys() == {"first", "second"}
        assert torch.equal(weights["first"], ours)
        assert_close(weights["second"].sum(dim=-1), torch.ones(2, 6, 3, dtype=torch.float64))
        assert_close(output, model["second"](model["first"](x)[0])[0])
        assert model["first"](x)[1] is None


class TestErrors:
    # https://github.com/rasbt/LLMs-from-scratch/issues/444
    def test_a_width_that_cannot_be_split_names_the_nearest_that_can(self):
        with pytest.raises(ValueError, match=r"d_model = 100 .* num_heads = 8.* num_heads 5 or 10, d_model 96 or 104"):
            MultiHeadAttention(100, 8)
        MultiHeadAttention(100, 8, d_k=12, d_v=12)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"num_heads": 0}, "num_heads is at least 1, got 0"),
            ({"d_k": 0}, "d_k is at least 1, got 0"),
            ({"num_kv_heads": 4}, r"num_kv_heads must divide num_heads = 6, got 4.*\[1, 2, 3, 6\]"),
            ({"dropout": 1.5}, "0 … 1, got 1.5"),
            ({"rotary": RotaryEncoding(4)}, "width 4, but d_k is 2"),
        ],
    )
    def test_numbers_that_do_not_fit(self, options, message):
        with pytest.raises(ValueError, match=message):
            MultiHeadAttention(12, **{"num_heads": 6, **options})

    @pytest.mark.parametrize(
        ("options", "shapes", "message"),
        [
            ({}, [(5, 12)], r"d_model = 12\), got \(5, 12\)\. For a single sequence use x\[None\]"),
            ({}, [(2, 5, 8)], r"d_model = 12\), got \(2, 5, 8\)"),
            ({}, [(2, 5, 12), (2, 4, 9)], r"\(B = 2, S, d_context = 12\), got \(2, 4, 9\)"),
            ({}, [(2, 5, 12), (3, 4, 12)], r"\(B = 2, S, d_context = 12\), got \(3, 4, 12\)"),
            ({"d_context": 9}, [(2, 5, 12)], r"context is needed, \(B, S, d_context = 9\)"),
            ({"alibi": True}, [(2, 5, 12), (2, 4, 12)], "pass no context for self-attention"),
            ({"rotary": RotaryEncoding(2)}, [(2, 5, 12), (2, 4, 12)], "pass no context for self-attention"),
        ],
    )
    def test_inputs_that_do_not_fit(self, options, shapes, message):
        with pytest.raises(ValueError, match=message):
            MultiHeadAttention(12, 6, **options)(*(torch.randn(shape) for shape in shapes))

    @pytest.mark.parametrize("is_causal", [False, True])
    def test_masks_that_could_be_misread(self, is_causal):
        attention, x = build("plain"), torch.randn(6, 4, 12, dtype=torch.float64)  # B = H, where torch broadcasts in silence
        with pytest.raises(ValueError, match=r"3-D mask is ambiguous.*mask\[:, None\]"):
            attention(x, mask=torch.ones(6, 4, 4, dtype=torch.bool), is_causal=is_causal)
        with pytest.raises(ValueError, match=r"\(4, 3\) does not fit scores of shape \(6, 6, 4, 4\)"):
            attention(x, mask=torch.ones(4, 3, dtype=torch.bool), is_causal=is_causal)
        with pytest.raises(TypeError, match=r"int64.*mask\.bool"):
            attention(x, mask=torch.ones(4, 4, dtype=torch.int64), is_causal=is_causal)
