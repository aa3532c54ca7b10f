"""Which checks there are, in which modes each runs, and what a failure of it most likely means."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from lib.diagnostics import figures, links, sameness, structure
from lib.diagnostics.modes import MODES, WITH_DROPOUT, Mode, as_found
from lib.diagnostics.probe import CannotRun, Probe, Run, brief
from lib.diagnostics.report import Finding, Measurement

TRAIN, EVAL = (tuple(mode for mode in MODES if mode.training is training) for training in (True, False))
GRADIENTS, NO_GRADIENTS = (tuple(mode for mode in MODES if mode.gradients is gradients) for gradients in (True, False))


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: what a sound module does, in words.
        run: yields the figures of one mode.
        cause: what is likely wrong where it fails.
        change: what to do then.
        modes: in which modes it runs.
    """

    name: str
    run: Callable[[Run], Iterator[Measurement]]
    cause: str
    change: str
    modes: tuple[Mode, ...] = MODES


CHECKS = (
    Check(
        "nothing leaks from the future",
        links.future,
        "No causal mask, one that is inverted or shifted by one, or heads reshaped without a transpose.",
        "Hide key j from query i wherever j > i, before the softmax, on every path: masks.causal(L).",
        (*MODES, WITH_DROPOUT),
    ),
    Check(
        "a full mask is no mask",
        links.full_mask,
        "The mask is read the other way round: True hides where it should allow.",
        "Invert it where it enters: key_padding_mask of nn.MultiheadAttention is ~keep.",
    ),
    Check(
        "padding's content changes nothing",
        links.padding_content,
        "The padding mask is forgotten, inverted, added as 0 and 1, put on the queries' axis, or out of step with the heads.",
        "Hide padded keys with −inf before the softmax: keep[:, None, None, :] for scores (B, H, L, S).",
        (*MODES, WITH_DROPOUT),
    ),
    Check(
        "padding's amount changes nothing",
        links.padding_amount,
        "Padded keys take part in the softmax or in a mean, or positions are counted from the padded end.",
        "Mask them in attention, and divide means by the number of real tokens.",
    ),
    Check(
        "a sample alone equals itself in a batch",
        links.batch,
        "The batch is mixed: axes taken for one another (batch_first), a reshape across samples, a softmax over the batch.",
        "Write down each shape; keep the batch as its own first axis up to the output.",
        (*MODES, WITH_DROPOUT),
    ),
    Check(
        "a wholly padded sample stays finite",
        links.wholly_padded,
        "The softmax of a row of −inf is 0/0, which is NaN, and NaN · 0 spoils the gradients of all parameters.",
        "Give empty rows harmless scores before the softmax and weight 0 after it, as lib.attention does.",
    ),
    Check(
        "eval is deterministic",
        sameness.eval_is_deterministic,
        "Dropout does not ask for the mode: F.dropout(x, p) and F.scaled_dot_product_attention(dropout_p=p) drop in eval too.",
        "Pass training=self.training, or dropout_p=self.dropout if self.training else 0.0.",
        EVAL,
    ),
    Check(
        "dropout 0 makes training deterministic",
        sameness.no_dropout_is_deterministic,
        "A probability of dropping is written into the code, or something else draws random numbers.",
        "Take the probability from the module's argument, in one place.",
        TRAIN,
    ),
    Check(
        "train equals eval at dropout 0",
        sameness.train_equals_eval,
        "Two paths that mean different things: a mask that hangs on self.training or on gradients, or a norm over the batch.",
        "One path for both modes; choose speed, never meaning, by the mode.",
    ),
    Check(
        "inputs are untouched",
        sameness.inputs_untouched,
        "An operation in place on what the caller owns: x += …, masked_fill_, mask[…] = ….",
        "Use the form that returns a new tensor: x = x + …, masked_fill.",
    ),
    Check(
        "order matters only with positions",
        structure.order,
        "Without positions: axes or heads mixed, or an unwanted mask. With positions: they are never added, or all alike.",
        "Compare with attention written as loops; check that positions differ and reach queries and keys.",
    ),
    Check(
        "heads keep their positions",
        structure.heads,
        "Heads are split or joined by a reshape alone, so that a head holds parts of several tokens; or hidden tokens count.",
        "(B, L, H·d) → unflatten → (B, L, H, d) → transpose(1, 2) → (B, H, L, d), and the same way back.",
    ),
    Check(
        "step by step equals the full pass",
        structure.steps,
        "A step's mask is aligned to the first key (is_causal with L ≠ S), positions restart at 0, or the cache is masked.",
        "Align the mask to the last key, masks.causal(L, S), and offset positions by the cache's length.",
        NO_GRADIENTS,
    ),
    Check(
        "half precision is finite and close",
        figures.half_precision,
        "A constant such as −1e9 or finfo(float32).min for −inf, or scores multiplied before they are scaled.",
        "Hide with −inf, scale the query before the product, take the softmax in float32.",
    ),
    Check(
        "a long input gives a value or a clear error",
        figures.long_input,
        "A table of positions or a stored mask ends, and the shapes fail somewhere inside.",
        "Compare lengths first, and raise a ValueError with both and the remedy.",
    ),
    Check(
        "scores have a sane size at the start",
        figures.scores,
        "The scale 1/√d_k is missing or applied the wrong way, or the projections start too large.",
        "Divide the scores, or the query, by √d_k; start weights with deviation about 1/√d_model.",
    ),
    Check(
        "attention has not collapsed",
        figures.alive,
        "Saturated softmax, projections that start alike or at 0, copied heads; after training, too high a learning rate.",
        "Start each projection and layer on its own; check scale and learning rate. A sink on the first token may be learned.",
    ),
    Check(
        "gradients reach every projection",
        figures.gradients,
        "A projection is not used, is computed and thrown away, or its result is detached (.detach(), .data, no_grad).",
        "Follow the named matrix from its definition to the output.",
        GRADIENTS,
    ),
)


def carry_out(checks: Iterable[Check], probe: Probe) -> tuple[Finding, ...]:
    """Each check in each of its modes. Errors of the module are reasons why a check could not run, and are told.

    Raises:
        ValueError: the module cannot be called with x at all.
    """
    with torch.inference_mode(False), as_found(probe.module, probe.x):
        probe.try_out()
        return tuple(_finding(check, probe) for check in checks)


def _finding(check: Check, probe: Probe) -> Finding:
    measurements, reasons = [], {}
    for mode in check.modes:
        run = Run(probe, mode)
        try:
            with run:
                measurements += check.run(run)
        except CannotRun as reason:
            reasons.setdefault(str(reason), []).append(mode)
        except Exception as problem:
            reasons.setdefault(brief(problem), []).append(mode)
    everywhere = len(check.modes)
    told = tuple(text if len(at) == everywhere else f"{text} ({'; '.join(map(str, at))})" for text, at in reasons.items())
    return Finding(check.name, tuple(measurements), told, check.cause + _only(check, measurements), check.change)


def _only(check: Check, measurements: list[Measurement]) -> str:
    """A hint where a check fails in some modes and passes in others."""
    bad = {one.where for one in measurements if not one.passed}
    failing = [mode for mode in check.modes if str(mode) in bad]
    if not failing or len(failing) == len(check.modes):
        return ""
    passing = [mode for mode in check.modes if str(mode) not in bad]
    if not any(mode.training for mode in failing) and any(mode.training for mode in passing):
        everywhere = all(mode in failing for mode in check.modes if not mode.training)
        return " In eval alone" + (": look for self.training." if everywhere else " and not always: look for a fast path.")
    if all(mode.training for mode in failing):
        return " In train alone: look for self.training."
    if not any(mode.gradients for mode in failing):
        return " Without gradients alone: look for a fast path that asks torch.is_grad_enabled()."
    return ""
