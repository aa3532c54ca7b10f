"""The exercises of the chapter on encoder and decoder. Each check takes the reader's function and prints a verdict with advice.

    from lib.study.exercises import encoder_decoder as check
    check.decoder_inputs(decoder_inputs)

One module here for each exercise: its inputs, its texts, and the wrong versions it knows, right beside their advice.
"""

from typing import Any

from lib.study.exercises import check
from lib.study.exercises.encoder_decoder.crossed import CROSSED
from lib.study.exercises.encoder_decoder.decoder_counts import DECODER_PARAMETERS
from lib.study.exercises.encoder_decoder.normed import LAYER_NORM
from lib.study.exercises.encoder_decoder.order import SUB_LAYERS
from lib.study.exercises.encoder_decoder.penalty import PENALTY
from lib.study.exercises.encoder_decoder.pooled import TEXT_MEAN
from lib.study.exercises.encoder_decoder.shifted import SHIFTED
from lib.study.exercises.masks.truth import as_numbers
from lib.study.exercises.multi_head.counts import counted


def text_mean(answer: Any) -> None:
    """Check `text_mean(x, lengths)`: (B, L, D) and (B,) -> (B, D), the mean over the true tokens of each text."""
    check(TEXT_MEAN, answer)


def decoder_parameters(answer: Any) -> None:
    """Check `decoder_parameters(d_model, dim_feedforward, d_memory)`: the parameters of a decoder layer, a whole number."""
    check(DECODER_PARAMETERS, counted(answer))


def layer_norm(answer: Any) -> None:
    """Check `layer_norm(x, weight, bias, eps)`: (B, L, D), weight and bias (D,) -> (B, L, D)."""
    check(LAYER_NORM, answer)


def sub_layers(answer: Any) -> None:
    """Check `sub_layers(x, attention, feed_forward, norm1, norm2, norm_first)`: (B, L, D) -> (B, L, D)."""
    check(SUB_LAYERS, answer)


def decoder_inputs(answer: Any) -> None:
    """Check `decoder_inputs(labels, begin)`: (B, L) integers -> (B, L), the labels one place to the right behind `begin`."""
    check(SHIFTED, answer)


def cross_mask(answer: Any) -> None:
    """Check `cross_mask(source, target, pad)`: (B, S) and (B, L) integers -> (B, 1, L, S) boolean, True = may attend."""
    check(CROSSED, as_numbers(answer))


def beam_scores(answer: Any) -> None:
    """Check `beam_scores(log_probs, lengths, alpha)`: (B, K) and (B, K) integers -> (B, K)."""
    check(PENALTY, answer)
