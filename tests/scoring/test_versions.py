"""What the library says where TRL has no PPO."""

import importlib.util
import sys
from importlib.metadata import version

import pytest

from hf_vlm_rl import compat

pytestmark = pytest.mark.trl


@pytest.mark.parametrize("missing", ["ppo", "experimental"])
def test_a_trl_without_ppo_is_told_the_last_version_with_it(missing, monkeypatch, tmp_path):
    """With a package in the place of TRL that lacks one of the two."""
    (tmp_path / "trl" / ("other" if missing == "experimental" else "experimental")).mkdir(parents=True)
    (tmp_path / "trl" / "__init__.py").touch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "trl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"Got TRL .* no PPOTrainer\. The last .* is 1\.12\.0"):
        compat.require_ppo()


def test_the_installed_trl_is_judged_by_what_it_has():
    if importlib.util.find_spec("trl.experimental.ppo") is not None:
        compat.require_ppo()
    else:
        with pytest.raises(ImportError, match=f"Got TRL {version('trl')}"):
            compat.require_ppo()
