"""Modules from torch's and to them: outputs, weights and every gradient; copies; masks; what cannot be carried over."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lib import interop, masks
from lib.interop import from_torch, mask_from_torch, mask_to_torch, to_torch
from lib.layers import DecoderLayer, EncoderLayer
from lib.multihead import MultiHeadAttention
from lib.positional import RotaryEncoding
from lib.stacks import Decoder, Encoder, Stack, TransformerConfig
from lib.transformer import Transformer
from tests.lib.reference import assert_close
from tests.lib.test_layers import assert_same_gradients, randomized
from tests.lib.test_multihead import gradients

SIZES = {"d_model": 12, "nhead": 2, "dim_feedforward": 20, "dropout": 0.0}
LAYER = {nn.TransformerEncoder: nn.TransformerEncoderLayer, nn.TransformerDecoder: nn.TransformerDecoderLayer}
CHOICES = pytest.mark.parametrize(
    ("norm_first", "activation", "bias", "batch_first"),
    [
        (False, "relu", True, True),
        (True, "relu", True, False),
        (False, "gelu", False, False),
        (True, "gelu", False, True),
        (True, nn.GELU(), True, True),
        (False, nn.ReLU(), False, True),
    ],
    ids=["post-relu-bias-batch", "pre-relu-bias", "post-gelu", "pre-gelu-batch", "pre-GELU-bias-batch", "post-ReLU-batch"],
)
MODES = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])


def double(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def theirs_of(kind, *args, **options) -> nn.Module:
    """A module of torch in float64, with biases and norms that are not 0 and 1."""
    if kind in LAYER:
        layer = LAYER[kind](**SIZES, **options)
        args, options = (layer, 2, nn.LayerNorm(12)), {"enable_nested_tensor": False} if kind is nn.TransformerEncoder else {}
    elif kind is nn.Transformer:
        args, options = (), SIZES | {"num_encoder_layers": 2, "num_decoder_layers": 2} | options
    elif kind is not nn.MultiheadAttention:
        options = SIZES | options
    module = randomized(kind(*args, **options).double())
    for parameter in module.parameters():  # copies of one layer start alike
        parameter.data += 0.1 * torch.randn_like(parameter)
    return module


def turned(x: torch.Tensor, batch_first: bool) -> torch.Tensor:
    return x if batch_first else x.transpose(0, 1)


def described(module: nn.Module) -> list[str]:
    """What it prints: kinds, sizes, rates and eps of all parts. An activation is a part only where it was given as a module."""
    return [line for line in repr(module).splitlines() if "(activation)" not in line]


def assert_same_as(expected: torch.Tensor, output: torch.Tensor, inputs, theirs: nn.Module, ours: nn.Module) -> None:
    """Outputs, the gradients of the inputs, and those of every parameter."""
    assert_close(output, expected)
    upstream = torch.randn_like(expected)
    for x in (theirs, ours):
        x.zero_grad()
    wanted, given = (torch.autograd.grad(y, inputs, upstream, retain_graph=True) for y in (expected, output))
    for one, other in zip(given, wanted, strict=True):
        assert_close(one, other)
    expected.backward(upstream)
    output.backward(upstream)
    assert_same_gradients(ours, theirs)


class TestAttention:
    @MODES
    @PADDED
    @pytest.mark.parametrize("batch_first", [True, False], ids=["batch", ""])
    @pytest.mark.parametrize("bias", [True, False], ids=["bias", ""])
    @pytest.mark.parametrize("d_context", [12, 7])
    @pytest.mark.parametrize("back", [False, True], ids=["from", "to"])
    def test_outputs_weights_and_every_gradient(self, back, d_context, bias, batch_first, padded, training):
        theirs = theirs_of(nn.MultiheadAttention, 12, 3, bias=bias, kdim=d_context, vdim=d_context, batch_first=batch_first)
        ours = from_torch(theirs.train(training))
        theirs = to_torch(ours, batch_first=batch_first) if back else theirs
        query, context = double(2, 4, 12), double(2, 5, d_context)
        allowed = torch.rand(4, 5) < 0.6
        allowed[:, 0] = True
        ignored = torch.arange(5) >= torch.tensor([[5], [3]]) if padded else None
        theirs_context = turned(context, batch_first)
        expected, expected_weights = theirs(
            turned(query, batch_first),
            theirs_context,
            theirs_context,
            attn_mask=~allowed,
            key_padding_mask=ignored,
            average_attn_weights=False,
        )
        output, weights = ours(query, context, mask=mask_from_torch(~allowed, ignored), need_weights=True)
        assert_close(weights, expected_weights)
        expected = turned(expected, batch_first)
        assert_close(output, expected)
        upstream = torch.randn_like(expected)
        found = []
        for y, module in ((expected, theirs), (output, ours)):
            query.grad = context.grad = None
            y.backward(upstream)
            found.append([g.clone() for g in gradients(module, query, context)])
        for actual, exact in zip(*reversed(found), strict=True):
            assert_close(actual, exact)

    def test_a_context_as_wide_as_the_query_and_one_that_is_the_query_are_one_module(self):
        theirs, x = theirs_of(nn.MultiheadAttention, 12, 3, batch_first=True), double(2, 4, 12)
        assert_close(from_torch(theirs)(x)[0], theirs(x, x, x)[0])

    @pytest.mark.parametrize("frozen", ["in_proj_bias", "out_proj.weight", "in_proj_weight"])
    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
    def test_what_is_frozen_stays_frozen_and_the_rest_trains_whatever_mode_it_was_made_in(self, frozen, mode):
        theirs = theirs_of(nn.MultiheadAttention, 12, 3)
        theirs.get_parameter(frozen).requires_grad_(False)
        with mode():
            ours = from_torch(theirs)
            back = to_torch(ours)
        ours_name = frozen.replace("in_proj_", "in_proj.")
        assert {name: x.requires_grad for name, x in ours.named_parameters()} == {
            name: name != ours_name for name in ("in_proj.weight", "in_proj.bias", "out_proj.weight", "out_proj.bias")
        }
        assert not back.get_parameter(frozen).requires_grad
        ours(double(1, 2, 12))[0].sum().backward()

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_joined_weights_train_too(self, mode):
        theirs = theirs_of(nn.MultiheadAttention, 12, 3, kdim=7, vdim=7)
        with mode():
            ours = from_torch(theirs)
            back = to_torch(ours)
        assert all(x.requires_grad and not x.is_inference() for part in (ours, back) for x in part.parameters())


@CHOICES
@MODES
@PADDED
class TestLayersAndStacks:
    @pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerEncoder])
    @pytest.mark.parametrize("is_causal", [False, True], ids=["", "causal"])
    def test_encoder(self, kind, is_causal, norm_first, activation, bias, batch_first, padded, training):
        options = {"norm_first": norm_first, "activation": activation, "bias": bias, "batch_first": batch_first}
        theirs = theirs_of(kind, **options).train(training)
        ours, x = from_torch(theirs), double(2, 5, 12)
        real = masks.padding([5, 3]) if padded else None
        forbidden = ~masks.causal(5) if is_causal else None
        ignored = None if real is None else ~real[:, 0, 0]
        expected = turned(theirs(turned(x, batch_first), forbidden, src_key_padding_mask=ignored), batch_first)
        options = {"is_causal": is_causal} if kind is nn.TransformerEncoderLayer else {}
        if kind is nn.TransformerEncoder:
            ours.is_causal = is_causal
        assert_same_as(expected, ours(x, real, **options), [x], theirs, ours)
        again = to_torch(ours, batch_first=batch_first)
        assert described(again) == described(theirs)
        again = turned(again(turned(x, batch_first), forbidden, src_key_padding_mask=ignored), batch_first)
        assert torch.equal(again, expected)

    @pytest.mark.parametrize("kind", [nn.TransformerDecoderLayer, nn.TransformerDecoder])
    def test_decoder(self, kind, norm_first, activation, bias, batch_first, padded, training):
        options = {"norm_first": norm_first, "activation": activation, "bias": bias, "batch_first": batch_first}
        theirs = theirs_of(kind, **options).train(training)
        ours, x, memory = from_torch(theirs), double(2, 4, 12), double(2, 5, 12)
        real, memory_real = (masks.padding([n, n - 2]) if padded else None for n in (4, 5))
        options = {"tgt_mask": ~masks.causal(4)}
        if padded:
            options |= {"tgt_key_padding_mask": ~real[:, 0, 0], "memory_key_padding_mask": ~memory_real[:, 0, 0]}
        inputs = [turned(y, batch_first) for y in (x, memory)]
        expected = turned(theirs(*inputs, **options), batch_first)
        if kind is nn.TransformerDecoderLayer:
            output = ours(x, memory, real, memory_real)
        else:
            output = ours(x, real, memory=memory, memory_mask=memory_real)
        assert_same_as(expected, output, [x, memory], theirs, ours)
        again = to_torch(ours, batch_first=batch_first)
        assert described(again) == described(theirs)
        assert torch.equal(turned(again(*inputs, **options), batch_first), expected)

    @pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch says why it won't take a short cut
    def test_encoder_and_decoder(self, norm_first, activation, bias, batch_first, padded, training):
        options = {"norm_first": norm_first, "activation": activation, "bias": bias, "batch_first": batch_first}
        theirs = theirs_of(nn.Transformer, **options).train(training)
        ours, source, target = from_torch(theirs), double(2, 5, 12), double(2, 4, 12)
        real = masks.padding([5, 3]) if padded else None
        options = {"tgt_mask": ~masks.causal(4)}
        if padded:
            options |= dict.fromkeys(("src_key_padding_mask", "memory_key_padding_mask"), ~real[:, 0, 0])
        inputs = [turned(y, batch_first) for y in (source, target)]
        expected = turned(theirs(*inputs, **options), batch_first)
        output = ours.decoder(target, memory=ours.encoder(source, real), memory_mask=real)
        assert_same_as(expected, output, [source, target], theirs, ours)
        again = to_torch(ours, batch_first=batch_first)
        assert described(again) == described(theirs)
        assert torch.equal(turned(again(*inputs, **options), batch_first), expected)


@pytest.mark.parametrize("fault", ["queries and keys exchanged", "norms exchanged", "gelu for relu", "eps"])
def test_a_conversion_that_mixes_something_up_is_found(fault, monkeypatch):
    def exchanged(module, weights, f=interop._filled):
        W = weights["in_proj.weight"]
        return f(module, weights | {"in_proj.weight": torch.cat([W[12:24], W[:12], W[24:]])})

    if fault.startswith("queries"):
        monkeypatch.setattr(interop, "_filled", exchanged)
    elif fault.startswith("norms"):
        monkeypatch.setitem(interop._ENCODER_PARTS, "norm1", "norm2")
        monkeypatch.setitem(interop._ENCODER_PARTS, "norm2", "norm1")
    elif fault.startswith("gelu"):
        monkeypatch.setattr(interop, "_activation", lambda _: "gelu")
    theirs, x = theirs_of(nn.TransformerEncoderLayer, batch_first=True), double(2, 5, 12)
    ours = from_torch(theirs)
    if fault == "eps":
        ours.norm1.eps = 1e-3
    with pytest.raises(AssertionError):
        assert_same_as(theirs(x), ours(x), [x], theirs, ours)


KINDS = [
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.Transformer,
]


class TestCopies:
    @pytest.mark.parametrize("kind", [nn.MultiheadAttention, *KINDS])
    @pytest.mark.filterwarnings("ignore:enable_nested_tensor")
    def test_share_no_memory_and_draw_no_random_number(self, kind):
        theirs = theirs_of(kind, *((12, 3) if kind is nn.MultiheadAttention else ()))
        before = copy.deepcopy(theirs.state_dict())
        state = torch.get_rng_state()
        ours = from_torch(theirs)
        back = to_torch(ours, batch_first=False)
        assert torch.equal(torch.get_rng_state(), state)
        places = [{x.untyped_storage().data_ptr() for x in module.parameters()} for module in (theirs, ours, back)]
        assert places[0].isdisjoint(places[1])
        assert places[1].isdisjoint(places[2])
        with torch.no_grad():
            for parameter in (*ours.parameters(), *back.parameters()):
                parameter.fill_(7)
        assert all(torch.equal(x, before[name]) for name, x in theirs.state_dict().items())

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.filterwarnings("ignore:enable_nested_tensor")
    def test_there_and_back_is_the_same_state_bit_by_bit(self, kind):
        theirs = theirs_of(kind, norm_first=True, activation="gelu").bfloat16().eval()
        back = to_torch(from_torch(theirs), batch_first=False)
        assert type(back) is kind
        assert list(back.state_dict()) == list(theirs.state_dict())
        assert all(x.dtype == torch.bfloat16 for x in back.parameters())
        assert all(torch.equal(x, y) for x, y in zip(back.parameters(), theirs.parameters(), strict=True))
        assert not any(module.training for module in (*back.modules(), *from_torch(theirs).modules()))

    @pytest.mark.parametrize("options", [{}, {"d_context": 7, "bias": True}, {"d_context": 7}, {"bias": True}])
    def test_back_and_there_too(self, options):
        ours = MultiHeadAttention(12, 3, dropout=0.3, **options)
        again = from_torch(to_torch(ours))
        assert repr(again) == repr(ours)
        assert list(again.state_dict()) == list(ours.state_dict())
        assert all(torch.equal(x, y) for x, y in zip(again.parameters(), ours.parameters(), strict=True))

    @pytest.mark.parametrize("kind", LAYER)
    @pytest.mark.filterwarnings("ignore:enable_nested_tensor")
    def test_a_layer_used_twice_stays_one_layer(self, kind):
        theirs = theirs_of(kind, batch_first=True)
        theirs.layers.append(theirs.layers[0])
        ours = from_torch(theirs)
        back = to_torch(ours)
        for module in (ours, back):
            assert [module.layers[0] is layer for layer in module.layers] == [True, False, True]
        assert sum(x.numel() for x in ours.parameters()) == sum(x.numel() for x in theirs.parameters())
        x = (double(2, 4, 12),) if kind is nn.TransformerEncoder else (double(2, 4, 12), double(2, 5, 12))
        ours.is_causal = False
        expected, output = theirs(*x), ours(x[0], **({} if len(x) == 1 else {"memory": x[1]}))
        assert_close(output, expected)
        assert torch.equal(back(*x), expected)

    def test_dropout_norms_and_training_come_along(self):
        theirs = nn.TransformerDecoderLayer(12, 2, 20, dropout=0.3, layer_norm_eps=0.5, norm_first=True)
        theirs.dropout.p, theirs.self_attn.dropout, theirs.multihead_attn.dropout = 0.1, 0.2, 0.4
        theirs.multihead_attn.eval()
        ours = from_torch(theirs)
        rates = ours.dropout.p, ours.feed_forward.dropout.p, ours.self_attn.dropout, ours.cross_attn.dropout
        assert rates == (0.3, 0.1, 0.2, 0.4)
        assert (ours.norm1.eps, ours.norm_first, ours.training, ours.cross_attn.training) == (0.5, True, True, False)
        back = to_torch(ours)
        rates = back.dropout1.p, back.dropout2.p, back.dropout3.p, back.dropout.p, back.self_attn.dropout
        assert (*rates, back.multihead_attn.dropout) == (0.3, 0.3, 0.3, 0.1, 0.2, 0.4)

    def test_the_vectors_of_a_whole_transformer_go_through_torchs_unchanged(self):
        config = TransformerConfig(
            11, d_model=12, num_heads=2, dim_feedforward=20, num_encoder_layers=1, num_decoder_layers=2, dropout=0.0
        )
        ours = randomized(Transformer(config).double())
        theirs, source, target = to_torch(ours), double(2, 5, 12), double(2, 4, 12)
        assert theirs.encoder.norm is None
        expected = ours.decoder(target, memory=ours.encoder(source))
        assert_close(theirs(source, target, tgt_mask=~masks.causal(4)), expected)

    @pytest.mark.filterwarnings("ignore:enable_nested_tensor")
    def test_torchs_stacks_fit_into_a_transformer_of_ours(self):
        theirs = theirs_of(nn.Transformer, batch_first=True, norm_first=True)
        pair = from_torch(theirs)
        config = TransformerConfig(
            11, d_model=12, num_heads=2, dim_feedforward=20, num_encoder_layers=2, num_decoder_layers=2, norm_first=True
        )
        model = Transformer(config).double().eval()
        model.encoder.load_state_dict(pair.encoder.state_dict())
        model.decoder.load_state_dict(pair.decoder.state_dict())
        source, target = double(2, 5, 12), double(2, 4, 12)
        expected = theirs(source, target, tgt_mask=~masks.causal(4))
        assert_close(model.decoder(target, memory=model.encoder(source)), expected)

    # https://github.com/pytorch/pytorch/issues/97111, https://github.com/pytorch/pytorch/issues/86120
    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_torchs_encoder_keeps_its_shape_and_its_numbers_on_its_fast_path(self, mode):
        ours = Encoder(TransformerConfig(d_model=12, num_heads=2, dim_feedforward=20, num_encoder_layers=2)).double().eval()
        x, real = double(2, 5, 12).detach(), masks.padding([4, 3], 5)
        with mode():
            output = to_torch(ours)(x, src_key_padding_mask=~real[:, 0, 0])
            assert_close(output, ours(x, real))


class TestMasks:
    @pytest.mark.parametrize("kind", ["boolean", "float"])
    @pytest.mark.parametrize("axes", [0, 2, 3])
    @PADDED
    def test_from_torch_means_what_it_meant_there(self, kind, axes, padded):
        theirs, x = theirs_of(nn.MultiheadAttention, 12, 3, batch_first=True), double(2, 4, 12)
        attn_mask = torch.rand((4, 4) if axes == 2 else (6, 4, 4)) < 0.4
        attn_mask[..., 0] = False
        ignored = torch.arange(4) >= torch.tensor([[4], [2]])
        if kind == "float":
            attn_mask = torch.randn(attn_mask.shape, dtype=torch.float64).masked_fill(attn_mask, -torch.inf)
            ignored = torch.zeros(2, 4, dtype=torch.float64).masked_fill(ignored, -torch.inf)
        given = {"attn_mask": attn_mask if axes else None, "key_padding_mask": ignored if padded else None}
        before = copy.deepcopy(given)
        expected, _ = theirs(x, x, x, **given)
        mask = mask_from_torch(**given, num_heads=3)
        assert_close(from_torch(theirs)(x, mask=mask)[0], expected)
        assert (mask is None) == (not axes and not padded)
        assert all(x is None or torch.equal(x, before[name]) for name, x in given.items())

    @pytest.mark.parametrize("kind", ["boolean", "float"])
    @pytest.mark.parametrize("shape", [(4, 5), (2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 1, 5), (1, 1, 4, 5)])
    def test_to_torch_means_what_it_meant_here(self, kind, shape):
        ours, x, context = MultiHeadAttention(12, 3).double(), double(2, 4, 12), double(2, 5, 12)
        mask = torch.rand(shape) < 0.6
        mask[..., 0] = True
        if kind == "float":
            mask = torch.randn(shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
        attn_mask = mask_to_torch(mask, (2, 3, 4, 5))
        expected, _ = ours(x, context, mask=mask)
        assert_close(to_torch(ours)(x, context, context, attn_mask=attn_mask)[0], expected)
        assert torch.equal(mask_from_torch(attn_mask, num_heads=3).expand(2, 3, 4, 5), mask.expand(2, 3, 4, 5))

    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            (lambda: mask_from_torch(torch.ones(4, 4)[None].int()), TypeError, "True = ignore.* got torch.int32"),
            (lambda: mask_from_torch(torch.ones(4)), ValueError, r"\(L, S\) or \(B · H, L, S\), got \(4,\)"),
            (lambda: mask_from_torch(torch.ones(6, 4, 4)), ValueError, r"\(6, 4, 4\) is \(B · H, L, S\).*got None"),
            (lambda: mask_from_torch(torch.ones(6, 4, 4), num_heads=4), ValueError, "divide B · H, got 4"),
            (lambda: mask_from_torch(torch.ones(6, 4, 4), num_heads=-2), ValueError, "divide B · H, got -2"),
            (
                lambda: mask_from_torch(torch.ones(6, 4, 4), torch.ones(2, 4), num_heads=2),
                ValueError,
                "3 sequences and .* of 2",
            ),
            (
                lambda: mask_from_torch(torch.ones(6, 4, 4), torch.ones(1, 4), num_heads=2),
                ValueError,
                "3 sequences and .* of 1",
            ),
            (lambda: mask_from_torch(torch.ones(4, 4), torch.ones(2, 5)), ValueError, "4 keys and key_padding_mask 5"),
            (lambda: mask_from_torch(None, torch.ones(4)), ValueError, r"\(B, S\), got \(4,\)"),
            (lambda: mask_to_torch(torch.ones(3, 4, 4) > 0, (3, 2, 4, 4)), ValueError, "3-D mask is ambiguous"),
        ],
    )
    def test_errors_name_what_does_not_fit(self, call, error, message):
        with pytest.raises(error, match=message):
            call()


def changed(module: nn.Module, **attributes) -> nn.Module:
    for name, value in attributes.items():
        owner, _, leaf = name.rpartition("__")
        setattr(module.get_submodule(owner.replace("__", ".")), leaf, value)
    return module


def mixed(stack: nn.Module) -> nn.Module:
    stack.layers[1] = nn.TransformerEncoderLayer(**SIZES)
    return stack


def sharing(stack: nn.Module) -> nn.Module:
    """Two layers with one attention."""
    stack.layers[1].self_attn = stack.layers[0].self_attn
    return stack


def tied(layer: nn.Module) -> nn.Module:
    """Two parts with one weight."""
    network = getattr(layer, "feed_forward", layer)
    network.linear2.weight = network.linear1.weight
    return layer


class TestWhatCannotBeCarriedOver:
    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: nn.MultiheadAttention(12, 3, add_bias_kv=True), "add_bias_kv.*MultiHeadAttention has no"),
            (lambda: nn.MultiheadAttention(12, 3, add_zero_attn=True), "add_zero_attn"),
            (lambda: nn.MultiheadAttention(12, 3, kdim=7, vdim=8), "kdim 7, vdim 8"),
            (lambda: nn.TransformerEncoderLayer(12, 3, activation=F.silu), "activation .*silu.*EncoderLayer has no"),
            (lambda: nn.TransformerDecoderLayer(12, 3, activation=nn.GELU("tanh")), "activation GELU.*tanh.*DecoderLayer"),
            (lambda: changed(nn.TransformerEncoderLayer(12, 3), dropout2__p=0.3), r"different dropouts.*\(0.1, 0.3\)"),
            (lambda: nn.Transformer(12, 3, 1, 1, activation=torch.tanh), "activation .*tanh"),
            (lambda: mixed(theirs_of(nn.TransformerDecoder)), r"kinds \(TransformerDecoderLayer, TransformerEncoderLayer\)"),
            (lambda: sharing(theirs_of(nn.TransformerEncoder)), "weights that parts share, [0-9]+ for [0-9]+: Stack"),
            (lambda: tied(nn.TransformerEncoderLayer(12, 3, 12)), "weights that parts share"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:enable_nested_tensor")
    def test_from_torch(self, build, message):
        with pytest.raises(ValueError, match=message):
            from_torch(build())

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: MultiHeadAttention(12, 3, num_kv_heads=1), "1 key heads for 3 query heads.*nn.MultiheadAttention"),
            (lambda: MultiHeadAttention(12, 3, d_k=5), "d_k = 5 and d_v = 4 where d_model / num_heads = 4"),
            (lambda: MultiHeadAttention(10, 4, d_k=2, d_v=2), "d_k = 2 and d_v = 2 where d_model / num_heads = 2.5"),
            (lambda: MultiHeadAttention(12, 3, rotary=RotaryEncoding(4)), "rotary"),
            (lambda: MultiHeadAttention(12, 3, alibi=True), "ALiBi"),
            (lambda: EncoderLayer(12, 3, activation="swiglu"), "gated.*nn.TransformerEncoderLayer"),
            (lambda: DecoderLayer(12, 3, d_memory=7), "memory of width 7 for d_model = 12.*nn.TransformerDecoderLayer"),
            (lambda: Stack([EncoderLayer(12, 3)], alibi=3), "ALiBi: nn.TransformerEncoder"),
            (lambda: Decoder(TransformerConfig(d_model=12, num_heads=3, positional="rotary")), "rotary"),
            (lambda: Transformer(TransformerConfig(11, d_model=12, num_heads=3, positional="alibi")), "ALiBi"),
            (lambda: changed(Stack([EncoderLayer(12, 3)]), layers=nn.ModuleList()), "without layers"),
            (
                lambda: Stack([EncoderLayer(12, 3), DecoderLayer(12, 3)]),
                r"kinds \(DecoderLayer, EncoderLayer\): a stack has no",
            ),
            (
                lambda: Stack([DecoderLayer(12, 3), EncoderLayer(12, 3)]),
                r"kinds \(DecoderLayer, EncoderLayer\): a stack has no",
            ),
            (
                lambda: nn.ModuleDict({"encoder": Stack([DecoderLayer(12, 3)]), "decoder": Stack([EncoderLayer(12, 3)])}),
                "encoder that becomes a TransformerDecoder beside a decoder that becomes a TransformerEncoder",
            ),
            (
                lambda: nn.ModuleDict({"encoder": MultiHeadAttention(12, 3), "decoder": Stack([DecoderLayer(12, 3)])}),
                "encoder that becomes a MultiheadAttention",
            ),
            (lambda: sharing(Stack([EncoderLayer(12, 3), EncoderLayer(12, 3)])), "weights that parts share, [0-9]+ for [0-9]+"),
            (lambda: tied(EncoderLayer(12, 3, 12)), "weights that parts share, [0-9]+ for [0-9]+: TransformerEncoderLayer"),
            (lambda: nn.ModuleDict({"encoder": Stack([EncoderLayer(12, 3)])}), '"encoder" and a "decoder", got encoder'),
        ],
    )
    def test_to_torch(self, build, message):
        with pytest.raises(ValueError, match=message):
            to_torch(build())

    def test_other_modules_and_subclasses_are_refused(self):
        class Own(nn.MultiheadAttention):
            pass

        for module in (nn.Linear(2, 2), Own(12, 3), changed(nn.TransformerEncoderLayer(12, 3), self_attn=Own(12, 3))):
            with pytest.raises(TypeError, match=r"cannot convert (Linear|Own), only MultiheadAttention, .*no subclass"):
                from_torch(module)
        with pytest.raises(TypeError, match="cannot convert LayerNorm, only MultiHeadAttention, EncoderLayer"):
            to_torch(nn.LayerNorm(3))
