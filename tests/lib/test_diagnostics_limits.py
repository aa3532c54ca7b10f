"""What a diagnosis says when it cannot look, and that it leaves no trace."""

import copy

import pytest
import torch
from torch import nn

from lib.diagnostics import COULD_NOT_RUN, FAILED, PASSED, diagnose
from tests.lib import checks
from tests.lib.faulty_module import D, H, PlainAttention, call, names, planted, step


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 8, D)


class TestWhatCannotRun:
    def test_is_told_with_the_reason_and_never_passes(self, x):
        report = diagnose(planted(causal=False), x, causal=False, positional=True, untrained=False)
        reasons = {finding.check: finding.reasons for finding in report.could_not_run}
        assert reasons == {
            checks.FUTURE: ("causal=False: the module may look at later tokens",),
            checks.FULL: ("`call` does not take `keep`, so the module cannot be told what is padding",),
            checks.CONTENT: ("`call` does not take `keep`, so the module cannot be told what is padding",),
            checks.AMOUNT: ("`call` does not take `keep`, so the module cannot be told what is padding",),
            checks.EMPTY: ("`call` does not take `keep`, so the module cannot be told what is padding",),
            checks.HEADS: ("with positions it takes a `keep` or a causal module to see one token by itself",),
            checks.STEPS: ("no `step` was given",),
            checks.SCORES: ("untrained=False: a trained attention may have large scores for good reason",),
        }
        assert not names(report.passed) & names(report.could_not_run)

    @pytest.mark.parametrize("two", [lambda m, x: m(x), None])
    def test_a_call_without_keep_is_fine(self, two, x):
        report = diagnose(planted(causal=True), x, two)
        assert report[checks.FUTURE].result == PASSED
        assert report[checks.CONTENT].result == COULD_NOT_RUN

    def test_an_error_in_one_mode_is_told_with_the_mode(self, x):
        def picky(m, x, keep):
            if m.training and keep is not None and not keep.any(1).all():
                raise NotImplementedError("no empty sequences here")
            return m(x, keep)

        finding = diagnose(planted(causal=True), x, picky)[checks.EMPTY]
        assert finding.result == COULD_NOT_RUN
        assert finding.reasons == ("NotImplementedError: no empty sequences here (train; train, no gradients)",)
        assert all(one.passed for one in finding.measurements)

    def test_a_failure_counts_although_another_mode_could_not_run(self, x):
        def picky(m, x, keep):
            if m.training:
                raise NotImplementedError("no training here")
            return m(x, keep)

        finding = diagnose(planted("causal forgotten", causal=True), x, picky)[checks.FUTURE]
        assert finding.result == FAILED
        assert finding.reasons

    def test_randomness_hides_what_takes_other_shapes_and_nothing_else(self, x):
        report = diagnose(planted("dropout of 0.1 in the code", causal=True), x, call, step=step)
        assert report[checks.FUTURE].result == report[checks.CONTENT].result == PASSED
        assert names(report.could_not_run) >= {checks.SAME, checks.HEADS, checks.STEPS, checks.HALF}
        assert "outputs are random in train although dropout was set to 0 (train)" in report[checks.HEADS].reasons

    def test_a_pooled_output_has_no_future_but_padding_and_neighbors(self, x):
        def pooled(m, x, keep):
            keep = torch.ones(x.shape[:2], dtype=torch.bool) if keep is None else keep
            return (m(x, keep) * keep[..., None]).sum(1) / keep.sum(1, keepdim=True).clamp(min=1)

        report = diagnose(planted(causal=False), x, pooled, causal=True)
        assert "the output (3, 64) has no row for each of the 8 tokens" in report[checks.FUTURE].reasons[0]
        assert not report.failed
        assert {checks.CONTENT, checks.BATCH, checks.EMPTY} <= names(report.passed)
        over_all = diagnose(planted(causal=False), x, lambda m, x, keep: m(x, keep).mean(1), causal=False)
        assert {checks.CONTENT, checks.AMOUNT} <= names(over_all.failed)

    def test_weights_that_never_form_are_not_judged(self, x):
        class Linear(nn.Module):
            def __init__(self):
                super().__init__()
                self.proj = nn.Linear(D, D)

            def forward(self, x):
                return self.proj(x).cumsum(1)

        report = diagnose(Linear(), x)
        assert {checks.SCORES, checks.ALIVE} <= names(report.could_not_run)
        assert report[checks.FUTURE].result == PASSED

    def test_a_module_that_wants_keep_always_gets_it(self, x):
        report = diagnose(planted(causal=True), x, lambda m, x, keep: m(x, keep & True), step=step)
        assert not report.failed
        assert names(report.could_not_run) == {checks.ORDER, checks.FULL}


class TestLeavesNoTrace:
    @pytest.mark.parametrize("training", [True, False])
    def test_on_the_module_its_inputs_and_chance(self, training, x):
        module = nn.Sequential(PlainAttention(D, H, dropout=0.3), nn.Dropout(0.2), nn.BatchNorm1d(8))
        module.train(training)
        module[1].train(not training)
        module[0].q_proj.weight.grad = torch.ones(D, D)
        module[0].k_proj.weight.requires_grad_(False)
        x = x
        state, given, hooks = copy.deepcopy(module.state_dict()), x.clone(), hook_counts(module)
        chance = torch.random.get_rng_state()
        diagnose(module, x)
        assert torch.equal(torch.random.get_rng_state(), chance)
        assert torch.equal(x, given)
        assert not x.requires_grad
        assert state.keys() == module.state_dict().keys()
        assert all(torch.equal(state[name], now) for name, now in module.state_dict().items())
        assert [part.training for part in module] == [training, not training, training]
        assert (module[0].dropout, module[1].p) == (0.3, 0.2)
        assert torch.equal(module[0].q_proj.weight.grad, torch.ones(D, D))
        assert module[0].v_proj.weight.grad is None
        assert not module[0].k_proj.weight.requires_grad
        assert hook_counts(module) == hooks
        assert "forward" not in vars(module[0])

    def test_after_an_error_either(self, x):
        module = planted(causal=True).train()

        def broken(m, x, keep):
            m.eval()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            diagnose(module, x, broken)
        assert module.training
        assert module.dropout == 0.1

    @pytest.mark.parametrize("outside", [torch.no_grad, torch.inference_mode, torch.enable_grad])
    def test_and_does_not_depend_on_the_mode_around_it(self, outside, x):
        module = planted("queries detached", causal=True)
        with outside():
            report = diagnose(module, x * 1.0, call)
        assert names(report.failed) == {checks.REACH}

    def test_and_two_diagnoses_agree(self, x):
        one, other = (diagnose(planted("padding forgotten", causal=True), x, call) for _ in range(2))
        assert one == other


def hook_counts(module: nn.Module) -> list[int]:
    everywhere = [nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks]
    own = [hooks for part in module.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)]
    return [len(hooks) for hooks in everywhere + own]


class TestArguments:
    @pytest.mark.parametrize(
        ("shape", "dtype"),
        [((2, 8), torch.float32), ((2, 2, D), torch.float32), ((6,), torch.long), ((0, 8, D), torch.float32)],
    )
    def test_x_of_a_wrong_shape_is_an_error(self, shape, dtype):
        with pytest.raises(ValueError, match=r"\(B, L, d_model\) floats or \(B, L\) integer tokens with L ≥ 3, got"):
            diagnose(planted(causal=True), torch.zeros(shape, dtype=dtype))

    def test_neither_a_function_nor_a_list_is_diagnosed(self, x):
        with pytest.raises(TypeError, match=r"module is a torch\.nn\.Module, got function"):
            diagnose(call, x)
        with pytest.raises(TypeError, match="x is a tensor, got list"):
            diagnose(planted(causal=True), [1, 2, 3])

    def test_a_module_that_cannot_be_called_is_an_error_that_says_why(self, x):
        with pytest.raises(ValueError, match=r"cannot be called with x \(2, 8, 5\): RuntimeError: mat1 and mat2"):
            diagnose(planted(causal=True), torch.randn(2, 8, 5), call)
        with pytest.raises(ValueError, match="must return a tensor, or tensors in a tuple or a mapping, got str"):
            diagnose(planted(causal=True), x, lambda m, x: "output")
        with pytest.raises(ValueError, match=r"the first output must be \(B = 3, …\), got \(\)"):
            diagnose(planted(causal=True), x, lambda m, x: m(x).sum())

    def test_one_sequence_will_do(self, x):
        report = diagnose(planted("softmax over the batch", causal=False), x[:1], call, causal=False)
        assert checks.BATCH in names(report.failed)
        assert not diagnose(planted(causal=False), x[:1], call, causal=False).failed

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
    def test_other_dtypes_have_their_own_tolerance(self, dtype, x):
        module = planted(causal=True).to(dtype)
        report = diagnose(module, x.to(dtype), call, step=step)
        assert not report.failed
        assert report[checks.FUTURE].measurements[0].tolerance == {torch.float64: 1e-10, torch.bfloat16: 1e-1}[dtype]

    def test_training_that_draws_at_random_is_found(self, x):
        module = planted("dropout of 0.1 in the code", causal=True)
        assert names(diagnose(module, x, call).failed) == {checks.TRAIN}
