"""A diagnosis finds each planted fault by the check that speaks of it, says what it could not find out, and leaves no trace."""

import copy

import pytest
import torch
from torch import nn

import lib.diagnostics as diagnostics
from lib.diagnostics import COULD_NOT_RUN, FAILED, PASSED, diagnose
from tests.lib.faulty_module import (
    ALIVE,
    BATCH,
    CAUSAL_FAULTS,
    CONTENT,
    EMPTY,
    EVAL,
    FAULTS,
    FULL,
    FUTURE,
    HALF,
    HEADS,
    LONG,
    ORDER,
    REACH,
    SAME,
    SCORES,
    STEPS,
    TRAIN,
    PlainAttention,
    call,
    step,
)

D, H = 64, 2


def planted(fault: str = "", *, causal: bool, device: str = "cpu") -> PlainAttention:
    torch.manual_seed(1)
    return PlainAttention(D, H, fault, causal=causal, dropout=0.1).to(device)


@pytest.fixture
def x(device) -> torch.Tensor:
    return torch.randn(3, 8, D).to(device)


def names(findings) -> set[str]:
    return {finding.check for finding in findings}


class TestPlantedFaults:
    @pytest.mark.parametrize("fault", CAUSAL_FAULTS)
    def test_in_a_causal_module_is_found_by_its_checks_and_no_other(self, fault, x, device):
        report = diagnose(planted(fault, causal=True, device=device), x, call, step=step)
        assert names(report.failed) == set(CAUSAL_FAULTS[fault])

    @pytest.mark.parametrize("fault", FAULTS)
    def test_in_a_module_that_looks_both_ways_is_found_by_its_checks_and_no_other(self, fault, x, device):
        report = diagnose(planted(fault, causal=False, device=device), x, call, causal=False)
        assert names(report.failed) == set(FAULTS[fault])

    @pytest.mark.parametrize("causal", [True, False])
    def test_none_is_found_where_none_is(self, causal, x, device):
        report = diagnose(planted(causal=causal, device=device), x, call, causal=causal, step=step if causal else None)
        assert not report.failed
        assert names(report.could_not_run) == ({ORDER} if causal else {FUTURE, STEPS})

    def test_every_check_finds_something(self):
        found = {check for checks in (*FAULTS.values(), *CAUSAL_FAULTS.values()) for check in checks}
        assert found == {check.name for check in diagnostics.catalog.CHECKS}

    def test_a_cause_says_in_which_mode_to_look(self, x, device):
        where = {
            "causal in training only": "In eval alone: look for self.training.",
            "causal with gradients only": "Without gradients alone: look for a fast path",
            "causal forgotten": "No causal mask",
        }
        for fault, words in where.items():
            finding = diagnose(planted(fault, causal=True, device=device), x, call)[FUTURE]
            assert words in finding.cause
            assert ("alone" in finding.cause) == ("alone" in words)

    def test_the_modes_that_failed_are_named(self, x, device):
        finding = diagnose(planted("causal in training only", causal=True, device=device), x, call)[FUTURE]
        modes = {one.where: True for one in finding.measurements}
        assert list(modes) == ["train", "train, no gradients", "eval", "eval, no gradients", "train, own dropout"]
        assert {one.where for one in finding.measurements if not one.passed} == {"eval", "eval, no gradients"}

    def test_a_leak_is_measured_by_content_and_by_an_exact_gradient(self, x, device):
        found = diagnose(planted("causal forgotten", causal=True, device=device), x, call)[FUTURE].measurements
        gradient = [one for one in found if one.what.startswith("gradient")]
        assert {one.where for one in gradient} == {"train", "eval", "train, own dropout"}
        assert all(one.tolerance == 0 < one.value for one in gradient)
        assert all(one.tolerance == 2e-5 < one.value for one in found if one not in gradient)
        sound = diagnose(planted(causal=True, device=device), x, call)[FUTURE].measurements
        assert all(one.value == 0 for one in sound if one.what.startswith("gradient"))


class Model(nn.Module):
    """Tokens in, logits out: embeddings, positions perhaps, one faulty attention, a head."""

    def __init__(self, fault: str = "", *, causal: bool, positional: bool):
        super().__init__()
        self.tokens, self.head = nn.Embedding(11, D), nn.Linear(D, 11)
        self.positions = nn.Embedding(512, D) if positional else None
        self.attention = PlainAttention(D, H, fault, causal=causal)

    def forward(self, x, keep=None):
        y = self.tokens(x)
        if self.positions is not None:
            y = y + self.positions(torch.arange(x.size(1), device=x.device))
        return self.head(y + self.attention(y, keep))


class TestTokens:
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6], [6, 0, 7, 1, 10, 3]])

    @pytest.mark.parametrize("causal", [True, False])
    @pytest.mark.parametrize("positional", [True, False])
    def test_a_sound_model_passes(self, causal, positional, device):
        model = Model(causal=causal, positional=positional).to(device)
        assert not diagnose(model, self.tokens.to(device), call, causal=causal, positional=positional).failed

    @pytest.mark.parametrize(
        ("fault", "check"),
        [
            ("causal forgotten", FUTURE),
            ("causal in training only", FUTURE),
            ("sees one step ahead", FUTURE),
            ("padding forgotten", CONTENT),
            ("padding read the other way round", FULL),
            ("softmax over the batch", BATCH),
            ("heads joined by a reshape", HEADS),
        ],
    )
    @pytest.mark.parametrize("positional", [True, False])
    def test_faults_are_found_by_exchange_alone(self, fault, check, positional, device):
        model = Model(fault, causal=True, positional=positional).to(device)
        finding = diagnose(model, self.tokens.to(device), call, positional=positional)[check]
        assert finding.result == FAILED
        assert not any(one.what.startswith("gradient of") for one in finding.measurements)

    @pytest.mark.parametrize("causal", [True, False])
    def test_positions_that_are_never_added_are_found(self, causal, device):
        model = Model(causal=causal, positional=False).to(device)
        assert diagnose(model, self.tokens.to(device), call, causal=causal, positional=True)[ORDER].result == FAILED

    def test_one_token_only_cannot_be_exchanged(self):
        report = diagnose(Model(causal=True, positional=True), torch.ones(2, 6, dtype=torch.long), call, positional=True)
        assert {FUTURE, CONTENT, BATCH} <= names(report.could_not_run)
        assert "two different ones" in report[FUTURE].reasons[0]


class TestWhatCannotRun:
    def test_is_told_with_the_reason_and_never_passes(self, x):
        report = diagnose(planted(causal=False), x.cpu(), causal=False, positional=True, untrained=False)
        reasons = {finding.check: finding.reasons for finding in report.could_not_run}
        assert reasons == {
            FUTURE: ("causal=False: the module may look at later tokens",),
            FULL: ("`call` does not take `keep`, so the module cannot be told what is padding",),
            CONTENT: ("`call` does not take `keep`, so the module cannot be told what is padding",),
            "padding's amount changes nothing": ("`call` does not take `keep`, so the module cannot be told what is padding",),
            EMPTY: ("`call` does not take `keep`, so the module cannot be told what is padding",),
            HEADS: ("with positions it takes a `keep` or a causal module to see one token by itself",),
            STEPS: ("no `step` was given",),
            SCORES: ("untrained=False: a trained attention may have large scores for good reason",),
        }
        assert not names(report.passed) & names(report.could_not_run)

    @pytest.mark.parametrize("two", [lambda m, x: m(x), None])
    def test_a_call_without_keep_is_fine(self, two, x):
        report = diagnose(planted(causal=True), x.cpu(), two)
        assert report[FUTURE].result == PASSED
        assert report[CONTENT].result == COULD_NOT_RUN

    def test_an_error_in_one_mode_is_told_with_the_mode(self, x):
        def picky(m, x, keep):
            if m.training and keep is not None and not keep.any(1).all():
                raise NotImplementedError("no empty sequences here")
            return m(x, keep)

        finding = diagnose(planted(causal=True), x.cpu(), picky)[EMPTY]
        assert finding.result == COULD_NOT_RUN
        assert finding.reasons == ("NotImplementedError: no empty sequences here (train; train, no gradients)",)
        assert all(one.passed for one in finding.measurements)

    def test_a_failure_counts_although_another_mode_could_not_run(self, x):
        def picky(m, x, keep):
            if m.training:
                raise NotImplementedError("no training here")
            return m(x, keep)

        finding = diagnose(planted("causal forgotten", causal=True), x.cpu(), picky)[FUTURE]
        assert finding.result == FAILED
        assert finding.reasons

    def test_randomness_hides_what_takes_other_shapes_and_nothing_else(self, x):
        report = diagnose(planted("dropout of 0.1 in the code", causal=True), x.cpu(), call, step=step)
        assert report[FUTURE].result == report[CONTENT].result == PASSED
        assert names(report.could_not_run) >= {SAME, HEADS, STEPS, HALF}
        assert "outputs are random in train although dropout was set to 0 (train)" in report[HEADS].reasons

    def test_a_pooled_output_has_no_future_but_padding_and_neighbors(self, x):
        def pooled(m, x, keep):
            keep = torch.ones(x.shape[:2], dtype=torch.bool) if keep is None else keep
            return (m(x, keep) * keep[..., None]).sum(1) / keep.sum(1, keepdim=True).clamp(min=1)

        report = diagnose(planted(causal=False), x.cpu(), pooled, causal=True)
        assert "the output (3, 64) has no row for each of the 8 tokens" in report[FUTURE].reasons[0]
        assert not report.failed
        assert {CONTENT, BATCH, EMPTY} <= names(report.passed)
        over_all = diagnose(planted(causal=False), x.cpu(), lambda m, x, keep: m(x, keep).mean(1), causal=False)
        assert {CONTENT, "padding's amount changes nothing"} <= names(over_all.failed)

    def test_weights_that_never_form_are_not_judged(self, x):
        class Linear(nn.Module):
            def __init__(self):
                super().__init__()
                self.proj = nn.Linear(D, D)

            def forward(self, x):
                return self.proj(x).cumsum(1)

        report = diagnose(Linear(), x.cpu())
        assert {SCORES, ALIVE} <= names(report.could_not_run)
        assert report[FUTURE].result == PASSED

    def test_a_module_that_wants_keep_always_gets_it(self, x):
        report = diagnose(planted(causal=True), x.cpu(), lambda m, x, keep: m(x, keep & True), step=step)
        assert not report.failed
        assert names(report.could_not_run) == {ORDER, FULL}


class TestSingleFigures:
    def test_a_projection_behind_the_output_is_let_pass_and_a_dead_head_is_not(self, x):
        class Pooler(nn.Module):
            def __init__(self):
                super().__init__()
                self.dense = nn.Linear(D, D)

            def forward(self, x):
                return self.dense(x[:, 0])

        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention, self.pooler, self.out = PlainAttention(D, H, causal=False), Pooler(), nn.Linear(D, D)

            def forward(self, x):
                y = self.attention(x)
                return y, self.pooler(y), self.out(y)

        def of(call):
            return diagnose(Layer(), x.cpu(), call, causal=False)[REACH]

        assert of(lambda m, x: m(x)).result == PASSED
        assert "(out.weight)" in of(lambda m, x: m(x)[:2]).worst.what
        assert "(out.weight)" in of(lambda m, x: m(x)[0]).worst.what

    def test_a_joined_projection_with_one_dead_part_is_found(self, x):
        class Joined(PlainAttention):
            def __init__(self):
                super().__init__(D, H)
                self.in_proj = nn.Linear(D, 3 * D)

            def forward(self, x):
                q, k, v = self.in_proj(x).chunk(3, -1)
                q, k, v = self._split(k), self._split(k), self._split(v)
                return self.out_proj(self._join(self._weights(q, k, self._allowed(q, k, None)) @ v))

        module = Joined()
        del module.q_proj, module.k_proj, module.v_proj
        assert "(in_proj.weight)" in diagnose(module, x.cpu())[REACH].worst.what

    def test_a_table_of_positions_longer_than_the_input_is_not_dead(self, x):
        class Placed(nn.Module):
            def __init__(self, *shape):
                super().__init__()
                self.table, self.attention = nn.Parameter(torch.randn(*shape)), PlainAttention(D, H)

            def forward(self, x):
                return self.attention(x + self.table[..., : x.size(1), :])

        for shape in ((300, D), (1, 300, D)):
            assert diagnose(Placed(*shape), x.cpu(), positional=True)[REACH].result == PASSED

    def test_a_clear_error_is_as_good_as_a_value(self, x):
        class Short(PlainAttention):
            message = "{} tokens, but 100 positions at most: cut the input."

            def forward(self, x, keep=None, cache=None):
                if x.size(1) > 100:
                    raise ValueError(self.message.format(x.size(1)))
                return super().forward(x, keep, cache)

        finding = diagnose(Short(D, H), x.cpu())[LONG]
        assert finding.result == PASSED
        assert (
            finding.worst.what
            == "a clear error at 256 tokens: ValueError: 256 tokens, but 100 positions at most: cut the input."
        )
        Short.message = "too long"
        assert diagnose(Short(D, H), x.cpu())[LONG].result == FAILED

    def test_a_random_network_is_random_in_eval_even_where_its_dropout_is_zero(self, x):
        module = PlainAttention(D, H, "dropout in eval", dropout=0.0)
        finding = diagnose(module, x.cpu())[EVAL]
        assert finding.result == FAILED
        assert "raised to 0.5" in finding.worst.what

    def test_a_bias_of_distance_is_no_large_score(self):
        class Alibi(PlainAttention):
            def _weights(self, q, k, allowed):
                at = torch.arange(k.size(2))
                scores = q @ k.mT / q.size(-1) ** 0.5 - (at[:, None] - at).abs()
                return scores.masked_fill(~allowed, -torch.inf).softmax(-1)

        long = torch.randn(2, 64, D)
        assert diagnose(Alibi(D, H), long, positional=True)[SCORES].result == PASSED


class TestLeavesNoTrace:
    @pytest.mark.parametrize("training", [True, False])
    def test_on_the_module_its_inputs_and_chance(self, training, x):
        module = nn.Sequential(PlainAttention(D, H, dropout=0.3), nn.Dropout(0.2), nn.BatchNorm1d(8))
        module.train(training)
        module[1].train(not training)
        module[0].q_proj.weight.grad = torch.ones(D, D)
        module[0].k_proj.weight.requires_grad_(False)
        x = x.cpu()
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
            diagnose(module, x.cpu(), broken)
        assert module.training
        assert module.dropout == 0.1

    @pytest.mark.parametrize("outside", [torch.no_grad, torch.inference_mode, torch.enable_grad])
    def test_and_does_not_depend_on_the_mode_around_it(self, outside, x):
        module = planted("queries detached", causal=True)
        with outside():
            report = diagnose(module, x.cpu() * 1.0, call)
        assert names(report.failed) == {REACH}

    def test_and_two_diagnoses_agree(self, x):
        one, other = (diagnose(planted("padding forgotten", causal=True), x.cpu(), call) for _ in range(2))
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
            diagnose(planted(causal=True), x.cpu(), lambda m, x: "output")
        with pytest.raises(ValueError, match=r"the first output must be \(B = 3, …\), got \(\)"):
            diagnose(planted(causal=True), x.cpu(), lambda m, x: m(x).sum())

    def test_one_sequence_will_do(self, x):
        report = diagnose(planted("softmax over the batch", causal=False), x.cpu()[:1], call, causal=False)
        assert BATCH in names(report.failed)
        assert not diagnose(planted(causal=False), x.cpu()[:1], call, causal=False).failed

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
    def test_other_dtypes_have_their_own_tolerance(self, dtype, x):
        module = planted(causal=True).to(dtype)
        report = diagnose(module, x.cpu().to(dtype), call, step=step)
        assert not report.failed
        assert report[FUTURE].measurements[0].tolerance == {torch.float64: 1e-10, torch.bfloat16: 1e-1}[dtype]

    def test_training_that_draws_at_random_is_found(self, x):
        module = planted("dropout of 0.1 in the code", causal=True)
        assert names(diagnose(module, x.cpu(), call).failed) == {TRAIN}
