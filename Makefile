# The menu. `make demo` and `make test` need nothing but Python 3.11 or newer with pip; they make their own .venv,
# or the folder that `make VENV=… demo` names.
.DEFAULT_GOAL := help
.PHONY: help demo test browser lab laws fuzz pythons sbom parsers lint types style pages format bench validate fit bless oracle docs site clean

export VENV ?= .venv
BIN := $(VENV)/bin
SET_UP := pyproject.toml constraints.txt scripts/setup.sh
DEMO := examples/llama-8b-64xh100.yaml

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

$(VENV)/.ready-run: $(SET_UP)
	@scripts/setup.sh run
	@touch $@

$(VENV)/.ready-dev: $(SET_UP)
	@scripts/setup.sh dev
	@touch $@ $(VENV)/.ready-run

demo: $(VENV)/.ready-run ## install and answer one question: Llama 3.1 8B on 64 H100
	@echo '$$ shardmeter predict $(DEMO)'
	@$(BIN)/shardmeter predict $(DEMO)
	@echo
	@echo 'The tool is $(BIN)/shardmeter; after "source $(BIN)/activate" it is shardmeter.'

test: $(VENV)/.ready-dev ## the tests
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal

browser: $(VENV)/.ready-dev ## the page in a real browser (installs chromium where it may; three minutes)
	@scripts/browser_setup.sh
	@$(BIN)/python -m pytest -q -m browser tests/browser

lab: $(VENV)/.ready-dev ## the lab's real runs (installs PyTorch for processors; a minute or two)
	@scripts/torch_setup.sh
	@$(BIN)/python -m pytest -q tests/lab/test_real.py

laws: $(VENV)/.ready-dev ## every law on 10,000 plans, every printed plan of 400 questions predicted again (half an hour)
	@LAWS=10000 $(BIN)/python -m pytest -q tests/law/test_scalar_equals_vector.py tests/law/test_laws.py -k "batch_gives or terms_are_the_totals or no_term_is_negative or better_hardware or degree_of_one"
	@PLANS_AGAIN=400 $(BIN)/python -m pytest -q tests/law/test_plans_again.py

fuzz: $(VENV)/.ready-dev ## 110,000 texts that are almost right, for everything that reads one (ten minutes)
	@$(BIN)/python scripts/fuzz.py

pythons: ## the laws, the contracts and the commands under Python 3.11, 3.12 and 3.13 (ten minutes)
	@scripts/pythons.sh

parsers: $(VENV)/.ready-dev ## show every export to the real parser of its trainer (3.5 GB of other packages, ten minutes)
	@$(BIN)/python scripts/parsers_setup.py
	@$(BIN)/python scripts/parsers_record.py
	@$(BIN)/python -m pytest -q tests/parsers -m parsers

sbom: $(VENV)/.ready-dev ## the bill of materials: build/sbom.cdx.json (CycloneDX)
	@$(BIN)/python scripts/sbom.py -o build/sbom.cdx.json

lint: types style pages ## style, types, layers, spelling, generated pages (make -j2 lint: side by side)

types: $(VENV)/.ready-dev
	@$(BIN)/mypy

style: $(VENV)/.ready-dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/codespell README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md docs src scripts examples

pages: $(VENV)/.ready-dev
	@$(BIN)/python scripts/check_docs.py
	@$(BIN)/python scripts/docs_home.py --check
	@$(BIN)/python scripts/catalog_pages.py --check
	@$(BIN)/python scripts/formula_book.py --check
	@$(BIN)/python scripts/gallery.py --check
	@$(BIN)/python scripts/command_reference.py --check
	@$(BIN)/python scripts/sync_page.py --check
	@$(BIN)/python scripts/methods_page.py --check
	@$(BIN)/python scripts/condense_loss.py --check
	@$(BIN)/python scripts/loss_page.py --check
	@$(BIN)/python scripts/network_page.py --check
	@$(BIN)/python scripts/calibration_page.py --check
	@$(BIN)/python scripts/threshold_figures.py --check
	@$(BIN)/python scripts/audit_page.py --check
	@$(BIN)/python scripts/sbom.py --check
	@$(BIN)/python scripts/lab_page.py --check

format: $(VENV)/.ready-dev ## let ruff rewrite what it can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(VENV)/.ready-dev ## speed: cold start, one prediction, plans per second
	@$(BIN)/python -m pytest bench -q -s

validate: $(VENV)/.ready-run ## compare with the measured runs that ship with the package
	@$(BIN)/shardmeter validate

fit: $(VENV)/.ready-dev ## refit the stacks from the measured runs, and what whole runs take beyond their steps
	@$(BIN)/python scripts/fit.py
	@$(BIN)/python scripts/fit_practice.py

bless: $(VENV)/.ready-dev ## freeze the golden predictions anew, after a change that is meant; shows what moves
	@$(BIN)/python scripts/bless.py
	@$(BIN)/python scripts/bless_report.py

oracle: $(VENV)/.ready-dev ## rewrite the table of parameter and FLOP counts (needs torch)
	@$(BIN)/python scripts/oracle.py

docs: $(VENV)/.ready-dev ## regenerate the pages that are written by scripts
	@$(BIN)/python scripts/command_reference.py
	@$(BIN)/python scripts/sync_page.py
	@$(BIN)/python scripts/methods_page.py
	@$(BIN)/python scripts/example_outputs.py
	@$(BIN)/python scripts/executed_pages.py
	@$(BIN)/python scripts/accuracy_page.py
	@$(BIN)/python scripts/geo_page.py
	@$(BIN)/python scripts/loss_page.py
	@$(BIN)/python scripts/network_page.py
	@$(BIN)/python scripts/threshold_figures.py
	@$(BIN)/python scripts/scale_across_page.py
	@$(BIN)/python scripts/audit_page.py
	@$(BIN)/python scripts/runs_page.py
	@$(BIN)/python scripts/curves_page.py
	@$(BIN)/python scripts/cross_site_page.py
	@$(BIN)/python scripts/lab_page.py
	@$(BIN)/python scripts/catalog_pages.py
	@$(BIN)/python scripts/formula_book.py
	@$(BIN)/python scripts/gallery.py
	@$(BIN)/python scripts/docs_home.py

site: $(VENV)/.ready-dev ## build all pages as a site: site/index.html (offline; a warning is an error)
	@$(BIN)/python scripts/build_site.py

clean: ## remove the environment (.venv) and every cache
	@if [ -e "$(VENV)/pyvenv.cfg" ]; then rm -rf "$(VENV)"; fi
	@rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	@find src tests scripts bench -name __pycache__ -type d -prune -exec rm -rf {} +
