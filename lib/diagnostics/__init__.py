"""What is wrong with an attention module, the reader's own included.

    report = diagnose(module, x, call=lambda m, x, keep: m(x, key_padding_mask=None if keep is None else ~keep), causal=False)
    print(report)
    report.raise_if_failed()      # in a test suite

`diagnose` runs every check; the functions named `assert_…` run one each. `record_attention` shows the weights of a model. Any
module in plain torch will do; nothing is asked of it but to be called.

It judges a module by its behavior. One that computes something else soundly looks sound to it: a scale that is too small, heads
that share keys in another order, a causal mask that hides the query itself. To find these, compare with a reference, as
`lib.attention`.
"""

from torch import Tensor, nn

from lib.diagnostics.assertions import (
    assert_batch_independent,
    assert_causal,
    assert_deterministic,
    assert_finite_when_wholly_padded,
    assert_gradients_reach_projections,
    assert_half_precision,
    assert_heads_keep_positions,
    assert_ignores_padding,
    assert_inputs_untouched,
    assert_long_input,
    assert_not_collapsed,
    assert_order,
    assert_sane_scores,
    assert_steps_equal_full_pass,
    assert_train_equals_eval,
)
from lib.diagnostics.catalog import CHECKS, carry_out
from lib.diagnostics.probe import Call, Probe, Step
from lib.diagnostics.recording import record_attention
from lib.diagnostics.report import COULD_NOT_RUN, FAILED, PASSED, Finding, Measurement, Report

__all__ = [
    "COULD_NOT_RUN",
    "FAILED",
    "PASSED",
    "Finding",
    "Measurement",
    "Report",
    "assert_batch_independent",
    "assert_causal",
    "assert_deterministic",
    "assert_finite_when_wholly_padded",
    "assert_gradients_reach_projections",
    "assert_half_precision",
    "assert_heads_keep_positions",
    "assert_ignores_padding",
    "assert_inputs_untouched",
    "assert_long_input",
    "assert_not_collapsed",
    "assert_order",
    "assert_sane_scores",
    "assert_steps_equal_full_pass",
    "assert_train_equals_eval",
    "diagnose",
    "record_attention",
]


def diagnose(
    module: nn.Module,
    x: Tensor,
    call: Call | None = None,
    causal: bool = True,
    positional: bool = False,
    step: Step | None = None,
    *,
    untrained: bool = True,
) -> Report:
    """Every check on one module, each in train and eval, with and without gradients.

    The module is left as it was found: mode, parameters, buffers, gradients and the state of the random numbers.

    Args:
        module: any module: an attention, a layer, a whole model.
        x: what it is called with, (B, L, d_model) floats of about unit variance or (B, L) integer tokens; B ≥ 2 and 6 to 20
            different tokens serve well. Of one sequence two are made.
        call: `call(module, x, keep)` calls the module and returns its outputs; the first tensor, (B, L, …), is what is
            compared. `keep` is (B, L), True = a real token, or None for "all are real": turn it into the module's own mask. The
            padding it speaks of stands behind or in front. Raise an error for what the module does not claim to support: what
            needs it is then reported as not run. `call(module, x)` says that it knows no padding. When not given, `module(x)`.
        causal: whether the module, called like this, may not look at later tokens.
        positional: whether the order of tokens matters to it, by positions or by a window.
        step: `step(module, x, state)` returns (output, state) for the next tokens x, (B, n, …), of sequences whose past the
            state holds; None before the first. It is used without gradients.
        untrained: whether the module stands at its random start. Scores have no expected size afterwards.

    Returns:
        The report. Print it, or ask it for `failed`, `passed` and `could_not_run`.

    Raises:
        TypeError: a module or an x of the wrong type.
        ValueError: an x of the wrong shape, or a module that cannot be called with it at all.
    """
    probe = Probe(module, x, call, causal, positional, step, untrained)
    return Report(type(module).__name__, carry_out(CHECKS, probe))
