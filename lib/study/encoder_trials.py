"""Encoders at work: one that names an article's topic and one that tags dates, trained once each, for scripts and a chapter.

Each comes in arms that differ in one thing: the number of layers, or whether a token looks both ways or only back.

Shapes: B texts in the batch, L tokens in the longest of them, C classes.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lib import masks
from lib.study import tagging
from lib.study.classifiers import trainable
from lib.study.data import TOPICS, batches, encode
from lib.study.dates import TAGS, Sentence, load_languages, sentences
from lib.study.scores import span_scores
from lib.study.training import accuracy, fit, seed_everything
from lib.study.trials import material
from lib.transformer import EncoderClassifier, EncoderTagger, TransformerConfig

WORDS = 200  # of an article, from its start
ARMS = {  # of the topics: number of layers, whether a token looks back only
    "no layer": (0, False),
    "one layer": (1, False),
    "two layers": (2, False),
    "one layer, one way": (1, True),
}
STARTS = ("random", "by company")  # of the word vectors: drawn, or from the words' company in the training texts
DATES = {"both ways": False, "one way": True}  # whether a token of a sentence looks back only
SENTENCES = {"train": 6000, "dev": 1000, "test": 1000}
SENTENCE_SEED = {"train": 0, "dev": 1, "test": 2}


class NoLayers(nn.Module):
    """In the place of an encoder: gives its input back."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        return x


class ByLengths(nn.Module):
    """A model that takes a padding mask, called with lengths, as `lib.study.training` calls its models."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """tokens (B, L), lengths (B,) -> what the model makes of them."""
        return self.model(tokens, masks.padding(lengths, tokens.size(1)))


def topic_model(layers: int, seed: int, *, one_way: bool = False, start: str = "random") -> EncoderClassifier:
    """An untrained classifier of width 64 with four heads; `layers` is 0 for the mean of the word vectors alone."""
    vocabulary, vectors = material().vocabulary, material().vectors
    seed_everything(seed)
    config = TransformerConfig(
        len(vocabulary), d_model=64, num_heads=4, num_encoder_layers=max(layers, 1), dim_feedforward=128, norm_first=True
    )
    model = EncoderClassifier(config, len(TOPICS))
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}.")
    if start == "by company":
        with torch.no_grad():
            model.embedding.tokens.weight.copy_(vectors / config.d_model**0.5)  # the embedding multiplies by √d_model
    if not layers:
        model.encoder = NoLayers()
    elif one_way:
        model.encoder.is_causal = True
    return model


def train_topics(arm: str, *, start: str, steps: int, lr: float, seed: int) -> EncoderClassifier:
    """One of ARMS, trained on the first WORDS words of the articles, 32 at a time."""
    layers, one_way = ARMS[arm]
    model = ByLengths(topic_model(layers, seed, one_way=one_way, start=start))
    examples = encode(material().corpus.train, material().vocabulary)
    stream = batches(examples, 32, shuffle=True, seed=seed, epochs=None, max_length=WORDS)
    fit(model, stream, lr=lr, seed=seed, steps=steps)
    return model.model


def topics(arm: str, *, start: str, steps: int, lr: float, seed: int, part: str) -> dict:
    """Train, and score on "dev" or "test": a row with the share of articles whose topic is named right."""
    model = train_topics(arm, start=start, steps=steps, lr=lr, seed=seed)
    score = topic_accuracy(model, part)
    row = {"arm": arm, "start": start, "steps": steps, "lr": lr, "seed": seed, "parameters": trainable(model)}
    return row | {"part": part, "accuracy": round(score, 4)}


def topic_accuracy(model: EncoderClassifier, part: str) -> float:
    """Share of the articles of a part whose topic the model names right, from their first WORDS words."""
    examples = encode(getattr(material().corpus, part), material().vocabulary)
    return accuracy(ByLengths(model), batches(examples, 64, max_length=WORDS))


class Dates(NamedTuple):
    """Sentences of the three parts, each in languages of its own, and the words known from the first part."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]
    words: tagging.Words


@lru_cache(maxsize=1)
def date_sentences() -> Dates:
    """Make them once; later calls give the same object."""
    languages = load_languages()
    parts = [sentences(getattr(languages, part), SENTENCES[part], SENTENCE_SEED[part]) for part in SENTENCES]
    return Dates(*parts, tagging.Words.from_sentences(parts[0]))


def train_dates(arm: str, *, epochs: int, lr: float, seed: int) -> EncoderTagger:
    """One of DATES: a tagger with two layers of width 64, trained on sentences in the training languages, 64 at a time."""
    given = date_sentences()
    seed_everything(seed)
    config = TransformerConfig(
        len(given.words), d_model=64, num_heads=4, num_encoder_layers=2, dim_feedforward=128, dropout=0.0, norm_first=True
    )
    model = EncoderTagger(config, len(TAGS))
    model.encoder.is_causal = DATES[arm]
    stream = tagging.batches(given.train, given.words, 64, seed=seed, epochs=epochs)
    fit(model, stream, lr=lr, seed=seed, loss=tagging.tagging_loss)
    return model


def spans(arm: str, *, epochs: int, lr: float, seed: int, part: str) -> dict:
    """Train, and score on the languages of "dev" or "test": a row with the F1 of all spans and of each kind."""
    model = train_dates(arm, epochs=epochs, lr=lr, seed=seed)
    given = date_sentences()
    found = tagging.tag_by_model(getattr(given, part), given.words, model)
    row = {"arm": arm, "epochs": epochs, "lr": lr, "seed": seed, "parameters": trainable(model), "part": part}
    return row | {name: round(score, 4) for name, score in span_f1(found, part).items()}


def span_f1(found: list[list[str]], part: str) -> dict[str, float]:
    """F1 of the spans that some tags of a part's sentences mark: of "all", of "DAY", "MONTH" and "YEAR"."""
    truth = [sentence.tags for sentence in getattr(date_sentences(), part)]
    return {name: span_scores(found, truth, None if name == "all" else name).f1 for name in ("all", "DAY", "MONTH", "YEAR")}
