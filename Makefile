# make train   set up, then train the default model here, while a machine leaves, a worker dies and the machine comes back
#              (TRAIN="..." are arguments of a plain `raymega train` instead)
# make test    set up, then every test: the pure layer first (make pure: only that)
# make bench   measure against plain torch, DDP and torch's pipelining, side by side (BENCH="nano/ddp bubble run": parts)
# make chaos   every kill of a step, and a long run under faults, on real processes, then the tests marked soak (CHAOS="kills soak": parts)
# make check   format, lint, types, floors
#
# Each does all its own set-up, once. PYTHON=python3.12 picks the interpreter.

PURE = $(wildcard tests/test_*.py $(addprefix tests/,house config pipeline plan layout pictures control sim))

.PHONY: train test pure bench chaos check format

train:
	@PYTHON="$(PYTHON)" .ci/setup train
	@$(if $(TRAIN),.venv/bin/raymega train $(TRAIN),.venv/bin/python -m workloads.story)

test:
	@PYTHON="$(PYTHON)" .ci/setup test
	@.ci/test

pure:
	@PYTHON="$(PYTHON)" .ci/setup test
	@.ci/test --numprocesses 2 $(PURE)

bench:
	@PYTHON="$(PYTHON)" .ci/setup train
	@.venv/bin/python -m workloads.bench $(BENCH)

chaos:
	@PYTHON="$(PYTHON)" .ci/setup test
	@.venv/bin/python -m workloads.chaos $(CHAOS)
	@$(if $(CHAOS),true,.ci/test -m soak)

check:
	@PYTHON="$(PYTHON)" .ci/setup test
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv/bin/lint-imports

format:
	@PYTHON="$(PYTHON)" .ci/setup test
	.venv/bin/ruff format
	.venv/bin/ruff check --fix
