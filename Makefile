# Every target does all the set-up it needs on a machine that has only Python, pip and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo docs docs-serve test test-slow test-federation lint clean

demo: .venv/demo.stamp
	$(BIN)/fedpg demo

# The site in build/site; a broken link or anchor is an error. It asks nothing of the network.
docs: .venv/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-serve: .venv/docs.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

test: .venv/test.stamp
	$(BIN)/ruff check src tests tools examples
	$(BIN)/ruff format --check src tests tools examples
	$(BIN)/pytest -n 2 --dist worksteal

test-slow: .venv/test.stamp .venv/trackers.stamp
	$(BIN)/pytest -m slow

# Needs root: it makes network namespaces, and listens on the loopback interface. Most of the time it waits: three run at a time.
# Writes docs/data/kills.json, and the table of docs/explanation/federation.md.
test-federation: .venv/test.stamp
	$(BIN)/pytest -m federation -n 3 --dist worksteal

lint: .venv/test.stamp
	$(BIN)/ruff check --fix src tests tools examples
	$(BIN)/ruff format src tests tools examples

# One stamp per extra: nothing is installed, and no network is needed, until pyproject.toml changes.
.venv/%.stamp: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]'
	touch $@

clean:
	rm -rf .venv .pytest_cache runs
