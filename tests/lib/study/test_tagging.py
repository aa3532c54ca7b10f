"""Tagging: what tokens are known, how sentences become batches, the baseline, and that an encoder beats it."""

import pytest
import torch

from lib.study.dates import TAGS, Sentence, load_languages, sentences
from lib.study.scores import span_scores
from lib.study.tagging import (
    NO_LABEL,
    Words,
    batches,
    most_frequent_tags,
    sentence,
    tag_by_model,
    tag_by_word,
    tagging_loss,
)
from lib.study.training import fit
from lib.transformer import EncoderTagger, TransformerConfig


def given(text, tags, locale="xx"):
    return Sentence(locale, text, tuple(text.split()), tuple(tags.split()))


GIVEN = [
    given("7 März 2024", "B-DAY B-MONTH B-YEAR", "de_DE"),
    given("7 mars 2024", "B-DAY B-MONTH B-YEAR", "fr"),
    given("mars 7", "O O", "sv"),
    given("mars", "B-MONTH", "fr"),
    given("März März", "O O", "de_AT"),
]


@pytest.fixture
def words():
    return Words.from_sentences(GIVEN)


def test_a_token_is_known_if_two_languages_have_it(words):
    assert words.names[13:] == ("2024", "7", "mars")  # März is in German alone, whatever the country


def test_other_tokens_are_known_by_their_shape(words):
    numbers = words.encode(["Mars", "juin", "Juin", "★", "12", "1234567890123"])
    assert [words.names[number] for number in numbers] == ["mars", "<word>", "<Word>", "<sign>", "<2 digits>", "<9 digits>"]


def test_batches_are_padded_with_what_the_loss_passes_over(words):
    first, second, third = batches(GIVEN, words, 2)
    assert first.tokens.shape == (2, 3)
    assert second.lengths.tolist() == [2, 1]
    assert second.labels.tolist() == [[0, 0], [TAGS.index("B-MONTH"), NO_LABEL]]
    assert second.tokens[1, 1] == 0
    assert third.lengths.tolist() == [2]


def test_the_seed_draws_the_order_of_every_pass(words):
    def order(seed, epochs=2):
        return [batch.tokens.tolist() for batch in batches(GIVEN, words, 1, seed=seed, epochs=epochs)]

    assert order(0) == order(0)
    assert order(0)[:5] != order(0)[5:]
    assert sorted(order(0)[:5]) == sorted(order(0)[5:]) == sorted(order(None, 1))


@pytest.mark.parametrize(("some", "size"), [([], 1), (GIVEN, 0)])
def test_batches_of_nothing_are_refused(words, some, size):
    with pytest.raises(ValueError, match="at least 1"):
        next(batches(some, words, size))


def test_the_baseline_gives_each_token_the_tag_that_it_has_most_often(words):
    tags = most_frequent_tags(GIVEN, words)
    assert tag_by_word([given("7 mars 7 ★", "O O O O")], words, tags) == [["B-DAY", "B-MONTH", "B-DAY", "O"]]
    assert tag_by_word([given("Juin", "O")], words, tags) == [["O"]]  # an unknown word is what unknown words are most often


def test_the_loss_passes_over_padding(words):
    model = EncoderTagger(TransformerConfig(len(words), d_model=16, num_heads=2, num_encoder_layers=1, dim_feedforward=16), 7)
    model.eval()
    (batch,) = batches(GIVEN[1:3], words, 2)
    alone = [tagging_loss(model, one) * int(one.lengths) for one in batches(GIVEN[1:3], words, 1)]
    torch.testing.assert_close(tagging_loss(model, batch), sum(alone) / 5, rtol=1e-5, atol=1e-6)


def test_a_readers_text_becomes_a_sentence():
    assert sentence("Am 7. Mai!").tokens == ("Am", "7", ".", "Mai", "!")
    with pytest.raises(ValueError, match="nothing to tag in '  '"):
        sentence("  ")


def test_a_small_encoder_beats_the_baseline_in_languages_it_has_not_seen(device):
    languages = load_languages()
    seen, unseen = sentences(languages.train, 3000, seed=0), sentences(languages.dev, 300, seed=0)
    words = Words.from_sentences(seen)
    truth = [one.tags for one in unseen]
    baseline = span_scores(tag_by_word(unseen, words, most_frequent_tags(seen, words)), truth)
    torch.manual_seed(0)
    config = TransformerConfig(
        len(words), d_model=64, num_heads=4, num_encoder_layers=2, dim_feedforward=128, dropout=0.0, norm_first=True
    )
    model = EncoderTagger(config, len(TAGS)).to(device)
    fit(model, batches(seen, words, 64, seed=0, epochs=4), lr=2e-3, seed=0, loss=tagging_loss, progress=False)
    scores = span_scores(tag_by_model(unseen, words, model), truth)
    assert 0.4 < baseline.f1 < scores.f1 - 0.1
