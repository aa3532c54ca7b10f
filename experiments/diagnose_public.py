"""Public attention modules under `lib.diagnostics`: one row of diagnose_public.csv for each module and check.

No failure is written down on the word of the diagnosis alone: each must first be seen again by a few lines that call the module
directly, those of `REPRODUCTIONS`, and the script stops at one that has none or whose lines show nothing. `reading` says in one
sentence what the failure means. The modules are in `_public_modules.py`.

    pip install x-transformers transformers performer-pytorch local-attention linear-attention-transformer
    pip install nystrom-attention linformer
    pip install --no-deps labml-nn labml==0.4.168 labml-helpers    # its MultiHeadAttention needs no more

    python experiments/diagnose_public.py           # adds what is missing for the versions installed; about 1 minute
    python experiments/diagnose_public.py --fresh   # begins again

A package that is not installed is named and left out; rows that the file has of it stay. Columns: value and bound are those
of the figure nearest to its bound or farthest beyond it, empty where a check could not run; where: in which mode; seen_again:
the figure of the lines that reproduce it; reading and kind, one of KINDS: what a failure means, in a sentence and in a word.
"""

import copy
import importlib.metadata
import sys
from pathlib import Path

import torch
from _public_modules import PACKAGES, D, L, Subject, V
from torch import Tensor

from lib.diagnostics import FAILED, diagnose
from lib.study import records

RESULTS = Path(__file__).with_suffix(".csv")
SEED = 1
EMPTY, FUTURE = "a wholly padded sample stays finite", "nothing leaks from the future"
BATCH, HEADS = "a sample alone equals itself in a batch", "heads keep their positions"
CONTENT, AMOUNT = "padding's content changes nothing", "padding's amount changes nothing"
HALF, LONG = "half precision is finite and close", "a long input gives a value or a clear error"


# ---- every failure once more, without lib.diagnostics: (module, x, call) -> how much is wrong, 0 if nothing


def lost(y: Tensor) -> int:
    """Numbers that are not finite."""
    return int((~y.isfinite()).sum())


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference over the largest magnitude."""
    return float((one - other).abs().max() / other.abs().max())


@torch.no_grad()
def empty(m, x, call):
    keep = torch.ones(x.shape[:2], dtype=torch.bool)
    keep[-1] = False
    return lost(call(m.eval(), x, keep))


@torch.no_grad()
def future(m, x, call):
    other = x.clone()
    other[:, 5:] = 100 * torch.randn_like(x[:, 5:])
    return apart(call(m.eval(), other, None)[:, :5], call(m, x, None)[:, :5])


def gradient_in_front(m, x, call):
    keep = torch.ones(x.shape[:2], dtype=torch.bool)
    keep[0, :3] = False
    x = x.clone().requires_grad_()
    call(m.eval(), x, keep)[keep].sum().backward()
    return lost(x.grad[~keep])


@torch.no_grad()
def content(m, x, call):
    keep = torch.arange(x.size(1)).lt(5).expand(x.shape[:2])
    other = torch.where(keep[..., None], x, torch.randn_like(x))
    return apart(call(m.eval(), other, keep)[:, :5], call(m, x, keep)[:, :5])


@torch.no_grad()
def amount(m, x, call):
    keep = torch.arange(x.size(1)).lt(5).expand(x.shape[:2])
    return apart(call(m.eval(), x, keep)[:, :5], call(m, x[:, :5], None))


@torch.no_grad()
def one_token(m, x, call):
    """One real token among padding, and the same token by itself."""
    keep = torch.arange(x.size(1)).lt(1).expand(x.shape[:2])
    return apart(call(m.eval(), x, keep)[:, :1], call(m, x[:, :1], None))


@torch.no_grad()
def no_mask(m, x, call):
    """A sequence of 5 without a mask, and with one that hides nothing."""
    return apart(call(m.eval(), x[:, :5], None), call(m, x[:, :5], torch.ones(len(x), 5, dtype=torch.bool)))


@torch.no_grad()
def first_token(m, x, call):
    """The first token of a causal module, with the rest and without, in float64."""
    m, x = copy.deepcopy(m).eval().double(), x.double()
    return apart(call(m, x, None)[:, :1], call(m, x[:, :1], None))


@torch.no_grad()
def alone(m, x, call):
    return apart(call(m.eval(), x, None)[:1], call(m, x[:1], None))


@torch.no_grad()
def others(m, x, call):
    """What a sequence of padding alone does to the other sequences of the batch."""
    keep = torch.ones(x.shape[:2], dtype=torch.bool)
    full = keep.clone()
    keep[-1] = False
    return apart(call(m.eval(), x, keep)[:-1], call(m, x, full)[:-1])


@torch.no_grad()
def half(m, x, call):
    return lost(call(copy.deepcopy(m).eval().half(), (16 * x).half(), None))


def long(m, x, call):
    try:
        call(m.eval(), x[:, :1].expand(-1, 256), None)
    except AssertionError as error:
        return int(not str(error))
    return 0


FAULT, EMPTY_ROW, LIMIT, DESIGN, MISUSE = KINDS = ("fault", "empty row", "limit", "by design", "misuse")


def kind_of(reading: str) -> str:
    """A word for a failure, by its reading: `FAULT` unless it is a row without a key, or of `MILDER`."""
    if "without a key" in reading or "no key either" in reading:
        return EMPTY_ROW
    return next((kind for words, kind in MILDER.items() if words in reading), FAULT)


# What stands in the reading of a failure that nobody needs to mend.
MILDER = {
    "float16": LIMIT,
    "an assert without a message": LIMIT,
    "By design": DESIGN,
    "documented as a hint": MISUSE,
}
NO_KEY = "A row without a key is 0/0 in its softmax, and NaN comes out"
ZEROS = "It fills up the last window with zeros, which real tokens attend to unless a mask is given"
PERFORMER = (
    "The mask sets values to 0 but keeps the keys in the denominator, and the largest key of all, padding too, sets the scale"
)
LATER = "The largest key of the whole sequence, later ones too, sets the scale to which a constant is added"
REPRODUCTIONS = {
    "torch": {
        ("MultiheadAttention, no weights", EMPTY): (empty, f"{NO_KEY}; on the fast path alone."),
        ("MultiheadAttention, weights", EMPTY): (empty, f"{NO_KEY}, in every mode."),
        ("TransformerEncoderLayer", EMPTY): (empty, f"{NO_KEY}; on the fast path alone."),
        ("TransformerEncoderLayer, causal mask", EMPTY): (empty, f"{NO_KEY}; on the fast path alone."),
        ("TransformerEncoderLayer, is_causal alone", FUTURE): (
            future,
            "is_causal is documented as a hint beside a mask; alone it is refused, and on the fast path ignored.",
        ),
    },
    "labml-nn": {
        ("MultiHeadAttention", EMPTY): (empty, f"{NO_KEY}, in every mode."),
        ("MultiHeadAttention, causal mask", EMPTY): (empty, f"{NO_KEY}, in every mode."),
        ("MultiHeadAttention, causal mask", CONTENT): (
            gradient_in_front,
            "Padding in front of a causal sequence has no key either: NaN once more, in gradients.",
        ),
    },
    "performer-pytorch": {
        ("SelfAttention", CONTENT): (content, f"{PERFORMER}."),
        ("SelfAttention", AMOUNT): (amount, f"{PERFORMER}."),
        ("SelfAttention", HALF): (half, "Features and their sums come to 0 in float16, and 0/0."),
        ("SelfAttention, causal", FUTURE): (future, f"{LATER}: a small leak, larger the larger later tokens are."),
        ("SelfAttention, causal", HEADS): (first_token, "The leak from the future, seen by the first token."),
        ("SelfAttention, causal", CONTENT): (content, f"{PERFORMER}."),
        ("SelfAttention, causal", AMOUNT): (amount, f"{PERFORMER}."),
        ("SelfAttention, causal", HALF): (half, "Features and their sums come to 0 in float16, and 0/0."),
    },
    "local-attention": {
        ("LocalMHA, both ways", AMOUNT): (no_mask, f"{ZEROS}."),
        ("LocalMHA, both ways", HEADS): (no_mask, f"{ZEROS}: the same fault."),
        ("LocalTransformer", LONG): (long, "Beyond max_seq_len an assert without a message."),
    },
    "linear-attention-transformer": {
        ("SelfAttention, causal", HALF): (half, "exp of a key leaves the range of float16."),
    },
    "nystrom-attention": {
        ("NystromAttention", BATCH): (alone, "Its pseudo-inverse starts from a maximum over the whole batch."),
        ("NystromAttention", EMPTY): (others, "All is finite; the other sequences move, for the same maximum."),
        ("NystromAttention", AMOUNT): (
            amount,
            "By design: landmarks are means of segments, and these move with the length. Also, zeros fill up a sequence, and "
            "without a mask they count.",
        ),
        ("NystromAttention", HEADS): (one_token, "As above: the zeros that fill up a sequence count."),
    },
}


def reproduce(package: str, subject: Subject, check: str) -> tuple[float, str]:
    """The figure and the reading of a failure, seen without `lib.diagnostics`.

    Raises:
        RuntimeError: there are no lines for it, or they show nothing.
    """
    if (subject.name, check) not in REPRODUCTIONS.get(package, {}):
        raise RuntimeError(f"{package}, {subject.name}, {check}: failed. Reproduce it by hand first, in REPRODUCTIONS.")
    lines, reading = REPRODUCTIONS[package][subject.name, check]
    torch.manual_seed(SEED + 1)  # another, else random content would be x once more
    figure = lines(subject.module, subject.x, subject.call)
    if not figure > 1e-5:
        raise RuntimeError(f"{package}, {subject.name}, {check}: its lines give {figure:.2g}. A false alarm?")
    return figure, reading


def rows(package: str, version: str, subject: Subject) -> list[dict]:
    """One row for each check."""
    call = subject.call if subject.takes_keep else lambda m, x: subject.call(m, x, None)
    report = diagnose(subject.module, subject.x, call, subject.causal, subject.positional, subject.step)
    found = []
    for finding in report:
        ran, worst = bool(finding.measurements) and (finding.result == FAILED or not finding.reasons), finding.worst
        row = {"package": package, "version": version, "module": subject.name, "check": finding.check}
        row |= {"result": finding.result, "value": f"{worst.value:.3g}" if ran else "", "bound": worst.bound if ran else ""}
        row |= {"where": worst.where if ran else "", "what": worst.what if ran else "; ".join(finding.reasons)}
        again, reading = reproduce(package, subject, finding.check) if finding.result == FAILED else ("", "")
        row |= {"seen_again": again if again == "" else f"{again:.3g}", "reading": reading}
        found.append(row | {"kind": kind_of(reading) if reading else ""})
    return found


def main() -> None:
    torch.set_num_threads(1)
    if "--fresh" in sys.argv:
        RESULTS.unlink(missing_ok=True)
    for package, subjects in PACKAGES.items():
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            print(f"{package} is left out: pip install {package}")
            continue
        torch.manual_seed(SEED)
        for subject in subjects(torch.randn(3, L, D), torch.randint(0, V, (3, L))):
            if not records.holds(RESULTS, package=package, version=version, module=subject.name, torch=torch.__version__):
                records.append(RESULTS, rows(package, version, subject))
                print(package, version, subject.name, flush=True)


if __name__ == "__main__":
    main()
