"""Several pronunciations of one word, the most likely first: a beam search written to be read, which keeps all that it finds.

`lib.generation.generate` searches many words at once and hands out the best of each; this one takes a single word and its time.

Shapes: K beginnings, S letters with their end, V phonemes and special symbols.
"""

from typing import NamedTuple

import torch

from lib.study.pronunciation import LETTERS, PHONEMES
from lib.transformer import Transformer


class Alternative(NamedTuple):
    """A pronunciation that a model found possible."""

    sounds: tuple[str, ...]
    log_prob: float  # of the sounds and the end behind them
    score: float  # log_prob / ((5 + length) / 6) ** length_penalty; the length counts the end


@torch.no_grad()
def alternatives(
    model: Transformer, spelling: str, *, num_beams: int = 8, length_penalty: float = 0.6, room: int = 10
) -> list[Alternative]:
    """Keep the likeliest beginnings, let each go on by one phoneme, and collect what ends.

    Args:
        model: from `LETTERS` to `PHONEMES`, in evaluation mode.
        spelling: a word of the letters a–z.
        num_beams: beginnings kept at each step, K.
        length_penalty: 0 favors the short, larger favors the long.
        room: phonemes beyond the number of letters after which to stop.

    Returns:
        What ended within the search, the highest score first; nothing if nothing ended.

    Raises:
        ValueError: a model in training mode; a symbol that is no letter.
    """
    if model.training:
        raise ValueError("the model is in training mode, where dropout would distort the answer: call model.eval() first.")
    source = torch.tensor([LETTERS.encode(spelling)])  # (1, S)
    memory = model.encode(source)
    beginnings = [((PHONEMES.BEGIN,), 0.0)]  # tokens, log-probability
    found: list[Alternative] = []
    for length in range(1, source.size(1) + room + 1):
        tokens = torch.tensor([tokens for tokens, _ in beginnings])  # (K, length)
        x = model.decode(tokens, memory=memory.expand(len(tokens), -1, -1))
        log_probs = model.logits(x[:, -1]).log_softmax(dim=-1)  # (K, V)
        total = log_probs + torch.tensor([[log_prob] for _, log_prob in beginnings])
        values, places = total.flatten().topk(2 * num_beams)  # at most K of them end
        going_on = []
        for value, place in zip(values.tolist(), places.tolist(), strict=True):
            row, token = divmod(place, total.size(1))
            if token == PHONEMES.END:
                score = value / ((5 + length) / 6) ** length_penalty
                found.append(Alternative(PHONEMES.decode(beginnings[row][0]), value, score))
            elif len(going_on) < num_beams:
                going_on.append(((*beginnings[row][0], token), value))
        beginnings = going_on
        # What goes on can only lose probability: stop when even so it could not come in among the best K.
        best = sorted((one.score for one in found), reverse=True)[:num_beams]
        bound = beginnings[0][1] / ((5 + source.size(1) + room) / 6) ** length_penalty
        if len(best) == num_beams and best[-1] >= bound:
            break
    return sorted(found, key=lambda one: one.score, reverse=True)[:num_beams]
