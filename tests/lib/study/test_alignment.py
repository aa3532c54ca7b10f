"""The aligner finds letters of sounds that everybody would; what looks into a model sees what the model weighs."""

import math

import pytest
import torch

from lib.study.alignment import Aligner, cross_weights, diagonal, hits, most_looked_at, vowel_or_consonant
from lib.study.pronunciation import LETTERS, PHONEMES, load_cmudict
from lib.transformer import Transformer, TransformerConfig


@pytest.fixture(scope="module")
def aligner():
    return Aligner([(entry.spelling, entry.sounds[0]) for entry in load_cmudict().train[::40]])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "dim_feedforward": 16}
    return Transformer(TransformerConfig(len(LETTERS), len(PHONEMES), tie_embeddings=False, **sizes))


@pytest.mark.parametrize(
    ("spelling", "sounds", "letters"),
    [
        ("knight", "N AY T", "n i t"),
        ("box", "B AA K S", "b o x x"),
        ("phone", "F OW N", "p o n"),
        ("wasp", "W AA S P", "w a s p"),
    ],
)
def test_sounds_come_from_the_letters_that_everybody_would_name(aligner, spelling, sounds, letters):
    found = aligner.letters(spelling, sounds.split())
    assert [spelling[i] for i in found] == letters.split()


def test_an_alignment_never_goes_back_and_uses_every_sound_once(aligner):
    for entry in load_cmudict().dev[:200]:
        made = aligner.split(entry.spelling, entry.sounds[0])
        if made is None:
            assert len(entry.sounds[0]) > 2 * len(entry.spelling)
            continue
        assert len(made) == len(entry.spelling)
        assert tuple(sound for own in made for sound in own) == entry.sounds[0]
        letters = aligner.letters(entry.spelling, entry.sounds[0])
        assert letters == sorted(letters)


def test_a_toy_language_is_learned_from_nothing_but_words():
    # Every vowel letter has one sound, "x" two, and "h" none.
    sounds = {"a": ("AA",), "b": ("B",), "x": ("K", "S"), "h": ()}
    texts = ["ab", "ahb", "xab", "bax", "habab", "axh", "bab", "abx", "hx", "xa", "ah", "ba"]
    words = [(text, [sound for letter in text for sound in sounds[letter]]) for text in texts]
    aligner = Aligner(words * 3, rounds=6)
    for text, spoken in words:
        assert aligner.split(text, spoken) == [sounds[letter] for letter in text]
        assert aligner.usual_sounds(text) == tuple(spoken)


def test_more_sounds_than_letters_can_make_are_given_up(aligner):
    assert aligner.split("a", ["EY", "B", "IY"]) is None
    assert aligner.letters("a", ["EY", "B", "IY"]) is None
    with pytest.raises(ValueError, match="got none"):
        Aligner([])


def test_the_diagonal_goes_through_the_word():
    assert diagonal("cat", ["K", "AE", "T"]) == [0, 1, 2]
    assert diagonal("knight", ["N", "AY", "T"]) == [1, 3, 5]
    assert diagonal("x", ["K", "S"]) == [0, 0]


def test_vowels_and_consonants_are_told_apart_and_nothing_else():
    assert vowel_or_consonant("phone", ["F", "OW", "N"]) == [0, 2, 3]  # the diagonal of N is the e
    assert vowel_or_consonant("queue", ["K", "Y", "UW"]) == [0, 0, 4]  # the y is not asked: Y is a consonant
    assert vowel_or_consonant("hmm", ["AH"]) == [1]  # no vowel letter: the nearest of all


def test_hits_are_counted_over_sounds_and_among_those_asked_for():
    guessed, true = [[0, 1], [2]], [[0, 2], [2]]
    assert hits(guessed, true) == 2 / 3
    assert hits(guessed, true, [[False, True], [True]]) == 1 / 2
    assert math.isnan(hits(guessed, true, [[False, False], [False]]))


def test_cross_attention_is_that_of_each_word_alone_and_never_on_padding(model):
    words = [("knight", ["N", "AY", "T"]), ("at", ["AE", "T"])]
    weights = cross_weights(model, words)
    assert weights.shape == (2, 2, 2, 4, 7)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 2, 2, 4))
    assert weights[1, ..., 3:].abs().max() == 0
    alone = cross_weights(model, words[1:])
    assert torch.allclose(weights[1:, :, :, :3, :3], alone, atol=1e-6)


def test_the_letter_most_looked_at_is_the_one_of_a_planted_map():
    words = [("knight", ["N", "AY", "T"]), ("at", ["AE", "T"])]
    weights = torch.full((2, 4, 7), 0.1)
    for b, letters in enumerate([[1, 2, 5], [0, 1]]):
        for i, letter in enumerate(letters):
            weights[b, i, letter] = 0.5
    assert most_looked_at(weights, words) == [[1, 2, 5], [0, 1]]
