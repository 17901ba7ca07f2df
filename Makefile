# `make` lists all targets. Works with GNU make 3.81 (macOS) and later.

VENV := .venv
BIN  := $(VENV)/bin
# Running the system needs fewer packages than developing it. Each has its lock, and its stamp in the same environment.
RUN  := $(VENV)/.installed
DEV  := $(VENV)/.installed-dev
# Passed on to the command: make logs ARGS="-f labour-api", make up ARGS=--embedded, make reset ARGS=--yes
ARGS ?=

PROJECTS    := $(wildcard shared/pyproject.toml services/*/pyproject.toml infra/*/pyproject.toml)
OURS        := $(PROJECTS:%/pyproject.toml=%)
SOURCES     := shared services infra/fern infra/docker e2e docs/examples
DOCKERFILES := services/labour/Dockerfile services/notification/Dockerfile infra/docker/Dockerfile
SBOM         = PYTHONWARNINGS=ignore $(BIN)/uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py requirements \
	--short-PURLs --output-reproducible --of JSON
SHOW_PIP    := tee $(VENV)/install.log | awk -v live="$$([ -t 2 ] && echo yes)" -f infra/install-progress.awk
PIP         := $(BIN)/python -m pip install --disable-pip-version-check --no-input
COMPILE      = $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate \
	$(foreach name,$(shell sed -n 's/^name = "\(.*\)"/\1/p' $(PROJECTS)),--no-emit-package $(name))
IMAGES      := services/labour/requirements.lock services/notification/requirements.lock infra/docker/requirements.lock
CHECKS      := infra/checks/requirements.lock infra/checks/signatures.lock
LOCKS       := requirements.lock requirements-dev.lock $(IMAGES) $(CHECKS)

.DEFAULT_GOAL := help
.PHONY: help install up demo down reset status logs doctor audit chaos soak museum quest bench test test-docker quick check check-deploy \
	plan fmt lock sbom advisories pin-images

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(RUN) ## start everything, wait until it is healthy, print the addresses
	@$(BIN)/fern up $(ARGS)

demo: $(RUN) ## play one labour and watch every hop to the phones
	@$(BIN)/fern demo $(ARGS)

status: $(RUN) ## show every process: state, pid, uptime, restarts, health
	@$(BIN)/fern status $(ARGS)

logs: $(RUN) ## show the last lines of all logs, by time; ARGS="-f labour-api" follows one, ARGS=--json is for programs
	@$(BIN)/fern logs $(ARGS)

doctor: $(RUN) ## look for problems that would keep the system from starting
	@$(BIN)/fern doctor $(ARGS)

down: $(RUN) ## stop everything, keep the data
	@$(BIN)/fern down $(ARGS)

reset: $(RUN) ## stop everything and delete the data; ARGS=--yes does not ask
	@$(BIN)/fern reset $(ARGS)

audit: $(RUN) ## account for every event of the running system
	@$(BIN)/fern audit $(ARGS)

chaos: $(RUN) ## inject faults under load for two minutes, then account for every message; ARGS="--seconds 600 --seed 7"
	@$(BIN)/fern chaos $(ARGS)

soak: $(RUN) ## run a steady load with faults for ten minutes, and say whether anything grows; ARGS="--minutes 60 --no-faults"
	@$(BIN)/fern soak $(ARGS)

museum: $(RUN) ## put common mistakes back in, and show that each is detected
	@$(BIN)/fern museum $(ARGS)

quest: $(RUN) ## compare designs from naive to ours under the same faults; writes the chart into docs/
	@$(BIN)/fern quest $(ARGS)

bench: $(RUN) ## measure every stage beside the articles' designs and the limits of this machine; ARGS="--only relay"
	@$(BIN)/fern bench $(ARGS)

test: check ## check lint, types and import contracts, and run all tests
	$(BIN)/pytest -n 3 $(ARGS)

test-docker: $(DEV) ## test the whole system on your Docker engine: start, kill, scale, restart, audit; about four minutes
	$(BIN)/pytest e2e/docker -x -p no:cacheprovider $(ARGS)

quick: check ## check as `make check`, and run the tests that need no running system: under two minutes
	$(BIN)/pytest -n 2 --quick $(ARGS)

check: $(DEV) ## check lint, types, import contracts and the completeness of events; run no tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(SOURCES)
	$(BIN)/mypy infra/pubsub_emulator
	$(BIN)/mypy infra/sms_sandbox
	$(BIN)/lint-imports
	$(BIN)/hadolint $(DOCKERFILES)
	$(BIN)/fern contracts check

check-deploy: .venv-checks/.installed ## check infra/gcp and infra/kubernetes, as far as possible without a cloud
	@PYTHONPATH=infra/checks .venv-checks/bin/python infra/checks/tests/test_terraform.py --quiet
	.venv-checks/bin/python infra/checks/check.py

plan: ## show what Terraform would change in your project, or what is missing for that
	@sh infra/gcp/plan.sh $(ARGS)

fmt: $(DEV) ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(DEV) ## resolve the dependencies again, with hashes; all locks get the same versions
	$(COMPILE) --group build pyproject.toml -o requirements.lock
	$(COMPILE) -c requirements.lock --group dev pyproject.toml -o requirements-dev.lock
	$(COMPILE) -c requirements.lock services/labour/pyproject.toml -o services/labour/requirements.lock
	$(COMPILE) -c requirements.lock services/notification/pyproject.toml -o services/notification/requirements.lock
	$(COMPILE) -c requirements.lock infra/fern/pyproject.toml -o infra/docker/requirements.lock
	$(COMPILE) infra/checks/requirements.in -o infra/checks/requirements.lock
	$(COMPILE) --no-deps infra/checks/signatures.in -o infra/checks/signatures.lock
	@! grep -n '://' $(LOCKS) || { echo "error: a lock contains a URL; it must work with any package index" >&2; exit 1; }

sbom: $(DEV) ## list the Python packages of each image, in dist/sbom (CycloneDX), from the locks
	@mkdir -p dist/sbom
	$(SBOM) --pyproject services/labour/pyproject.toml -o dist/sbom/labour.cdx.json services/labour/requirements.lock
	$(SBOM) --pyproject services/notification/pyproject.toml -o dist/sbom/notification.cdx.json services/notification/requirements.lock
	$(SBOM) --pyproject infra/fern/pyproject.toml -o dist/sbom/tools.cdx.json infra/docker/requirements.lock

advisories: $(DEV) ## look up every locked package in a database of known vulnerabilities; needs api.osv.dev
	@UV=$(BIN)/uv sh infra/advisories.sh $(filter-out $(CHECKS),$(LOCKS))

pin-images: $(RUN) ## add the digests of the base images to their tags; needs Docker and the registries
	$(BIN)/python infra/docker/pin_images.py

install: $(DEV) ## install everything for development into .venv; the other targets install what they need by themselves

$(RUN): requirements.lock $(PROJECTS)
	@$(BIN)/python -c pass 2>/dev/null || { \
		python=$$(sh infra/choose-python.sh "$(PYTHON)" "make $(MAKECMDGOALS)") || exit $$?; \
		echo "making $(VENV) with $$("$$python" --version)"; \
		"$$python" -m venv --clear $(VENV) || { \
			rm -rf $(VENV); echo "error: $$python cannot make a virtual environment." >&2; \
			echo "try:   sudo apt install python3-venv" >&2; exit 1; }; }
	@echo "installing the locked dependencies"
	@{ $(PIP) --progress-bar off --require-hashes -r requirements.lock 2>&1 || echo "pip failed"; } | $(SHOW_PIP)
	@{ $(PIP) --quiet --no-deps --no-build-isolation $(OURS:%=-e %) 2>&1 || echo "pip failed"; } | $(SHOW_PIP)
	@touch $(RUN)

$(DEV): $(RUN) requirements-dev.lock
	@echo "installing the development tools"
	@{ $(PIP) --progress-bar off --require-hashes -r requirements-dev.lock 2>&1 || echo "pip failed"; } | $(SHOW_PIP)
	@touch $(DEV)

.venv-checks/.installed: $(CHECKS)
	@echo "installing the tools of this check"
	@python=$$(sh infra/choose-python.sh "$(PYTHON)" "make check-deploy") || exit $$?; "$$python" -m venv --clear .venv-checks
	@.venv-checks/bin/python -m pip install --disable-pip-version-check --no-input --quiet --require-hashes -r infra/checks/requirements.lock
	@.venv-checks/bin/python -m pip install --disable-pip-version-check --no-input --quiet --require-hashes --no-deps -r infra/checks/signatures.lock
	@touch $@
