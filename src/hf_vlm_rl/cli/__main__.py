"""`python -m hf_vlm_rl.cli`, for launchers that take a module."""

import sys

from . import main

sys.exit(main())
