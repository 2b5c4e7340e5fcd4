# Two commands do all the set-up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python

.PHONY: run compiled test test-docs test-wheel test-browser test-ray test-slow test-chaos test-gpu test-horovod lint docs bench bench-quick clean

run: compiled
	$(PY) examples/torch_digits_asha.py

test: compiled
	$(PY) -m pytest -m "not docs and not wheel and not browser and not slow and not chaos and not gpu and not ray and not agents" \
		-n 3 --dist loadfile --no-loadscope-reorder

test-docs: compiled
	$(PY) -m pytest -m "docs" -n 3 --dist load

test-wheel: $(VENV)/.ok
	$(PY) -m pytest -m "wheel" --timeout=600 tests/test_wheel.py

# Needs chromium and its driver, Debian's packages chromium and chromium-driver; skipped, with the reason, without them.
test-browser: compiled
	$(PY) -m pytest -m "browser" -rs

# Several machines: agents as plain processes, and clusters of Ray on this machine's loopback interface.
test-ray: compiled
	$(PY) -m pytest -m "(ray or agents) and not slow and not chaos" -n 2 --dist loadfile --timeout=300 -rs

test-slow: compiled
	$(PY) -m pip install -q -c constraints.txt -e '.[test,integrations]'
	$(PY) -m pytest -m "slow" --timeout=600

test-chaos: compiled
	$(PY) -m pytest -m "chaos" --timeout=1200

test-gpu: $(VENV)/.ok
	$(PY) -m pip install -q -c constraints.txt -e '.[test]'
	$(PY) -m pytest -m "gpu" --timeout=600

# The environment is kept in the user's cache, or where SWEEP_HOROVOD_ENVIRONMENT says.
test-horovod: $(VENV)/.ok
	$(PY) tests/horovod_environment.py
	$(PY) -m pytest --timeout=600 tests/train/test_horovod_groups.py tests/integration/test_horovod.py

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
