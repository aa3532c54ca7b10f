"""The trials of small encoders: the arms differ in what they say they do, and a short training already learns something."""

import pytest
import torch

from lib import masks
from lib.study import encoder_trials as trials
from lib.study.classifiers import trainable
from lib.study.tagging import tag_by_model
from lib.study.trials import material


def moves_first(model, tokens):
    """Whether another last token moves what the model makes of the first."""
    other = tokens.clone()
    other[:, -1] = 5
    return bool((model.encoder(model.embedding(tokens)) - model.encoder(model.embedding(other)))[:, 0].abs().max() > 0)


@pytest.mark.parametrize(
    ("arm", "layers", "ahead"), [("one layer", 1, True), ("two layers", 2, True), ("one layer, one way", 1, False)]
)
def test_an_arm_has_its_layers_and_looks_where_it_may(arm, layers, ahead):
    model = trials.topic_model(trials.ARMS[arm][0], seed=0, one_way=trials.ARMS[arm][1]).eval()
    assert len(model.encoder.layers) == layers
    assert moves_first(model, torch.arange(2, 9)[None]) == ahead


def test_no_layer_is_a_linear_map_of_the_mean_vector():
    model = trials.topic_model(0, seed=0).eval()
    tokens, lengths = torch.tensor([[7, 8, 9], [7, 8, 0]]), torch.tensor([3, 2])
    x = model.embedding(tokens)
    means = torch.stack([x[0].mean(dim=0), x[1, :2].mean(dim=0)])
    torch.testing.assert_close(trials.ByLengths(model)(tokens, lengths), model.output(means))
    assert trainable(model) == 8000 * 64 + 64 * 5 + 5


def test_vectors_by_company_are_those_of_the_training_texts_and_have_their_size():
    model = trials.topic_model(1, seed=0, start="by company").eval()
    tokens = torch.tensor([[5, 6]])
    at = model.embedding.positions(torch.zeros(1, 2, 64))
    torch.testing.assert_close(model.embedding(tokens) - at, material().vectors[tokens], atol=1e-5, rtol=1e-5)


def test_another_start_is_refused():
    with pytest.raises(ValueError, match="random, by company, got 'zero'"):
        trials.topic_model(1, seed=0, start="zero")


def test_the_seed_decides_the_weights_of_a_training():
    a, b, c = (trials.train_topics("no layer", start="random", steps=2, lr=1e-2, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.output.weight, b.output.weight)
    assert not torch.equal(a.output.weight, c.output.weight)


def test_a_short_training_on_topics_beats_guessing():
    row = trials.topics("no layer", start="by company", steps=60, lr=1e-2, seed=0, part="dev")
    assert row["accuracy"] > 0.6  # the largest topic has 0.24
    assert list(row) == ["arm", "start", "steps", "lr", "seed", "parameters", "part", "accuracy"]


def test_lengths_become_a_padding_mask():
    model = trials.topic_model(1, seed=0).eval()
    tokens, lengths = torch.tensor([[7, 8, 9], [7, 8, 0]]), torch.tensor([3, 2])
    torch.testing.assert_close(trials.ByLengths(model)(tokens, lengths), model(tokens, masks.padding(lengths, 3)))


def test_the_parts_of_the_dates_share_no_language():
    given = trials.date_sentences()
    train, dev, test = ({one.locale.split("_")[0] for one in part} for part in given[:3])
    assert train.isdisjoint(dev | test)
    assert dev.isdisjoint(test)


def test_spans_are_scored_by_kind():
    truth = [list(one.tags) for one in trials.date_sentences().dev]
    assert trials.span_f1(truth, "dev") == dict.fromkeys(("all", "DAY", "MONTH", "YEAR"), 1.0)
    without_days = [["O" if tag.endswith("DAY") else tag for tag in tags] for tags in truth]
    scores = trials.span_f1(without_days, "dev")
    assert (scores["DAY"], scores["YEAR"]) == (0.0, 1.0)
    assert 0 < scores["all"] < 1


def test_taggers_look_where_they_may_and_learn(monkeypatch):
    given = trials.date_sentences()
    few = given._replace(train=given.train[:1200], dev=given.dev[:200])
    monkeypatch.setattr(trials, "date_sentences", lambda: few)
    scores = {}
    for arm in trials.DATES:
        model = trials.train_dates(arm, epochs=2, lr=5e-3, seed=0)
        scores[arm] = trials.span_f1(tag_by_model(few.dev, few.words, model), "dev")["all"]
        assert moves_first(model, torch.arange(2, 9)[None]) == (arm == "both ways")
    assert min(scores.values()) > 0.5
