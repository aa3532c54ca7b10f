"""Several pronunciations: the best is what the library's beam search finds, and probabilities are the model's own."""

import pytest
import torch
import torch.nn.functional as F

from lib.study.alternatives import alternatives
from lib.study.pronunciation import LETTERS, PHONEMES, Pair, collate
from lib.study.seq2seq import transcribe
from lib.transformer import Transformer, TransformerConfig

WORDS = ["a", "cat", "knight", "zebra"]


@pytest.fixture(scope="module", params=[0, 1, 2])
def model(request):
    torch.manual_seed(request.param)
    sizes = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "dim_feedforward": 16}
    model = Transformer(TransformerConfig(len(LETTERS), len(PHONEMES), tie_embeddings=False, **sizes)).eval()
    with torch.no_grad():
        model.output.weight[PHONEMES.END] *= 3  # so that words end
        model.output.weight[: PHONEMES.END] = 0
    return model


@pytest.mark.parametrize("penalty", [0.0, 0.6])
def test_the_first_is_what_the_library_finds(model, penalty):
    for word in WORDS:
        (wanted,) = transcribe(model, [word], strategy="beam", num_beams=6, length_penalty=penalty)
        found = alternatives(model, word, num_beams=6, length_penalty=penalty)
        if found and len(wanted) < len(word) + 11:  # else the library handed out a text that was cut off
            assert found[0].sounds == wanted


def test_they_are_different_and_in_order_and_their_probabilities_are_those_of_teacher_forcing(model):
    found = alternatives(model, "knight", num_beams=6)
    assert found
    assert len({one.sounds for one in found}) == len(found)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    for one in found:
        batch = collate([Pair(LETTERS.encode("knight"), PHONEMES.encode(one.sounds))])
        with torch.no_grad():
            logits = model(batch.source, batch.inputs)
        loss = F.cross_entropy(logits[0], batch.labels[0], reduction="sum")
        assert one.log_prob == pytest.approx(-loss.item(), abs=1e-4)
        assert one.score == pytest.approx(one.log_prob / ((5 + len(one.sounds) + 1) / 6) ** 0.6)


def test_a_model_in_training_mode_and_a_sign_that_is_no_letter_are_refused(model):
    with pytest.raises(ValueError, match="'é' is none of"):
        alternatives(model, "café")
    with pytest.raises(ValueError, match="training mode"):
        alternatives(Transformer(model.config), "cat")
