# make demo    the app on a bundled hang (without a terminal: the report)
# make demo-numbers    a real job whose gradient goes wrong while you watch; needs torch in .venv
# make test    the whole test suite
# They make .venv and install what they need. PYTHON and WORKERS can be set.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
# three on two cores: a tenth of the suite waits for jobs
WORKERS ?= 3
BIN := .venv/bin
HANG := sample_data/two_groups
PAGES = README.md CHANGELOG.md CONTRIBUTING.md docs/*.md docs/*.svg docs/*.json benchmarks/results.md sample_data/README.md

.PHONY: demo demo-numbers test lint format screenshot docs golden sample-data bench clean

demo: .venv/installed
	@$(BIN)/rankscope $(HANG) || test $$? -eq 1

# torch is large: it says how to get it, and does not install it unasked
demo-numbers: .venv/installed
	@$(BIN)/rankscope demo wrong-gradient || test $$? -eq 1

test: .venv/test-extras
	$(BIN)/python -m pytest -n $(WORKERS)

lint: .venv/dev-extras
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev-extras
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# the pictures of the docs, drawn by the real app
screenshot: .venv/installed
	$(BIN)/python -m docs.screenshot

# the pages as a site in build/site; they are copied as they lie here, so links between them hold in both places
docs: .venv/docs-extras
	rm -rf build/pages
	mkdir -p build/pages
	cp --parents $(PAGES) build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# the bytes of the reports and the text of the screens that the tests compare with
golden: .venv/test-extras
	$(BIN)/python -m tests.report.test_golden
	$(BIN)/python -m tests.tui.detail.goldens
	RANKSCOPE_UPDATE_GOLDEN=1 $(BIN)/python -m pytest tests/tui/test_golden.py

# runs the jobs for real and replaces their dumps
sample-data: .venv/test-extras
	$(BIN)/python sample_data/make.py

# writes benchmarks/results.md
bench: .venv/test-extras
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.capture
	$(BIN)/python -m benchmarks.numbers_overhead
	$(BIN)/python -m benchmarks.trace_frames

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/test-extras: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ .venv/installed

.venv/dev-extras: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[test,dev]'
	@touch $@ .venv/test-extras .venv/installed

.venv/docs-extras: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@ .venv/installed
