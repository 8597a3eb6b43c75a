#!/bin/sh
# run.sh PYTHON ENVIRONMENT [ARGUMENTS OF PYTEST]: the tests that look at pages in a browser.
# The environment adds a driver, axe-core and gradio to what PYTHON's has. Chromium comes from Debian.
set -eu
python=$1
environment=$2
shift 2
if [ ! -e "$environment/.installed" ]; then
    rm -rf "$environment"
    "$python" -m venv "$environment"
    for folder in "$environment"/lib/python*/site-packages; do
        "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$folder/below.pth"
    done
    "$environment/bin/python" -m pip install -q -e '.[docs,ui]' 'axe-playwright-python>=0.1.7' 'playwright>=1.50'
    touch "$environment/.installed"
fi
sh "$(dirname "$0")/chromium.sh"
HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 GRADIO_ANALYTICS_ENABLED=False \
    exec "$environment/bin/python" -m pytest -q -n 2 --durations=10 "${@:-tests/browser}"
