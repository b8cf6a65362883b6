PYTHON ?= python3
BIN := .venv/bin

.PHONY: install run throwaway test check bench faults screenshot clean

install: .venv/run

run: install
	$(BIN)/flask --app app init
	$(BIN)/gunicorn

# ARGS="--seed 7" fills it; ARGS="-- COMMAND" runs a command beside it.
throwaway: .venv/run
	@TASKS_CONFIG=/dev/null $(BIN)/flask --app app throwaway $(ARGS)

# Four processes, also on two cores: a test mostly waits for its server.
test: .venv/dev
	$(BIN)/pytest -n 4 --dist loadfile $(ARGS)

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# ARGS="--short" takes two minutes, without it half an hour.
bench: .venv/run
	$(BIN)/python bench/run.py $(ARGS)

# Ten minutes; ARGS="--short" takes less than one. It uses the tests' servers.
faults: .venv/dev
	@PYTHONPATH=.:tests $(BIN)/python faults/campaign.py $(ARGS)

# The image in README.md.
screenshot: .venv/dev
	@TASKS_CONFIG=/dev/null PYTHONPATH=. $(BIN)/flask --app app throwaway --seed 7 -- $(BIN)/python tests/screenshot.py

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/run: requirements.txt | .venv/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

.venv/dev: requirements-dev.txt .venv/run
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache bench/.venv bench/.npm
