"""The model of hidden letters: what is hidden and asked, that it learns, and that a row of the experiment says what was run."""

import math

import pytest
import torch

from lib.study import heads_letters as letters
from lib.study import heads_trials
from lib.study.data import Article


def test_phrases_are_whole_words_as_many_as_fit():
    text = "The cup fell, and it broke into many small pieces; nobody knew"
    found = list(letters.phrases([Article(text, "tech")]))
    assert found == ["the cup fell and it broke into", "many small pieces nobody knew"]
    assert list(letters.phrases([Article("too short", "tech")])) == []


def test_a_phrase_stands_between_markers_and_strange_signs_are_refused():
    coded = letters.encode("a b")
    assert [coded[0], coded[-1]] == [letters.START, letters.END]
    assert "".join(letters.LETTERS[number - 3] for number in coded[1:-1]) == "a b"
    with pytest.raises(ValueError, match="not 'É'"):
        letters.encode("cafÉ")


def test_hidden_letters_are_asked_for_and_nothing_else():
    rows = torch.randint(3, 30, (60, 25), generator=torch.Generator().manual_seed(0))
    rows[:, 0], rows[:, -1] = letters.START, letters.END
    batch = next(letters.hidden_batches({25: rows}, seed=0))
    hidden = batch.tokens == letters.HIDDEN
    assert 0.15 < hidden[:, 1:-1].float().mean().item() < 0.25
    assert not hidden[:, [0, -1]].any()
    assert (batch.labels[~hidden] == letters.NOT_ASKED).all()
    whole = torch.where(hidden, batch.labels, batch.tokens)
    assert all((rows == row).all(dim=1).any() for row in whole)


def test_each_phrase_asks_for_a_letter_even_where_chance_hides_none(monkeypatch):
    monkeypatch.setattr(letters, "SHARE", 0.0)
    rows = torch.randint(3, 30, (9, 25), generator=torch.Generator().manual_seed(0))
    batch = next(letters.hidden_batches({25: rows}, seed=0))
    assert (batch.tokens[:, 1] == letters.HIDDEN).all()
    assert ((batch.labels != letters.NOT_ASKED).sum(dim=1) == 1).all()


def test_a_fresh_model_guesses_and_a_few_steps_teach_it():
    fresh = letters.new_guesser(0)
    assert letters.score(fresh, batches=2)[1] == pytest.approx(math.log(41), abs=0.6)
    trained, history = letters.train_guesser(0, steps=25, lr=5e-3)
    assert history.losses[-1] < history.losses[0] - 0.5
    share, loss = letters.score(trained, batches=2)
    assert share > 0.1
    assert loss < 3.2
    assert letters.score(trained, batches=2) == (share, loss)


def test_phrases_come_by_length_and_all_between_their_markers():
    for part in letters.material():
        assert list(part) == sorted(part)
        for length, rows in part.items():
            assert rows.size(1) == length
            assert letters.SHORTEST + 2 <= length <= letters.LONGEST + 2
            assert (rows[:, 0] == letters.START).all()
            assert (rows[:, -1] == letters.END).all()


def test_weights_of_a_phrase_are_those_of_each_layer_with_rows_that_sum_to_one():
    model = letters.new_guesser(0, num_heads=2, num_layers=3)
    found = letters.weights_of(model, "any phrase")
    assert [tuple(weights.shape) for weights in found] == [(2, 12, 12)] * 3
    for weights in found:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 12))
    assert not torch.allclose(found[0], found[1])


@pytest.mark.parametrize(
    ("task", "parameters"),
    [
        ("two look-ups", 4 * 64**2),
        ("four look-ups", 4 * 64**2),
        ("topics", 4 * 64**2),
        ("letters", 2 * (4 * 64**2 + 4 * 64)),
    ],
)
def test_a_row_names_its_setting(task, parameters):
    row = heads_trials.TASKS[task](heads=4, steps=2, lr=1e-3, seed=1, part="dev")
    assert tuple(row) == heads_trials.COLUMNS
    assert (row["task"], row["heads"], row["steps"], row["lr"], row["seed"], row["part"]) == (task, 4, 2, 1e-3, 1, "dev")
    assert row["parameters"] == parameters
    assert 0 <= row["accuracy"] <= 1


def test_the_blend_of_one_head_has_the_greater_weight_first():
    row = heads_trials.one_head_blend(feed_forward=False, steps=60, lr=1e-2, seed=0)
    assert row["more_weight"] > row["less_weight"] >= 0
    assert row["more_weight"] + row["less_weight"] <= 1
    assert row["right_of_more"] > row["right_of_less"]
