# A fresh machine needs Python >= 3.11 (`make test PYTHON=python3.12` picks one); the rig and REAL=1 need Go >= 1.26 too.
PYTHON ?= python3
BIN := .venv/bin
.PHONY: demo tour test lint rig bench lock format lint-style lint-types lint-imports lint-django lint-size

demo: .venv/installed ; @$(BIN)/python -m deploy.demo $(if $(filter-out 0,$(REAL)),--real)
tour: .venv/installed ; @$(BIN)/python -m deploy.demo.tour
test: .venv/installed ; $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile
lint: lint-style lint-types lint-imports lint-django lint-size
rig: .venv/installed ; @$(BIN)/python -m deploy.rig up
bench: .venv/installed ; $(BIN)/python -m tests.bench
lock: .venv/installed ; $(BIN)/pip install --quiet pip-tools==7.6.2 && $(BIN)/pip-compile --quiet --upgrade --all-extras --strip-extras --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml
format: .venv/installed ; $(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint-style: .venv/installed ; $(BIN)/ruff check . && $(BIN)/ruff format --check .
lint-types: .venv/installed ; LOCKSTEP_LINT=1 $(BIN)/mypy
lint-imports: .venv/installed ; $(BIN)/lint-imports
lint-django: .venv/installed ; LOCKSTEP_LINT=1 $(BIN)/python -W ignore manage.py makemigrations --check --dry-run && LOCKSTEP_LINT=1 $(BIN)/python manage.py check
lint-size: .venv/installed ; LOCKSTEP_LINT=1 $(BIN)/python -m pytest --quiet --noconftest tests/docs/test_size.py

.venv/installed: requirements.lock
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Lockstep needs Python 3.11 or newer: make ... PYTHON=/path/to/python3")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	touch $@
