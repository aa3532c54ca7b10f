"""Which masks the attentions of a model receive while it runs as it is.

Shapes: B sequences, L queries, S keys.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lib import masks
from lib.multihead import MultiHeadAttention


@contextmanager
def recorded_masks(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Note what each `MultiHeadAttention` is told to hide, mask and `is_causal` together.

        with recorded_masks(model) as received:
            model(source, target, source_mask)
        received["decoder.layers.0.cross_attn"]  # (B, L, S) boolean, True = may attend

    What is noted is that of the latest call, for the first head. Outputs do not change.
    """
    received, handles = {}, []

    def note(name: str):
        def hook(module: MultiHeadAttention, args: tuple, options: dict) -> None:
            query = args[0]
            context = args[1] if len(args) > 1 else options.get("context")
            keys = query if context is None else context
            received[name] = links(query.size(0), query.size(1), keys.size(1), options)

        return hook

    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            handles.append(module.register_forward_pre_hook(note(name), with_kwargs=True))
    try:
        yield received
    finally:
        for handle in handles:
            handle.remove()


def links(B: int, L: int, S: int, options: dict) -> Tensor:
    """(B, L, S) boolean: what `mask` and `is_causal` among the options of a call leave, without a cache."""
    causal = masks.causal(L, S) if options.get("is_causal") else None
    joined = masks.combine(options.get("mask"), causal)
    if joined is None:
        return torch.ones(B, L, S, dtype=torch.bool)
    allowed = joined if joined.dtype == torch.bool else joined != -torch.inf
    if allowed.dim() == 4:
        allowed = allowed[:, 0]  # (B or 1, L or 1, S) of the first head
    return allowed.expand(B, L, S)
