"""Generation against plain loops and exhaustive search; with and without the cache; sampling's distribution; where it stops."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lib import masks
from lib.cache import DecoderCache
from lib.generation import STRATEGIES, generate, left_pad
from lib.stacks import POSITIONAL
from lib.transformer import DecoderLM, Transformer, TransformerConfig

V, BOS, EOS, PAD = 7, 1, 2, 0
KINDS = {"language model": DecoderLM, "translator": Transformer}


def build(kind, vocab_size: int = V, **options) -> nn.Module:
    """A model with opinions. At the start of training it would say much the same to every prompt, and prove little."""
    sizes = {"d_model": 12, "num_heads": 3, "dim_feedforward": 20, "num_encoder_layers": 2, "num_decoder_layers": 2}
    sizes |= {"norm_first": True, "tie_embeddings": False, "max_len": 32} | options
    model = kind(TransformerConfig(vocab_size, **sizes)).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embedding" not in name:
                parameter.mul_(9.0 if "cross_attn" in name else 3.0)
    return model


def next_logits(model, inputs: torch.Tensor, new: list[int], mask=None) -> torch.Tensor:
    """(V,) for one text, from one pass over all of it: no cache, no batch, no padding."""
    if isinstance(model, Transformer):
        return model(inputs, torch.tensor([[BOS, *new]]), mask)[0, -1]
    return model(torch.cat((inputs, torch.tensor([new], dtype=torch.long)), dim=1))[0, -1]


def greedy_by_hand(model, inputs: torch.Tensor, steps: int) -> list[int]:
    new = []
    while len(new) < steps and EOS not in new:
        new.append(int(next_logits(model, inputs, new).argmax()))
    return new


def ragged(answer: torch.Tensor) -> list[list[int]]:
    """Each row up to its end; what follows must be padding."""
    rows = []
    for row in answer.tolist():
        n = row.index(EOS) + 1 if EOS in row else len(row)
        assert set(row[n:]) <= {PAD}
        rows.append(row[:n])
    return rows


class Fixed(nn.Module):
    """A model that always gives the same logits, and counts the tokens that it is shown."""

    def __init__(self, logits: Sequence[float]):
        super().__init__()
        self.answer, self.seen = torch.tensor(logits), []

    def decode(self, tokens, mask=None, *, positions=None, cache=None):
        self.seen.append(tokens.size(1))
        return torch.zeros(*tokens.shape, 1)

    def logits(self, x):
        return self.answer.expand(len(x), -1)

    def new_cache(self, max_length):
        return DecoderCache(1, max_length)


PROMPTS = [[3, 4, 5], [6], [5, 3, 3, 6, 4]]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
class TestBothKindsOfModel:
    @pytest.mark.parametrize("positional", POSITIONAL)
    @pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_same_answer_with_and_without_the_cache(self, kind, positional, padded, strategy, device):
        model = build(kind, positional=positional).to(device)
        words, mask = torch.randint(3, V, (16, 4), device=device), None
        if padded:
            words, mask = left_pad([row[i % 4 :] for i, row in enumerate(words)], device=device)
        options = {"mask": mask, "bos_id": BOS, "eos_id": EOS, "pad_id": PAD, "strategy": strategy, "top_p": 0.9}
        answers = [
            generate(model, words, 8, use_cache=use_cache, generator=torch.Generator(device).manual_seed(3), **options)
            for use_cache in (True, False)
        ]
        assert torch.equal(*answers)
        assert len(set(map(tuple, ragged(answers[0])))) > 1  # the answers tell the prompts apart

    @pytest.mark.parametrize("use_cache", [True, False], ids=["cache", ""])
    def test_greedy_takes_the_most_likely_token_of_a_whole_pass(self, kind, use_cache):
        model, (words, mask) = build(kind), left_pad(PROMPTS)
        answer = generate(model, words, 8, mask=mask, bos_id=BOS, eos_id=EOS, pad_id=PAD, use_cache=use_cache)
        assert ragged(answer) == [greedy_by_hand(model, torch.tensor([prompt]), 8) for prompt in PROMPTS]

    # https://github.com/huggingface/transformers/issues/32390, https://github.com/huggingface/transformers/issues/38690
    @pytest.mark.parametrize("strategy", ["greedy", "beam"])
    @pytest.mark.parametrize("positional", POSITIONAL)
    def test_a_prompt_alone_is_itself_in_a_padded_batch(self, kind, strategy, positional):
        model, (words, mask) = build(kind, positional=positional), left_pad(PROMPTS, pad_id=5)
        options = {"bos_id": BOS, "eos_id": EOS, "pad_id": PAD, "strategy": strategy}
        batch = ragged(generate(model, words, 8, mask=mask, **options))
        alone = [ragged(generate(model, torch.tensor([prompt]), 8, **options))[0] for prompt in PROMPTS]
        assert batch == alone

    @pytest.mark.parametrize("use_cache", [True, False], ids=["cache", ""])
    @pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 0.6, 3.0])
    def test_a_wide_beam_finds_the_best_of_all_texts(self, kind, length_penalty, use_cache):
        """Exhaustive search over every text that ends within 3 tokens, or is cut off there."""
        model = build(kind, 4)
        for prompt in ([3, 0], [1, 1]):
            inputs, scored = torch.tensor([prompt]), {}
            for length in (1, 2, 3):
                for text in itertools.product(range(4), repeat=length):
                    whole = text[-1] == EOS or length == 3
                    if EOS not in text[:-1] and whole:
                        logs = [next_logits(model, inputs, list(text[:i])).log_softmax(-1)[text[i]] for i in range(length)]
                        scored[text] = sum(logs).item() / ((5 + length) / 6) ** length_penalty
            best = max(scored, key=scored.get)
            options = {"strategy": "beam", "num_beams": 64, "length_penalty": length_penalty, "use_cache": use_cache}
            answer = generate(model, inputs, 3, bos_id=BOS, eos_id=EOS, pad_id=PAD, **options)
            assert ragged(answer) == [list(best)]

    def test_one_beam_without_penalty_is_greedy(self, kind):
        model, (words, mask) = build(kind), left_pad(PROMPTS)
        options = {"mask": mask, "bos_id": BOS, "eos_id": EOS, "pad_id": PAD}
        one_beam = generate(model, words, 8, strategy="beam", num_beams=1, length_penalty=0.0, **options)
        assert torch.equal(one_beam, generate(model, words, 8, **options))

    def test_a_cache_that_does_not_follow_its_beams_is_found(self, kind, monkeypatch):
        model, words = build(kind), torch.randint(3, V, (16, 4))
        options = {"bos_id": BOS, "strategy": "beam", "num_beams": 5}
        expected = generate(model, words, 12, use_cache=False, **options)
        follow = DecoderCache.reorder
        monkeypatch.setattr(DecoderCache, "reorder", lambda self, rows, memory=True: follow(self, rows) if memory else None)
        assert not torch.equal(generate(model, words, 12, **options), expected)

    def test_answers_may_be_trained_on_and_inputs_stay_as_they_were(self, kind):
        model, (words, mask) = build(kind), left_pad(PROMPTS)
        before = words.clone(), mask.clone()
        answer = generate(model, words, 4, mask=mask, bos_id=BOS)
        assert not answer.is_inference()
        (model(words, answer) if kind is Transformer else model(answer)).sum().backward()
        assert torch.equal(words, before[0])
        assert torch.equal(mask, before[1])

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_runs_in_half_precision(self, kind, strategy, device):
        model = build(kind).to(device, torch.bfloat16)
        words, mask = left_pad(PROMPTS, device=device)
        assert generate(model, words, 5, mask=mask, bos_id=BOS, strategy=strategy).shape == (3, 5)


def test_sources_may_be_padded_behind():
    model, words = build(Transformer), torch.randint(3, V, (2, 5))
    answer = generate(model, words, 6, mask=masks.padding([3, 5]), bos_id=BOS, eos_id=EOS, pad_id=PAD)
    assert ragged(answer) == [greedy_by_hand(model, words[:1, :3], 6), greedy_by_hand(model, words[1:], 6)]


class TestWhereItStops:
    def test_each_text_stops_on_its_own_and_the_batch_with_the_last(self):
        model, prompts = build(DecoderLM, positional="learned"), torch.randint(3, V, (40, 3))
        alone = [greedy_by_hand(model, prompt[None], 9) for prompt in prompts]
        short = [i for i, text in enumerate(alone) if len(text) < 9]
        assert len({len(alone[i]) for i in short}) > 1  # or this would prove nothing
        answer = generate(model, prompts[short], 9, eos_id=EOS, pad_id=PAD)
        assert ragged(answer) == [alone[i] for i in short]
        assert answer.size(1) == max(len(alone[i]) for i in short)

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_without_an_end_it_runs_to_the_last_token(self, strategy):
        assert generate(build(DecoderLM), torch.tensor([[3]]), 9, strategy=strategy).shape == (1, 9)

    @pytest.mark.parametrize(("pad_id", "expected"), [(5, 5), (None, EOS), (-100, -100), (V, V)])
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_what_follows_an_end_is_padding_even_what_is_no_word(self, strategy, pad_id, expected):
        model, prompts = build(DecoderLM, positional="learned"), torch.randint(3, V, (40, 3))
        answer = generate(model, prompts, 9, eos_id=EOS, pad_id=pad_id, strategy=strategy)
        behind = (answer == EOS).cumsum(dim=1) - (answer == EOS).int() > 0
        assert behind.any()
        assert (answer[behind] == expected).all()
        assert ((answer[~behind] >= 0) & (answer[~behind] < V)).all()

    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
    def test_of_no_sequence_the_answer_is_empty(self, kind, strategy):
        answer = generate(build(kind), torch.zeros(0, 3, dtype=torch.long), 4, bos_id=BOS, eos_id=EOS, strategy=strategy)
        assert (answer.shape, answer.dtype) == ((0, 0), torch.int64)

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_no_step_is_taken_after_every_text_has_ended(self, strategy):
        model = Fixed([-50.0, -50.0, 9.0, -50.0]).eval()
        answer = generate(model, torch.tensor([[3, 3], [0, 1]]), 8, eos_id=EOS, strategy=strategy, use_cache=False)
        assert answer.tolist() == [[EOS], [EOS]]
        assert len(model.seen) == 1

    @pytest.mark.parametrize("ending", [0.0, 2.2], ids=["even odds", "ends 9 times of 10"])
    @pytest.mark.parametrize(("length_penalty", "length"), [(0.0, 1), (9.0, 6)])
    def test_a_beam_goes_on_as_long_as_a_longer_text_can_win(self, ending, length_penalty, length):
        """Each token costs the same. At α = 0 the shortest text wins, at a large α the longest, if no shorter one stops it."""
        model, prompt = Fixed([0.0, -50.0, ending]).eval(), torch.tensor([[0]])
        options = {"strategy": "beam", "length_penalty": length_penalty, "use_cache": False}
        assert generate(model, prompt, 6, eos_id=EOS, **options).size(1) == length

    @pytest.mark.parametrize(("num_beams", "length"), [(1, 3), (2, 1)])
    def test_a_text_ends_where_its_end_is_among_the_beams(self, num_beams, length):
        """The end is second at each step, and better than what follows the first: greedy never gets there."""
        model = Fixed([math.log(0.5), math.log(0.2), math.log(0.3)]).eval()
        options = {"strategy": "beam", "num_beams": num_beams, "length_penalty": 0.0, "use_cache": False}
        assert generate(model, torch.tensor([[0]]), 3, eos_id=EOS, **options).size(1) == length


class Operations(TorchDispatchMode):
    """Counts what is really run, by its name."""

    def __enter__(self):
        self.counts = Counter()
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


class TestCost:
    def test_each_step_with_the_cache_reads_one_token(self, monkeypatch):
        model, seen = build(DecoderLM), []
        decode = model.decode
        monkeypatch.setattr(
            model, "decode", lambda tokens, *args, **kw: seen.append(tokens.size(1)) or decode(tokens, *args, **kw)
        )
        generate(model, torch.randint(3, V, (1, 5)), 4)
        generate(model, torch.randint(3, V, (1, 5)), 4, use_cache=False)
        assert seen == [5, 1, 1, 1, 5, 6, 7, 8]

    @pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
    @pytest.mark.parametrize("positional", ["sinusoidal", "learned", "rotary", "none"])
    def test_a_step_without_padding_builds_no_mask_and_copies_the_new_keys_and_values_alone(
        self, kind, positional, monkeypatch
    ):
        # In inference mode the count would stop at operations that are made of others.
        monkeypatch.setattr(torch, "inference_mode", lambda mode=True: torch.no_grad() if mode else nullcontext())
        model, inputs, runs = build(kind, positional=positional), torch.randint(3, V, (1, 5)), []
        generate(model, inputs, 9, bos_id=BOS)  # makes the tables
        for steps in (3, 8):
            with Operations() as run:
                generate(model, inputs, steps, bos_id=BOS)
            runs.append(run.counts)
        per_step = {name: (runs[1][name] - runs[0][name]) / 5 for name in runs[1]}
        attentions = 2 * (2 if kind is Transformer else 1)
        assert per_step["copy_"] == 2 * 2 + 1  # keys and values of 2 layers, and the token itself
        assert per_step["_scaled_dot_product_flash_attention_for_cpu"] == attentions
        for name in ("where", "arange", "ones", "zeros", "clone", "bitwise_and", "scalar_tensor", "full", "index_select"):
            assert per_step.get(name, 0) == 0, name

    def test_a_mask_that_hides_nothing_is_left_out(self, monkeypatch):
        model, given = build(DecoderLM), []
        monkeypatch.setattr(model, "decode", lambda *args, f=model.decode, **kw: given.append(set(kw)) or f(*args, **kw))
        words, mask = left_pad([[3, 4], [5, 6]])
        generate(model, words, 2, mask=mask)
        assert given == [{"cache"}, {"cache"}]

    def test_the_source_is_read_once(self, monkeypatch):
        model, calls = build(Transformer), []
        monkeypatch.setattr(
            model.encoder, "forward", lambda *args, f=model.encoder.forward, **kw: calls.append(1) or f(*args, **kw)
        )
        for strategy in STRATEGIES:
            generate(model, torch.randint(3, V, (2, 5)), 4, bos_id=BOS, strategy=strategy)
        assert len(calls) == 3


class TestSampling:
    LOGITS = (1.0, 0.5, 0.0, -0.5, -1.0, -30.0)

    def draw(self, n: int = 20000, **options) -> torch.Tensor:
        """How often each token came, as a share."""
        prompts, generator = torch.zeros(n, 1, dtype=torch.long), torch.Generator().manual_seed(0)
        model = Fixed(self.LOGITS).eval()
        answer = generate(model, prompts, 1, strategy="sample", generator=generator, use_cache=False, **options)
        return torch.bincount(answer[:, 0], minlength=6) / n

    @pytest.mark.parametrize(
        ("options", "temperature", "kept"),
        [
            ({}, 1.0, 6),
            ({"temperature": 2.0}, 2.0, 6),
            ({"top_k": 3}, 1.0, 3),
            ({"top_k": 99}, 1.0, 6),
            ({"top_p": 1.0}, 1.0, 6),
            ({"top_p": 0.7}, 1.0, 3),  # shares are 0.43, 0.26, 0.16, …: two make 0.69
            ({"top_p": 0.68}, 1.0, 2),
            ({"top_p": 0.01}, 1.0, 1),
            ({"top_k": 4, "top_p": 0.75, "temperature": 0.8}, 0.8, 2),
        ],
    )
    def test_draws_each_token_as_often_as_it_should(self, options, temperature, kept):
        expected = (torch.tensor(self.LOGITS) / temperature).softmax(dim=0)
        expected[kept:] = 0
        expected /= expected.sum()
        shares = self.draw(**options)
        assert not shares[kept:][expected[kept:] == 0].any()
        spread = (expected * (1 - expected) / 20000).sqrt()
        assert ((shares - expected).abs() <= 4 * spread + 1e-4).all()

    # 1e-40 has no reciprocal in float32, 1e-60 is 0 there, 5e-324 has no reciprocal in float64.
    @pytest.mark.parametrize("temperature", [1e-4, 1e-40, 1e-60, 5e-324])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    @pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.5}], ids=str)
    def test_a_low_temperature_is_greedy(self, temperature, dtype, options):
        model, words = build(DecoderLM).to(dtype), torch.randint(3, V, (3, 4))
        answer = generate(model, words, 8, strategy="sample", temperature=temperature, **options)
        assert torch.equal(answer, generate(model, words, 8))

    def test_all_of_the_probability_leaves_no_token_out_however_its_sum_is_rounded(self, monkeypatch):
        logits, given = 3 * torch.randn(1, 200_000), []
        sums = logits.sort(descending=True)[0].softmax(-1).cumsum(-1)
        assert sums[0, -100] >= 1  # or this would prove nothing
        draw = torch.multinomial
        monkeypatch.setattr(torch, "multinomial", lambda p, *args, **kw: given.append(p) or draw(p, *args, **kw))
        model, prompt = Fixed(logits[0].tolist()).eval(), torch.zeros(1, 1, dtype=torch.long)
        generate(model, prompt, 1, strategy="sample", top_p=1.0, use_cache=False)
        assert (given[0] > 0).all()

    def test_a_generator_repeats_its_text(self):
        model, words = build(DecoderLM), torch.randint(3, V, (3, 4))
        one, same, other = (
            generate(model, words, 12, strategy="sample", generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
        )
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


class TestLeftPad:
    def test_every_sequence_ends_at_the_end(self, device):
        words, mask = left_pad([torch.tensor([3, 4]), [5], []], pad_id=9, device=device)
        assert words.tolist() == [[3, 4], [9, 5], [9, 9]]
        assert mask[:, 0, 0].tolist() == [[True, True], [False, True], [False, False]]
        assert (words.device.type, mask.shape) == (device, (3, 1, 1, 2))

    def test_the_batch_is_where_its_first_tensor_is(self, device):
        tensors = [torch.tensor([3, 4], device=device), torch.tensor([5], device=device)]
        assert [x.device.type for x in left_pad([[6], *tensors])] == [device, device]
        with torch.device("meta"):  # another default than where they are
            assert [x.device.type for x in left_pad(tensors)] == [device, device]

    @pytest.mark.parametrize("sequence", [[1.7, 2.9], torch.ones(2), [True, False]], ids=str)
    def test_anything_but_integers_is_refused(self, sequence):
        with pytest.raises(TypeError, match=r"integers, got torch\.(float32|bool)"):
            left_pad([[1, 2], sequence])

    def test_a_sequence_has_one_axis(self):
        with pytest.raises(ValueError, match=r"one axis, \(length,\), got shape \(1, 2\)"):
            left_pad([[1, 2], [[1, 2]]])


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"strategy": "best"}, "greedy, beam, sample, got 'best'"),
            ({"max_new_tokens": 0}, "max_new_tokens is at least 1, got 0"),
            ({"num_beams": 0}, "num_beams is at least 1, got 0"),
            ({"top_k": 0}, "top_k is at least 1, got 0"),
            ({"top_p": 1.5}, "top_p is a probability above 0, got 1.5"),
            ({"temperature": 0.0}, r'above 0, got 0\.0.*strategy="greedy"'),
            ({"inputs": torch.zeros(3, dtype=torch.long)}, r"\(B, at least 1 token\), got shape \(3,\)"),
            ({"mask": torch.ones(2, 3)}, r"boolean of shape \(2, 1, 1, 3\), got torch.float32 of shape \(2, 3\)"),
            ({"mask": masks.padding([2, 3])}, "padded on the left.*left_pad"),
            ({"mask": torch.tensor([True, False, True]).expand(2, 1, 1, 3)}, "padded on the left and nowhere else"),
            ({"mask": torch.tensor([True, False]).view(2, 1, 1, 1).expand(2, 1, 1, 3)}, "a prompt has no real token"),
            ({"eos_id": 7}, r"eos_id is a token of the vocabulary, 0 … 6, got 7"),
            ({"eos_id": -1}, r"eos_id .* got -1"),
            ({"bos_id": 7}, r"bos_id .* got 7"),
        ],
    )
    def test_name_what_was_given_and_what_to_do(self, options, message):
        arguments = {"inputs": torch.zeros(2, 3, dtype=torch.long), "max_new_tokens": 2, **options}
        with pytest.raises(ValueError, match=message):
            generate(build(DecoderLM), **arguments)

    def test_a_model_in_training_mode(self):
        with pytest.raises(ValueError, match=r"training mode.*model\.eval"):
            generate(build(DecoderLM).train(), torch.zeros(1, 1, dtype=torch.long), 2)

    def test_a_translator_without_its_first_token(self):
        with pytest.raises(ValueError, match="needs bos_id"):
            generate(build(Transformer), torch.zeros(1, 1, dtype=torch.long), 2)

    def test_target_tokens_are_of_the_targets_vocabulary(self):
        source = torch.tensor([[3, 6]])
        more, fewer = build(Transformer, target_vocab_size=12), build(Transformer, target_vocab_size=5)
        assert generate(more, source, 3, bos_id=11, eos_id=9).size(0) == 1
        with pytest.raises(ValueError, match=r"bos_id .* 0 … 4, got 6"):
            generate(fewer, source, 3, bos_id=6)

    @pytest.mark.parametrize("options", [{"eos_id": 2.5}, {"bos_id": "2"}, {"inputs": torch.zeros(2, 3)}], ids=str)
    def test_tokens_are_integers(self, options):
        arguments = {"inputs": torch.zeros(2, 3, dtype=torch.long), "max_new_tokens": 2, **options}
        with pytest.raises(
            TypeError, match=r"is a token, an integer, got|are tokens, of dtype torch.int64 or torch.int32, got"
        ):
            generate(build(DecoderLM), **arguments)

    def test_more_tokens_than_a_learned_table_has_positions(self):
        with pytest.raises(ValueError, match="table of 8 learned"):
            generate(build(DecoderLM, positional="learned", max_len=8), torch.zeros(1, 5, dtype=torch.long), 9)
