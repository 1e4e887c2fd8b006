# mldyno: everything a newcomer or CI needs. `make bench` and `make test` work on a fresh machine
# that has Python 3.10 or newer and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
export PYTHONDONTWRITEBYTECODE =  # compiled modules are kept: tests and benches start a thousand processes

.PHONY: bench test test-fleet docs fuzz fuzz-files test-tools catalogue check style types bench-self bench-peers selfcheck newcomer flows docs-outputs docs-measured docs-pictures schema setup dev clean

bench: setup  ## what this machine is and how fast it trains and runs models
	$(BIN)/mldyno quick

# Three processes on two cores: some of the tests only wait. More threads would get in each other's way.
PROCESSES ?= 3
# Engines that the tests start for real, on machines that are network namespaces; Linux only. LABS= for none.
LABS ?= $(if $(filter Linux,$(shell uname)),ssh slurm postgres)
test: export LABS := $(LABS)
test: dev test-tools $(addprefix lab-,$(LABS)) style  ## linters, the layer contract, then all tests, and the types beside them; PROCESSES=4 for more at once
	@$(BIN)/mypy > $(VENV)/types.txt 2>&1 & types=$$!; \
	OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/pytest -m "not long" -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --durations=20; tests=$$?; \
	wait $$types; typed=$$?; echo "mypy: $$(cat $(VENV)/types.txt)"; \
	[ $$tests -eq 0 ] && [ $$typed -eq 0 ]

FAULTS_IN ?= ssh slurm ray
test-fleet: export LABS := $(FAULTS_IN)
test-fleet: dev test-tools $(addprefix lab-,$(FAULTS_IN))  ## every fault of a fleet for every engine, for real: a quarter of an hour; FAULTS_IN="ssh slurm" for fewer
	$(BIN)/pytest --dist no -p no:xdist tests/engines tests/fleet/test_fleet_faults.py --durations=15

fuzz: dev  ## strange records for ten minutes: what `import` takes, every command shows; SEED=1 for the same ones again
	$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED))

fuzz-files: dev  ## 10,000 strange files through every reading command: nothing starts, nothing fails inside, none takes 5 s
	$(BIN)/python -m tests.fuzz.files --known $(if $(FILES),--files $(FILES)) $(if $(SEED),--seed $(SEED)) --keep strange-files

catalogue: dev  ## every workload at its own size on the simulated accelerator, in every mode and placement; needs 16 GB and some minutes
	$(BIN)/python -m tests.simulated.test_catalogue

test-tools:  # what some tests need of the system; a test that misses it says so
	@missing=""; [ -e /usr/share/datasets/fashion-mnist ] || missing="dataset-fashion-mnist"; \
	command -v openssl >/dev/null || missing="$$missing openssl"; \
	[ "$$(uname)" != Linux ] || command -v tc >/dev/null || missing="$$missing iproute2"; \
	command -v g++ >/dev/null || command -v clang++ >/dev/null || missing="$$missing g++"; \
	{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null || missing="$$missing chromium"; \
	if [ -n "$$missing" ]; then \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && \
	    apt-get install -yq --no-install-recommends $$missing; } || echo "For all tests install: $$missing"; \
	fi

lab-%: setup  ## the tools of a lab (lab-ssh, lab-slurm, lab-ray, lab-postgres), unpacked into .labs; nothing is installed
	@$(BIN)/python -m bench.labs $*

check: style types

style: dev  # rules, format and layers: a few seconds
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache > $(VENV)/contracts.txt || (cat $(VENV)/contracts.txt; exit 1)

types: dev
	$(BIN)/mypy

bench-self: dev  ## the product's own speed, as ratios, into bench/RESULTS.md
	$(BIN)/python bench/bench_self.py

bench-peers: dev  ## beside other tools, each in an environment of its own, into bench/PEERS.md; takes an hour
	$(BIN)/python -m bench.peers

selfcheck: dev  ## mldyno's own errors, idle and under load, into bench/SELFCHECK.md: the parts that are not in bench/selfcheck.json, or PART=idle anew
	$(BIN)/python bench/selfcheck.py $(addprefix --part ,$(PART))

newcomer: dev test-tools  ## a fresh clone, make bench, and the page that it names; some minutes
	$(BIN)/python bench/newcomer.py

flows: dev  ## which files a newcomer opens to follow a run, by a trace, into bench/FLOWS.md; some minutes
	$(BIN)/python bench/flows.py

docs-outputs: dev  ## run the examples of the docs, and write down what they print
	$(BIN)/python docs/make_outputs.py
	$(BIN)/python docs/make_notebooks.py

docs-measured: dev  ## the same for the examples that measure for real; a quarter of an hour, with nothing else running
	$(BIN)/python docs/make_outputs.py measured

docs-pictures: dev test-tools  ## measure a small set, and make the pictures of docs/ from it; some minutes
	$(BIN)/python docs/make_pictures.py

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  (echo "mldyno needs Python 3.10 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1)
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q && apt-get install -yq python3-venv; } || \
	  (echo "Python's venv module is missing; on Debian and Ubuntu: sudo apt-get install python3-venv"; exit 1)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -c constraints.txt -e '.[torch]'
	@touch $(READY)

dev: $(VENV)/.dev  ## all frameworks, and what tests and benches need; `make bench` needs PyTorch only

$(VENV)/.dev: $(READY)
	$(PIP) install -c constraints.txt -e '.[torch,tensorflow-cpu,jax,mlx,onnxruntime,openvino,hf,postgres,server,docs,test]'
	@touch $@

docs: $(VENV)/.docs  ## all pages as a site with search, in build/docs; read it with: python3 -m http.server -d build/docs
	$(BIN)/python docs/make_site.py

$(VENV)/.docs: $(READY)
	$(PIP) install -c constraints.txt -e '.[docs]'
	@touch $@

schema: setup  ## the JSON Schema of a record, from the dataclasses
	$(BIN)/python -c 'import json; from mldyno.store.codec import json_schema; print(json.dumps(json_schema(), indent=1))' \
	  > src/mldyno/data/record.schema.json

clean:  ## remove what setup made
	rm -rf $(VENV) .labs build dist src/*.egg-info
