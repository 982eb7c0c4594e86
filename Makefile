# One command each: `make serve` runs a real model, `make test` runs every test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PLUGINS := $(wildcard plugins/*/pyproject.toml)
SOURCES := setup.py pyproject.toml $(PLUGINS) $(wildcard engine/colibri_engine/_*.pyx engine/colibri_engine/_*.pxd engine/colibri_engine/csrc/*.h)
HOST ?= 127.0.0.1
PORT ?= 8000
comma := ,

.PHONY: serve test install check bench fuzz docs clean

# $(call into_venv,EXTRAS): the project with its plugins, editable, built once. The warning that is left out
# comes with every editable package that has no src folder.
define into_venv
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "colibri needs Python 3.11 or newer; set PYTHON=python3.11")'
	@test -x $(BIN)/python || { echo "creating $(VENV)" && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "building colibri (a few minutes the first time)"
	@PYTHONWARNINGS='ignore:Editable installation' $(BIN)/python -m pip install --quiet \
	  --editable '.[$(1)]' $(foreach plugin,$(PLUGINS),--editable $(dir $(plugin)))
endef

# What runs the server; what runs the tests; what checks types, imports and style.
$(VENV)/.installed: $(SOURCES)
	$(call into_venv,constrain)
	@touch $@

$(VENV)/.tested: $(SOURCES)
	$(call into_venv,test$(comma)clients)
	@touch $(VENV)/.installed $@

$(VENV)/.checked: $(SOURCES)
	$(call into_venv,test$(comma)clients$(comma)dev)
	@touch $(VENV)/.installed $(VENV)/.tested $@

install: $(VENV)/.installed

serve: install
	$(BIN)/colibri serve --host $(HOST) --port $(PORT)

test: $(VENV)/.tested
	$(BIN)/colibri pull smollm2
	$(BIN)/python -m pytest -n 2 $(ARGS)

check: $(VENV)/.checked
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The parser's laws over every small text and every mistake in every recorded reply; takes half an hour.
fuzz: $(VENV)/.tested
	COLIBRI_THOROUGH=1 $(BIN)/python -m pytest -n 2 --timeout 7200 tests/library/test_parser_laws.py tests/library/test_mutations.py $(ARGS)

# Every benchmark in turn; they print what they measure, as ratios in one run.
bench: $(VENV)/.tested
	$(BIN)/colibri pull smollm2
	@for bench in tests/benchmarks/bench_*.py; do echo "== $$bench"; $(BIN)/python $$bench || exit 1; done

docs: install
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) build dist *.egg-info engine/colibri_engine/*.so
