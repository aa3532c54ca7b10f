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
        pad_id: what fills an answer behind its end, any integer, since the model never reads it; `eos_id` when not given.
        strategy: "greedy" takes the most likely token at each step; "beam" looks for a likely whole; "sample" draws.
        num_beams: beam: number of beginnings kept at each step, K.
        length_penalty: beam: α of the score log P / ((5 + T) / 6)^α. At 0 the shorter is favored, larger favors the longer.
            Source: Wu et al. 2016, "Google's Neural Machine Translation System", equation 14; 0.6 is the Transformer paper's.
        temperature: sample: logits are divided by it; towards 0 it becomes greedy, but for a draw among equals.
        top_k: sample: draw from the k most likely tokens only. Source: Fan et al. 2018, "Hierarchical Neural Story Generation".
        top_p: sample: draw from the fewest most likely tokens that make up this probability. Source: Holtzman et al. 2020, "The
            Curious Case of Neural Text Degeneration".
        generator: sample: source of the draws, on the device of the inputs.
        use_cache: keep keys and values. Without, each step runs over everything again: the same answer, slower.

    Returns:
        (B, T) integers, the new tokens with `eos_id` where one came, then padding; T is what the longest took, 0 if B is.

    Raises:
        ValueError: a model in training mode, whose dropout would distort the text; arguments that do not fit, naming them,
            among them an empty prompt, a mask with holes, and an `eos_id` or `bos_id` outside of the model's vocabulary.
        TypeError: inputs, `eos_id` or `bos_id` that are not integers.
    """
    _check(model, max_new_tokens, strategy, num_beams, temperature, top_k, top_p)
    _check_inputs(model, inputs, mask)
    _check_tokens(model, bos_id, eos_id)
    if not len(inputs):
        return inputs.new_zeros(0, 0)
    with torch.inference_mode():
        text = _Text(model, inputs, mask, bos_id, max_new_tokens, use_cache)
        if strategy == "beam":
            tokens = _beam(text, num_beams, length_penalty, eos_id)
        elif strategy == "sample":
            tokens = _one_by_one(text, partial(_draw, temperature, top_k, top_p, generator), eos_id)
        else:
            tokens = _one_by_one(text, lambda logits: logits.argmax(dim=-1), eos_id)
    tokens = tokens.clone()  # outside of inference mode, so that the answer may be trained on
    if eos_id is None:
        return tokens
    ends = tokens == eos_id
    return tokens.masked_fill(ends.cumsum(dim=1) > ends.int(), eos_id if pad_id is None else pad_id)


def left_pad(sequences: Sequence[Tensor | Sequence[int]], pad_id: int = 0, *, device=None) -> tuple[Tensor, Tensor]:
    """Prompts of unequal length as one batch that ends where each of them ends.

    Args:
        sequences: B sequences of integers, each (length,).
        pad_id: what stands in front. A model looks it up like any token, so it has to be one.
        device: where the batch shall be; where the first tensor among the sequences is, when not given.

    Returns:
        tokens (B, P) and their mask (B, 1, 1, P), True = a real token.

    Raises:
        TypeError, ValueError: a sequence of anything but integers, or of other than one axis.
    """
    if device is None:
        device = next((sequence.device for sequence in sequences if isinstance(sequence, Tensor)), None)
    rows = [torch.as_tensor(sequence, device=device) for sequence in sequences]
    for row in rows:
        if row.dim() != 1:
            raise ValueError(f"each sequence has one axis, (length,), got shape {tuple(row.shape)}.")
        if len(row) and (row.is_floating_point() or row.dtype == torch.bool):  # an empty list carries no type of its own
            raise TypeError(f"sequences are of tokens, which are integers, got {row.dtype}.")
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

    def __init__(self, model, inputs, mask, bos_id, max_new_tokens, use_cache):
        self.model, self.max_new_tokens = model, max_new_tokens
        self.memory = {}  # what cross-attention reads
        prompt = inputs
        mask = None if mask is None or mask.all() else mask
        if _reads_a_source(model):
            positions = None if mask is None else positions_from_padding(mask)
            self.memory = {"memory": model.encode(inputs, mask, positions=positions), "memory_mask": mask}
            prompt, mask = inputs.new_full((inputs.size(0), 1), bos_id), None
        B, P = prompt.shape
        self.start = self.length = P
        self.tokens = prompt.new_zeros(B, P + max_new_tokens)
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
            token = token.masked_fill(ended, eos_id)  # the model reads it: a word, where padding may be none
            ended |= token == eos_id
        text.append(token)
        if eos_id is not None and ended.all():
            break
    return text.tokens[:, text.start : text.length]


def _draw(
    temperature: float, top_k: int | None, top_p: float | None, generator: torch.Generator | None, logits: Tensor
) -> Tensor:
    """Logits (B, V) -> tokens (B,)."""
    top_p = None if top_p == 1.0 else top_p  # all of them, and not those that a rounded sum leaves
    # The largest becomes 0, which no division can overflow; and nothing is divided by what float32 rounds to 0.
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / max(temperature, torch.finfo(logits.dtype).tiny)
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


def _check(model, max_new_tokens, strategy, num_beams, temperature, top_k, top_p) -> None:
    if model.training:
        raise ValueError("the model is in training mode, where dropout would distort the text: call model.eval() first.")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}.")
    for name, number in {"max_new_tokens": max_new_tokens, "num_beams": num_beams, "top_k": top_k}.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} is at least 1, got {number}.")
    if not temperature > 0:
        raise ValueError(f'temperature is above 0, got {temperature}. Its limit at 0 is strategy="greedy".')
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is a probability above 0, got {top_p}.")


def _check_inputs(model, inputs: Tensor, mask: Tensor | None) -> None:
    if inputs.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"inputs are tokens, of dtype torch.int64 or torch.int32, got {inputs.dtype}.")
    if inputs.dim() != 2 or inputs.size(1) < 1:
        raise ValueError(f"inputs must be (B, at least 1 token), got shape {tuple(inputs.shape)}.")
    if mask is None:
        return
    B, P = inputs.shape
    if mask.dtype != torch.bool or mask.shape != (B, 1, 1, P):
        raise ValueError(f"mask must be boolean of shape {(B, 1, 1, P)}, got {mask.dtype} of shape {tuple(mask.shape)}.")
    if _reads_a_source(model):
        return
    if not mask.any(dim=-1).all():
        raise ValueError("a prompt has no real token, and a text goes on from at least one: begin each with a first token.")
    if (mask[..., :-1] & ~mask[..., 1:]).any():
        raise ValueError("prompts are padded on the left and nowhere else, so that each goes on where it ends: see left_pad.")


def _check_tokens(model, bos_id: int | None, eos_id: int | None) -> None:
    if bos_id is None and _reads_a_source(model):
        raise ValueError("a Transformer needs bos_id, the token that each target begins with.")
    config = getattr(model, "config", None)  # a model of another kind may have none, and then any integer passes
    V = (_reads_a_source(model) and getattr(config, "target_vocab_size", None)) or getattr(config, "vocab_size", None)
    for name, token in {"bos_id": bos_id, "eos_id": eos_id}.items():
        if token is not None and not hasattr(token, "__index__"):
            raise TypeError(f"{name} is a token, an integer, got {token!r}.")
        if token is not None and V is not None and not 0 <= token < V:
            raise ValueError(f"{name} is a token of the vocabulary, 0 … {V - 1}, got {token}.")
