"""A stand-in for `vllm serve`: HTTP, in a thread, with the answers that vLLM 0.30 really gave.

`/inference/v1/generate` expands one placeholder an image, and a run of placeholders once more; it returns as
many log-probs as were asked for with the sampled token among them, and what it saw.
"""

import asyncio
import base64
import io
import socket
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import PIL.Image
from aiohttp import web


class StandIn:
    """Endpoints over an `engine` with `expanded` and `sample` of `tests.vllm.fake.FakeGeneration`.

    Attributes:
        asked: Bodies of `/inference/v1/generate`.
        posted: Paths of all other POST requests, with their bodies.
        queries: What stood behind "?" in each of these.
        failures: Statuses to answer the next requests for completions with.
        keys: What requests for completions brought as `Authorization`.
        instance: What vLLM draws anew in each process.
        drops: How many of the next requests for completions lose their connection.
        hangs: Whether requests for completions and questions after its health get no answer while it is true.
    """

    workers = 1

    def __init__(self, engine):
        self.engine, self.asked, self.posted, self.failures = engine, [], [], []
        self.statuses, self.keys = {}, set()
        self.instance, self.drops, self.queries = "a1b2c", 0, []
        self.hangs = False

    def application(self):
        application = web.Application(client_max_size=1 << 30)
        application.router.add_post("/inference/v1/generate", self.generate)
        application.router.add_get("/health", self.health)
        application.router.add_get("/v1/models", self.models)
        application.router.add_get("/server_info", self.info)
        application.router.add_get("/get_world_size", self.world_size)
        application.router.add_post("/{path:.*}", self.take)
        return application

    async def health(self, request):
        await self.hang()
        return web.Response()

    async def models(self, request):
        longest = self.engine.llm.llm_engine.model_config.max_model_len
        return web.json_response({"data": [{"id": "tiny", "max_model_len": longest}]})

    async def info(self, request):
        config = self.engine.llm.llm_engine.model_config
        shown = {"model_config": {"dtype": str(config.dtype)}, "instance_id": self.instance}
        return web.json_response({"vllm_config": shown})

    async def world_size(self, request):
        return web.json_response({"world_size": self.workers})

    async def take(self, request):
        body = await request.json() if request.can_read_body else None
        self.posted.append((request.path, body))
        self.queries.append(dict(request.query))
        if request.path == "/reset_encoder_cache":
            self.engine.llm.reset_encoder_cache()
        return web.json_response({}, status=self.statuses.get(request.path, 200))

    async def hang(self):
        while self.hangs:
            await asyncio.sleep(0.02)

    async def generate(self, request):
        body = await request.json()
        await self.hang()
        if self.drops:
            self.drops -= 1
            request.transport.abort()
            return web.Response()
        self.keys.add(request.headers.get("Authorization"))
        self.asked.append(body)
        if self.failures:
            return web.json_response({"error": {"message": "failed"}}, status=self.failures.pop(0))
        return await asyncio.to_thread(self.answer, body)

    def answer(self, body):
        engine, sampling = self.engine, body["sampling_params"]
        assert engine.llm.encoder_cache_is_fresh, "features of older weights"
        images = [picture(part) for part in body.get("content_parts", [])]
        seen = engine.expanded(body["token_ids"], images or None)
        bias = {int(token): value for token, value in sampling["logit_bias"].items()}
        names = sampling.get("logprob_token_ids") or []
        engine.generation_kwargs = {"logit_bias": bias, "logprob_token_ids": names}
        engine.temperature, engine.max_completion_length = sampling["temperature"], sampling["max_tokens"]
        choices = []
        for index in range(sampling.get("n", 1)):
            completion, values, tokens = engine.sample(seen, images or None)
            made = {"index": index, "token_ids": completion, "finish_reason": "length", "logprobs": None}
            if sampling.get("logprobs") is not None:
                rows = zip(completion, values, tokens, strict=True)
                made["logprobs"] = {"content": [entry(*row, sampling["logprobs"]) for row in rows]}
            choices.append(made)
        return web.json_response({"choices": choices[::-1], "prompt_token_ids": seen})


def entry(token, values, tokens, most):
    """One token's log-probs: as many as were asked for, the sampled one among them."""
    tops = [
        {"token": f"token_id:{each}", "logprob": value} for each, value in zip(tokens, values, strict=True)
    ]
    return {"token": f"token_id:{token}", "logprob": values[tokens.index(token)], "top_logprobs": tops[:most]}


def picture(part):
    """The image of one of the `content_parts`, which have it flat, as a data URL."""
    assert part["type"] == "image_url"
    kind, _, encoded = part["url"].partition(";base64,")
    assert kind == "data:image/png"
    return PIL.Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")


@contextmanager
def listening(stand_in, port=0):
    """Answer for the length of a block; gives the address."""
    accepting = socket.create_server(("127.0.0.1", port))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start():
        runner = web.AppRunner(stand_in.application(), access_log=None)
        await runner.setup()
        await web.SockSite(runner, accepting, shutdown_timeout=0.1).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"http://127.0.0.1:{accepting.getsockname()[1]}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def client_of(url):
    """What TRL's client of a server at `url` has."""
    import requests

    return SimpleNamespace(base_url=url, model="tiny", session=requests.Session())
