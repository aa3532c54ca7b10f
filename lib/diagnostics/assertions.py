"""One check at a time, for a reader's own test suite.

Each raises an AssertionError that says what was measured, the likely cause and what to change. A check that could not run
raises one too, since it shows nothing. Module, x and `call` are those of `diagnose`.
"""

from torch import Tensor, nn

from lib.diagnostics import figures, links, sameness, structure
from lib.diagnostics.catalog import CHECKS, carry_out
from lib.diagnostics.probe import Call, Probe, Step
from lib.diagnostics.report import Report


def assert_causal(module: nn.Module, x: Tensor, call: Call | None = None) -> None:
    """No output depends on a later token."""
    _hold([links.future], Probe(module, x, call, causal=True))


def assert_ignores_padding(module: nn.Module, x: Tensor, call: Call) -> None:
    """Content and amount of padding do not change a real token's output, and a mask that hides nothing changes nothing."""
    _hold([links.full_mask, links.padding_content, links.padding_amount], Probe(module, x, call))


def assert_finite_when_wholly_padded(module: nn.Module, x: Tensor, call: Call) -> None:
    """A sequence of padding alone leaves outputs and gradients finite, and the other sequences as they were."""
    _hold([links.wholly_padded], Probe(module, x, call))


def assert_batch_independent(module: nn.Module, x: Tensor, call: Call | None = None) -> None:
    """A sequence gives the same alone and in any batch."""
    _hold([links.batch], Probe(module, x, call))


def assert_deterministic(module: nn.Module, x: Tensor, call: Call | None = None) -> None:
    """Eval draws no random numbers, and train none at dropout 0."""
    _hold([sameness.eval_is_deterministic, sameness.no_dropout_is_deterministic], Probe(module, x, call))


def assert_train_equals_eval(module: nn.Module, x: Tensor, call: Call | None = None) -> None:
    """Train and eval, with and without gradients, agree at dropout 0."""
    _hold([sameness.train_equals_eval], Probe(module, x, call))


def assert_inputs_untouched(module: nn.Module, x: Tensor, call: Call | None = None) -> None:
    """x and `keep` are not written to."""
    _hold([sameness.inputs_untouched], Probe(module, x, call))


def assert_order(module: nn.Module, x: Tensor, call: Call | None = None, *, positional: bool, causal: bool = False) -> None:
    """The order of tokens matters with positions, and not without."""
    _hold([structure.order], Probe(module, x, call, causal, positional))


def assert_heads_keep_positions(
    module: nn.Module, x: Tensor, call: Call | None = None, *, causal: bool, positional: bool = False
) -> None:
    """No head holds parts of several tokens."""
    _hold([structure.heads], Probe(module, x, call, causal, positional))


def assert_steps_equal_full_pass(module: nn.Module, x: Tensor, call: Call | None = None, *, step: Step) -> None:
    """Going on from a state gives what the whole sequence gives."""
    _hold([structure.steps], Probe(module, x, call, step=step))


def assert_half_precision(module: nn.Module, x: Tensor, call: Call | None = None) -> None:
    """bfloat16 and float16 give finite outputs close to float32's."""
    _hold([figures.half_precision], Probe(module, x, call))


def assert_long_input(module: nn.Module, x: Tensor, call: Call | None = None) -> None:
    """256 tokens, or four times x, give a value or a clear error."""
    _hold([figures.long_input], Probe(module, x, call))


def assert_sane_scores(module: nn.Module, x: Tensor, call: Call | None = None) -> None:
    """Scores of a module at its random start have a deviation of at most 1.5."""
    _hold([figures.scores], Probe(module, x, call))


def assert_not_collapsed(module: nn.Module, x: Tensor, call: Call | None = None, *, causal: bool) -> None:
    """Weights are not all on one key, on the first token, all equal, or the same in all heads."""
    _hold([figures.alive], Probe(module, x, call, causal))


def assert_gradients_reach_projections(module: nn.Module, x: Tensor, call: Call | None = None) -> None:
    """Every matrix gets a gradient."""
    _hold([figures.gradients], Probe(module, x, call))


def _hold(runs: list, probe: Probe) -> None:
    findings = carry_out([check for check in CHECKS if check.run in runs], probe)
    Report(type(probe.module).__name__, findings).raise_if_failed(strict=True)
