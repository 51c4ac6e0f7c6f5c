# make demo    the app on a bundled hang (without a terminal: the report)
# make demo-numbers    a real job whose gradient goes wrong while you watch; needs torch in .venv
# make test    the whole test suite
# make dist    sdist and wheel, checked
# make pyz     one file for Python 3.11 to 3.14 and no network; PYZ_PYTHONS=3.12 makes a smaller one
# They make .venv and install what they need. PYTHON and WORKERS can be set.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
# three on two cores: a tenth of the suite waits for jobs
WORKERS ?= 3
PYZ_PYTHONS ?= 3.11 3.12 3.13 3.14
PYZ_MACHINE ?= x86_64
PYZ_LEVEL ?= 6
PYZ = dist/rankscope$(if $(filter-out x86_64,$(PYZ_MACHINE)),-$(PYZ_MACHINE)).pyz
BIN := .venv/bin
HANG := sample_data/two_groups
PAGES = README.md CHANGELOG.md CONTRIBUTING.md docs/*.md docs/*.svg docs/*.json benchmarks/results.md sample_data/README.md

.PHONY: demo demo-numbers test lint sizes format screenshot docs golden sample-data bench dist pyz man clean

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
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml recipes/github/workflow.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions recipes/github/action.yml

# what a reviewer looks at: lines, long functions, private helpers with one caller
sizes: .venv/installed
	@$(BIN)/python -m tests.house.sizes

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
	$(BIN)/python -m benchmarks.accuracy --write
	$(BIN)/python -m benchmarks.scale --write
	$(BIN)/python -m benchmarks.capture --write
	$(BIN)/python -m benchmarks.numbers_overhead --write
	$(BIN)/python -m benchmarks.trace_frames --write

# sdist and wheel, as they go to PyPI
dist: .venv/release-extras
	rm -f dist/*.whl dist/*.tar.gz
	$(BIN)/uv build --quiet --python $(BIN)/python --out-dir dist
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/check-wheel-contents dist/*.whl

# the wheel and all that it needs in one file, for nodes without a network; docs/install.md says how it is used
pyz: .venv/release-extras
	rm -rf build/pyz
	$(BIN)/uv build --quiet --python $(BIN)/python --wheel --out-dir build/pyz
	$(BIN)/python packaging/make_pyz.py $(PYZ_PYTHONS:%=--python %) --machine $(PYZ_MACHINE) --level $(PYZ_LEVEL) \
		-o $(PYZ) build/pyz/*.whl

# the man pages of the wheel, in build/man
man: .venv/release-extras
	$(BIN)/python packaging/man_pages.py build/man

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

.venv/release-extras: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[release]'
	@touch $@ .venv/installed
