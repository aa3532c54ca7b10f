"""The models: the paper's count of parameters, torch's Transformer under copied weights, positions, padding, caches."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lib import masks
from lib.generation import left_pad
from lib.positional import SinusoidalEncoding, positions_from_padding
from lib.stacks import POSITIONAL, Embedding
from lib.transformer import Decoder, DecoderLM, Encoder, EncoderClassifier, EncoderTagger, Transformer, TransformerConfig
from tests.lib.reference import assert_close
from tests.lib.test_layers import assert_same_gradients, randomized, renamed

V = 11


def config(**options) -> TransformerConfig:
    sizes = {
        "d_model": 12,
        "num_heads": 3,
        "dim_feedforward": 20,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "max_len": 16,
    }
    return TransformerConfig(V, **{**sizes, **options})


def build(kind, *args, **options) -> nn.Module:
    """A model in float64, in eval mode."""
    return randomized(kind(config(**options), *args).double()).eval()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(V, shape)


def parameters(module: nn.Module | None) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class TestConfig:
    # Vaswani et al. 2017, table 3: N = 6, d_model = 512, d_ff = 2048, h = 8, and 65 · 10⁶ parameters
    def test_the_base_model_has_the_papers_parameters_line_by_line(self):
        with torch.device("meta"):
            model = Transformer(TransformerConfig())
        d, d_ff, vocabulary = 512, 2048, 37000
        projections = 4 * d * d + 4 * d  # W_q, W_k, W_v, W_o, and a bias each
        feed_forward = d * d_ff + d_ff + d_ff * d + d
        norm = 2 * d
        encoder_layer, decoder_layer = model.encoder.layers[0], model.decoder.layers[0]
        assert parameters(model.source_embedding) == vocabulary * d == 18_944_000
        assert parameters(encoder_layer.self_attn) == parameters(decoder_layer.cross_attn) == projections == 1_050_624
        assert parameters(encoder_layer.feed_forward) == feed_forward == 2_099_712
        assert parameters(encoder_layer) == projections + feed_forward + 2 * norm == 3_152_384
        assert parameters(decoder_layer) == 2 * projections + feed_forward + 3 * norm == 4_204_032
        assert parameters(model) == 18_944_000 + 6 * 3_152_384 + 6 * 4_204_032 == 63_082_496
        assert round(parameters(model) / 65e6, 1) == 1.0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"positional": "rope"}, "sinusoidal, learned, rotary, alibi, none, got 'rope'"),
            ({"vocab_size": 0}, "vocab_size is at least 1, got 0"),
            ({"num_decoder_layers": 0}, "num_decoder_layers is at least 1, got 0"),
        ],
    )
    def test_errors_name_what_was_given(self, options, message):
        with pytest.raises(ValueError, match=message):
            TransformerConfig(**options)

    def test_reaches_every_layer(self):
        options = {"dropout": 0.3, "attention_dropout": 0.2, "activation": "gelu", "norm_first": True, "layer_norm_eps": 0.5}
        model = Transformer(config(**options, bias=False, num_kv_heads=1))
        for layer in (*model.encoder.layers, *model.decoder.layers):
            assert (layer.dropout.p, layer.self_attn.dropout, layer.norm_first, layer.norm1.eps) == (0.3, 0.2, True, 0.5)
            assert (layer.feed_forward.activation, layer.self_attn.num_kv_heads) == (F.gelu, 1)
        assert not any("bias" in name for name in model.state_dict())

    @pytest.mark.parametrize("norm_first", [False, True])
    @pytest.mark.parametrize("final_norm", [None, False, True])
    def test_a_last_norm_follows_pre_norm_layers_unless_told_otherwise(self, norm_first, final_norm):
        encoder = Encoder(config(norm_first=norm_first, final_norm=final_norm))
        assert (encoder.norm is not None) == (norm_first if final_norm is None else final_norm)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch says why it won't take a short cut
class TestAgainstTorch:
    @pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
    @pytest.mark.parametrize("activation", ["relu", "gelu"])
    @pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
    def test_encoder_and_decoder_are_those_of_copied_weights(self, norm_first, activation, padded, device):
        options = {"dim_feedforward": 20, "dropout": 0.0, "activation": activation, "norm_first": norm_first}
        theirs = nn.Transformer(12, 3, 2, 2, **options, batch_first=True).double()
        theirs = randomized(theirs).to(device)
        choices = config(**options, final_norm=True)
        ours = nn.ModuleDict({"encoder": Encoder(choices), "decoder": Decoder(choices)}).double().to(device)
        ours.load_state_dict(renamed(theirs.state_dict()))

        source, target = (torch.randn(2, n, 12, dtype=torch.float64, device=device, requires_grad=True) for n in (6, 5))
        real = masks.padding([6, 3], device=device) if padded else None
        ignored = ~real[:, 0, 0] if padded else None
        expected = theirs(
            source,
            target,
            tgt_mask=~masks.causal(5, device=device),
            src_key_padding_mask=ignored,
            memory_key_padding_mask=ignored,
        )
        output = ours["decoder"](target, memory=ours["encoder"](source, real), memory_mask=real)
        assert_close(output, expected)
        upstream = torch.randn_like(output)
        theirs_grads = torch.autograd.grad(expected, (source, target), upstream, retain_graph=True)
        ours_grads = torch.autograd.grad(output, (source, target), upstream, retain_graph=True)
        for one, other in zip(ours_grads, theirs_grads, strict=True):
            assert_close(one, other)
        output.backward(upstream)
        expected.backward(upstream)
        assert_same_gradients(ours, theirs)


class TestEmbedding:
    @pytest.mark.parametrize("scaled", [True, False])
    def test_is_the_row_of_the_table_times_the_root_of_the_width_and_the_position(self, scaled):
        embedding, words = build(lambda c: Embedding(c, V), scale_embeddings=scaled), tokens(2, 5)
        rows = embedding.tokens.weight[words] * (12**0.5 if scaled else 1.0)
        assert_close(embedding(words, offset=3), rows + SinusoidalEncoding(12).table(5, offset=3, dtype=torch.float64))

    def test_words_and_positions_start_at_one_size(self):
        for positional in ("sinusoidal", "learned"):
            embedding = Embedding(TransformerConfig(1000, d_model=256, positional=positional), 1000).eval()
            words = embedding.tokens.weight * embedding.scale
            positions = embedding.positions(torch.zeros(1, 100, 256))
            assert words.std().item() == pytest.approx(1.0, rel=0.05)
            assert positions.square().mean().sqrt().item() == pytest.approx(0.5**0.5, rel=0.05)

    @pytest.mark.parametrize("positional", ["rotary", "alibi", "none"])
    def test_adds_no_position_where_attention_sees_it(self, positional):
        embedding, words = build(lambda c: Embedding(c, V), positional=positional), tokens(1, 5)
        assert torch.equal(embedding(words), embedding(words, offset=7))

    def test_a_single_sequence_is_an_error_that_says_how(self):
        with pytest.raises(ValueError, match=r"got shape \(5,\)\. For a single sequence use tokens\[None\]"):
            DecoderLM(config())(tokens(5))

    @pytest.mark.parametrize("kind", [DecoderLM, Transformer])
    def test_a_learned_table_too_short_is_an_error_that_names_both(self, kind):
        model = build(kind, positional="learned", max_len=4)
        with pytest.raises(ValueError, match="length 5 at positions 0 … 4 does not fit a table of 4"):
            model(*[tokens(1, 5)] * (2 if kind is Transformer else 1))


class TestTiedEmbeddings:
    @pytest.mark.parametrize("target_vocab_size", [None, V, 7])
    @pytest.mark.parametrize("tie", [True, False])
    def test_of_a_transformer(self, tie, target_vocab_size):
        model = Transformer(config(tie_embeddings=tie, target_vocab_size=target_vocab_size))
        target_size = target_vocab_size or V
        tables = [name for name in model.state_dict() if name.endswith(("tokens.weight", "output.weight"))]
        expected = {"source_embedding.tokens.weight"}
        expected |= set() if tie and target_size == V else {"target_embedding.tokens.weight"}
        expected |= set() if tie else {"output.weight"}
        assert set(tables) == expected
        logits = model(tokens(2, 5), torch.randint(target_size, (2, 4)))
        assert logits.shape == (2, 4, target_size)
        logits.sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())

    @pytest.mark.parametrize("kind", [DecoderLM, Transformer])
    def test_logits_are_products_with_the_embeddings(self, kind):
        model, x = build(kind), torch.randn(2, 12, dtype=torch.float64)
        table = model.embedding if kind is DecoderLM else model.source_embedding
        assert_close(model.logits(x), x @ table.tokens.weight.T)

    @pytest.mark.parametrize("kind", [DecoderLM, Transformer])
    def test_state_dict_holds_each_parameter_once_and_nothing_else(self, kind):
        for positional in POSITIONAL:
            model = kind(config(positional=positional))
            state = model.state_dict()
            assert state.keys() == dict(model.named_parameters()).keys()
            assert len({x.untyped_storage().data_ptr() for x in state.values()}) == len(state)
            kind(config(positional=positional)).load_state_dict(state)


def embedded(model: nn.Module, name: str, *args, **kwargs) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's answer, and the vectors that its embedding gave for it."""
    seen = []
    handle = getattr(model, name).register_forward_hook(lambda _, __, x: seen.append(x))
    answer = model(*args, **kwargs)
    handle.remove()
    return seen[-1], answer


@pytest.mark.parametrize("positional", POSITIONAL)
class TestEveryKindOfPosition:
    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    @pytest.mark.parametrize("lengths", [None, [5, 3]], ids=["full", "padded"])
    def test_no_logits_have_a_gradient_at_a_later_token(self, positional, training, lengths):
        mask = None if lengths is None else masks.padding(lengths)
        lm, translator = (build(kind, positional=positional).train(training) for kind in (DecoderLM, Transformer))
        # Source and target have tables of their own here: the last look at the target's gives the target's vectors.
        translator.target_embedding = Embedding(translator.config, V).double()
        for x, logits in (
            embedded(lm, "embedding", tokens(2, 5), mask),
            embedded(translator, "target_embedding", tokens(2, 6), tokens(2, 5), target_mask=mask),
        ):
            upstream = torch.randn(V, dtype=torch.float64)
            for i in range(5):
                (gradient,) = torch.autograd.grad((logits[:, i] @ upstream).sum(), x, retain_graph=True)
                assert not gradient[:, i + 1 :].any()
                assert gradient[0, : i + 1].any()

    # https://github.com/huggingface/transformers/issues/32390, https://github.com/huggingface/transformers/issues/38690
    def test_a_sentence_padded_on_the_left_is_the_sentence_alone(self, positional):
        sentences = [tokens(n) for n in (3, 1, 6)]
        words, mask = left_pad(sentences)
        positions = positions_from_padding(mask)
        lm, tagger, classifier, translator = (
            build(kind, *rest, positional=positional)
            for kind, *rest in ((DecoderLM,), (EncoderTagger, 4), (EncoderClassifier, 4), (Transformer,))
        )
        target = tokens(3, 4)
        batch = [model(words, mask, positions=positions) for model in (lm, tagger, classifier)]
        translated = translator(words, target, mask, source_positions=positions)
        read = translator(target, words, target_mask=mask, target_positions=positions)
        assert all(answer.isfinite().all() for answer in (*batch, translated, read))
        for i, sentence in enumerate(sentences):
            n, alone = len(sentence), sentence[None]
            assert_close(batch[0][i, -n:], lm(alone)[0])
            assert_close(batch[1][i, -n:], tagger(alone)[0])
            assert_close(batch[2][i], classifier(alone)[0])
            assert_close(translated[i], translator(alone, target[i : i + 1])[0])
            assert_close(read[i, -n:], translator(target[i : i + 1], alone)[0])

    def test_neither_amount_nor_content_of_padding_behind_moves_anything(self, positional):
        lengths = [3, 5, 1]
        words, target = tokens(3, 5), tokens(3, 4)
        tagger, classifier, translator = (
            build(kind, *rest, positional=positional)
            for kind, *rest in ((EncoderTagger, 4), (EncoderClassifier, 4), (Transformer,))
        )
        answers = []
        for more in (0, 3):
            longer = torch.cat((words, tokens(3, more)), dim=1)
            mask = masks.padding(lengths, 5 + more)
            longer = torch.where(mask[:, 0, 0], longer, tokens(3, 5 + more))
            tags = tagger(longer, mask)
            answers.append(
                [tags[i, :n] for i, n in enumerate(lengths)] + [classifier(longer, mask), translator(longer, target, mask)]
            )
        for one, other in zip(*answers, strict=True):
            assert_close(one, other)

    @given(lengths=st.lists(st.integers(1, 3), min_size=1, max_size=4), pad=st.integers(0, 3))
    def test_any_split_through_the_cache_equals_the_whole(self, positional, lengths, pad):
        L = sum(lengths)
        mask = masks.padding([L, max(L - pad, 0)], L).flip(-1)
        words, positions = tokens(2, L), positions_from_padding(mask)
        lm, translator, source = (
            build(DecoderLM, positional=positional),
            build(Transformer, positional=positional),
            tokens(2, 4),
        )
        with torch.no_grad():
            memory, memory_mask = translator.encode(source), masks.padding([4, 2])
            caches = lm.new_cache(L), translator.new_cache(L, 4)
            for kind, model, cache in zip(("lm", "translator"), (lm, translator), caches, strict=True):
                options = {} if kind == "lm" else {"memory": memory, "memory_mask": memory_mask}
                whole = model.decode(words, mask, positions=positions, **options)
                done = 0
                for n in lengths:
                    at = slice(done, done + n)
                    step = {"positions": positions[:, at], "cache": cache, **options}
                    part = model.decode(words[:, at], mask[..., : at.stop], **step)
                    assert_close(part, whole[:, at])
                    done += n

    def test_without_padding_the_cache_counts_the_positions_itself(self, positional):
        model, words = build(DecoderLM, positional=positional), tokens(2, 6)
        cache = model.new_cache(6)
        with torch.no_grad():
            parts = [model(part, cache=cache) for part in words.split([3, 1, 2], dim=1)]
            assert_close(torch.cat(parts, dim=1), model(words))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    def test_runs_and_trains_in_any_floating_type(self, positional, dtype, device):
        model = Transformer(config(positional=positional)).to(device, dtype)
        words, mask = tokens(2, 5).to(device), masks.padding([5, 3], device=device)
        logits = model(words, words, mask)
        assert logits.dtype == dtype
        logits.float().square().mean().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())

    def test_runs_and_trains_under_autocast(self, positional, device):
        model = Transformer(config(positional=positional, dropout=0.0)).to(device)
        words, mask = tokens(2, 5).to(device), masks.padding([5, 3], device=device)
        expected = model(words, words, mask)
        with torch.autocast(device, torch.bfloat16):
            logits = model(words, words, mask)
        assert_close(logits.float(), expected, 0.1)
        logits.float().square().mean().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())

    @pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
    def test_learns_a_batch_by_heart_from_its_start(self, positional, norm_first):
        model = DecoderLM(config(positional=positional, norm_first=norm_first, d_model=24, dim_feedforward=48, dropout=0.0))
        words = torch.cat((torch.zeros(3, 1, dtype=torch.long), 1 + torch.randperm(9).view(3, 3)), dim=1)
        words[:, 0] = torch.arange(1, 4)  # what follows depends on the first token
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(40):
            loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss < 0.2

    def test_checkpointing_gives_the_same_gradients_bit_for_bit(self, positional):
        answers, words = [], tokens(2, 5)
        for checkpointing in (False, True):
            torch.manual_seed(3)
            model = Transformer(config(positional=positional, dropout=0.3, checkpointing=checkpointing))
            logits = model(words, words, masks.padding([5, 3]))
            logits.square().mean().backward()
            answers.append([logits, *(parameter.grad for parameter in model.parameters())])
        assert all(torch.equal(one, other) for one, other in zip(*answers, strict=True))


class TestMemoryMask:
    def test_of_a_padding_mask_is_that_mask(self):
        mask = masks.padding([3, 5])
        assert torch.equal(Transformer.memory_mask(mask), mask)
        assert Transformer.memory_mask(None) is None

    @pytest.mark.parametrize("as_float", [False, True], ids=["boolean", "float"])
    def test_hides_what_no_source_token_may_attend_to(self, as_float):
        real, near = masks.padding([3, 5]), masks.sliding_window(5, 3, causal=False)
        mask = real & near
        mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf) if as_float else mask
        assert torch.equal(Transformer.memory_mask(mask), real)

    def test_may_be_given(self):
        model, source, target = build(Transformer), tokens(2, 5), tokens(2, 4)
        first_alone = torch.zeros(4, 5, dtype=torch.bool)
        first_alone[:, 0] = True
        expected = model.logits(model.decode(target, memory=model.encode(source)[:, :1]))
        assert_close(model(source, target, memory_mask=first_alone), expected)


class TestHeads:
    def test_a_classifier_takes_the_mean_of_what_its_tokens_became(self):
        classifier, words, mask = build(EncoderClassifier, 4), tokens(2, 5), masks.padding([5, 3])
        x = classifier.encoder(classifier.embedding(words), mask)
        means = torch.stack([x[0].mean(dim=0), x[1, :3].mean(dim=0)])
        assert_close(classifier(words, mask), classifier.output(means))
        near = masks.sliding_window(5, 3, causal=False)
        seen = classifier.encoder(classifier.embedding(words), near)
        assert_close(classifier(words, near), classifier.output(seen.mean(dim=1)))

    def test_a_classifier_without_positions_sees_a_set(self):
        classifier, words = build(EncoderClassifier, 4, positional="none"), tokens(2, 6)
        assert_close(classifier(words[:, torch.randperm(6)]), classifier(words))

    @pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
    def test_an_empty_text_is_finite(self, training):
        classifier = EncoderClassifier(config(), 4).train(training)
        logits = classifier(tokens(2, 5), masks.padding([5, 0], 5))
        logits.square().sum().backward()
        assert torch.equal(logits[1], classifier.output(torch.zeros(12)))
        assert all(parameter.grad.isfinite().all() for parameter in classifier.parameters())

    def test_a_text_of_length_0_has_the_mean_0_with_a_mask_or_without(self):
        classifier = build(EncoderClassifier, 4)
        empty = torch.zeros(2, 0, dtype=torch.long)
        for mask in (None, torch.ones(2, 1, 1, 0, dtype=torch.bool)):
            assert torch.equal(classifier(empty, mask), classifier.output(torch.zeros(2, 12).double()))

    def test_the_sum_over_a_long_text_fits_in_half_precision(self):
        options = {"positional": "none", "norm_first": True, "final_norm": False, "scale_embeddings": False}
        classifier = build(EncoderClassifier, 2, **options)
        nn.init.constant_(classifier.embedding.tokens.weight, 40.0)
        classifier, words = classifier.half(), torch.zeros(1, 2000, dtype=torch.long)
        plain, masked = classifier(words), classifier(words, torch.ones(1, 1, 1, 2000, dtype=torch.bool))
        assert plain.isfinite().all()
        assert torch.equal(masked, plain)

    def test_a_tagger_reads_both_ways(self):
        x, logits = embedded(build(EncoderTagger, 4), "embedding", tokens(1, 5))
        (gradient,) = torch.autograd.grad((logits[0, 2] @ torch.randn(4, dtype=torch.float64)), x)
        assert gradient[0].any(dim=-1).all()

    def test_logits_start_at_size_one_where_untied(self):
        sizes = {"d_model": 128, "num_heads": 4, "dim_feedforward": 256, "tie_embeddings": False}
        model = DecoderLM(dataclasses.replace(config(), vocab_size=500, **sizes)).eval()
        assert model(torch.randint(500, (4, 16))).std().item() == pytest.approx(1.0, rel=0.2)

    @pytest.mark.parametrize("positional", POSITIONAL)
    def test_models_run_on_the_meta_device_and_say_the_shapes(self, positional):
        words, mask = (
            torch.zeros(2, 5, dtype=torch.long, device="meta"),
            torch.ones(2, 1, 1, 5, dtype=torch.bool, device="meta"),
        )
        for kind, rest, shape in (
            (DecoderLM, (), (2, 5, V)),
            (EncoderTagger, (4,), (2, 5, 4)),
            (EncoderClassifier, (4,), (2, 4)),
        ):
            model = kind(config(positional=positional), *rest).to("meta")
            assert model(words).shape == model(words, mask).shape == shape
        model = Transformer(config(positional=positional)).to("meta")
        assert model(words, words[:, :3], mask).shape == (2, 3, V)

    def test_a_language_model_compiles_into_one_graph(self):
        torch.compiler.reset()  # what other tests compiled counts against a limit
        model, words = build(DecoderLM, positional="rotary"), tokens(2, 5)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert_close(compiled(words, masks.padding([5, 3])), model(words, masks.padding([5, 3])))
