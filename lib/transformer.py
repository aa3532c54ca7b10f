"""The Transformer: an encoder, a decoder, both together, and the small heads that make a model of them.

    Transformer        source (B, S) and target (B, L) -> logits of each next target token
    DecoderLM          tokens (B, L) -> logits of each next token (a GPT)
    EncoderClassifier  tokens (B, L) -> logits of the whole text's class
    EncoderTagger      tokens (B, L) -> logits of each token's tag

Masks say True = may attend, everywhere. `masks.padding(lengths)` is what a padded batch needs; causality is the models' own.
Where the padding is on the left, give `positions` too (`lib.positional.positions_from_padding`).

Shapes: B sequences, S source tokens, L (target) tokens, V words of the vocabulary, d_model the width of a token.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lib.cache import DecoderCache
from lib.stacks import Decoder, Embedding, Encoder, TransformerConfig

__all__ = ["Decoder", "DecoderLM", "Encoder", "EncoderClassifier", "EncoderTagger", "Transformer", "TransformerConfig"]


class Transformer(nn.Module):
    """Encoder and decoder: reads a source, and gives at each target token the logits of the next.

    Args:
        config: sizes and choices.

    Source: Vaswani et al. 2017. `TransformerConfig()` is its base model.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        target_vocab_size = config.target_vocab_size or config.vocab_size
        shared = config.tie_embeddings and target_vocab_size == config.vocab_size
        self.source_embedding = Embedding(config, config.vocab_size)
        # A shared table is held under one name, so that a state dict has it once.
        self.target_embedding = None if shared else Embedding(config, target_vocab_size)
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        self.output = None if config.tie_embeddings else _output(config.d_model, target_vocab_size)

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        *,
        memory_mask: Tensor | None = None,
        source_positions: Tensor | None = None,
        target_positions: Tensor | None = None,
    ) -> Tensor:
        """Teacher forcing: the logits at target token t are of token t + 1.

        Args:
            source: (B, S) integers.
            target: (B, L) integers.
            source_mask: (S, S) or (B or 1, H or 1, S or 1, S); `masks.padding(lengths)` for padded sources.
            target_mask: (L, L) or (B or 1, H or 1, L or 1, L), beside causality, which the decoder adds itself.
            memory_mask: (L, S) or (B or 1, H or 1, L or 1, S). When not given, what no source token may attend to is hidden
                from the decoder too: with a padding mask, the padding.
            source_positions, target_positions: (B, S) and (B, L), where the padding is on the left.

        Returns:
            (B, L, V) logits.

        Raises:
            ValueError: shapes that do not fit, naming them; a sequence longer than a learned table.
            TypeError: a mask that is neither boolean nor float.
        """
        memory = self.encode(source, source_mask, positions=source_positions)
        memory_mask = self.memory_mask(source_mask) if memory_mask is None else memory_mask
        return self.logits(self.decode(target, target_mask, memory=memory, memory_mask=memory_mask, positions=target_positions))

    def encode(self, source: Tensor, mask: Tensor | None = None, *, positions: Tensor | None = None) -> Tensor:
        """source (B, S) -> memory (B, S, d_model)."""
        return self.encoder(self.source_embedding(source, positions=positions), mask)

    def decode(
        self,
        target: Tensor,
        mask: Tensor | None = None,
        *,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        positions: Tensor | None = None,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        """target (B, L) -> (B, L, d_model), what `logits` takes. With a cache, the target continues what it holds."""
        x = self._target_embedding(target, offset=_held(cache), positions=positions)
        return self.decoder(x, mask, memory=memory, memory_mask=memory_mask, cache=cache)

    def logits(self, x: Tensor) -> Tensor:
        """(…, d_model) -> (…, V)."""
        return F.linear(x, self._target_embedding.tokens.weight) if self.output is None else self.output(x)

    def new_cache(self, max_length: int, memory_length: int) -> DecoderCache:
        """An empty cache for `max_length` target tokens and `memory_length` source tokens."""
        return DecoderCache(self.config.num_decoder_layers, max_length, memory_length)

    @property
    def _target_embedding(self) -> Embedding:
        return self.source_embedding if self.target_embedding is None else self.target_embedding

    @staticmethod
    def memory_mask(source_mask: Tensor | None) -> Tensor | None:
        """(…, S) of the encoder -> (…, 1, S) for the decoder: source tokens that some source token may attend to."""
        return None if source_mask is None else _allowed(source_mask).any(dim=-2, keepdim=True)


class DecoderLM(nn.Module):
    """A language model: at each token the logits of the next, from the tokens up to it.

    Args:
        config: sizes and choices; `num_decoder_layers` layers.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training".
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config, config.vocab_size)
        self.decoder = Encoder(config, config.num_decoder_layers, is_causal=True)
        self.output = None if config.tie_embeddings else _output(config.d_model, config.vocab_size)

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        """The logits at token t are of token t + 1.

        Args:
            tokens: (B, L) integers.
            mask: (L, L) or (B or 1, H or 1, L or 1, L), beside causality, which the model adds itself. Padding behind the
                tokens needs none: no token looks there.
            positions: (B, L), where the padding is on the left.
            cache: from `new_cache`: holds the tokens that went before and takes on these; the mask's keys count them all.

        Returns:
            (B, L, V) logits.

        Raises:
            ValueError: shapes that do not fit, naming them; a sequence longer than a learned table; a cache that is full.
            TypeError: a mask that is neither boolean nor float.
        """
        return self.logits(self.decode(tokens, mask, positions=positions, cache=cache))

    def decode(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        *,
        positions: Tensor | None = None,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        """tokens (B, L) -> (B, L, d_model), what `logits` takes."""
        return self.decoder(self.embedding(tokens, offset=_held(cache), positions=positions), mask, cache=cache)

    def logits(self, x: Tensor) -> Tensor:
        """(…, d_model) -> (…, V)."""
        return F.linear(x, self.embedding.tokens.weight) if self.output is None else self.output(x)

    def new_cache(self, max_length: int) -> DecoderCache:
        """An empty cache for `max_length` tokens."""
        return DecoderCache(self.config.num_decoder_layers, max_length)


class EncoderTagger(nn.Module):
    """A class for each token, from the whole text around it.

    Args:
        config: sizes and choices; `num_encoder_layers` layers.
        num_tags: number of classes.
    """

    def __init__(self, config: TransformerConfig, num_tags: int):
        super().__init__()
        self.config = config
        self.embedding, self.encoder = Embedding(config, config.vocab_size), Encoder(config)
        self.output = _output(config.d_model, num_tags, bias=True)

    def forward(self, tokens: Tensor, mask: Tensor | None = None, *, positions: Tensor | None = None) -> Tensor:
        """Read each token among all others.

        Args:
            tokens: (B, L) integers.
            mask: (L, L) or (B or 1, H or 1, L or 1, L); `masks.padding(lengths)` for padded texts.
            positions: (B, L), where the padding is on the left.

        Returns:
            (B, L, num_tags) logits. Those of padding mean nothing.

        Raises:
            ValueError, TypeError: as in `DecoderLM`.
        """
        return self.output(self.encoder(self.embedding(tokens, positions=positions), mask))


class EncoderClassifier(EncoderTagger):
    """A class for the whole text, from the mean of its tokens' vectors after the last layer.

    Args:
        config: sizes and choices; `num_encoder_layers` layers.
        num_classes: number of classes.
    """

    def __init__(self, config: TransformerConfig, num_classes: int):
        super().__init__(config, num_classes)

    def forward(self, tokens: Tensor, mask: Tensor | None = None, *, positions: Tensor | None = None) -> Tensor:
        """Read the whole text. Tokens, mask, positions and errors are those of `EncoderTagger`.

        Returns:
            (B, num_classes) logits. The mean is over the tokens that some token may attend to: with a padding mask, those of
            the text. A text without any has the mean 0.
        """
        x = self.encoder(self.embedding(tokens, positions=positions), mask)
        seen = x.new_ones(1, x.size(1), dtype=torch.bool) if mask is None else _allowed(mask)
        if mask is not None:
            seen = seen.any(dim=0)[None] if seen.dim() == 2 else seen.any(dim=(1, 2))  # (B or 1, L)
        # A long text's sum has no room in float16.
        total = x.masked_fill(~seen[..., None], 0.0).sum(dim=1, dtype=torch.promote_types(x.dtype, torch.float32))
        mean = total / seen.sum(dim=-1, keepdim=True).clamp(min=1)  # (B, d_model)
        return self.output(mean.to(x.dtype))


def _output(d_model: int, width: int, bias: bool = False) -> nn.Linear:
    """The last projection, started for logits of deviation 1 from vectors of deviation 1."""
    layer = nn.Linear(d_model, width, bias=bias)
    nn.init.normal_(layer.weight, std=d_model**-0.5)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _allowed(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask != -torch.inf


def _held(cache: DecoderCache | None) -> int:
    return 0 if cache is None else cache.length
