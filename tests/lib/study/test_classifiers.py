"""The readers: equal sizes, padding without influence, and what each can and cannot know of the order."""

import pytest
import torch
from torch import nn

from lib.attention import SelfAttention
from lib.study import classifiers
from lib.study.classifiers import READERS, WIDTH, BiLSTM, Classifier, NoProjections, self_attention, trainable
from lib.study.data import Vocabulary

WORDS = 30
BLIND = ("bag of words", "attention")  # readers that take a document for a set of words


@pytest.fixture
def documents():
    """Three documents of 7, 4 and 1 tokens in one rectangle."""
    lengths = torch.tensor([7, 4, 1])
    tokens = torch.randint(2, WORDS, (3, 7))
    return tokens.masked_fill(torch.arange(7) >= lengths[:, None], Vocabulary.PAD), lengths


def classifier(name):
    vectors = torch.randn(WORDS, WIDTH)
    return Classifier(vectors, READERS[name](), 4).eval()


@pytest.mark.parametrize("name", READERS)
def test_padding_changes_no_logit(name, documents):
    tokens, lengths = documents
    model = classifier(name)
    together = model(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-4, atol=1e-5)
    filled = tokens.masked_fill(tokens == Vocabulary.PAD, 5)  # other content behind the end
    torch.testing.assert_close(model(filled, lengths), together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", READERS)
def test_only_readers_of_order_notice_that_the_words_are_shuffled(name, documents):
    tokens, lengths = documents[0][:1], documents[1][:1]
    model = classifier(name)
    change = (model(tokens.flip(1), lengths) - model(tokens, lengths)).abs().max()
    assert (change < 1e-5) == (name in BLIND)
    assert name in BLIND or change > 1e-3


def test_the_readers_that_learn_have_equal_sizes_within_three_percent():
    sizes = {name: trainable(classifier(name)) for name in READERS}
    assert sizes == {
        "bag of words": 64 * 4 + 4,
        "BiLSTM, final states": 2 * 4 * 18 * (64 + 18 + 2) + 36 * 4 + 4,
        "BiLSTM, mean": 2 * 4 * 18 * (64 + 18 + 2) + 36 * 4 + 4,
        "attention": 3 * 64 * 64 + 64 * 4 + 4,
        "attention, positions": 3 * 64 * 64 + 64 * 4 + 4,
    }
    learning = [size for name, size in sizes.items() if name != "bag of words"]
    assert max(learning) / min(learning) < 1.03


def test_training_leaves_the_word_vectors_as_they_are(documents):
    model = classifier("attention")
    model(*documents).sum().backward()
    assert model.embedding.weight.grad is None
    assert all(parameter.grad is not None for parameter in model.reader.parameters())


@pytest.mark.parametrize(
    ("projections", "bias", "count"),
    [("all", False, 3 * 64 * 64), ("all", True, 3 * 64 * 65), ("shared", False, 2 * 64 * 64), ("none", False, 0)],
)
def test_projections_have_the_parameters_their_name_says(projections, bias, count):
    assert trainable(self_attention(projections, bias=bias)) == count


def test_all_projections_are_the_librarys_own_attention():
    assert type(self_attention("all")) is SelfAttention


def test_a_shared_projection_matches_both_ways_alike_and_separate_ones_do_not():
    x = torch.randn(2, 5, WIDTH)

    def asymmetry(attention):
        scores = attention(x)[1].log()
        scores = scores - scores.diagonal(dim1=1, dim2=2)[..., None]  # log weights hold the scores up to one number a row
        own = (attention.q_proj(x) * attention.k_proj(x)).sum(-1) / WIDTH**0.5
        scores = scores + own[..., None]
        return (scores - scores.mT).abs().max()

    assert asymmetry(self_attention("shared")) < 1e-5
    assert asymmetry(self_attention("all")) > 1e-2


def test_without_projections_each_token_takes_the_mean_of_the_tokens_weighted_by_likeness():
    x = torch.randn(2, 5, WIDTH)
    mask = torch.tensor([True, True, True, False, True])[None].expand(5, 5)
    output, weights = NoProjections()(x, mask)
    scores = (x @ x.mT / 8).masked_fill(~mask, -torch.inf)
    torch.testing.assert_close(weights, scores.softmax(-1))
    torch.testing.assert_close(output, scores.softmax(-1) @ x)


@pytest.mark.parametrize(("projections", "bias"), [("some", False), ("none", True)])
def test_an_unknown_choice_of_projections_is_refused(projections, bias):
    with pytest.raises(ValueError, match=f"got '{projections}', bias={bias}"):
        self_attention(projections, bias=bias)


def test_the_final_states_are_the_last_of_the_forward_and_the_first_of_the_backward_direction():
    reader, x, lengths = BiLSTM("final"), torch.randn(2, 6, WIDTH), torch.tensor([6, 3])
    states = reader.lstm(x[1:, :3])[0]  # the second document alone
    expected = torch.cat([states[:, -1, :18], states[:, 0, 18:]], dim=-1)
    torch.testing.assert_close(reader(x, lengths)[1:], expected)


def test_the_forget_gates_start_at_one_and_no_other_bias_does():
    for name, bias in BiLSTM("mean").lstm.named_parameters():
        if name.startswith("bias_ih"):
            assert ((bias == 1) == (torch.arange(72) // 18 == 1)).all()


def test_sinusoids_are_those_of_the_formula():
    table = classifiers.sinusoids(50, WIDTH).double()
    for position in (0, 1, 17, 49):
        for pair in (0, 5, 31):
            angle = torch.tensor(position / 10_000 ** (2 * pair / WIDTH), dtype=torch.float64)
            torch.testing.assert_close(table[position, 2 * pair], angle.sin(), rtol=0, atol=1e-5)
            torch.testing.assert_close(table[position, 2 * pair + 1], angle.cos(), rtol=0, atol=1e-5)


def test_word_vectors_bring_words_of_like_company_together():
    texts = ["goal match team", "match team coach", "goal coach", "bank share profit", "share profit loss", "bank loss"] * 3
    vocabulary = Vocabulary.from_texts(texts)
    vectors = classifiers.word_vectors(texts, vocabulary, width=2)
    index = vocabulary.index
    likeness = nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
    assert vectors.shape == (len(vocabulary), 2)
    assert vectors[Vocabulary.PAD].abs().sum() == 0
    torch.testing.assert_close(vectors[2:].norm(dim=1), torch.full((len(vocabulary) - 2,), 2**0.5))
    assert likeness[index["goal"], index["coach"]] > 0.9 > 0.1 > likeness[index["goal"], index["bank"]].abs()
