# Everything starts here; `make help` lists it. Nothing but Python 3.11 or newer is needed.
#   PYTHON=…  the interpreter to make the virtual environment with      VENV=…  where it goes (.venv)
#   ARGS=…    passed on: make run ARGS="--port 9000", make test ARGS="-k approval", make test ARGS="-n0 --pdb" (one process)
.DEFAULT_GOAL := help
.PHONY: help run test battery model trials check reset css requirements
SHELL := /bin/sh
VENV ?= .venv
ARGS ?=

RUN_FILES := requirements.txt requirements-demo.txt requirements-local.txt
DEV_FILES := $(RUN_FILES) requirements-dev.txt
# A stamp is named after the content: a branch that changes a pin installs, one that touches a file does not.
sum = $(shell cat $(1) | cksum | cut -d' ' -f1)
RUN_STAMP := $(VENV)/.run-$(call sum,$(RUN_FILES))
DEV_STAMP := $(VENV)/.dev-$(call sum,$(DEV_FILES))
BIN := $(VENV)/bin

help:  ## what can be made
	@sed -n 's/^\([a-z]*\):.*##  *\(.*\)/  make \1#\2/p' $(MAKEFILE_LIST) | awk -F'#' '{ printf "%-20s %s\n", $$1, $$2 }'

run: $(RUN_STAMP)  ## start Signalbox with demo data; prints its address and logins
	@SIGNALBOX_ENV=$${SIGNALBOX_ENV:-development} exec $(BIN)/python manage.py up $(ARGS)

reset: $(RUN_STAMP)  ## delete the data of `make run`
	@SIGNALBOX_ENV=$${SIGNALBOX_ENV:-development} exec $(BIN)/python manage.py reset_data $(ARGS)

test: $(DEV_STAMP)  ## run all tests (browser tests where a Chromium is found)
	@SIGNALBOX_ENV=test exec $(BIN)/python -m pytest -n auto --durations=15 --durations-min=1 $(ARGS)

battery: $(DEV_STAMP)  ## run the failure battery alone, print its table and write it to docs/battery.md
	@SIGNALBOX_ENV=test SIGNALBOX_BATTERY_TABLE=docs/battery.md exec $(BIN)/python -m pytest -n auto tests/battery \
		--ignore tests/battery/test_table.py $(ARGS)

model: $(DEV_STAMP)  ## play the model test at length (20,000 steps) and print its figures
	@SIGNALBOX_ENV=test PYTHONHASHSEED=0 SIGNALBOX_MODEL_STEPS=$${SIGNALBOX_MODEL_STEPS:-20000} \
		SIGNALBOX_MODEL_SEED=$${SIGNALBOX_MODEL_SEED:-0} exec $(BIN)/python -m pytest -q tests/model/test_model.py $(ARGS)

trials: $(DEV_STAMP)  ## kill workers at random moments, a thousand times (ARGS="--kills 100"), and print what became of it
	@SIGNALBOX_ENV=test exec $(BIN)/python -m tests.trials $(ARGS)

check: $(DEV_STAMP)  ## lint, types, import contracts, deployment settings, missing migrations
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@SIGNALBOX_ENV=test $(BIN)/mypy .
	@$(BIN)/lint-imports
	@$(PRODUCTION) $(BIN)/python manage.py check --deploy --fail-level WARNING
	@SIGNALBOX_ENV=test $(BIN)/python -W "ignore:Got an error checking a consistent" manage.py makemigrations --check --dry-run

# Production's settings with values that open nothing: each key is of the right form and of no use.
PRODUCTION = SIGNALBOX_ENV=production SIGNALBOX_HOSTS=signalbox.example SIGNALBOX_ORIGIN=https://signalbox.example \
	SIGNALBOX_SECRET_KEY="$$($(BIN)/python -c 'import secrets; print(secrets.token_urlsafe(50))')" \
	SIGNALBOX_KEYS="$$($(BIN)/python -c 'from console.stack import new_key; print(new_key())')" \
	DATABASE_URL=postgresql://checked@127.0.0.1:1/none REDIS_URL=redis://127.0.0.1:1/0

css: $(RUN_STAMP)  ## bundle the stylesheets
	@exec $(BIN)/python static/css/bundle.py

requirements: $(DEV_STAMP)  ## resolve requirements*.in anew, keeping pins that still fit (ARGS=--upgrade lifts them)
	@$(BIN)/python -m pip install --quiet uv
	@for name in requirements requirements-demo requirements-local requirements-dev; do \
		UV_CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
			--no-emit-index-url --no-emit-find-links $(ARGS) -o $$name.txt $$name.in || exit 1; \
	done

$(RUN_STAMP): | $(BIN)/python
	@echo "Installing the requirements into $(VENV) (once; a few minutes at most) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input $(addprefix -r ,$(RUN_FILES)) \
		|| { echo "The requirements could not be installed: see above. Is the package registry reachable?" >&2; exit 1; }
	@rm -f $(VENV)/.run-* && touch $@

$(DEV_STAMP): | $(RUN_STAMP)
	@echo "Installing what the tests and checks need into $(VENV) (once) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input $(addprefix -r ,$(DEV_FILES)) \
		|| { echo "The requirements could not be installed: see above. Is the package registry reachable?" >&2; exit 1; }
	@rm -f $(VENV)/.dev-* && touch $@

# Names are tried by running them: a name may be there and lead nowhere.
$(BIN)/python:
	@for python in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3 python); do \
		"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && found=$$python && break; \
	done; \
	if [ -z "$$found" ]; then \
		echo "Signalbox needs Python 3.11 or newer, and $(if $(PYTHON),$(PYTHON) is none,none is on the PATH). Install it, or name one: make PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	if ! "$$found" -c 'import venv, ensurepip' 2>/dev/null; then \
		echo "$$found can't make virtual environments: its venv or ensurepip module is missing (on Debian: apt-get install python3-venv). Or name another: make PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$found" --version) …"; \
	clear=; if [ -e "$(VENV)/pyvenv.cfg" ]; then clear=--clear; fi; \
	"$$found" -m venv $$clear "$(VENV)" \
		|| { rm -f "$(VENV)/bin/python"; echo "$(VENV) could not be made: see above." >&2; exit 1; }
