"""Two ranks: rows encoded by neither of them, rewards averaged over both."""

import os
import socket
import subprocess
import sys

from tests.ppo.runs import rows_of

TRAIN = """
import sys, warnings, datasets, torch
warnings.simplefilter("ignore")
from hf_vlm_rl import AutoVLMPolicy, AutoVLMValueModel, RewardFunctionModel
from tests.ppo.runs import log, ppo
torch.set_num_threads(1)
policy = AutoVLMPolicy.from_pretrained(sys.argv[1], dtype="float32").freeze()
value = AutoVLMValueModel.from_pretrained(
    sys.argv[1], dtype="float32", processing_class=policy.processing_class
)
value.model.requires_grad_(False)
value.get_submodule(policy.family.language).requires_grad_(True)
model = RewardFunctionModel(lambda answer, **_: [float(one) for one in answer], policy.processing_class)
trainer = ppo(
    policy,
    datasets.load_from_disk(sys.argv[2]),
    value,
    sys.argv[3],
    reward=model,
    callbacks=[model.callback],
    per_device_train_batch_size=1,
)
trainer.train()
# To a file: the ranks' lines may run into each other.
path = f"{sys.argv[3]}/rank-{trainer.accelerator.process_index}"
with open(path, "w") as file:
    file.write(str(log(trainer, "rewards/<lambda>/mean")))
assert abs(log(trainer, "objective/kl")[0]) < 1e-5
"""


def test_two_ranks_train_on_rows_that_a_third_process_encoded(policy_for, checkpoint, tmp_path):
    rows_of(policy_for("internvl"), "internvl", answer=["0", "1", "2", "3"]).save_to_disk(tmp_path / "rows")
    (tmp_path / "train.py").write_text(TRAIN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", str(port)]
    arguments = [tmp_path / "train.py", checkpoint("internvl"), tmp_path / "rows", tmp_path]
    done = subprocess.run(
        [sys.executable, *launch, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert (tmp_path / f"rank-{rank}").read_text() == "[1.5, 1.5]"
