"""Our attention inside Hugging Face's models, and the function that they call.

The models are tiny, random and built from configurations: nothing is downloaded. Without `transformers` they are skipped.
"""

import os
import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from lib import interop_transformers, masks
from lib.attention import BACKENDS
from lib.interop_transformers import attention_forward, register
from tests.lib.reference import assert_accurate, assert_close, attention_by_loops, random_inputs

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
V = 19


class Layer(nn.Module):
    """What a model hands over as itself."""

    is_causal = True


class TestTheFunction:
    @pytest.mark.parametrize("masked", ["", "boolean", "float"])
    @pytest.mark.parametrize("H_kv", [4, 2, 1])
    @pytest.mark.parametrize("biased", [False, True], ids=["", "bias"])
    @pytest.mark.parametrize("need_weights", [False, True], ids=["", "weights"])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    def test_is_attention_with_the_axes_of_their_models(self, masked, H_kv, biased, need_weights, dtype, backend, device):
        inputs = random_inputs(dtype, device, H=4, H_kv=H_kv, L=5, S=5)
        allowed = torch.rand(2, 1, 5, 5) < 0.6
        allowed[0, 0, 2] = False
        mask = {"": None, "boolean": allowed, "float": torch.randn(2, 1, 5, 5, dtype=dtype).masked_fill(~allowed, -torch.inf)}
        mask = None if mask[masked] is None else mask[masked].to(device)
        bias = torch.randn(1, 4, 5, 5).to(device, dtype) if biased else None
        output, weights = attention_forward(
            Layer(),
            *inputs,
            mask,
            scaling=0.7,
            position_bias=bias,
            output_attentions=need_weights,
            backend=backend,
        )
        exact = masks.combine(mask, bias, None if masked else masks.causal(5, device=device))
        assert_accurate(output.transpose(1, 2), inputs, exact, scale=0.7)
        assert (weights is not None) == need_weights
        if need_weights:
            assert_close(weights, attention_by_loops(*inputs, exact, scale=0.7).weights)

    @pytest.mark.parametrize("given", [None, True, False])
    @pytest.mark.parametrize("of_layer", [None, True, False])
    def test_is_causal_is_the_calls_then_the_layers_then_true(self, given, of_layer):
        layer, inputs = nn.Identity(), random_inputs(torch.float64)
        if of_layer is not None:
            layer.is_causal = of_layer
        output, _ = attention_forward(layer, *inputs, None, is_causal=given)
        is_causal = {None: of_layer is not False, True: True, False: False}[given]
        assert_close(output.transpose(1, 2), attention_by_loops(*inputs, is_causal=is_causal).output)

    def test_a_step_of_decoding_sees_every_key_and_a_first_pass_none_of_the_room_behind_it(self):
        step = random_inputs(torch.float64, L=1, S=6)
        assert_close(attention_forward(Layer(), *step, None)[0].transpose(1, 2), attention_by_loops(*step).output)
        first = random_inputs(torch.float64, L=3, S=6)  # a static cache has room for what is to come
        expected = attention_by_loops(*first, masks.causal(3, 6, offset=0)).output
        assert_close(attention_forward(Layer(), *first, None)[0].transpose(1, 2), expected)

    def test_a_mask_of_theirs_takes_the_place_of_causality(self):
        inputs, mask = random_inputs(torch.float64), torch.rand(2, 1, 5, 5) < 0.8
        output, _ = attention_forward(Layer(), *inputs, mask, is_causal=True)
        assert_close(output.transpose(1, 2), attention_by_loops(*inputs, mask).output)

    def test_dropout_falls_in_training_alone_and_not_on_the_weights_shown(self):
        inputs, layer = random_inputs(torch.float64), Layer()
        for training in (True, False):
            layer.train(training)
            one, other = (attention_forward(layer, *inputs, None, dropout=0.5, need_weights=True) for _ in range(2))
            assert torch.equal(one[0], other[0]) != training
            assert_close(one[1].sum(-1), torch.ones(2, 2, 5, dtype=torch.float64))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"softcap": 50.0}, r"Layer needs scores squeezed by a tanh \(softcap\).*attn_implementation='eager'"),
            ({"s_aux": torch.zeros(2)}, r"a softmax with a sink \(s_aux\)"),
            ({"sinks": torch.zeros(2)}, r"a softmax with a sink \(sinks\)"),
            ({"indices": torch.zeros(2)}, r"a choice of keys for each query \(indices\)"),
            ({"block_indices": torch.zeros(2)}, "a choice of blocks"),
            ({"sliding_window": 4}, r"a window of 4 keys, but 5 keys came without a mask.*Use register\(\)"),
            ({"backend": "flash"}, "must be one of auto, eager, sdpa, tiled, got 'flash'"),
        ],
    )
    def test_what_it_cannot_do_is_an_error(self, options, message):
        with pytest.raises(ValueError, match=message):
            attention_forward(Layer(), *random_inputs(torch.float64), None, **options)

    @pytest.mark.parametrize("biased", [False, True], ids=["", "bias"])
    def test_a_mask_of_zeros_and_ones_is_not_taken_for_a_bias(self, biased):
        bias = torch.zeros(1, 2, 5, 5, dtype=torch.float64) if biased else None
        with pytest.raises(TypeError, match=r"got torch.int64.*mask\.bool\(\)"):
            attention_forward(Layer(), *random_inputs(torch.float64), torch.ones(2, 1, 1, 5).long(), position_bias=bias)

    def test_what_has_no_say_changes_nothing(self):
        inputs = random_inputs(torch.float64)
        expected, _ = attention_forward(Layer(), *inputs, None)
        options = {"softcap": None, "s_aux": None, "position_ids": torch.arange(5), "use_cache": True, "sliding_window": 5}
        assert torch.equal(attention_forward(Layer(), *inputs, None, **options)[0], expected)


class TestRegister:
    @pytest.mark.parametrize("found", [None, ModuleType("transformers")], ids=["missing", "too old"])
    def test_says_what_to_install(self, found, monkeypatch):
        monkeypatch.setitem(sys.modules, "transformers", found)
        monkeypatch.delitem(sys.modules, "transformers.masking_utils", raising=False)
        with pytest.raises(ImportError, match='pip install "transformers>=5"'):
            register()

    def test_an_unknown_backend_is_an_error_at_once(self):
        with pytest.raises(ValueError, match="backend must be one of auto, eager, sdpa, tiled, got 'flash'"):
            register(backend="flash")

    @pytest.mark.parametrize("name", ["eager", "sdpa", "flash_attention_2"])
    def test_leaves_the_attentions_of_transformers_alone(self, name, hf):
        with pytest.raises(ValueError, match=f"another attention by the name '{name}'"):
            register(name)

    def test_may_be_called_again(self, hf):
        assert register() == register() == "measured"


@pytest.fixture(scope="module")
def hf() -> ModuleType:
    """The package, with ours registered: "measured", and "measured weights", which always forms them."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: it is in requirements-dev.txt")
    transformers.logging.set_verbosity_error()
    register()
    register("measured weights", need_weights=True)
    for backend in BACKENDS:
        register(f"measured {backend}", backend=backend)
    return transformers


SIZES = {"vocab_size": V, "num_hidden_layers": 2, "hidden_size": 24, "intermediate_size": 32, "bos_token_id": 1}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
SPECIAL = {"pad_token_id": 0, "eos_token_id": None, "decoder_start_token_id": 0}


def bert(hf, **options):
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return hf.BertModel(hf.BertConfig(**SIZES, **SPECIAL, num_attention_heads=4, **dropouts, **options))


def gpt2(hf, **options):
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    sizes = {"vocab_size": V, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 32, "bos_token_id": 1}
    return hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, **SPECIAL, **dropouts, **options))


def llama(hf, **options):
    return hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES, **SPECIAL, **HEADS, **options))


def mistral(hf, **options):
    return hf.MistralForCausalLM(hf.MistralConfig(**SIZES, **SPECIAL, **HEADS, sliding_window=3, **options))


def t5(hf, **options):
    sizes = {"vocab_size": V, "d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    return hf.T5ForConditionalGeneration(hf.T5Config(**sizes, **SPECIAL, dropout_rate=0.0, **options))


MODELS = {"BERT": bert, "GPT-2": gpt2, "Llama": llama, "Mistral": mistral, "T5": t5}
EVERY = pytest.mark.parametrize("kind", MODELS)
# Bounds of a model of two layers. Llama and Mistral compute a norm and eager's softmax in float32 whatever they are given.
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12}
EVERY_IN_ITS_DTYPES = pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, torch.float32) for kind in MODELS), *((kind, torch.float64) for kind in ("BERT", "GPT-2", "T5"))],
)
PADDED = pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])


def build(hf, kind: str, dtype=torch.float32) -> nn.Module:
    """A model with weights so large that attention is far from even: an attention that is wrong must show."""
    model = MODELS[kind](hf)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=1.0 if "relative" in name else parameter.size(1) ** -0.5)
    if dtype == torch.float64 and kind == "T5":  # T5's own norm squares in float32
        for name, module in list(model.named_modules()):
            if type(module).__name__ == "T5LayerNorm":
                model.set_submodule(name, nn.RMSNorm(24, module.variance_epsilon))
    return model.to(dtype)


def batch(kind: str, padded: bool, S: int = 7) -> dict[str, torch.Tensor]:
    """Tokens, and where some are padding: on the right for encoders, on the left for decoders."""
    real = torch.arange(S) < torch.tensor([[S], [S - 3 if padded else S]])
    real = real if kind in ("BERT", "T5") else real.flip(1)
    inputs = {"input_ids": torch.randint(2, V, (2, S)) * real, "attention_mask": real.long()}
    return inputs | ({"decoder_input_ids": torch.randint(2, V, (2, 5))} if kind == "T5" else {})


def run(model: nn.Module, attention: str, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Outputs, weights shown, and gradients, each by its name. What belongs to padding means nothing and is 0 here."""
    real = {"encoder": inputs["attention_mask"].bool()}
    real["decoder"] = torch.ones(2, 5, dtype=torch.bool) if "decoder_input_ids" in inputs else real["encoder"]
    model.set_attn_implementation(attention)
    model.zero_grad()
    answer = model(**inputs, output_attentions=True)
    found = {"output": answer[0].where(real["decoder"][..., None], 0)}
    (found["output"] * torch.linspace(-1, 1, found["output"].numel()).view_as(found["output"])).sum().backward()
    found |= {f"gradient of {name}": p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    for name, layers in answer.items():
        if "attentions" in name:
            rows = real["encoder" if "encoder" in name else "decoder"][:, None, :, None]
            found |= {f"{name} {i}": x.where(rows, 0) for i, x in enumerate(layers or ())}
    return found


def check_against_eager(model: nn.Module, kind: str, padded: bool, attention: str) -> None:
    inputs, bound = batch(kind, padded), BOUNDS[model.dtype]
    expected, found = run(model, "eager", inputs), run(model, attention, inputs)
    if attention != "measured weights":  # GPT-2 does not ask for them
        expected = {name: x for name, x in expected.items() if name in found}
    assert found.keys() == expected.keys()
    for name, x in found.items():
        assert_close(x, expected[name], bound)


class TestModels:
    @EVERY_IN_ITS_DTYPES
    @PADDED
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    def test_outputs_weights_and_gradients_are_those_of_eager(self, kind, dtype, padded, training, hf):
        check_against_eager(build(hf, kind, dtype).train(training), kind, padded, "measured weights")

    @EVERY
    @PADDED
    @pytest.mark.parametrize("of", BACKENDS)
    def test_on_every_backend(self, kind, padded, of, hf, monkeypatch):
        model, asked = build(hf, kind), []
        monkeypatch.setattr(
            interop_transformers,
            "scaled_dot_product_attention",
            lambda *args, f=interop_transformers.scaled_dot_product_attention, **options: (
                asked.append((options["backend"], options["need_weights"])) or f(*args, **options)
            ),
        )
        inputs = batch(kind, padded)
        real = torch.ones(2, 5, dtype=torch.bool) if kind == "T5" else inputs["attention_mask"].bool()
        with torch.no_grad():
            expected, output = (
                model.set_attn_implementation(name) or model(**inputs)[0].where(real[..., None], 0)
                for name in ("eager", f"measured {of}")
            )
        assert_close(output, expected, BOUNDS[torch.float32])
        assert set(asked) == {(of, False)}
        assert len(asked) == (6 if kind == "T5" else 2)

    @pytest.mark.parametrize(
        ("kind", "fault"),
        [(kind, fault) for kind in MODELS for fault in ("scale", "mask", "order of heads")] + [("T5", "bias")],
    )
    def test_an_attention_that_is_wrong_is_found(self, kind, fault, hf):
        faults = {None}

        def wrong(module, query, key, value, attention_mask, scaling, position_bias=None, **options):
            if "scale" in faults:
                scaling = scaling * 1.001
            if "mask" in faults:
                attention_mask, options = None, options | {"is_causal": False, "sliding_window": None}
            if "bias" in faults:
                position_bias = None
            if "order of heads" in faults:
                value = value.flip(1)
            options |= {"position_bias": position_bias, "need_weights": True}
            return attention_forward(module, query, key, value, attention_mask, scaling, **options)

        hf.AttentionInterface.register("wrong", wrong)
        hf.AttentionMaskInterface.register("wrong", hf.masking_utils.sdpa_mask)
        model = build(hf, kind).eval()
        check_against_eager(model, kind, True, "wrong")
        faults.add(fault)
        with pytest.raises(AssertionError, match="away"):
            check_against_eager(model, kind, True, "wrong")

    @pytest.mark.parametrize("kind", ["BERT", "Llama", "T5"])
    def test_shows_weights_where_it_is_asked_to(self, kind, hf):
        model, inputs = build(hf, kind).eval(), batch(kind, False)
        model.set_attn_implementation("measured")
        shown = {name: x for name, x in model(**inputs, output_attentions=True).items() if "attentions" in name and x}
        assert len(shown) == (3 if kind == "T5" else 1)
        for layers in shown.values():
            assert len(layers) == 2
            assert all(torch.allclose(x.sum(-1), torch.ones(())) for x in layers)

    @pytest.mark.parametrize(
        ("kind", "options", "message"),
        [
            ("Gemma2", {"head_dim": 6, "attn_logit_softcapping": 50.0}, r"Gemma2Attention needs scores squeezed.*\(softcap\)"),
            ("GptOss", {"head_dim": 6, "num_local_experts": 2}, r"GptOssAttention needs a softmax with a sink \(s_aux\)"),
        ],
    )
    def test_models_with_another_attention_are_refused(self, kind, options, message, hf):
        config = getattr(hf, f"{kind}Config")(**SIZES, **SPECIAL, **HEADS, **options)
        model = getattr(hf, f"{kind}ForCausalLM")(config).eval()
        model.set_attn_implementation("measured")
        with pytest.raises(ValueError, match=message):
            model(torch.randint(2, V, (1, 4)))


DECODERS = pytest.mark.parametrize("kind", ["GPT-2", "Llama", "Mistral"])


class TestCaches:
    @DECODERS
    @PADDED
    @pytest.mark.parametrize("lengths", [[6, 1, 1, 1], [4, 3, 2], [1] * 9], ids=str)
    @pytest.mark.parametrize("static", [False, True], ids=["growing", "static"])
    def test_any_split_of_a_sequence_is_the_whole(self, kind, padded, lengths, static, hf):
        model, inputs = build(hf, kind).eval(), batch(kind, padded, 9)
        real = inputs["attention_mask"]
        positions = (real.cumsum(1) - 1).clamp(min=0)
        cache = hf.StaticCache(config=model.config, max_cache_len=12) if static else hf.DynamicCache(config=model.config)
        with torch.no_grad():
            model.set_attn_implementation("eager")
            expected = model(**inputs, position_ids=positions).logits
            model.set_attn_implementation("measured")
            parts, start = [], 0
            for length in lengths:
                now = slice(start, start + length)
                part = model(
                    inputs["input_ids"][:, now],
                    attention_mask=real[:, : now.stop],
                    position_ids=positions[:, now],
                    cache=cache,
                    use_cache=True,
                )
                parts, start = [*parts, part.logits], now.stop
        output = torch.cat(parts, dim=1)
        assert_close(*(x.where(real[..., None].bool(), 0) for x in (output, expected)), BOUNDS[torch.float32])

    @pytest.mark.parametrize("kind", ["GPT-2", "Llama", "Mistral", "T5"])
    @PADDED
    @pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"num_beams": 3}], ids=["cache", "no cache", "beams"])
    def test_generates_the_same_tokens(self, kind, padded, options, hf):
        model, inputs = build(hf, kind).eval(), batch(kind, padded)
        inputs.pop("decoder_input_ids", None)
        answers = []
        for name in ("eager", "measured"):
            model.set_attn_implementation(name)
            answers.append(model.generate(**inputs, max_new_tokens=12, do_sample=False, no_repeat_ngram_size=2, **options))
        assert torch.equal(*answers)
        new = answers[0][:, 1 if kind == "T5" else 7 :]
        assert new.size(1) == 12
        assert len(set(new.flatten().tolist())) > 3, "a test of repeated tokens would prove little"
