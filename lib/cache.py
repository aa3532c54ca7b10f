"""Keys and values already computed, kept so that each new token costs one step and not a whole pass.

Shapes: B sequences (or beams), H_kv heads of key and value, S keys filled so far; d_k and d_v widths of a key and a value.
"""

import torch
from torch import Tensor


class KVCache:
    """Keys and values of one attention, in memory that is set aside once, at the first update.

    A cache is for inference: it is written in place, so no gradient flows through it.

    Args:
        max_length: number of positions to set aside.

    Raises:
        ValueError: a length below 1.
    """

    def __init__(self, max_length: int):
        if max_length < 1:
            raise ValueError(f"max_length is at least 1, got {max_length}.")
        self.max_length = max_length
        self.reset()

    def reset(self) -> None:
        """Forget everything, the memory included: the next update may bring another batch size, dtype or device."""
        self.length = 0
        self._keys = self._values = None

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the keys (B, H_kv, L, d_k) and values (B, H_kv, L, d_v) of L new positions.

        Returns:
            All keys (B, H_kv, S, d_k) and all values (B, H_kv, S, d_v) so far: views of the cache, valid until it changes.

        Raises:
            ValueError: more positions than were set aside, or shapes that differ from what the cache holds.
            RuntimeError: inputs that ask for a gradient, with gradients enabled.
        """
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise RuntimeError("a cache is written in place and passes no gradient on: use it under torch.no_grad().")
        start, stop = self.length, self.length + key.size(-2)
        if stop > self.max_length:
            raise ValueError(
                f"the cache is full: {start} of {self.max_length} positions are taken and {stop - start} more came. "
                f"Make it with max_length={stop} or more, or reset() it."
            )
        if key.dim() != 4 or value.dim() != 4 or key.shape[:3] != value.shape[:3]:
            raise ValueError(
                f"keys and values must be (B, H_kv, L, d), the same but for d, got {tuple(key.shape)} and {tuple(value.shape)}."
            )
        if self._keys is None:
            with torch.inference_mode(False):  # memory made in inference mode could not be written to outside of it
                self._keys, self._values = (self._reserve(x) for x in (key, value))
        for kept, new in ((self._keys, key), (self._values, value)):
            if kept.shape[:2] != new.shape[:2] or kept.size(-1) != new.size(-1):
                raise ValueError(
                    f"the cache holds (B, H_kv, S, d) = {(*kept.shape[:2], start, kept.size(-1))} and cannot take on keys "
                    f"{tuple(key.shape)} and values {tuple(value.shape)}. For another batch, reset() it."
                )
            if kept.dtype != new.dtype:
                raise ValueError(
                    f"the cache holds {kept.dtype} and cannot take on {new.dtype}. Run all steps under autocast or none, and "
                    "reset() it for another dtype."
                )
        for kept, new in ((self._keys, key), (self._values, value)):
            kept[:, :, start:stop] = new
        self.length = stop
        return self.keys, self.values

    @property
    def keys(self) -> Tensor | None:
        """(B, H_kv, S, d_k), a view; None before the first update."""
        return None if self._keys is None else self._keys[:, :, : self.length]

    @property
    def values(self) -> Tensor | None:
        """(B, H_kv, S, d_v), a view; None before the first update."""
        return None if self._values is None else self._values[:, :, : self.length]

    def reorder(self, beam_idx: Tensor) -> None:
        """Row i becomes what row beam_idx[i] was: beams follow their parents. Rows may be repeated or left out.

        Args:
            beam_idx: (B_new,) integers, 0 … B − 1.
        """
        if self._keys is not None:
            with torch.inference_mode(False):
                self._keys, self._values = (x.index_select(0, beam_idx) for x in (self._keys, self._values))

    def _reserve(self, x: Tensor) -> Tensor:
        return x.new_empty(*x.shape[:2], self.max_length, x.size(-1))  # (B, H_kv, max_length, d)


class DecoderCache:
    """The caches of a stack of layers: of each self-attention and, where there is an encoder, of each cross-attention.

    Args:
        num_layers: number of layers.
        max_length: number of positions to set aside in each self-attention.
        memory_length: number of positions of the encoder's output, for a stack with cross-attention. Its keys and values are
            computed at the first step and kept.

    Raises:
        ValueError: a number below 1.
    """

    def __init__(self, num_layers: int, max_length: int, memory_length: int | None = None):
        if num_layers < 1:
            raise ValueError(f"num_layers is at least 1, got {num_layers}.")
        self.self_attention = [KVCache(max_length) for _ in range(num_layers)]
        self.cross_attention = [None if memory_length is None else KVCache(memory_length) for _ in range(num_layers)]

    @property
    def length(self) -> int:
        """Number of positions that every self-attention holds.

        Raises:
            ValueError: layers that hold unequal numbers, after a step that broke off in the middle.
        """
        lengths = [cache.length for cache in self.self_attention]
        if min(lengths) != max(lengths):
            raise ValueError(f"the layers hold {lengths} positions, as a step broke off in the middle: reset() the cache.")
        return lengths[0]

    def check(self, num_layers: int, has_memory: bool) -> None:
        """Refuse to serve another stack than this cache was made for.

        Raises:
            ValueError: another number of layers, or a cache with a memory for layers without one.
        """
        if num_layers != len(self.self_attention):
            own = len(self.self_attention)
            raise ValueError(f"a cache of {own} layers cannot serve a stack of {num_layers}. A model's new_cache makes one.")
        if self.cross_attention[0] is not None and not has_memory:
            raise ValueError("a cache with memory_length serves decoder layers, and these layers read no memory.")

    def of_layer(self, i: int) -> dict[str, KVCache]:
        """What layer i takes: `cache`, and `memory_cache` where there is a memory."""
        own, memory = self.self_attention[i], self.cross_attention[i]
        return {"cache": own} if memory is None else {"cache": own, "memory_cache": memory}

    def reorder(self, beam_idx: Tensor, *, memory: bool = True) -> None:
        """Reorder every cache, see `KVCache.reorder`.

        Args:
            beam_idx: (B_new,) integers, 0 … B − 1.
            memory: whether to reorder the cross-attention's too. Beams of one sequence share a memory, so among them that
                would only move equal things about.
        """
        for cache in self.self_attention + (self.cross_attention if memory else []):
            if cache is not None:
                cache.reorder(beam_idx)

    def reset(self) -> None:
        """Forget everything in every cache."""
        for cache in self.self_attention + self.cross_attention:
            if cache is not None:
                cache.reset()
