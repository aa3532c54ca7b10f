"""What the heads of a model look at, in numbers: how far, how widely, and how much at neighbors, first and last token.

Shapes: B sequences of L tokens each, H heads.
"""

from collections.abc import Iterable

import pandas as pd
import torch
from torch import Tensor, nn

from lib.multihead import recorded_weights

# Weight at a fixed place, seen from the query: name -> key minus query.
OFFSETS = {"before": -1, "itself": 0, "after": 1}


def measures(weights: Tensor) -> dict[str, Tensor]:
    """Six numbers of each head, means over sequences and over queries. The first and the last token's queries are left out.

    A model of this chapter frames each phrase by two markers. Their weights count as keys, and their queries do not.

    Args:
        weights: (B, H, L, L), rows that sum to 1.

    Returns:
        name -> (H,):
        "distance"  mean |key − query|, in tokens, by weight
        "entropy"   of the weights, in nats: 0 where one key has all, ln L where all have the same
        "before", "itself", "after"  weight of the token before the query, of its own, of the one after it
        "first", "last"  weight of the first and of the last token

    Raises:
        ValueError: weights of another shape, or of fewer than three tokens.
    """
    if weights.dim() != 4 or weights.size(-1) != weights.size(-2) or weights.size(-1) < 3:
        raise ValueError(f"weights must be (B, H, L, L) with L of at least 3, got {tuple(weights.shape)}.")
    places = torch.arange(weights.size(-1))
    offsets = (places[None, :] - places[:, None])[1:-1]  # (L − 2, L) key minus query
    w = weights[:, :, 1:-1]  # (B, H, L − 2, L)
    found = {"distance": w * offsets.abs(), "entropy": torch.special.entr(w)}
    found |= {name: w * (offsets == offset) for name, offset in OFFSETS.items()}
    found |= {"first": w[..., :1], "last": w[..., -1:]}
    return {name: values.sum(dim=-1).mean(dim=(0, 2)) for name, values in found.items()}


@torch.no_grad()
def profile(model: nn.Module, batches: Iterable[Tensor]) -> pd.DataFrame:
    """The measures of every head in a model, over batches of sentences, each phrase with the same say.

    Args:
        model: called with tokens (B, L), none of them padding.
        batches: tokens (B, L), one length each.

    Returns:
        A row for each layer and head, in the order of the model's layers; both numbered from 1.

    Raises:
        ValueError: no batches.
    """
    sums: dict[str, dict[str, Tensor]] = {}
    count = 0
    for tokens in batches:
        with recorded_weights(model) as weights:
            model(tokens)
        count += len(tokens)
        for name, found in weights.items():
            of_layer = sums.setdefault(name, {})
            for measure, values in measures(found).items():
                of_layer[measure] = of_layer.get(measure, 0) + values * len(tokens)
    if not count:
        raise ValueError("there is no profile of no phrases: the batches are empty, or a generator that was used up.")
    return pd.DataFrame(
        [
            {"layer": layer, "head": head}
            | {measure: (values[head - 1] / count).item() for measure, values in of_layer.items()}
            for layer, of_layer in enumerate(sums.values(), start=1)
            for head in range(1, len(of_layer["distance"]) + 1)
        ]
    )


def uniform(batches: Iterable[Tensor]) -> pd.Series:
    """The same measures of a head that weighs all tokens alike: what a head is to be compared with."""
    sums, count = {}, 0
    for tokens in batches:
        L = tokens.size(1)
        count += len(tokens)
        for name, values in measures(torch.full((1, 1, L, L), 1 / L)).items():
            sums[name] = sums.get(name, 0) + values.item() * len(tokens)
    return pd.Series({name: total / count for name, total in sums.items()})
