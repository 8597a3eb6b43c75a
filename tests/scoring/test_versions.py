"""What the library says where TRL has no PPO."""

import importlib.util
from importlib.metadata import version

import pytest

from hf_vlm_rl import compat

pytestmark = pytest.mark.trl


@pytest.mark.parametrize("installed", ["1.13.0", "1.16.0", "2.0"])
def test_a_trl_without_ppo_is_told_the_last_version_with_it(installed, monkeypatch):
    monkeypatch.setattr(compat, "version", lambda name: installed)
    with pytest.raises(ImportError, match=rf"TRL {installed}, .* no PPOTrainer\. The last .* is 1\.12\.0"):
        compat.require_ppo()


def test_the_installed_trl_is_judged_by_what_it_has():
    if importlib.util.find_spec("trl.experimental.ppo") is not None:
        compat.require_ppo()
    else:
        with pytest.raises(ImportError, match=f"Got TRL {version('trl')}"):
            compat.require_ppo()
