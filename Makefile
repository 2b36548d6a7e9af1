# Every target does its own set-up: a fresh clone needs Python >= 3.10 and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PARALLEL := -n auto --maxprocesses 8 --dist worksteal

.PHONY: run test tests fast heavy lint types bench house house-check docs clean

# Runs a command and prints at its end what it took: at most 45 minutes of processor for `heavy`.
TIMED := bash -c 'TIMEFORMAT="took %1lR on the clock, %1lU and %1lS of processor time"; time "$$@"' timed

# Two commands: the quick-start plan, which passes, and one case of it asked of a backend with a bug, which must fail.
run: $(VENV)/.run
	$(BIN)/optest run --plan examples/quickstart/plan.yaml
	@printf '\nThe same plan, asked of a backend whose matmul forgets the last product of every sum:\n\n'
	PYTHONPATH=examples/quickstart OPTEST_PLUGINS=broken_backend \
	$(BIN)/optest run --plan examples/quickstart/plan.yaml --backend broken --case 'matmul half'; test $$? -eq 1
	@$(BIN)/optest report latest -q | grep -q '1 VALUE'
	@printf '\nThat failure was meant to be seen. How to read it, and what to do next: docs/tutorial.md\n'

# Its processor time has a budget in tools/budgets.yaml.
test: $(VENV)/.test
	@$(BIN)/python tools/house.py --run $(MAKE) --no-print-directory lint types house-check tests

tests: $(VENV)/.test
	$(BIN)/python -m pytest -q $(PARALLEL) -m "not heavy"

# The tests that take less than a few seconds each.
fast: $(VENV)/.test
	$(BIN)/python -m pytest -q $(PARALLEL) -m "not slow and not heavy"

# What `make test` has no time for.
heavy: $(VENV)/.test
	@$(TIMED) $(BIN)/python -m pytest -q $(PARALLEL) -m heavy

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python benchmarks/all.py

# Figures of the source next to their budgets and goals, and the largest pieces.
house: $(VENV)/.test
	$(BIN)/python tools/house.py

# Fails if a figure is worse than its budget in tools/budgets.yaml; stores better ones there.
house-check: $(VENV)/.test
	$(BIN)/python tools/house.py --check

# The pages that are made from the code.
docs: $(VENV)/.run
	$(BIN)/python tools/operator_pages.py docs
	$(BIN)/python tools/reasons_page.py > docs/reasons.md
	$(BIN)/python tools/api_page.py > docs/api.md

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.run: $(VENV)/.venv pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.test: $(VENV)/.run requirements-test.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-test.txt
	touch $@

clean:
	rm -rf $(VENV) .optest .pytest_cache .mypy_cache .ruff_cache dist build
