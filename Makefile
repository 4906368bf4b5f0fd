# Every target sets up what it needs in one virtual environment. Needs Python 3.11 or newer, and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Marks in it: what the program needs is installed; and what tests, lint and docs need.
PLAIN  := $(VENV)/.installed
READY  := $(VENV)/.ready
# Tests side by side: many wait for processes that they started, so three keep two cores busy.
JOBS   ?= 3
# Tests start hundreds of processes: let Python keep what it compiled, whatever the caller's variable says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test busy soak browser oracle lines lint format docs lock sbom dist site clean

help:
	@echo "make demo   train three small specialists, evolve merges of them, show the champion"
	@echo "make test   run the quick tests: about five minutes on two quiet cores"
	@echo "make busy   the same while other processes keep every core busy"
	@echo "make soak   run all tests: before a release, and every night"
	@echo "make oracle compare merges with mergekit's, which it installs apart"
	@echo "make lint   ruff and pyright"
	@echo "make docs   write the pages of docs/ that are made from the code"
	@echo "make lock   requirements.lock: what the image installs, with hashes"
	@echo "make sbom   dist/sbom.json: the same and the dashboard's packages as a bill of materials (CycloneDX)"
	@echo "make site   the docs as a site, into dist/site"
	@echo "make dist   wheel and source distribution, into dist/"

$(PLAIN): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 …"; exit 1; }
	@echo "== setting up $(VENV), once: 1/3 an environment of its own"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "== 2/3 a current pip"
	$(BIN)/python -m pip install --upgrade pip
	@echo "== 3/3 the program and its packages, some 90 of them: minutes, a line for each"
	$(BIN)/python -m pip install -c constraints.txt -e .
	touch $(PLAIN)

$(READY): $(PLAIN)
	@echo "== the tools of tests, lint and docs, some 150 packages more: minutes, a line for each"
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(PLAIN)
	VENV=$(VENV) sh examples/demo.sh

# The quick tests. LANE: a choice by marks (docs/tests.md). BUDGET: what all tests together may take, in processor
# seconds as docs/tests.md says, 0: no bound; a lane that takes more fails. A worker without work takes tests from the other.
LANE   ?= not soak and (smoke or not slow)
BUDGET ?= 0
test: $(READY)
	OMP_WAIT_POLICY=PASSIVE FORGE_TEST_BUDGET=$(BUDGET) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "$(LANE)" $(ARGS)

# The same beside a process for each core that computes without end: what fails here only depends on the machine's
# speed. EACH: how many for each core.
EACH   ?= 1
busy: $(READY)
	$(BIN)/python -m testing.busy --each $(EACH) $(MAKE) test

soak: $(READY)
	$(MAKE) test LANE=

# The dashboard's tests use the system's Chromium, and are skipped where there is none.
browser:
	@command -v chromium || command -v chromium-browser || { command -v apt-get && [ "$$(id -u)" = 0 ] \
	  && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	  || echo "no Chromium, and none can be installed: the dashboard's tests in a browser are skipped"

# mergekit in an environment of its own, and our merges beside its: minutes.
oracle: $(READY)
	test -x .venv-oracle/bin/mergekit-yaml || { $(PYTHON) -m venv .venv-oracle && .venv-oracle/bin/python -m pip install --quiet -c constraints.txt mergekit==0.1.5; }
	FORGE_MERGEKIT=$(CURDIR)/.venv-oracle/bin/mergekit-yaml $(BIN)/python -m pytest tests/oracle $(ARGS)

# Counts of files, lines and names; fails above those of testing/house_counts.json, which only go down.
lines: $(READY)
	$(BIN)/python -m testing.house_counts $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# What the image installs, by hash; needs uv. torch is apart: each kind of machine has an index of its own for it, and
# its CUDA packages are those of that index. UPGRADE=--upgrade takes the newest of everything.
APART := torch triton cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas cuda-cupti cuda-nvrtc \
  cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 nvjitlink nvshmem-cu13 nvtx)
lock:
	echo 'setuptools>=77' | uv pip compile -q pyproject.toml - -c constraints.txt --extra s3 --extra gcs --universal \
	  --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command 'make lock' \
	  $(APART:%=--no-emit-package %) $(UPGRADE) -o requirements.lock

# The bill of materials of the image: what the lock pins, and the packages in the dashboard's scripts.
sbom: $(READY)
	$(BIN)/python docs/sbom.py dist/sbom.json

# The wheel and the source distribution, with the commit in them.
dist: $(READY)
	mkdir -p dist
	$(BIN)/python -c "from setuptools import build_meta as b; print(b.build_sdist('dist'), b.build_wheel('dist'))"

# The docs as a site; a link that leads nowhere ends the build.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# Pages of docs/ that are made from the code: settings.md, and those that only the site has (Git ignores them).
docs: $(READY)
	$(BIN)/python docs/generate.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .ruff_cache .coverage*
