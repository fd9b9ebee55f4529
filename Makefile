# One target for each usual task. .ci/run does the same on a clean machine, and more.
BIN = .venv/bin

.PHONY: check style types imports test whole client

check: style types imports test

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports --no-cache

test:
	$(BIN)/pytest -q

whole:
	$(BIN)/pytest -q --whole

client:
	$(BIN)/pip wheel -q --no-deps -w dist ./packaging/client
