"""`hf-vlm-rl clean` removes what no run used for so long, and says what it removed."""

import os
import time

from PIL import Image

from hf_vlm_rl import ImageStore
from hf_vlm_rl.cli import main
from hf_vlm_rl.processing.images.disk import DAY


def test_old_files_go_and_newer_ones_stay(tmp_path, monkeypatch, capsys):
    store = ImageStore(tmp_path / "images")
    old, new = (store.put(Image.new("RGB", (8, 8), colour), keep=True) for colour in ("red", "blue"))
    (path,) = store.directory.glob(f"kept/*/{old & (1 << 64) - 1:016x}.png")
    os.utime(path, (time.time() - 31 * DAY,) * 2)
    size = path.stat().st_size
    assert main(["clean", "--older-than", "30", "--directory", str(store.directory)]) == 0
    assert capsys.readouterr().out == f"{store.directory}: 1 files removed, {size / 1e6:.1f} MB\n"
    assert ImageStore(store.directory).get(new).image.size == (8, 8)
    assert not path.exists()
    monkeypatch.setenv("HF_VLM_RL_CACHE", str(store.directory))
    assert main(["clean", "--older-than", "30"]) == 0
    assert capsys.readouterr().out == f"{store.directory}: 0 files removed, 0.0 MB\n"
