"""`record_attention`: the weights are right, and the model never knows."""

import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lib import masks
from lib.diagnostics import record_attention
from lib.multihead import MultiHeadAttention, recorded_weights
from lib.transformer import Transformer, TransformerConfig
from tests.lib.faulty_module import PlainAttention
from tests.lib.reference import assert_close, attention_by_loops

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
B, L, D, H = 2, 6, 16, 4
REAL = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])


def run_twice(model, *args, seed: int = 0, **kwargs):
    """The output with and without a record, from equal chance; they must agree bit for bit. And the record."""
    torch.manual_seed(seed)
    expected = model(*args, **kwargs)
    torch.manual_seed(seed)
    with record_attention(model) as weights:
        output = model(*args, **kwargs)
    assert _same(expected, output)
    return weights


def _same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0)) and one.requires_grad == other.requires_grad
    if one is None:
        return other is None
    parts = (one.values(), other.values()) if hasattr(one, "values") else (one, other)
    return all(_same(*pair) for pair in zip(*parts, strict=True))


@pytest.fixture
def x(device) -> torch.Tensor:
    return torch.randn(B, L, D).to(device)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
class TestOurs:
    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    @pytest.mark.parametrize("num_kv_heads", [4, 2])
    def test_attention(self, training, need_weights, num_kv_heads, gradient_mode, x, device):
        module = MultiHeadAttention(D, H, num_kv_heads=num_kv_heads, dropout=0.3).to(device).train(training)
        mask = REAL[:, None, None, :].to(device).clone()
        mask[1] = False
        with gradient_mode():
            weights = run_twice(module, x, mask=mask, is_causal=True, need_weights=need_weights)
            expected = module(x, mask=mask, is_causal=True, need_weights=True)[1]
        assert weights.keys() == {""}
        assert weights[""].shape == (B, H, L, L)
        assert_close(weights[""], expected)
        assert not weights[""].requires_grad
        assert not weights[""][1].any()

    def test_a_whole_model_by_the_names_of_its_parts(self, training, device):
        config = TransformerConfig(11, d_model=D, num_heads=H, num_encoder_layers=1, num_decoder_layers=2, dim_feedforward=32)
        model = Transformer(config).to(device).train(training)
        source, target = (torch.randint(0, 11, (B, length)).to(device) for length in (5, 3))
        weights = run_twice(model, source, target)
        with recorded_weights(model) as expected:
            model.eval()(source, target)
        assert weights.keys() == expected.keys()
        assert {name: w.shape for name, w in weights.items()} == {name: w.shape for name, w in expected.items()}
        if not training:
            for name, w in weights.items():
                assert_close(w, expected[name])


class TestTorchs:
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    @pytest.mark.parametrize("need_weights", [True, False], ids=["weights", ""])
    @pytest.mark.parametrize("batch_first", [True, False])
    def test_attention(self, training, need_weights, batch_first, gradient_mode, x, device):
        module = nn.MultiheadAttention(D, H, dropout=0.3, batch_first=batch_first).to(device).train(training)
        x, ignored = x if batch_first else x.transpose(0, 1), ~REAL.to(device)
        with gradient_mode():
            weights = run_twice(module, x, x, x, key_padding_mask=ignored, need_weights=need_weights)
            options = {"key_padding_mask": ignored, "need_weights": True, "average_attn_weights": False}
            expected = module.eval()(x, x, x, **options)[1]
        assert weights.keys() == {""}
        assert_close(weights[""], expected)
        assert module.dropout == 0.3

    def test_a_row_without_a_key_has_weight_zero_where_the_output_is_finite(self, x, device):
        module = nn.MultiheadAttention(D, H, batch_first=True).to(device)
        everything = torch.ones(B, L, dtype=torch.bool, device=device)
        assert not run_twice(module, x, x, x, key_padding_mask=everything, need_weights=False)[""].any()
        spoiled = run_twice(module, x, x, x, key_padding_mask=everything, need_weights=True)
        assert spoiled[""].isnan().all()

    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    @pytest.mark.parametrize("norm_first", [True, False])
    @pytest.mark.parametrize("padded", [True, False], ids=["padded", ""])
    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    @pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
    def test_a_stack_of_layers_on_its_fast_path_too(self, training, norm_first, padded, gradient_mode, x, device):
        layer = nn.TransformerEncoderLayer(D, H, 32, batch_first=True, norm_first=norm_first)
        model = nn.TransformerEncoder(layer, 2).to(device).train(training)
        ignored = ~REAL.to(device) if padded else None
        with gradient_mode():
            for seed in range(2):  # what was seen the first time must not count the second
                weights = run_twice(model, x, src_key_padding_mask=ignored, seed=seed)
        assert weights.keys() == {"layers.0.self_attn", "layers.1.self_attn"}
        if training:
            return
        y = x
        for i, layer in enumerate(model.layers):
            given = layer.norm1(y) if norm_first else y
            options = {"key_padding_mask": ignored, "need_weights": True, "average_attn_weights": False}
            with torch.enable_grad():
                expected = layer.self_attn(given, given, given, **options)[1]
                y = layer(y, src_key_padding_mask=ignored)
            real = REAL[:, None, :].expand(B, H, L).to(device) if padded else torch.ones(B, H, L, dtype=torch.bool)
            assert_close(weights[f"layers.{i}.self_attn"][real], expected[real], bound=1e-5)

    def test_a_decoder_layer_has_two(self, x, device):
        model = nn.TransformerDecoderLayer(D, H, 32, batch_first=True).to(device)
        weights = run_twice(model, x[:, :3], x)
        assert {name: w.shape for name, w in weights.items()} == {"self_attn": (B, H, 3, 3), "multihead_attn": (B, H, 3, L)}


class TestOthers:
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    @pytest.mark.parametrize("implementation", ["eager", "sdpa"])
    @pytest.mark.parametrize("name", ["Bert", "GPT2", "Llama"])
    def test_models_of_hugging_face(self, name, implementation, training, device):
        transformers = pytest.importorskip("transformers")
        sizes = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 32}
        sizes = {"n_embd": D, "n_layer": 2, "n_head": H} if name == "GPT2" else sizes
        sizes |= {"num_key_value_heads": 2} if name == "Llama" else {}
        config = getattr(transformers, f"{name}Config")(vocab_size=11, bos_token_id=0, eos_token_id=0, **sizes)
        config._attn_implementation = implementation
        model = getattr(transformers, f"{name}Model")(config).to(device).train(training)
        tokens = torch.randint(0, 11, (B, L)).to(device)
        weights = run_twice(model, tokens, attention_mask=REAL.long().to(device), use_cache=False)
        assert len(weights) == 2
        assert all(w.shape == (B, H, L, L) for w in weights.values())
        model.eval().set_attn_implementation("eager")
        if not training:
            answer = model(tokens, attention_mask=REAL.long().to(device), output_attentions=True)
            for w, expected in zip(weights.values(), answer.attentions, strict=True):
                assert_close(w, expected, bound=1e-5)

    @pytest.mark.parametrize("flash", [True, False])
    def test_x_transformers(self, flash, device):
        package = pytest.importorskip("x_transformers")
        layers = package.Decoder(dim=D, depth=2, heads=H, attn_flash=flash, attn_dim_head=8)
        model = package.TransformerWrapper(num_tokens=11, max_seq_len=32, attn_layers=layers).to(device)
        tokens = torch.randint(0, 11, (B, L)).to(device)
        weights = run_twice(model, tokens)
        assert len(weights) == 2
        for w in weights.values():
            assert w.shape == (B, H, L, L)
            assert_close(w.sum(-1), torch.ones(B, H, L), bound=1e-5)
            assert not w.triu(1).any()


class TestPlainTorch:
    def test_a_module_of_ones_own(self, x, device):
        module = PlainAttention(D, H).to(device)
        weights = run_twice(module, x)
        q, k, v = (module._split(layer(x)) for layer in (module.q_proj, module.k_proj, module.v_proj))
        assert_close(weights[""], attention_by_loops(q, k, v, is_causal=True).weights)

    @pytest.mark.parametrize(
        "softmax",
        [
            lambda scores: torch.softmax(scores, -1),
            lambda scores: torch.softmax(scores, dim=-1),
            lambda scores: scores.softmax(-1),
            lambda scores: scores.softmax(dim=2),
            lambda scores: F.softmax(scores, dim=-1),
            nn.Softmax(dim=-1),
        ],
    )
    def test_every_way_to_write_a_softmax(self, softmax, x):
        class Module(nn.Module):
            def __init__(self):
                super().__init__()
                self.softmax = softmax

            def forward(self, x):
                return self.softmax(x @ x.mT) @ x

        weights = run_twice(Module(), x)
        assert weights.keys() == {""}
        assert_close(weights[""], (x @ x.mT).softmax(-1))

    def test_torchs_function_with_each_of_its_arguments(self):
        class Module(nn.Module):
            def forward(self, q, k, v, **options):
                return F.scaled_dot_product_attention(q, k, v, **options)

        q, k, v = torch.randn(B, H, L, 8), torch.randn(B, 2, L, 8), torch.randn(B, 2, L, 3)
        options = {"scale": 0.3, "enable_gqa": True}
        allowed = torch.rand(B, 1, L, L) < 0.6
        expected = attention_by_loops(q, k, v, allowed, scale=0.3).weights
        assert_close(run_twice(Module(), q, k, v, attn_mask=allowed, **options)[""], expected)
        assert_close(run_twice(Module(), q, k, v, attn_mask=allowed, dropout_p=0.5, **options)[""], expected)
        bias = torch.randn(L, L)
        expected = attention_by_loops(q, k, v, bias, scale=0.3).weights
        assert_close(run_twice(Module(), q, k, v, attn_mask=bias, **options)[""], expected)
        expected = attention_by_loops(q, k, v, masks.causal(L), scale=0.3).weights
        assert_close(run_twice(Module(), q, k, v, is_causal=True, **options)[""], expected)
        expected = attention_by_loops(q[:, :1], k[:, :1], v[:, :1], allowed).weights[:, 0]
        three_axes = run_twice(Module(), q[:, 0], k[:, 0], v[:, 0], attn_mask=allowed[:, 0])
        assert_close(three_axes[""], expected)

    def test_a_softmax_over_classes_or_another_axis_is_no_attention(self, x):
        class Module(nn.Module):
            def forward(self, x):
                return x.mean(1).softmax(-1) + x.softmax(1)[:, 0]

        assert run_twice(Module(), x) == {}

    def test_two_attentions_of_one_forward_have_two_names_and_the_latest_call_counts(self, x):
        class Twice(nn.Module):
            def forward(self, x):
                x = (x @ x.mT).softmax(-1) @ x
                return (2 * x @ x.mT).softmax(-1) @ x

        model = nn.Sequential(Twice(), Twice())
        with record_attention(model) as weights:
            model(x)
            model(x + 1)
        assert list(weights) == ["0", "0 2", "1", "1 2"]
        assert_close(weights["0"], ((x + 1) @ (x + 1).mT).softmax(-1))

    def test_only_what_the_model_holds_is_kept(self, x):
        model, other = PlainAttention(D, H), PlainAttention(D, H)
        with record_attention(model) as weights:
            other(x.cpu())
            (x @ x.mT).softmax(-1)
            assert weights == {}
            model(x.cpu())
        assert weights.keys() == {""}
        model(2 * x.cpu())
        with record_attention(model) as again:
            model(x.cpu())
        assert torch.equal(weights[""], again[""])

    def test_gradients_are_what_they_were(self, x):
        model = nn.TransformerEncoderLayer(D, H, 32, dropout=0.0, batch_first=True)
        (expected,) = torch.autograd.grad(model(x.cpu()).square().sum(), model.self_attn.in_proj_weight)
        with record_attention(model):
            (gradient,) = torch.autograd.grad(model(x.cpu()).square().sum(), model.self_attn.in_proj_weight)
        assert torch.equal(gradient, expected)

    @pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
    def test_nothing_stays_behind_not_even_after_an_error(self, x):
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, 32, batch_first=True), 1)
        everywhere = nn.modules.module
        before = len(everywhere._global_forward_hooks), len(everywhere._global_forward_pre_hooks)
        with pytest.raises(AssertionError), record_attention(model) as weights:
            model(torch.randn(1, 2, D + 1))
        assert weights == {}
        assert (len(everywhere._global_forward_hooks), len(everywhere._global_forward_pre_hooks)) == before
        assert all("forward" not in vars(part) for part in model.modules())
        assert torch.overrides._get_current_function_mode() is None
