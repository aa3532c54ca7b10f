# Every command sets up what it needs: a virtual environment in .venv with the pinned packages, once.
# `make book PYTHON=/path/to/python3.12` picks the Python; `make test ARGS="-k masks"` passes options on to pytest.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready
READY_DEV := .venv/.ready-dev
RUN := $(BIN)/python

.PHONY: help book test lab notebooks lint format bench experiments train shots clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

book: $(READY) ## build the HTML in _build/html; a warning is an error
	@$(BIN)/jupyter-book build . --all -q -n -W --keep-going
	@echo "To serve it on port 8000 instead: $(RUN) -m http.server --directory _build/html"

test: $(READY) ## the library's and the book's tests, then every chapter's cells against their outputs
	@$(RUN) -m pytest --nbval -rs tests chapters $(ARGS)

lab: $(READY) ## open the chapters in JupyterLab, where the explorers are live
	@$(BIN)/jupyter lab chapters

notebooks: $(READY) ## run every chapter again and store its outputs
	@$(RUN) tools/notebooks.py $(ARGS)

lint: $(READY_DEV) ## style and format of code and notebooks
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY_DEV) ## mend what `make lint` can mend by itself
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## our attention beside torch's: prints tables
	@for script in benchmarks/[!_]*.py; do $(RUN) "$$script" || exit 1; done

experiments: $(READY) ## renew the results under experiments/ (long)
	@for script in experiments/[!_]*.py; do $(RUN) "$$script" || exit 1; done

train: $(READY) ## rebuild the trained weights under checkpoints/ (long; goes on where it was interrupted)
	@for script in checkpoints/train_*.py; do $(RUN) "$$script" || exit 1; done

shots: $(READY_DEV) ## picture every page of the built book, in _build/shots
	@$(RUN) tools/screenshots.py $(ARGS)

clean: ## remove what was built; .venv stays
	@rm -rf _build .pytest_cache .ruff_cache .hypothesis

# A stamp is written last, so an install that was cut short is done again.
$(READY): requirements.txt constraints.txt pyproject.toml
	@PYTHON="$(PYTHON)" tools/setup.sh requirements.txt $@

$(READY_DEV): $(READY) requirements-dev.txt
	@PYTHON="$(PYTHON)" tools/setup.sh requirements-dev.txt $@
