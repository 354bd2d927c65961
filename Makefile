# make train             set up .venv and train on the embedded data
# make test              set up .venv, check the sources and run the tests
# make test-slow         the tests that take long, which `make test` leaves out, and properties on more examples
# make train TORCH=...   the same with another torch, e.g. TORCH=torch==2.15.0
# make train ARGS=...    the same with arguments, e.g. ARGS="--sparsity 0.95"

PYTHON ?= python3
VENV := .venv
TORCH ?=
ARGS ?=
BIN := $(VENV)/bin
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxschedchunk=4

ifeq ($(strip $(TORCH)),)
# Both installs and the isolated environments that pip builds packages in (older pip reads the first, newer the second).
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
endif

.PHONY: train test test-slow clean FORCE

train: $(VENV)/installed-train
	$(BIN)/granet train $(ARGS)

test: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(VENV)/installed-slow
	$(PYTEST) -m "slow or hypothesis" --hypothesis-profile=all $(ARGS)

clean:
	rm -rf $(VENV)

$(VENV)/installed-train: EXTRAS := cli,plots
$(VENV)/installed-test: EXTRAS := dev,cli,plots,data
$(VENV)/installed-slow: EXTRAS := dev,cli,plots,data,deploy,tensorboard,wandb,mlflow

# Installs again, into the same environment, when the project's requirements or the choice of torch changed.
$(VENV)/installed-train $(VENV)/installed-test $(VENV)/installed-slow: pyproject.toml constraints.txt $(VENV)/torch-choice
	$(BIN)/python -m pip install $(if $(strip $(TORCH)),'$(TORCH)') --editable '.[$(EXTRAS)]'
	touch $@

# Written only when the choice differs from the last one, so that its date is the date of the change.
$(VENV)/torch-choice: FORCE
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test "$$(cat $@ 2>/dev/null)" = 'torch: $(TORCH)' || echo 'torch: $(TORCH)' > $@
