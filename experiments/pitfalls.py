"""The trainings of the chapter on pitfalls, three seeds each: a story of eight bugs, and claims T5, T6 and T7.

    story    eight bugs in a small language model that writes words backwards: what training shows
    matcher  a matcher whose training pairs differ at the opening, and one that has met pairs that open alike
    maps     a reader of news with three faults that its loss hides
    first    weight on the start mark: letters of BBC News, and a task where a head is often idle
    idle     in that task: who gives the start mark its weight, tokens with work to do or without

Results: pitfalls_story.csv and so on, beside this file; about 10 minutes on one core. Uniform attention (T1) has its own:
uniform.py.

    python experiments/pitfalls.py                 # all that the files do not hold yet
    python experiments/pitfalls.py --only matcher
"""

import argparse
from pathlib import Path

import torch

from lib.study import first_token, map_faults, matcher, records, story, story_trials
from lib.study.data import batches

HERE = Path(__file__)
SEEDS = range(3)
STORY_RATE, OTHER_RATE, STORY_STEPS = 1e-2, 3e-3, 400
LETTER_STEPS, CHAIN_STEPS = 1000, 300


def path(name: str) -> Path:
    """The file of results of one part."""
    return HERE.with_name(f"pitfalls_{name}.csv")


def run_story() -> None:
    """Every bug at the rate that serves sound code best; sound code and one bug at another rate too.

    The row of the last step of seed 0 has the map of the last layer, as text.
    """
    compared = [(kind, OTHER_RATE) for kind in (story.SOUND, "scores scaled up")]
    for kind, rate in [(kind, STORY_RATE) for kind in story.KINDS] + compared:
        for seed in SEEDS:
            run = {"kind": kind, "lr": rate, "seed": seed}
            if records.holds(path("story"), **run):
                continue
            model, rows = story_trials.train(kind, rate, seed, steps=STORY_STEPS)
            maps = [""] * (len(rows) - 1) + [story_trials.map_text(story_trials.attention_map(model)) if seed == 0 else ""]
            records.append(path("story"), [run | row | {"map": text} for row, text in zip(rows, maps, strict=True)])
            print(run, rows[-1], flush=True)


def run_matcher() -> None:
    """Training pairs of two kinds, tested on both."""
    for kind in ("other texts", "both"):
        for seed in SEEDS:
            run = {"trained_on": kind, "seed": seed}
            if records.holds(path("matcher"), **run):
                continue
            model, history = matcher.train(kind, seed)
            rows = []
            for tested in ("other texts", "open alike"):
                pairs = matcher.pairs("test", 7, 1000, tested)
                right = {name: round(x, 4) for name, x in matcher.called_right(model, pairs).items()}
                rows.append({"tested_on": tested} | right)
            common = {
                "loss": round(sum(history.losses[-50:]) / 50, 4),
                "on_opening": round(matcher.on_opening(model, matcher.pairs("test", 7, 400).one), 4),
            }
            records.append(path("matcher"), [run | common | row for row in rows])
            print(run, common, rows, flush=True)


def run_maps() -> None:
    """Losses and what the map shows, on the first 32 test texts."""
    [shown] = batches(map_faults.texts("test")[:32], 32)
    for fault in (map_faults.SOUND, *map_faults.FAULTS):
        for seed in SEEDS:
            run = {"fault": fault, "seed": seed}
            if records.holds(path("maps"), **run):
                continue
            model, figures = map_faults.train(fault, seed)
            figures |= map_faults.marks(map_faults.maps(model, shown), shown.lengths)
            records.append(path("maps"), [run | {name: round(x, 4) for name, x in figures.items()}])
            print(run, figures, flush=True)


def run_first() -> None:
    """Mean weight on the first token, from the second half of a sequence, for each layer and head; untrained too."""
    tasks = {
        "letters": (first_token.train_on_letters, LETTER_STEPS, first_token.windows("test", 3, 64)),
        "chains": (first_token.train_on_chains, CHAIN_STEPS, first_token.chains(3, 64)),
    }
    for task, (train, last, shown) in tasks.items():
        for seed in SEEDS:
            if records.holds(path("first"), task=task, seed=seed):
                continue
            rows = []
            for steps in (1, last):
                model, history = train(seed, steps=steps)
                loss = sum(history.losses[-50:]) / len(history.losses[-50:])
                for layer, heads in enumerate(first_token.mass_on_first(model, shown).tolist(), start=1):
                    for head, mass in enumerate(heads, start=1):
                        rows.append({"task": task, "seed": seed, "steps": steps, "loss": round(loss, 4)})
                        rows[-1] |= {"layer": layer, "head": head, "first": round(mass, 4)}
                        rows[-1]["chance"] = round(first_token.by_chance(shown.size(1)), 4)
            records.append(path("first"), rows)
            print(task, seed, [(row["loss"], row["first"]) for row in rows], flush=True)


def run_idle() -> None:
    """The chains: weight on the start mark and on the token before, from triggers and from all other tokens."""
    shown = first_token.chains(3, 64)
    for seed in SEEDS:
        if records.holds(path("idle"), seed=seed):
            continue
        model, _ = first_token.train_on_chains(seed, steps=CHAIN_STEPS)
        weights = first_token.behind_triggers(model, shown)
        records.append(
            path("idle"), [{"seed": seed, "steps": CHAIN_STEPS} | {name: round(w, 4) for name, w in weights.items()}]
        )
        print(seed, weights, flush=True)


PARTS = {"matcher": run_matcher, "maps": run_maps, "first": run_first, "idle": run_idle, "story": run_story}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, help="one part instead of all")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for part in [arguments.only] if arguments.only else PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
