"""The small models of E6: what each version reads, that the cheats cheat, and that a sound one learns to write."""

import pytest
import torch

from lib.study import honesty
from lib.study.honesty import NO_MASK, NOT_SHIFTED, SOUND, as_read
from lib.study.pronunciation import Entry, Lexicon, Pair, collate

SOUNDS = {"a": "AA", "b": "B", "d": "D", "i": "IY", "k": "K", "m": "M", "o": "OW", "t": "T"}


def toy(number: int) -> Lexicon:
    """A language that is read letter by letter, in words of three to six letters, and one of seven."""
    generator = torch.Generator().manual_seed(0)
    letters = sorted(SOUNDS)
    words = {}
    while len(words) < number:
        length = 3 + len(words) % 4
        word = "".join(letters[i] for i in torch.randint(len(letters), (length,), generator=generator).tolist())
        words[word] = Entry(word, (tuple(SOUNDS[letter] for letter in word),))
    entries = list(words.values())
    long = Entry("bamboko", (tuple(SOUNDS[letter] for letter in "bamboko"),))
    return Lexicon([long, *entries[60:]], [long, *entries[:60]], [])


@pytest.fixture(scope="module")
def found():
    lexicon = toy(900)
    return {version: honesty.train(version, lexicon, seed=0, steps=150) for version in honesty.VERSIONS}


def test_long_words_are_left_out():
    assert "bamboko" not in {entry.spelling for entry in honesty.short(toy(70).dev)}
    assert len(honesty.short(toy(70).dev)) == 60


def test_only_one_version_reads_its_own_labels():
    batch = collate([Pair([5, 2], [9, 8, 2])])
    for version in (SOUND, NO_MASK):
        assert torch.equal(as_read(batch, version).inputs, batch.inputs)
    assert torch.equal(as_read(batch, NOT_SHIFTED).inputs, batch.labels)
    assert batch.inputs[0, 0] == 1  # untouched


def test_both_cheats_have_a_low_loss_on_new_words_and_cannot_write(found):
    for version in (NO_MASK, NOT_SHIFTED):
        assert found[version]["dev_loss"] < 0.2
        assert found[version]["words"] > 0.9


def test_a_sound_one_learns_to_write(found):
    assert found[SOUND]["words"] < 0.5


def test_the_same_seed_gives_the_same_figures():
    one, other, another = (honesty.train(NOT_SHIFTED, toy(100), seed=seed, steps=3) for seed in (0, 0, 1))
    assert one == other != another


def test_what_each_makes_of_the_sample_is_shown(found):
    for version in honesty.VERSIONS:
        assert len(found[version]["sample"].split("; ")) == len(honesty.SAMPLE)
    assert set(found[NO_MASK]["sample"].split("; ")) == {"(nothing)"}


def test_an_unknown_version_is_named():
    with pytest.raises(ValueError, match="sound, no causal mask, not shifted, got 'shifted'"):
        honesty.train("shifted", toy(70), seed=0)
