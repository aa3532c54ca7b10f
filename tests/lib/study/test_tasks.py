"""The tasks: the passage is really where it says, and the look-up really has the answer that its labels give."""

from itertools import islice, pairwise

import numpy as np
import pytest

from lib.study import tasks
from lib.study.data import Article, Example, Vocabulary
from lib.study.tasks import PASSAGE, Passages

# Words that tell where they come from: source n is made of n·1000 + 0, 1, 2, …; the background of numbers from 50,000 on.
SOURCES = [Example([1000 * number + word for word in range(90)], number % 4) for number in range(1, 9)]
BACKGROUND = [[50_000 + 100 * text + word for word in range(60)] for text in range(5)]


@pytest.fixture
def passages():
    return Passages(SOURCES, BACKGROUND)


def planted(tokens):
    """Places of the tokens that are no background."""
    return [place for place, token in enumerate(tokens) if token < 50_000]


@pytest.mark.parametrize("length", [40, 50, 200, 800])
@pytest.mark.parametrize(("position", "share"), [(0.0, 0), (0.25, 0.25), (0.5, 0.5), (0.75, 0.75), (1.0, 1)])
def test_the_passage_stands_whole_and_in_order_where_the_position_says(passages, length, position, share):
    for example, source in zip(passages.examples(length, position), SOURCES, strict=True):
        places = planted(example.tokens)
        assert len(example.tokens) == length
        assert places == list(range(places[0], places[0] + PASSAGE))
        assert places[0] == round(share * (length - PASSAGE))
        passage = example.tokens[places[0] : places[-1] + 1]
        start = passage[0] % 1000
        assert list(passage) == source.tokens[start : start + PASSAGE]
        assert example.label == source.label


def test_moving_the_passage_changes_nothing_else(passages):
    start, middle, end = (passages.examples(200, position) for position in (0, 0.5, 1))
    for a, b, c in zip(start, middle, end, strict=True):
        assert sorted(a.tokens) == sorted(b.tokens) == sorted(c.tokens)
        assert [t for t in a.tokens if t >= 50_000] == [t for t in b.tokens if t >= 50_000]
        assert a.tokens != b.tokens != c.tokens


def test_the_background_is_a_stretch_of_articles_one_after_the_other(passages):
    (example, *_) = passages.examples(400, 0)
    background = example.tokens[PASSAGE:]
    breaks = [b for a, b in pairwise(background) if b != a + 1]
    assert all(token % 100 == 0 for token in breaks)  # it goes on by one, or starts another article


def test_training_documents_share_a_length_and_have_passages_anywhere(passages):
    lengths, starts, labels = [], [], set()
    for batch in islice(passages.batches(seed=0, longest=400, batch_size=4), 200):
        assert (batch.lengths == batch.tokens.shape[1]).all()
        lengths.append(batch.tokens.shape[1])
        for tokens, label in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
            places = planted(tokens)
            starts.append(places[0] / (len(tokens) - PASSAGE))
            labels.add(label)
            assert tokens[places[0]] // 1000 % 4 == label
    assert 50 <= min(lengths) < 60
    assert 350 < max(lengths) <= 400
    assert abs(np.mean([length <= 141 for length in lengths]) - 0.5) < 0.1  # 141 = √(50 · 400)
    assert np.histogram(starts, bins=5, range=(0, 1))[0].min() > 0.15 * len(starts)
    assert labels == {0, 1, 2, 3}


def test_the_same_seed_gives_the_same_training_documents(passages):
    def tokens(seed):
        return [batch.tokens.tolist() for batch in islice(passages.batches(seed, 100, 2), 3)]

    assert tokens(1) == tokens(1) != tokens(2)


def test_business_is_the_background_and_the_other_topics_are_numbered():
    articles = [Article(f"{topic} word", topic) for topic in ("tech", "business", "entertainment")]
    vocabulary = Vocabulary.from_texts((article.text for article in articles), min_count=1)
    passages = Passages.from_articles(articles, vocabulary)
    assert [vocabulary.decode(text) for text in passages.background] == [["business", "word"]]
    assert [(vocabulary.decode(source.tokens)[0], source.label) for source in passages.sources] == [
        ("tech", 3),
        ("entertainment", 0),
    ]
    assert tasks.PASSAGE_TOPICS == ("entertainment", "politics", "sports", "tech")


@pytest.mark.parametrize(("length", "position"), [(39, 0.5), (100, -0.1), (100, 1.1)])
def test_a_document_without_room_or_a_position_outside_it_is_refused(passages, length, position):
    with pytest.raises(ValueError, match=rf"got {length} and {position}"):
        passages.examples(length, position)


def test_a_source_shorter_than_the_passage_is_refused():
    with pytest.raises(ValueError, match="cannot cut 40 tokens out of 39"):
        Passages([Example(range(39), 0)], BACKGROUND).examples(100, 0.5)


def test_the_look_up_is_solved_by_looking_up():
    for batch in islice(tasks.lookup(seed=0, batch_size=16), 5):
        for tokens, labels in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
            table = {name: value for name, _, value in tokens}
            assert len(table) == tasks.MEMBERS  # all names differ
            assert [table[wanted] for _, wanted, _ in tokens] == labels


def test_the_wants_of_the_look_up_form_one_ring():
    batch = next(tasks.lookup(seed=0))
    for tokens in batch.tokens.tolist():
        wants = {name: wanted for name, wanted, _ in tokens}
        name, visited = tokens[0][0], []
        for _ in range(tasks.MEMBERS):
            name = wants[name]
            visited.append(name)
        assert sorted(visited) == sorted(wants)


def test_who_mixes_up_wanting_and_being_wanted_is_right_in_nine_of_sixteen_cases():
    right = total = 0
    for batch in islice(tasks.lookup(seed=0), 40):
        for tokens, labels in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True):
            value_of_admirer = {wanted: value for _, wanted, value in tokens}
            for (name, _, _), label in zip(tokens, labels, strict=True):
                right += (1 + (value_of_admirer[name] == label)) / 2  # a fair coin between the two
                total += 1
    assert right / total == pytest.approx(0.5625, abs=0.01)


def test_the_look_up_has_every_value_equally_often_and_repeats_itself_from_the_seed():
    batch, again, other = (next(tasks.lookup(seed, batch_size=2000)) for seed in (0, 0, 1))
    shares = np.bincount(batch.labels.flatten(), minlength=tasks.VALUES) / batch.labels.numel()
    assert abs(shares - 1 / tasks.VALUES).max() < 0.01
    assert all((a == b).all() for a, b in zip(batch, again, strict=True))
    assert (batch.tokens != other.tokens).any()
    assert batch.lengths.tolist() == [tasks.MEMBERS] * 2000
