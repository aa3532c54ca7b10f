"""Small models that learn to pronounce short words, one as it should and two that see their answers in training.

Shapes: B words, S letters with their end, L phonemes with their end, V phonemes and special symbols.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from lib.study.pronunciation import LETTERS, PHONEMES, Entry, Lexicon, Pair, PairBatch, batches, pairs
from lib.study.scores import error_rates
from lib.study.seq2seq import source_mask, transcribe
from lib.study.training import fit, seed_everything
from lib.transformer import Transformer, TransformerConfig

SOUND, NO_MASK, NOT_SHIFTED = "sound", "no causal mask", "not shifted"
VERSIONS = (SOUND, NO_MASK, NOT_SHIFTED)
STEPS, LR, MAX_TOKENS = 300, 3e-3, 1024
LONGEST = 6  # letters
SAMPLE = ("candle", "crime", "gnarly")  # of the dev part, shown as each model writes them
SIZES = {"d_model": 64, "num_heads": 4, "num_encoder_layers": 1, "num_decoder_layers": 1, "dim_feedforward": 128}
CONFIG = TransformerConfig(len(LETTERS), len(PHONEMES), norm_first=True, tie_embeddings=False, dropout=0.0, **SIZES)


def short(entries: list[Entry]) -> list[Entry]:
    """The words of at most `LONGEST` letters."""
    return [entry for entry in entries if len(entry.spelling) <= LONGEST]


def as_read(batch: PairBatch, version: str) -> PairBatch:
    """What the decoder reads in training: the phonemes before each place, or by mistake those of the place itself."""
    return batch._replace(inputs=batch.labels) if version == NOT_SHIFTED else batch


def loss(model: Transformer, batch: PairBatch) -> Tensor:
    """Mean cross entropy in nats per phoneme; padding does not count."""
    logits = model(batch.source, batch.inputs, source_mask(batch.source, batch.source_lengths))  # (B, L, V)
    return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PHONEMES.PAD)


def train(version: str, lexicon: Lexicon, seed: int, *, steps: int = STEPS, progress: bool = False) -> dict[str, float | str]:
    """Train one model and let it write.

    Args:
        version: one of `VERSIONS`. "no causal mask" lets every place see the whole target; "not shifted" shows each place its
            own label.
        lexicon: short words of its training part are learned, of its dev part written.
        seed: of the weights and of the order of the batches.

    Returns:
        train_loss: mean of the last 20 steps, nats per phoneme; dev_loss: of the dev words, read in the same way; words: share
        of 400 dev words that the model, reading what it wrote before, writes wrong; sample: what it makes of `SAMPLE`, as text.

    Raises:
        ValueError: an unknown version.
    """
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {', '.join(VERSIONS)}, got {version!r}.")
    seed_everything(seed)
    model = Transformer(CONFIG)
    model.decoder.is_causal = version != NO_MASK
    examples = pairs(short(lexicon.train))
    history = fit(model, _stream(examples, version, seed), lr=LR, seed=seed, steps=steps, loss=loss, progress=progress)
    dev = short(lexicon.dev)[:400]
    firsts = [Pair(LETTERS.encode(entry.spelling), PHONEMES.encode(entry.sounds[0])) for entry in dev]
    with torch.no_grad():
        losses = [loss(model, as_read(batch, version)).item() for batch in batches(firsts, 8192)]
    written = transcribe(model, [entry.spelling for entry in dev])
    return {
        "train_loss": sum(history.losses[-20:]) / 20,
        "dev_loss": sum(losses) / len(losses),
        "words": error_rates(written, [entry.sounds for entry in dev]).words,
        "sample": "; ".join(" ".join(said) or "(nothing)" for said in transcribe(model, list(SAMPLE))),
    }


def _stream(examples: list[Pair], version: str, seed: int) -> Iterator[PairBatch]:
    """Batches without end, each epoch in another order."""
    epoch = 0
    while True:
        for batch in batches(examples, MAX_TOKENS, seed=(seed, epoch)):
            yield as_read(batch, version)
        epoch += 1
