"""The plain attention is sound, each of its eight bugs shows where it should, and the trials see what they say they see."""

import pytest
import torch

from lib.attention import scaled_dot_product_attention
from lib.diagnostics import diagnose
from lib.study import mask_trials, story, story_trials
from lib.study.story import BUGS, KINDS, SOUND, PlainAttention
from tests.lib import checks


@pytest.fixture
def x():
    return torch.randn(3, 7, 32)


def build(kind, width=32, heads=2):
    torch.manual_seed(1)
    return KINDS[kind](width, heads)


def failed(kind, x):
    report = diagnose(build(kind, 64), torch.cat([x, x], dim=-1), story.call, step=story.step)
    return {finding.check for finding in report.failed}


def test_the_sound_version_equals_the_library(x):
    module = build(SOUND).eval()
    keep = torch.arange(7) >= torch.tensor([0, 2, 4])[:, None]
    q, k, v = module.project(x)
    allowed = torch.ones(7, 7, dtype=torch.bool).tril() & keep[:, None, None]
    wanted = module.out_proj(scaled_dot_product_attention(q, k, v, allowed).transpose(1, 2).flatten(2))
    torch.testing.assert_close(module(x, keep), wanted, atol=1e-6, rtol=1e-5)


def test_the_sound_version_has_no_finding(x):
    assert failed(SOUND, x) == set()


# Bug → checks that must be among those that find it.
FOUND = {
    "sees one step ahead": {checks.FUTURE},
    "causal in training only": {checks.FUTURE, checks.SAME},
    "cached step from the start": {checks.STEPS},
    "padding mask never used": {checks.CONTENT},
    "heads joined without transpose": {checks.HEADS, checks.FUTURE},
    "scores scaled up": {checks.SCORES},
    "keys used as queries": {checks.REACH},
    "dropout in eval": {checks.EVAL},
}


@pytest.mark.parametrize("kind", BUGS)
def test_each_bug_is_found_by_the_check_that_speaks_of_it(kind, x):
    assert FOUND[kind] <= failed(kind, x)


@pytest.mark.parametrize("kind", BUGS)
def test_a_bug_keeps_shapes_and_overrides_one_method(kind, x):
    assert build(kind)(x).shape == x.shape
    own = [name for name, value in vars(BUGS[kind]).items() if callable(value)]
    assert len(own) == 1
    assert hasattr(PlainAttention, own[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_lines_shown_are_code_without_the_remark_that_tells_the_bug(kind):
    text = story.lines(kind)
    compile(text, kind, "exec")
    if kind != SOUND:
        assert '"""' not in text


class TestTrials:
    generator = torch.Generator()

    def test_words_are_padded_in_front_and_labels_follow_the_colon(self):
        batch = story_trials.make(self.generator.manual_seed(0), torch.tensor([3, 5]))
        assert batch.tokens.shape == batch.labels.shape == (2, 11)
        assert batch.tokens[0, :2].tolist() == [mask_trials.PAD] * 2
        assert (batch.tokens[:, 5] == mask_trials.START).all()
        assert (batch.labels[:, :5] == mask_trials.IGNORED).all()
        assert batch.clean[0, :3].tolist() == batch.tokens[0, 2:5].flip(0).tolist()
        assert batch.labels[0, 8] == mask_trials.END
        inside = batch.labels[:, 5:-1] != mask_trials.IGNORED
        follows = batch.tokens[:, 6:] == batch.labels[:, 5:-1]
        letters = batch.labels[:, 5:-1] < mask_trials.LETTERS
        assert follows[inside & letters].all()

    def test_writing_with_a_cache_is_what_full_passes_give_for_sound_code_alone(self):
        batch = story_trials.make(self.generator.manual_seed(1), torch.tensor([3, 5, 4]))
        answers = {}
        for kind in (SOUND, "cached step from the start"):
            torch.manual_seed(0)
            model = story_trials.LanguageModel(kind).eval()
            tokens = batch.tokens[:, :6]
            for _ in range(batch.clean.size(1)):
                tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], dim=1)
            answers[kind] = torch.equal(tokens[:, 6:], story_trials.write(model, batch))
        assert answers == {SOUND: True, "cached step from the start": False}

    def test_padding_in_front_changes_nothing_for_sound_code_alone(self):
        batch = story_trials.make(self.generator.manual_seed(2), torch.tensor([3, 3]))
        wide = torch.cat([torch.full((2, 4), mask_trials.PAD), batch.tokens], dim=1)
        same = {}
        for kind in (SOUND, "padding mask never used"):
            torch.manual_seed(0)
            model = story_trials.LanguageModel(kind).eval()
            same[kind] = torch.allclose(model(batch.tokens), model(wide)[:, 4:], atol=1e-5)
        assert same == {SOUND: True, "padding mask never used": False}

    def test_a_short_training_gives_a_row_for_each_stop_and_notes_what_never_moved(self):
        model, rows = story_trials.train("keys used as queries", 1e-2, 0, steps=4, every=2)
        assert [row["step"] for row in rows] == [2, 4]
        assert rows[-1]["still"] == story_trials.LAYERS
        _, sound = story_trials.train(SOUND, 1e-2, 0, steps=2, every=2)
        assert sound[-1]["still"] == 0
        assert sound[-1]["unlike"] == 0
        weights = story_trials.attention_map(model)
        assert weights.shape == (13, 13)
        torch.testing.assert_close(weights[2:].sum(-1), torch.ones(11))
        read = story_trials.map_from_text(story_trials.map_text(weights))
        torch.testing.assert_close(read, weights, atol=5.1e-4, rtol=0)

    def test_dropout_in_eval_shows_when_the_same_is_written_twice(self):
        _, rows = story_trials.train("dropout in eval", 1e-2, 0, steps=2, every=2)
        assert rows[-1]["unlike"] > 0

    def test_the_floor_is_that_of_honest_guessing(self):
        found = story_trials.train(SOUND, 1e-2, 0, steps=1, every=1)[1][-1]
        assert 0.6 < found["floor"] < mask_trials.LETTER_ENTROPY
