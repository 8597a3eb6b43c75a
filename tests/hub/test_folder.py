"""The folder of an adapter: what a save and a push that fails leave in it."""

import shutil
import tempfile
from pathlib import Path

import pytest

from hf_vlm_rl import PushError
from hf_vlm_rl.hub import push_folder, save_adapter
from hf_vlm_rl.hub.cards import Evaluation
from tests.hub.server import ALICE

pytestmark = pytest.mark.trl


def test_what_an_earlier_save_wrote_of_another_training_is_not_pushed_again(hub, trainer, tmp_path):
    bench = Evaluation("Bench", "accuracy", 100, 0.5, dataset_id="org/bench", task_id="default")
    save_adapter(trainer, tmp_path, card={"evaluations": [bench]})
    own = tmp_path / ".eval_results" / "mine.yaml"
    own.write_text("[]")
    written = [".eval_results/org--bench.yaml", "assets/learning_curve.png", "training_args.json"]
    assert all((tmp_path / name).is_file() for name in written)
    save_adapter(trainer.model, tmp_path)
    assert not any((tmp_path / name).exists() for name in written)
    assert own.is_file()


def test_an_adapter_is_saved_through_a_link_to_another_disk(trainer, tmp_path):
    other = Path(tempfile.mkdtemp(dir="/dev/shm"))
    if other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("the machine has one disk: /dev/shm is that of the temporary folder")
    try:
        (tmp_path / "adapter").symlink_to(other)
        saved = save_adapter(trainer.model, tmp_path / "adapter")
        assert (other / "adapter_model.safetensors").is_file()
        assert {path.name for path in saved} >= {"adapter_config.json", "README.md"}
        assert not list(other.glob(".saving-*"))
    finally:
        shutil.rmtree(other)


def test_a_push_that_fails_leaves_no_results_of_its_own(push, hub, trainer, tmp_path):
    def results(name):
        return [Evaluation("Bench", "accuracy", 100, 0.5, dataset_id=f"user/{name}", task_id="default")]

    save_adapter(trainer, tmp_path, card={"evaluations": results("first")})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(PushError):
        push_folder(tmp_path, "bob/adapter", card={"evaluations": results("second")}, token=ALICE)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
