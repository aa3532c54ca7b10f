"""Writing text with a model, token by token: greedy, by beam search or by sampling, with a cache of keys and values or without.

Shapes: B sequences, P tokens of a prompt, S source tokens, T new tokens, V words of the vocabulary, K beams.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from lib.positional import positions_from_padding
from lib.transformer import DecoderLM, Transformer

STRATEGIES = ("greedy", "beam", "sample")


def generate(
    model: DecoderLM | Transformer,
    inputs: Tensor,
    max_new_tokens: int,
    *,
    mask: Tensor | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    strategy: str = "greedy",
    num_beams: int = 4,
    length_penalty: float = 0.6,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Tensor:
    """Let a model continue a prompt, or write the target of a source.

    Args:
        model: in eval mode. Anything else with their methods `decode`, `logits`, `new_cache` and, with a source, `encode` will
            do.
        inputs: (B, P) prompts of a `DecoderLM`, padded on the left where they are unequal (`left_pad`); (B, S) sources of a
            `Transformer`, padded on either side.
        max_new_tokens: number of tokens after which to stop in any case, T at most.
        mask: (B, 1, 1, P) or (B, 1, 1, S) boolean, True = a real token, of padded inputs.
        bos_id: token that begins each target of a `Transformer`. It is not part of the answer.
        eos_id: token that ends a sequence. Each stops on its own; all run to the end when not given.
        pad_id: what fills an answer behind its end; `eos_id` when not given.
        strategy: "greedy" takes the most likely token at each step; "beam" looks for a likely whole; "sample" draws.
        num_beams: beam: number of beginnings kept at each step, K.
        length_penalty: beam: α of the score log P / ((5 + T) / 6)^α. At 0 the shorter is favored, larger favors the longer.
            Source: Wu et al. 2016, "Google's Neural Machine Translation System", equation 14; 0.6 is the Transformer paper's.
        temperature: sample: logits are divided by it; towards 0 it becomes greedy.
        top_k: sample: draw from the k most likely tokens only. Source: Fan et al. 2018, "Hierarchical Neural Story Generation".
        top_p: sample: draw from the fewest most likely tokens that make up this probability. Source: Holtzman et al. 2020, "The
            Curious Case of Neural Text Degeneration".
        generator: sample: source of the draws, on the device of the inputs.
        use_cache: keep keys and values. Without, each step runs over everything again: the same answer, slower.

    Returns:
        (B, T) integers, the new tokens with `eos_id` where one came, then padding; T is what the longest took.

    Raises:
        ValueError: a model in training mode, whose dropout would distort the text; arguments that do not fit, naming them.
    """
    _check(model, inputs, max_new_tokens, mask, bos_id, strategy, num_beams, temperature, top_k, top_p)
    pad_id = (eos_id or 0) if pad_id is None else pad_id
    with torch.inference_mode():
        text = _Text(model, inputs, mask, bos_id, pad_id, max_new_tokens, use_cache)
        if strategy == "beam":
            tokens = _beam(text, num_beams, length_penalty, eos_id)
        elif strategy == "sample":
            tokens = _one_by_one(text, partial(_draw, temperature, top_k, top_p, generator), eos_id)
        else:
            tokens = _one_by_one(text, lambda logits: logits.argmax(dim=-1), eos_id)
    return tokens.clone()  # outside of inference mode, so that the answer may be trained on


def left_pad(sequences: Sequence[Tensor | Sequence[int]], pad_id: int = 0, *, device=None) -> tuple[Tensor, Tensor]:
    """Prompts of unequal length as one batch that ends where each of them ends.

    Args:
        sequences: B sequences of integers, each (length,).

    Returns:
        tokens (B, P) and their mask (B, 1, 1, P), True = a real token.
    """
    rows = [torch.as_tensor(sequence, dtype=torch.long, device=device) for sequence in sequences]
    P = max((len(row) for row in rows), default=0)
    tokens = torch.full((len(rows), P), pad_id, dtype=torch.long, device=device)
    mask = torch.zeros(len(rows), 1, 1, P, dtype=torch.bool, device=device)
    for i, row in enumerate(rows):
        tokens[i, P - len(row) :] = row
        mask[i, ..., P - len(row) :] = True
    return tokens, mask


class _Text:
    """The texts so far and the model that continues them: one interface to both kinds of model, with and without a cache.

    All memory is set aside at the start. A step without padding builds no mask and no positions.
    """

    def __init__(self, model, inputs, mask, bos_id, pad_id, max_new_tokens, use_cache):
        self.model, self.pad_id, self.max_new_tokens = model, pad_id, max_new_tokens
        self.memory = {}  # what cross-attention reads
        prompt = inputs
        mask = None if mask is None or mask.all() else mask
        if _reads_a_source(model):
            positions = None if mask is None else positions_from_padding(mask)
            self.memory = {"memory": model.encode(inputs, mask, positions=positions), "memory_mask": mask}
            prompt, mask = inputs.new_full((inputs.size(0), 1), bos_id), None
        B, P = prompt.shape
        self.start = self.length = P
        self.tokens = prompt.new_full((B, P + max_new_tokens), pad_id)
        self.tokens[:, :P] = prompt
        self.mask = self.positions = None
        if mask is not None:
            self.mask = torch.cat((mask, mask.new_ones(B, 1, 1, max_new_tokens)), dim=-1)
            self.positions = positions_from_padding(self.mask)
        self.cache = None
        if use_cache:  # the last new token is never looked at
            room = P + max_new_tokens - 1
            self.cache = model.new_cache(room, inputs.size(1)) if self.memory else model.new_cache(room)

    def next_logits(self) -> Tensor:
        """(B, V) in float32 or float64."""
        seen = 0 if self.cache is None else self.cache.length
        options = dict(self.memory)
        if self.mask is not None:
            options |= {"mask": self.mask[..., : self.length], "positions": self.positions[:, seen : self.length]}
        x = self.model.decode(self.tokens[:, seen : self.length], cache=self.cache, **options)
        logits = self.model.logits(x[:, -1])
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def append(self, tokens: Tensor) -> None:
        """Take on the next token of each text, (B,)."""
        self.tokens[:, self.length] = tokens
        self.length += 1

    @property
    def new_tokens(self) -> Tensor:
        """(B, T)."""
        return self.tokens[:, self.start : self.length]

    def spread(self, K: int) -> None:
        """Each text becomes K of the same, side by side."""
        rows = torch.arange(len(self.tokens), device=self.tokens.device).repeat_interleave(K)
        self.memory = {name: x if x is None else x[rows] for name, x in self.memory.items()}
        if self.mask is not None:
            self.mask, self.positions = self.mask[rows], self.positions[rows]
        self.tokens = self.tokens[rows]
        if self.cache is not None:
            self.cache.reorder(rows)

    def follow(self, rows: Tensor) -> None:
        """Text i goes on from what text rows[i] was; both continue the same input."""
        self.tokens = self.tokens[rows]
        if self.cache is not None:
            self.cache.reorder(rows, memory=False)


def _one_by_one(text: _Text, choose: Callable[[Tensor], Tensor], eos_id: int | None) -> Tensor:
    """Append what `choose` makes of the logits, until every text has ended."""
    ended = torch.zeros(len(text.tokens), dtype=torch.bool, device=text.tokens.device)
    for _ in range(text.max_new_tokens):
        token = choose(text.next_logits())
        if eos_id is not None:
            token = token.masked_fill(ended, text.pad_id)
            ended |= token == eos_id
        text.append(token)
        if eos_id is not None and ended.all():
            break
    return text.new_tokens


def _draw(
    temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None, logits: Tensor
) -> Tensor:
    """Logits (B, V) -> tokens (B,)."""
    logits = logits / temperature
    if top_k is None and top_p is None:
        return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)[:, 0]
    V = logits.size(-1)
    logits, tokens = logits.topk(V if top_k is None else min(top_k, V))  # the most likely first
    probabilities = logits.softmax(dim=-1)
    if top_p is not None:
        # A token stays if those before it do not make up top_p yet. The first always does.
        before = probabilities.cumsum(dim=-1) - probabilities
        probabilities = probabilities.masked_fill(before >= top_p, 0.0)
    return tokens.gather(1, torch.multinomial(probabilities, 1, generator=generator))[:, 0]


def _beam(text: _Text, K: int, alpha: float, eos_id: int | None) -> Tensor:
    """Keep the K most likely beginnings of each text, and the best whole text found."""
    B, last = len(text.tokens), text.max_new_tokens
    logits = text.next_logits()  # the beginnings of one text are still all the same
    V = logits.size(-1)
    text.spread(K)
    logits = logits.repeat_interleave(K, dim=0)  # (B·K, V)
    scores = logits.new_full((B, K), -torch.inf)  # log-probabilities of the beginnings, best first
    scores[:, 0] = 0.0
    first = torch.arange(0, B * K, K, device=logits.device)[:, None]  # (B, 1): row of each text's first beam
    best = _Best(text, B, scores)
    for length in range(1, last + 1):
        candidates = scores[..., None] + logits.log_softmax(dim=-1).view(B, K, V)
        candidates, index = candidates.flatten(1).topk(min(2 * K, K * V))  # (B, 2K): at most K of them end
        rows, tokens = first + index // V, index % V
        if eos_id is not None:
            ends = tokens == eos_id
            best.offer(candidates.masked_fill(~ends, -torch.inf)[:, :K] / _norm(length, alpha), rows, eos_id)
            candidates = candidates.masked_fill(ends, -torch.inf)
        scores, kept = candidates.topk(K)
        text.follow(rows.gather(1, kept).flatten())
        text.append(tokens.gather(1, kept).flatten())
        if length == last:
            break
        # log P only falls from here on, so this is the most that a beginning can still reach.
        best.close(scores[:, 0] / max(_norm(length + 1, alpha), _norm(last, alpha)))
        if best.closed.all():
            break
        logits = text.next_logits()
    best.offer(scores / _norm(length, alpha), first + torch.arange(K, device=first.device))  # texts that were cut off
    return best.tokens[:, text.start : text.start + int(best.lengths.max())]


def _reads_a_source(model) -> bool:
    return hasattr(model, "encode")  # and not its class: a compiled model is of another


def _norm(length: int, alpha: float) -> float:
    return ((5 + length) / 6) ** alpha


class _Best:
    """The best whole text of each of B so far."""

    def __init__(self, text: _Text, B: int, scores: Tensor):
        self.text = text
        self.scores = scores.new_full((B,), -torch.inf)
        self.tokens = text.tokens[:: len(text.tokens) // B].clone()
        self.lengths = torch.zeros(B, dtype=torch.long, device=scores.device)
        self.closed = torch.zeros(B, dtype=torch.bool, device=scores.device)

    def offer(self, scores: Tensor, rows: Tensor, token: int | None = None) -> None:
        """Candidates with scores (B, n): the text of rows (B, ≥ n), with `token` as its end if there is one."""
        scores, which = scores.max(dim=1)
        tokens, length = self.text.tokens[rows.gather(1, which[:, None])[:, 0]], self.text.length
        if token is not None:
            tokens[:, length] = token
            length += 1
        better = (scores > self.scores) & ~self.closed
        self.scores = torch.where(better, scores, self.scores)
        self.tokens = torch.where(better[:, None], tokens, self.tokens)
        self.lengths = self.lengths.masked_fill(better, length - self.text.start)

    def close(self, bound: Tensor) -> None:
        """No more candidates for the texts whose best cannot be beaten, whatever is still to come."""
        self.closed |= bound <= self.scores


def _check(model, inputs, max_new_tokens, mask, bos_id, strategy, num_beams, temperature, top_k, top_p) -> None:
    if model.training:
        raise ValueError("the model is in training mode, where dropout would distort the text: call model.eval() first.")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}.")
    if inputs.dim() != 2 or inputs.size(1) < 1:
        raise ValueError(f"inputs must be (B, at least 1 token), got shape {tuple(inputs.shape)}.")
    for name, number in {"max_new_tokens": max_new_tokens, "num_beams": num_beams, "top_k": top_k}.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} is at least 1, got {number}.")
    if not temperature > 0:
        raise ValueError(f'temperature is above 0, got {temperature}. Its limit at 0 is strategy="greedy".')
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is a probability above 0, got {top_p}.")
    if mask is not None and (mask.dtype != torch.bool or mask.shape != (len(inputs), 1, 1, inputs.size(1))):
        B, P = inputs.shape
        raise ValueError(f"mask must be boolean of shape {(B, 1, 1, P)}, got {mask.dtype} of shape {tuple(mask.shape)}.")
    if _reads_a_source(model):
        if bos_id is None:
            raise ValueError("a Transformer needs bos_id, the token that each target begins with.")
    elif mask is not None and not mask[..., -1].all():
        raise ValueError("prompts are padded on the left, so that each ends where its text goes on: see left_pad.")
