# Everything lives in .venv; a fresh clone needs only Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DOC ?= builtin:pydoc
ARGS ?=

.PHONY: run test check bench format clean

run: $(VENV)/.run  ## decode a long document speculatively and plainly, side by side
	$(BIN)/magicdec run "$(DOC)" --compare --batch 4 --context 4000 --selector snapkv $(ARGS)

# One process a core, each with one thread: small models gain nothing from more. Who has run out
# of tests takes over half of another's: whole files would leave a core idle beside the last one.
test: export OMP_NUM_THREADS := 1
test: check  ## everything CI runs
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS)

check: $(VENV)/.dev  ## format, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --cache-dir $(VENV)/mypy -p magicdec
	$(BIN)/lint-imports --cache-dir $(VENV)/import_linter
	$(BIN)/python -m tests.circles

bench: $(VENV)/.dev  ## ratios from one run; run it alone on the machine
	$(BIN)/python -m tests.bench "$(DOC)" $(ARGS)

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev]'
	mkdir -p $(VENV)/types/magicdec
	ln -sfn ../../../magicdec_cli $(VENV)/types/magicdec/cli
	for part in engine kernels profiles; do ln -sfn ../../../$$part $(VENV)/types/magicdec/$$part; done
	touch $@ $(VENV)/.run

# mypy resolves magicdec.* through these links, see pyproject.toml
check: export MYPYPATH := $(CURDIR)/$(VENV)/types

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .hypothesis
