"""Rows with answers, and stand-ins for vLLM: in the trainer's process, and as the servers gpu-1 and gpu-2."""

import socket

from trl.trainer import grpo_trainer, rloo_trainer

from tests.documents.material import rows, short_runs
from tests.vllm.fake import FakeGeneration
from tests.vllm.fake_server import FakeClient
from tests.vllm.stand_in import StandIn, listening

SERVER = StandIn(None)
open_server = listening(SERVER, 8000)
open_server.__enter__()
stock_getaddrinfo = socket.getaddrinfo


def getaddrinfo(host, *arguments, **options):
    return stock_getaddrinfo("127.0.0.1" if host in ("gpu-1", "gpu-2") else host, *arguments, **options)


class Client(FakeClient):
    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        SERVER.engine = self


socket.getaddrinfo = getaddrinfo
grpo_trainer.VLLMGeneration = FakeGeneration
rloo_trainer.VLLMGeneration = Client
runs = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 4}
short_runs(GRPO=runs, RLOO=runs)
dataset = rows()
