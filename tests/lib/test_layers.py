"""Encoder and decoder layers against torch's, and the stack: distinct layers, one mask for all, checkpointing."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lib import masks, stacks
from lib.cache import DecoderCache, KVCache
from lib.layers import DecoderLayer, EncoderLayer, FeedForward
from lib.multihead import MultiHeadAttention
from lib.positional import RotaryEncoding
from lib.stacks import Stack
from tests.lib.reference import assert_as_good_as, assert_close

SIZES = {"d_model": 12, "num_heads": 3, "dim_feedforward": 20}
TORCH = {EncoderLayer: nn.TransformerEncoderLayer, DecoderLayer: nn.TransformerDecoderLayer}
# From torch's names to ours.
NAMES = {
    "in_proj_": "in_proj.",
    "multihead_attn": "cross_attn",
    "linear1": "feed_forward.linear1",
    "linear2": "feed_forward.linear2",
}


def renamed(parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    for theirs, ours in NAMES.items():
        parameters = {name.replace(theirs, ours): x for name, x in parameters.items()}
    return parameters


def randomized(module: nn.Module) -> nn.Module:
    """Norms and biases start at 1 and 0, where mistakes do not show."""
    for name, parameter in module.named_parameters():
        if "norm" in name or "bias" in name:
            nn.init.normal_(parameter)
    return module


def pair(kind, **options):
    """Torch's layer, and ours with the same weights."""
    theirs = randomized(TORCH[kind](*SIZES.values(), batch_first=True, **options).double())
    ours = kind(**SIZES, **options).double()
    ours.load_state_dict(renamed(theirs.state_dict()))
    return ours, theirs


def assert_same_gradients(ours: nn.Module, theirs: nn.Module) -> None:
    expected = renamed({name: parameter.grad for name, parameter in theirs.named_parameters()})
    actual = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert actual.keys() == expected.keys()
    for name, gradient in actual.items():
        assert_close(gradient, expected[name])


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
class TestAgainstTorch:
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_encoder_layer(self, activation, norm_first, bias, padded, is_causal, device):
        ours, theirs = (
            x.to(device) for x in pair(EncoderLayer, activation=activation, norm_first=norm_first, bias=bias, dropout=0.0)
        )
        x = torch.randn(2, 5, 12, dtype=torch.float64, device=device)
        real = masks.padding([5, 3], device=device) if padded else None
        ignored = ~real[:, 0, 0] if padded else None
        forbidden = ~masks.causal(5, device=device) if is_causal else None
        theirs_x, ours_x = (x.clone().requires_grad_() for _ in range(2))
        expected = theirs(theirs_x, src_mask=forbidden, src_key_padding_mask=ignored)
        output = ours(ours_x, real, is_causal=is_causal)
        assert_close(output, expected)
        upstream = torch.randn_like(output)
        output.backward(upstream)
        expected.backward(upstream)
        assert_close(ours_x.grad, theirs_x.grad)
        assert_same_gradients(ours, theirs)

    def test_decoder_layer(self, activation, norm_first, bias, padded, device):
        ours, theirs = (
            x.to(device) for x in pair(DecoderLayer, activation=activation, norm_first=norm_first, bias=bias, dropout=0.0)
        )
        x, memory = (torch.randn(2, n, 12, dtype=torch.float64, device=device) for n in (5, 7))
        real, memory_real = (masks.padding([n, n - 2], device=device) if padded else None for n in (5, 7))
        ignored, memory_ignored = (None if mask is None else ~mask[:, 0, 0] for mask in (real, memory_real))
        theirs_in, ours_in = ([y.clone().requires_grad_() for y in (x, memory)] for _ in range(2))
        expected = theirs(
            *theirs_in,
            tgt_mask=~masks.causal(5, device=device),
            tgt_key_padding_mask=ignored,
            memory_key_padding_mask=memory_ignored,
        )
        output = ours(*ours_in, real, memory_real)
        assert_close(output, expected)
        upstream = torch.randn_like(output)
        output.backward(upstream)
        expected.backward(upstream)
        for one, other in zip(ours_in, theirs_in, strict=True):
            assert_close(one.grad, other.grad)
        assert_same_gradients(ours, theirs)


class TestFeedForward:
    def test_swiglu_gates_one_half_with_the_other(self):
        network, x = randomized(FeedForward(12, 8, activation="swiglu").double()), torch.randn(2, 3, 12, dtype=torch.float64)
        (gate, gate_bias), (up, up_bias) = zip(*(y.chunk(2) for y in network.linear1.parameters()), strict=True)
        hidden = F.silu(F.linear(x, gate, gate_bias)) * F.linear(x, up, up_bias)
        assert_close(network(x), network.linear2(hidden))

    @pytest.mark.parametrize("activation", ["relu", "swiglu"])
    def test_dropout_falls_between_its_layers_in_training_alone(self, activation):
        network, x = randomized(FeedForward(12, 8, 1.0, activation)), torch.randn(2, 3, 12)
        assert torch.equal(network(x), network.linear2.bias.expand(2, 3, 12))
        assert not torch.equal(network.eval()(x), network.linear2.bias.expand(2, 3, 12))

    def test_with_two_thirds_of_the_width_it_has_as_many_weights(self):
        sizes = [
            sum(p.numel() for p in FeedForward(12, *rest, bias=False).parameters()) for rest in ((48,), (32, 0.0, "swiglu"))
        ]
        assert sizes[0] == sizes[1] == 2 * 12 * 48

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [((12, 20, 0.0, "tanh"), "relu, gelu, swiglu, got 'tanh'"), ((12, 0), "dim_feedforward is a width, at least 1, got 0")],
    )
    def test_errors_name_what_was_given(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            FeedForward(*arguments)


def layer(kind=EncoderLayer, **options) -> EncoderLayer:
    return kind(**SIZES, **options).double()


def call(module: nn.Module, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    """Run either kind of layer."""
    if isinstance(module, DecoderLayer):
        return module(
            x, torch.randn(x.size(0), 7, 12, dtype=x.dtype, generator=torch.Generator().manual_seed(1)), *args, **kwargs
        )
    return module(x, *args, is_causal=True, **kwargs)


class TestLayers:
    # https://github.com/pytorch/pytorch/issues/96941: is_causal ignored in eval, without gradients; and 86120, 97111, 128209
    @pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
    @pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
    @pytest.mark.parametrize("lengths", [None, [5, 3]], ids=["full", "padded"])
    def test_train_eval_and_every_gradient_mode_give_the_same(self, kind, norm_first, lengths, gradient_mode):
        module, x = layer(kind, norm_first=norm_first, dropout=0.0), torch.randn(2, 5, 12, dtype=torch.float64)
        mask = None if lengths is None else masks.padding(lengths)
        expected = call(module, x, mask)
        for training in (True, False):
            with gradient_mode():
                assert torch.equal(call(module.train(training), x, mask), expected)

    @pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    @pytest.mark.parametrize("lengths", [None, [5, 3]], ids=["full", "padded"])
    @pytest.mark.parametrize("options", [{}, {"alibi": True}, {"rotary": RotaryEncoding(4)}], ids=["plain", "alibi", "rotary"])
    def test_no_output_has_a_gradient_at_a_later_input(self, kind, training, lengths, options):
        module = layer(kind, **options).train(training)
        x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
        output = call(module, x, None if lengths is None else masks.padding(lengths))
        upstream = torch.randn(12, dtype=torch.float64)  # the mere sum of what a norm gives is constant
        for i in range(5):
            (gradient,) = torch.autograd.grad((output[:, i] @ upstream).sum(), x, retain_graph=True)
            assert not gradient[:, i + 1 :].any()
            assert gradient[0, : i + 1].any()

    @pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
    def test_dropout_falls_on_weights_between_and_after_and_in_training_alone(self, kind):
        x = torch.randn(1, 5, 12, dtype=torch.float64)
        module = layer(kind, dropout=0.4, attention_dropout=0.2)
        rates = [part.p for part in module.modules() if isinstance(part, nn.Dropout)]
        assert rates == [0.4, 0.4]  # one for every sub-layer's output, one inside the feed-forward network
        attentions = [part for part in module.modules() if isinstance(part, MultiHeadAttention)]
        assert [part.dropout for part in attentions] == [0.2] * len(attentions)
        assert layer(kind, dropout=0.4).self_attn.dropout == 0.4
        assert not torch.equal(call(module, x), call(module, x))
        assert torch.equal(call(module.eval(), x), call(module, x))
        # With everything dropped, biases included, nothing is left beside the residual connection.
        assert torch.equal(call(randomized(layer(kind, dropout=1.0, norm_first=True)), x), x)
        post_norm = randomized(layer(kind, dropout=1.0))
        norms = [norm for name, norm in sorted(post_norm.named_children()) if name.startswith("norm")]
        assert_close(call(post_norm, x), nn.Sequential(*norms)(x))

    def test_a_memory_of_another_width_and_length(self):
        module = DecoderLayer(**SIZES, d_memory=9)
        assert module(torch.randn(2, 5, 12), torch.randn(2, 3, 9)).shape == (2, 5, 12)
        with pytest.raises(ValueError, match=r"d_context = 9\), got \(2, 3, 12\)"):
            module(torch.randn(2, 5, 12), torch.randn(2, 3, 12))

    def test_a_decoder_layer_hands_its_options_to_both_attentions(self):
        module = DecoderLayer(**SIZES, num_kv_heads=1, bias=False, layer_norm_eps=0.5, dropout=0.3)
        for attention in (module.self_attn, module.cross_attn):
            assert (attention.num_kv_heads, attention.dropout, attention.in_proj.bias) == (1, 0.3, None)
        assert all((norm.eps, norm.bias) == (0.5, None) for norm in (module.norm1, module.norm2, module.norm3))

    def test_rows_without_a_key_stay_finite(self):
        x = torch.randn(2, 4, 12, requires_grad=True)
        for kind in (EncoderLayer, DecoderLayer):
            module = kind(**SIZES)
            call(module, x, masks.padding([4, 0])).square().sum().backward()
            assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
        assert x.grad.isfinite().all()

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_is_as_good_as_torch(self, dtype, device):
        ours, theirs = (x.to(device) for x in pair(EncoderLayer, dropout=0.0, norm_first=True))
        x = torch.randn(2, 9, 12, device=device).to(dtype)
        exact = theirs(x.double())
        ours, theirs = ours.to(dtype), theirs.to(dtype)
        assert_as_good_as(ours(x), theirs(x), exact, factor=2)

    @pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # torch's own, when its compiler is loaded
    @pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
    @pytest.mark.parametrize("activation", ["gelu", "swiglu"])
    def test_compiles_into_one_graph_forward_and_backward(self, kind, activation):
        torch.compiler.reset()  # what other tests compiled counts against a limit
        module = layer(kind, dropout=0.0, activation=activation, norm_first=True)
        twin = copy.deepcopy(module)
        compiled, x = torch.compile(module, fullgraph=True, backend="aot_eager"), torch.randn(2, 5, 12, dtype=torch.float64)
        arguments = (x,) if kind is EncoderLayer else (x, torch.randn(2, 4, 12, dtype=torch.float64))
        output, expected = (f(*arguments, masks.padding([5, 3]), is_causal=True) for f in (compiled, twin))
        assert_close(output, expected)
        output.sum().backward()
        expected.sum().backward()
        for one, other in zip(module.parameters(), twin.parameters(), strict=True):
            assert_close(one.grad, other.grad)

    @pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # torch's own, when its compiler is loaded
    def test_compiles_to_machine_code(self):
        torch.compiler.reset()
        module, x = EncoderLayer(**SIZES, rotary=RotaryEncoding(4)).eval(), torch.randn(2, 5, 12)
        with torch.no_grad():
            assert_close(torch.compile(module, fullgraph=True)(x, is_causal=True), module(x, is_causal=True), 1e-5)


class TestStack:
    # https://github.com/pytorch/pytorch/issues/86274 (and 72253), https://github.com/pytorch/torchtune/issues/2270
    def test_the_configured_stacks_start_with_layers_that_differ(self):
        config = stacks.TransformerConfig(d_model=12, num_heads=3, dim_feedforward=20)
        for stack in (stacks.Encoder(config), stacks.Decoder(config)):
            first, *others = stack.layers
            for other in others:
                for (name, one), two in zip(first.named_parameters(), other.parameters(), strict=True):
                    assert one.dim() == 1 or not torch.equal(one, two), name

    @pytest.mark.parametrize("is_causal", [False, True])
    @pytest.mark.parametrize("alibi", [None, 3])
    @pytest.mark.parametrize("lengths", [None, [5, 3]], ids=["full", "padded"])
    def test_is_its_layers_one_after_another(self, is_causal, alibi, lengths):
        layers = [layer(dropout=0.0) for _ in range(3)]
        norm = randomized(nn.ModuleDict({"norm": nn.LayerNorm(12)}).double())["norm"]
        x, mask = torch.randn(2, 5, 12, dtype=torch.float64), None if lengths is None else masks.padding(lengths)
        expected = x
        for one in copy.deepcopy(layers):
            one.self_attn.alibi = alibi is not None
            expected = one(expected, mask, is_causal=is_causal)
        assert_close(Stack(layers, norm, is_causal=is_causal, alibi=alibi)(x, mask), norm(expected))

    def test_makes_its_mask_once_for_all_layers(self, monkeypatch):
        made = []
        monkeypatch.setattr(masks, "causal", lambda *args, f=masks.causal, **kwargs: made.append(args) or f(*args, **kwargs))
        stack, x = Stack([layer() for _ in range(3)], is_causal=True), torch.randn(2, 5, 12, dtype=torch.float64)
        stack(x)
        assert not made  # the fused kernels know causality
        stack(x, masks.padding([5, 3]))
        assert len(made) == 1

    @pytest.mark.parametrize("lengths", [[1, 1, 1, 1], [3, 1], [2, 2]])
    @pytest.mark.parametrize("alibi", [None, 3])
    def test_any_split_through_the_cache_equals_the_whole(self, lengths, alibi):
        x, memory = torch.randn(2, 4, 12, dtype=torch.float64), torch.randn(2, 5, 12, dtype=torch.float64)
        stack = Stack([layer(DecoderLayer) for _ in range(2)], is_causal=True, alibi=alibi).eval()
        cache = DecoderCache(2, 4, 5)
        options = {"memory": memory, "memory_mask": masks.padding([5, 2])}
        with torch.no_grad():
            parts = [stack(part, cache=cache, **options) for part in x.split(lengths, dim=1)]
            assert_close(torch.cat(parts, dim=1), stack(x, **options))

    # https://github.com/allenai/OLMo-core/issues/828, https://github.com/pytorch/torchtitan/issues/1323,
    # https://github.com/lucidrains/enformer-pytorch/issues/33
    @pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
    @pytest.mark.parametrize("masked", [False, True])
    def test_checkpointing_gives_the_same_gradients_bit_for_bit_with_dropout(self, kind, masked, device):
        layers = [kind(**SIZES, dropout=0.3).to(device) for _ in range(3)]
        answers = []
        for checkpointing in (False, True):
            stack = Stack(copy.deepcopy(layers), is_causal=True, checkpointing=checkpointing)
            torch.manual_seed(5)
            x = torch.randn(2, 5, 12, device=device, requires_grad=True)
            memory = torch.randn(2, 4, 12, device=device, requires_grad=True) if kind is DecoderLayer else None
            output = stack(x, masks.padding([5, 3], device=device) if masked else None, memory=memory)
            output.square().sum().backward()
            answers.append([output, x.grad, *(parameter.grad for parameter in stack.parameters())])
        assert all(torch.equal(one, other) for one, other in zip(*answers, strict=True))

    @pytest.mark.parametrize("checkpointing", [False, True])
    def test_checkpointing_keeps_less_for_the_backward_pass(self, checkpointing):
        kept = []
        stack = Stack([layer() for _ in range(3)], checkpointing=checkpointing)
        x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: kept.append(saved.numel()) or saved, lambda saved: saved):
            output = stack(x)
        assert (len(kept) <= 3) == checkpointing  # the input of each layer
        output.sum().backward()

    def test_a_mask_that_does_not_fit_is_an_error_at_once(self):
        stack = Stack([layer()], is_causal=True)
        with pytest.raises(ValueError, match="3-D mask is ambiguous"):
            stack(torch.randn(3, 4, 12, dtype=torch.float64), torch.ones(3, 4, 4, dtype=torch.bool))

    def test_one_cache_serves_a_layer_alone(self):
        module, x, cache = layer().eval(), torch.randn(2, 4, 12, dtype=torch.float64), KVCache(4)
        with torch.no_grad():
            parts = [module(part, is_causal=True, cache=cache) for part in x.split([3, 1], dim=1)]
            assert_close(torch.cat(parts, dim=1), module(x, is_causal=True))
