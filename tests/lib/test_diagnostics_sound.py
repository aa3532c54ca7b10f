"""No false alarm on sound modules: ours, torch's, x-transformers' and Hugging Face's. And what is found in torch's is so.

All are tiny, random and built from configurations: nothing is downloaded.
"""

import os

import pytest
import torch
from torch import nn

from lib.cache import KVCache
from lib.diagnostics import diagnose
from lib.efficient.linear import linear_attention
from lib.layers import EncoderLayer
from lib.multihead import MultiHeadAttention
from lib.positional import RotaryEncoding
from lib.transformer import DecoderLM, EncoderTagger, TransformerConfig
from tests.lib import checks

os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
V, D, H = 19, 32, 4
POSITIONAL = ["sinusoidal", "learned", "rotary", "alibi"]


@pytest.fixture
def x(device) -> torch.Tensor:
    return torch.randn(3, 8, D).to(device)


@pytest.fixture
def tokens(device) -> torch.Tensor:
    return torch.randint(0, V, (3, 8)).to(device)


def assert_sound(report, *could_not_run: str) -> None:
    """Nothing failed, and all but the named checks ran in every mode."""
    report.raise_if_failed()
    assert {finding.check for finding in report.could_not_run} == set(could_not_run), str(report)


class TestOurs:
    @staticmethod
    def masked(m, x, keep):
        return m(x, None if keep is None else keep[:, None, None, :])

    @staticmethod
    def step(m, x, cache):
        cache = m.new_cache(64) if cache is None else cache
        return m(x, cache=cache), cache

    @pytest.mark.parametrize(
        "options",
        [{}, {"num_kv_heads": 1, "bias": True}, {"rotary": RotaryEncoding(8)}, {"alibi": True}, {"d_k": 5, "d_v": 12}],
        ids=["plain", "multi-query", "rotary", "alibi", "other widths"],
    )
    @pytest.mark.parametrize("causal", [True, False])
    def test_attention(self, options, causal, x, device):
        positional = bool({"rotary", "alibi"} & options.keys())
        module = MultiHeadAttention(D, H, dropout=0.2, **options).to(device)

        def call(m, x, keep):
            return m(x, mask=None if keep is None else keep[:, None, None, :], is_causal=causal)

        def step(m, x, cache):
            cache = KVCache(32) if cache is None else cache
            return m(x, is_causal=True, cache=cache)[0], cache

        report = diagnose(module, x, call, causal, positional, step if causal else None)
        assert_sound(report, *(([] if positional else [checks.ORDER]) if causal else [checks.FUTURE, checks.STEPS]))

    @pytest.mark.parametrize("norm_first", [True, False])
    def test_a_layer(self, norm_first, x, device):
        report = diagnose(EncoderLayer(D, H, 64, norm_first=norm_first).to(device), x, self.masked, causal=False)
        assert_sound(report, checks.FUTURE, checks.STEPS)

    @pytest.mark.parametrize("positional", POSITIONAL)
    def test_a_language_model(self, positional, tokens, device):
        config = TransformerConfig(V, d_model=D, num_heads=H, num_decoder_layers=2, dim_feedforward=64, positional=positional)
        report = diagnose(DecoderLM(config).to(device), tokens, self.masked, True, True, self.step)
        assert_sound(report)

    @pytest.mark.parametrize("skip_padding", [True, False])
    def test_a_tagger(self, skip_padding, tokens, device):
        config = TransformerConfig(
            V, d_model=D, num_heads=H, num_encoder_layers=2, dim_feedforward=64, skip_padding=skip_padding
        )
        report = diagnose(EncoderTagger(config, 5).to(device), tokens, self.masked, causal=False, positional=True)
        assert_sound(report, checks.FUTURE, checks.STEPS)

    def test_linear_attention_whose_weights_are_never_formed(self, x, device):
        class Linear(MultiHeadAttention):
            def forward(self, x, keep=None):
                q, k, v = self._project_one(x, None)
                mask = None if keep is None else keep[:, None, None, :]
                y = linear_attention(q, k, v, attn_mask=mask, is_causal=True)
                return self.out_proj(y.transpose(1, 2).flatten(2))

        report = diagnose(Linear(D, H).to(device), x, lambda m, x, keep: m(x, keep))
        assert_sound(report, checks.ORDER, checks.STEPS, checks.SCORES, checks.ALIVE)


def of_torch(keep):
    return None if keep is None else ~keep


class TestTorchs:
    @pytest.fixture
    def slow_path(self):
        """Torch's fast path is a finding of its own, see below."""
        torch.backends.mha.set_fastpath_enabled(False)
        yield
        torch.backends.mha.set_fastpath_enabled(True)

    @staticmethod
    def attention(m, x, keep, need_weights=False):
        return m(x, x, x, key_padding_mask=of_torch(keep), need_weights=need_weights)

    @staticmethod
    def layer(m, x, keep):
        return m(x, src_key_padding_mask=of_torch(keep))

    @staticmethod
    def causal(m, x, keep):
        future = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)
        return m(x, future, src_key_padding_mask=of_torch(keep))

    @pytest.mark.usefixtures("slow_path")
    def test_attention_without_weights(self, x, device):
        module = nn.MultiheadAttention(D, H, dropout=0.2, batch_first=True).to(device)
        assert_sound(diagnose(module, x, self.attention, causal=False), checks.FUTURE, checks.STEPS)

    @pytest.mark.usefixtures("slow_path")
    @pytest.mark.parametrize("norm_first", [True, False])
    def test_a_layer(self, norm_first, x, device):
        module = nn.TransformerEncoderLayer(D, H, 64, batch_first=True, norm_first=norm_first).to(device)
        assert_sound(diagnose(module, x, self.layer, causal=False), checks.FUTURE, checks.STEPS)
        assert_sound(diagnose(module, x, self.causal), checks.ORDER, checks.STEPS)

    @pytest.mark.usefixtures("slow_path")
    def test_a_stack(self, x, device):
        layer = nn.TransformerEncoderLayer(D, H, 64, batch_first=True)
        module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
        assert_sound(diagnose(module, x, self.layer, causal=False), checks.FUTURE, checks.STEPS)

    def test_padding_alone_makes_nan_on_the_fast_path(self, x, device):
        """pytorch#41508 and others: still so in torch 2.13, in eval without gradients."""
        for module, call in (
            (nn.MultiheadAttention(D, H, batch_first=True), self.attention),
            (nn.TransformerEncoderLayer(D, H, 64, batch_first=True), self.layer),
        ):
            report = diagnose(module.to(device), x, call, causal=False)
            assert [finding.check for finding in report.failed] == [checks.EMPTY]
            assert {one.where for one in report[checks.EMPTY].measurements if not one.passed} == {"eval, no gradients"}

    @pytest.mark.usefixtures("slow_path")
    def test_padding_alone_makes_nan_where_weights_are_asked_for(self, x, device):
        module = nn.MultiheadAttention(D, H, batch_first=True).to(device)
        report = diagnose(module, x, lambda m, x, keep: self.attention(m, x, keep, need_weights=True), causal=False)
        assert [finding.check for finding in report.failed] == [checks.EMPTY]
        assert len({one.where for one in report[checks.EMPTY].measurements if not one.passed}) == 4

    @pytest.mark.usefixtures("slow_path")
    def test_the_wrong_axes_are_found(self, x, device):
        report = diagnose(nn.MultiheadAttention(D, H).to(device), x, lambda m, x: m(x, x, x, need_weights=False), causal=False)
        assert checks.BATCH in {finding.check for finding in report.failed}


class TestOthers:
    @staticmethod
    def hugging_face(m, x, keep):
        return m(x, attention_mask=None if keep is None else keep.long())

    @staticmethod
    def step(m, x, cache):
        answer = m(x, cache=cache, use_cache=True)
        return answer[0], answer.cache

    @pytest.mark.parametrize("implementation", ["eager", "sdpa"])
    @pytest.mark.parametrize("name", ["Bert", "GPT2", "Llama"])
    def test_models_of_hugging_face(self, name, implementation, tokens, device):
        transformers = pytest.importorskip("transformers")
        shared = {"vocab_size": V, "bos_token_id": 0, "eos_token_id": 0, "attn_implementation": implementation}
        sizes = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 64, **shared}
        make = {
            "Bert": lambda: transformers.BertModel(transformers.BertConfig(**sizes)),
            "GPT2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=D, n_layer=2, n_head=H, **shared)),
            "Llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **sizes)),
        }
        causal = name != "Bert"
        report = diagnose(make[name]().to(device), tokens, self.hugging_face, causal, True, self.step if causal else None)
        assert_sound(report, *([] if causal else [checks.FUTURE, checks.STEPS]))

    def test_a_pooler_that_was_left_out_is_no_dead_projection(self, tokens, device):
        transformers = pytest.importorskip("transformers")
        sizes = {"hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": H, "intermediate_size": 64}
        model = transformers.BertModel(transformers.BertConfig(vocab_size=V, **sizes)).to(device)
        report = diagnose(model, tokens, lambda m, x, keep: self.hugging_face(m, x, keep)[0], causal=False, positional=True)
        assert_sound(report, checks.FUTURE, checks.STEPS)

    def test_a_layer_of_hugging_face_alone(self, x, device):
        transformers = pytest.importorskip("transformers")
        sizes = {"hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": H, "intermediate_size": 64}
        config = transformers.BertConfig(vocab_size=V, attn_implementation="eager", **sizes)
        layer = transformers.BertModel(config).encoder.layer[0].to(device)

        def call(m, x, keep):
            mask = (
                None
                if keep is None
                else x.new_zeros(len(x), 1, 1, x.size(1)).masked_fill(~keep[:, None, None, :], torch.finfo(x.dtype).min)
            )
            return m(x, mask)

        assert_sound(diagnose(layer, x, call, causal=False), checks.FUTURE, checks.STEPS)

    @pytest.mark.parametrize("flash", [True, False])
    @pytest.mark.parametrize("options", [{}, {"rotary_pos_emb": True}, {"alibi_pos_bias": True}], ids=["", "rotary", "alibi"])
    def test_a_decoder_of_x_transformers(self, flash, options, tokens, device):
        package = pytest.importorskip("x_transformers")
        layers = package.Decoder(dim=D, depth=2, heads=H, attn_flash=flash, attn_dropout=0.1, ff_dropout=0.1, **options)
        model = package.TransformerWrapper(num_tokens=V, max_seq_len=512, attn_layers=layers).to(device)

        def step(m, x, state):  # theirs wants the whole sequence again, and computes its end
            seen, cache = (x, None) if state is None else (torch.cat([state[0], x], dim=1), state[1])
            y, cache = m(seen, cache=cache, return_intermediates=True)
            return y[:, -x.size(1) :], (seen, cache)

        assert_sound(diagnose(model, tokens, lambda m, x, keep: m(x, mask=keep), True, True, step))

    @pytest.mark.parametrize("flash", [True, False])
    def test_an_encoder_of_x_transformers(self, flash, x, device):
        package = pytest.importorskip("x_transformers")
        model = package.Encoder(dim=D, depth=2, heads=H, attn_flash=flash, attn_dropout=0.1, ff_dropout=0.1).to(device)
        assert_sound(diagnose(model, x, lambda m, x, keep: m(x, mask=keep), causal=False), checks.FUTURE, checks.STEPS)
