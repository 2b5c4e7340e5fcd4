# Two commands do all the set-up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
QUICK := not docs and not wheel and not browser and not slow and not chaos and not gpu and not ray and not agents and not slurm
SPREAD := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: help run test check lint docs bench bench-quick clean compiled

help:
	@echo "make test         what a change must pass, below five minutes; sets up .venv by itself"
	@echo "make check        the inner loop, below a minute: linters, types, core, schedulers, searchers"
	@echo "make run          tune a torch model on real data and print the best configuration"
	@echo "make test-SUITE   docs, wheel, browser, clusters, slow, chaos, gpu or horovod"
	@echo "make lint         ruff and mypy"
	@echo "make docs         the pages as a site in dist/docs"
	@echo "make bench        beside Ray, Optuna, Syne Tune and torchrun; make bench-quick: our figures alone"
	@echo "make clean        remove what the others made"

# Each process of a suite compiles all tests, 10 s; what it wrote serves the next run, even where Python is to write none.
test check test-%: export PYTHONDONTWRITEBYTECODE =

run: compiled
	$(PY) examples/torch_digits_asha.py

test: compiled
	$(PY) -m pytest -m "$(QUICK)" $(SPREAD)

check: lint compiled
	$(PY) -m pytest -m "$(QUICK)" $(SPREAD) tests/core tests/schedulers tests/searchers

# What a suite needs besides: chromium and its driver (Debian's chromium, chromium-driver) for `browser`, which is skipped
# with the reason without them; an NVIDIA device for `gpu`. `clusters` starts those of Ray on this machine's loopback interface,
# agents as plain processes, and Slurm (Debian's slurm-wlm, munge), which is skipped with the reason without it. `horovod` builds it into the user's cache, or where SWEEP_HOROVOD_ENVIRONMENT says.
MARKED_docs := -m docs -n 3 --dist load
MARKED_wheel := -m wheel --timeout=600 tests/test_wheel.py
MARKED_browser := -m browser -rs
MARKED_clusters := -m "(ray or agents or slurm) and not slow and not chaos" -n 2 --dist loadfile --timeout=300 -rs
MARKED_slow := -m slow --timeout=600
MARKED_chaos := -m chaos --timeout=1200
MARKED_gpu := -m gpu --timeout=600
MARKED_horovod := --timeout=600 tests/train/test_horovod_groups.py tests/integration/test_horovod.py

ALL_LIBRARIES := .[test,integrations]

test-%: compiled
	$(if $(MARKED_$*),,$(error there is no suite $*; see make help))
	$(if $(filter slow,$*),$(PY) -m pip install -q -c constraints.txt -e '$(ALL_LIBRARIES)')
	$(if $(filter horovod,$*),$(PY) tests/horovod_environment.py)
	$(PY) -m pytest $(MARKED_$*)

# As pip does where it installs; Python does not where PYTHONDONTWRITEBYTECODE is set, and then each process compiles.
compiled: $(VENV)/.ok
	@$(PY) -m compileall -q sweep searchers

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# The pages of docs/ as a site in dist/docs, to be read from the disk; a link that leads nowhere fails it.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build
	@echo "open dist/docs/index.html"

# Beside Ray, Optuna, Syne Tune and torchrun, in some twenty minutes, into benchmarks/RESULTS.md. Their environment is kept in
# the user's cache, or where SWEEP_BENCH_ENVIRONMENT says. `make bench ARGS="--rows asha,resume --rounds 1"` takes less.
bench: $(VENV)/.ok
	$(PY) benchmarks/peers/run.py $(ARGS)

# Only our own programs, shortened, beside what the machine can do: below two minutes.
bench-quick: $(VENV)/.ok
	$(PY) benchmarks/peers/run.py --quick

$(VENV)/.ok: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --upgrade pip
	$(PY) -m pip install -q -c constraints.txt -e '.[test]'
	touch $@

$(VENV)/.dev: $(VENV)/.ok
	$(PY) -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.docs: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) dist/docs .pytest_cache .mypy_cache .ruff_cache
