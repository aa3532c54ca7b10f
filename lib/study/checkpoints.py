"""Weights to ship, each with a card; and the state of a training, so that an interruption loses no epoch.

A checkpoint is two files side by side: `name.safetensors` with the weights in half precision, and `name.json`, its card. The
script `checkpoints/train_name.py` makes both. A training's own state is one more file, which is not for shipping.
"""

import hashlib
import io
import json
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn

from lib.transformer import Transformer, TransformerConfig

LIMIT = 8_000_000  # bytes of a file of weights
DIGEST = 32  # bytes of a sha256


@dataclass(frozen=True)
class Card:
    """What a reader should know of trained weights. Everything in it is plain: numbers, texts, lists and dictionaries."""

    title: str
    data: str  # package, version, what is left out
    split: str  # how, and how many are in each part
    config: dict[str, Any]  # of the `TransformerConfig`
    parameters: int
    training: dict[str, Any]  # the recipe, its seed included
    minutes: float  # of training
    scores: dict[str, Any]
    command: str  # that makes these weights again
    stamp: dict[str, str]  # `records.stamp()`: date, processor, versions
    curve: list[dict[str, Any]] = field(default_factory=list)  # one row for each epoch
    notes: str = ""
    storage: str = ""  # of the weights, filled in by `save`
    sha256: str = ""  # of the file of weights, filled in by `save`


def save(path: Path | str, model: nn.Module, card: Card, *, dtype: torch.dtype = torch.float16) -> Card:
    """Write weights and card, each file whole or not at all.

    Args:
        path: `….safetensors`; the card goes beside it.
        model: its state dict is written.
        card: `storage` and `sha256` are filled in.
        dtype: of the floating-point weights in the file. float16 halves the size and rounds by at most 1 part in 2,048.

    Returns:
        The card as written.

    Raises:
        ValueError: a file above 8 MB; a weight that is not finite in `dtype`. Nothing is written then.
    """
    path = Path(path)
    weights = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    weights = {name: (v.to(dtype) if v.is_floating_point() else v).contiguous() for name, v in weights.items()}
    broken = [name for name, value in weights.items() if not value.isfinite().all()]
    if broken:
        raise ValueError(f"{broken[0]} holds numbers that are not finite in {dtype}: save another dtype or train again.")
    content = safetensors.torch.save(weights)
    if len(content) > LIMIT:
        raise ValueError(
            f"{path.name} would have {len(content):,} bytes, the limit is {LIMIT:,}: take a smaller model or dtype."
        )
    storage, digest = str(dtype).removeprefix("torch."), hashlib.sha256(content).hexdigest()
    card = replace(card, storage=storage, sha256=digest)
    write_whole(path, content)
    write_whole(path.with_suffix(".json"), (json.dumps(asdict(card), indent=1, ensure_ascii=False) + "\n").encode())
    return card


def load(path: Path | str, build: Callable[[TransformerConfig], nn.Module] = Transformer) -> tuple[nn.Module, Card]:
    """Read a checkpoint: the model, in float32 and evaluation mode, and its card.

    Args:
        path: `….safetensors`.
        build: makes the model of the card's config.

    Raises:
        FileNotFoundError: no weights or no card there.
        ValueError: weights that are not those of the card, or a card that cannot be read.
    """
    path = Path(path)
    remedy = f"make it with `python checkpoints/train_{path.stem}.py`."
    files = (path, path.with_suffix(".json"))
    for file in files:
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing: {remedy}")
    content = path.read_bytes()
    try:
        card = Card(**json.loads(files[1].read_bytes()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"the card {files[1]} is damaged: {remedy}") from error
    if hashlib.sha256(content).hexdigest() != card.sha256:
        raise ValueError(f"{path} is damaged, or belongs to another card: {remedy}")
    model = build(TransformerConfig(**card.config))
    model.load_state_dict(safetensors.torch.load(content))  # copies into the float32 parameters
    return model.eval(), card


def save_run(path: Path | str, epoch: int, settings: Mapping, rows: list[dict], parts: Mapping[str, Any]) -> None:
    """Write down a training after `epoch` epochs, over what the file held before; whole or not at all.

    Args:
        path: of the file; its folder is made.
        epoch: epochs done.
        settings: whatever makes this training this one; compared when it goes on.
        rows: what was measured so far.
        parts: model, optimizer, schedule: anything with `state_dict`. The state of every random generator is added.
    """
    memory = io.BytesIO()
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save({"epoch": epoch, "settings": dict(settings), "rows": rows, "states": states, "random": random_states()}, memory)
    content = memory.getvalue()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(Path(path), hashlib.sha256(content).digest() + content)


def load_run(path: Path | str, settings: Mapping, parts: Mapping[str, Any]) -> tuple[int, list[dict]]:
    """Go on where `save_run` left off: put every part and every random generator back into its state.

    Returns:
        Epochs done and what was measured in them; 0 and nothing if there is no file yet.

    Raises:
        ValueError: a damaged file; a training with other settings, naming the first of them.
    """
    path = Path(path)
    if not path.is_file():
        return 0, []
    content = path.read_bytes()
    if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
        raise ValueError(f"the training's state {path} is damaged: delete it to start from the beginning.")
    run = torch.load(io.BytesIO(content[DIGEST:]), map_location="cpu", weights_only=True)
    for name in settings:
        if run["settings"].get(name) != settings[name]:
            raise ValueError(
                f"{path} is a training with {name} = {run['settings'].get(name)!r}, not {settings[name]!r}: "
                "delete it, or keep the new training in another file."
            )
    for name, part in parts.items():
        part.load_state_dict(run["states"][name])
    set_random_states(run["random"])
    return run["epoch"], run["rows"]


def random_states() -> dict[str, Any]:
    """The states of Python's, numpy's and torch's generators, on every device, as plain lists and tensors."""
    kind, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, keys.tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_states(states: Mapping[str, Any]) -> None:
    """Put the generators back to `random_states()`. Generators of GPUs that are not here are left out."""
    version, keys, gauss = states["python"]
    random.setstate((version, tuple(keys), gauss))
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, device)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that, whenever the power fails, the old content is there or the new."""
    beside = path.with_name(path.name + ".part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
