PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: install run throwaway test quick check audit bench faults mutate screenshot clean

install: $(BIN)/tasks

run: install
	@! $(BIN)/python -c 'import os, socket; socket.create_connection(("127.0.0.1", os.environ.get("PORT") or 8000), 5)' 2>/dev/null || \
	{ echo "Error: port $${PORT:-8000} is taken by another program; choose another one: PORT=$$(($${PORT:-8000} + 1)) make run" >&2; exit 1; }
	$(BIN)/tasks --app app init
	$(BIN)/gunicorn

# ARGS="--seed 7" fills it; ARGS="-- COMMAND" runs a command beside it.
throwaway: $(VENV)/run
	@TASKS_CONFIG=/dev/null $(BIN)/flask --app app throwaway $(ARGS)

# A third process uses a core while tests wait; five took more CPU, since each has a Chromium and a fork server.
test: $(VENV)/dev
	$(BIN)/pytest -n 3 --dist loadfile $(ARGS)

# Half a minute, in the process of the tests: without pages, servers, other programs, and the slowest files.
quick: $(VENV)/dev
	$(BIN)/pytest -n 3 --dist loadfile --quick $(ARGS)

check: audit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python .ci/words.py

# Known vulnerabilities of the packages; with CI_AUDIT=required it fails if no database can be reached.
audit: $(VENV)/dev
	@$(BIN)/python .ci/audit.py

# ARGS="--short" takes three minutes, without it half an hour. It uses the tests' servers.
bench: $(VENV)/dev
	@PYTHONPATH=.:tests $(BIN)/python bench/run.py $(ARGS)

# Eight minutes; ARGS="--short" takes 40 seconds. It uses the tests' servers.
faults: $(VENV)/dev
	@PYTHONPATH=.:tests:bench $(BIN)/python faults/campaign.py $(ARGS)

# Find rules that no test guards. Name a module and the tests to run: ARGS="times.py tests/test_clock.py".
mutate: $(VENV)/dev
	@$(BIN)/python faults/mutate.py $(ARGS)

# The images in README.md.
screenshot: $(VENV)/dev
	@TASKS_CONFIG=/dev/null PYTHONPATH=. $(BIN)/flask --app app throwaway --seed 7 -- $(BIN)/python tests/screenshot.py

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/run: requirements.txt | $(BIN)/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

# Flask's program by the name that the documentation uses: its help prints the name by which it is called.
$(BIN)/tasks: | $(VENV)/run
	@ln -sf flask $@

$(VENV)/dev: requirements-dev.txt $(VENV)/run | $(BIN)/tasks
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache bench/.venv bench/.npm tests/.npm
