"""A diagnosis finds each planted fault by the check that speaks of it, and finds none where none is."""

import pytest
import torch
from torch import nn

import lib.diagnostics as diagnostics
from lib.diagnostics import FAILED, diagnose
from tests.lib import checks, faults
from tests.lib.faults import faulty_attention
from tests.lib.faulty_module import D, H, PlainAttention, call, names, planted, step


@pytest.fixture
def x(device) -> torch.Tensor:
    return torch.randn(3, 8, D).to(device)


class TestPlantedFaults:
    @pytest.mark.parametrize("fault", checks.CAUSAL_FAULTS)
    def test_in_a_causal_module_is_found_by_its_checks_and_no_other(self, fault, x, device):
        report = diagnose(planted(fault, causal=True, device=device), x, call, step=step)
        assert names(report.failed) == set(checks.CAUSAL_FAULTS[fault])

    @pytest.mark.parametrize("fault", checks.FAULTS)
    def test_in_a_module_that_looks_both_ways_is_found_by_its_checks_and_no_other(self, fault, x, device):
        report = diagnose(planted(fault, causal=False, device=device), x, call, causal=False)
        assert names(report.failed) == set(checks.FAULTS[fault])

    @pytest.mark.parametrize("causal", [True, False])
    def test_none_is_found_where_none_is(self, causal, x, device):
        report = diagnose(planted(causal=causal, device=device), x, call, causal=causal, step=step if causal else None)
        assert not report.failed
        assert names(report.could_not_run) == ({checks.ORDER} if causal else {checks.FUTURE, checks.STEPS})

    def test_every_check_finds_something(self):
        found = {check for their in (*checks.FAULTS.values(), *checks.CAUSAL_FAULTS.values()) for check in their}
        assert found == {check.name for check in diagnostics.catalog.CHECKS}

    def test_a_cause_says_in_which_mode_to_look(self, x, device):
        where = {
            "causal in training only": "In eval alone: look for self.training.",
            "causal with gradients only": "Without gradients alone: look for a fast path",
            "causal forgotten": "No causal mask",
        }
        for fault, words in where.items():
            finding = diagnose(planted(fault, causal=True, device=device), x, call)[checks.FUTURE]
            assert words in finding.cause
            assert ("alone" in finding.cause) == ("alone" in words)

    def test_the_modes_that_failed_are_named(self, x, device):
        finding = diagnose(planted("causal in training only", causal=True, device=device), x, call)[checks.FUTURE]
        modes = {one.where: True for one in finding.measurements}
        assert list(modes) == ["train", "train, no gradients", "eval", "eval, no gradients", "train, own dropout"]
        assert {one.where for one in finding.measurements if not one.passed} == {"eval", "eval, no gradients"}

    def test_a_leak_is_measured_by_content_and_by_an_exact_gradient(self, x, device):
        found = diagnose(planted("causal forgotten", causal=True, device=device), x, call)[checks.FUTURE].measurements
        gradient = [one for one in found if one.what.startswith("gradient")]
        assert {one.where for one in gradient} == {"train", "eval", "train, own dropout"}
        assert all(one.tolerance == 0 < one.value for one in gradient)
        assert all(one.tolerance == 2e-5 < one.value for one in found if one not in gradient)
        sound = diagnose(planted(causal=True, device=device), x, call)[checks.FUTURE].measurements
        assert all(one.value == 0 for one in sound if one.what.startswith("gradient"))


# Faults of the attention function alone (tests/lib/faults.py) -> the check that finds them in a causal module.
IN_THE_FUNCTION = {
    "True means ignore": checks.FULL,
    "no scale": checks.SCORES,
    "softmax over the queries": checks.FUTURE,
    "causality forgotten": checks.FUTURE,
    "causality forgotten beside a mask": checks.FUTURE,
    "mask multiplied after the softmax": checks.FUTURE,
    "NaN in a row without a key": checks.EMPTY,
    "NaN in the gradient of such a row": checks.EMPTY,
    "exponentials without their maximum": checks.HALF,
    "first query gets the mean": checks.FUTURE,
    "distance for product": checks.SCORES,
}
# No harm to see from outside, without a reference: other functions, sound in themselves, or what only a float mask shows.
BEHAVES_WELL = {
    "scale is 1 over d_k",
    "causal from the lower right",
    "causal hides the query itself",
    "minus 1e4 for minus infinity",
    "float mask taken for boolean",
    "float mask multiplied",
    "heads shared in turn",
    "later keys count more",
    "residual added",
}


class AroundTheFunction(PlainAttention):
    """The same projections around an attention function with a fault."""

    def forward(self, x, keep=None):
        q, k, v = (self._split(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        mask = None if keep is None else keep[:, None, None, :]
        return self.out_proj(self._join(faulty_attention(self.fault, q, k, v, mask, is_causal=True)))


class TestFaultsOfTheFunction:
    @pytest.mark.parametrize("fault", IN_THE_FUNCTION)
    def test_that_behave_badly_are_found(self, fault, x):
        check = IN_THE_FUNCTION[fault]
        assert check in names(diagnose(AroundTheFunction(D, H, fault), x.cpu(), call).failed)

    @pytest.mark.parametrize("fault", sorted(BEHAVES_WELL))
    def test_that_behave_well_are_not_called_faults(self, fault, x):
        assert not diagnose(AroundTheFunction(D, H, fault), x.cpu(), call).failed

    def test_are_all_known(self):
        assert IN_THE_FUNCTION.keys() | BEHAVES_WELL == faults.FAULTS.keys()


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
            ("causal forgotten", checks.FUTURE),
            ("causal in training only", checks.FUTURE),
            ("sees one step ahead", checks.FUTURE),
            ("padding forgotten", checks.CONTENT),
            ("padding read the other way round", checks.FULL),
            ("softmax over the batch", checks.BATCH),
            ("heads joined by a reshape", checks.HEADS),
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
        assert diagnose(model, self.tokens.to(device), call, causal=causal, positional=True)[checks.ORDER].result == FAILED

    def test_one_token_only_cannot_be_exchanged(self):
        report = diagnose(Model(causal=True, positional=True), torch.ones(2, 6, dtype=torch.long), call, positional=True)
        assert {checks.FUTURE, checks.CONTENT, checks.BATCH} <= names(report.could_not_run)
        assert "two different ones" in report[checks.FUTURE].reasons[0]
