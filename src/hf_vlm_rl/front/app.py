"""A front for vLLM servers: trainers send it ids with tickets, and it asks vLLM with the images.

    POST /v1/completions   answered here, with images
    GET  /tickets          which policy's tickets it reads
    GET  /health ...       passed on to one server
    POST /update_weights ... passed on to all of them

Anything else is refused. Images go out as bytes, inside the request; nothing is fetched from an address.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
from aiohttp import web

from ..errors import ImageError, TicketError, UnsupportedModelError
from ..processing.ids.fronts import handshake
from ..processing.ids.tokenizer import IdsTokenizer
from ..processing.images.lru import ByteBoundedCache
from .agreement import is_uncut
from .ask import RefusedError, ask, checked, content_part
from .paths import ALL, ONE, paused
from .prompts import EnginePrompt
from .requests import Request, completions, logprobs_of_sampled, read_request
from .servers import Answer, Servers, ServersLostError

logger = logging.getLogger(__name__)

# Of one request; images are not in it, but tickets.
BODY_BYTES = 64 << 20
# Encoded images that were sent and may be sent again.
PARTS_BYTES = 256 << 20

JSON = {"Content-Type": "application/json"}

# Compares C log-probs of vLLM with the policy's own: row, prompt, completion, log-probs, temperature, and the
# name of the type that vLLM computes in.
Compare = Callable[[int, EnginePrompt, Sequence[int], Sequence[float | None], float, str], None]


class Front:
    """The front of one policy; inside one event loop.

    Args:
        tokenizer: The policy's, whose tickets the ids have.
        servers: vLLM's; they are closed with the application.
        token: What a request has to bring, as a bearer token or a password; None: nothing.
        compare: Raises `UnsupportedModelError` where vLLM computes another model.
        compare_every: It is called for each server's first answer, its first after weights were sent for
            the first time, and each so many-th.
    """

    def __init__(
        self,
        tokenizer: IdsTokenizer,
        servers: Servers,
        token: str | None = None,
        compare: Compare | None = None,
        compare_every: int = 20,
    ):
        self._tokenizer, self._servers, self._token = tokenizer, servers, token
        self._compare, self._compare_every = compare, compare_every
        self._new_weights = False
        # By server: whether its next answer is compared, and how many it gave since.
        self._due: dict[str, bool] = {server.url: compare is not None for server in servers.all}
        self._answered = dict.fromkeys(self._due, 0)
        # Servers are paused amid requests whose keys and values they have still.
        self._frozen = False
        self._longest: int | None = None
        self._dtypes: dict[str, str] = {}
        self._parts: ByteBoundedCache[int, dict] = ByteBoundedCache(
            PARTS_BYTES, lambda part: len(part["url"])
        )
        # Image processors, tokenizers and the policy are not for several threads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vllm-front")

    def application(self) -> web.Application:
        """The web application."""
        application = web.Application(client_max_size=BODY_BYTES, middlewares=[self._guard])
        application.router.add_post("/v1/completions", self._complete)
        application.router.add_get("/tickets", self._handshake)
        application.router.add_get("/get_world_size", self._world_size)
        application.router.add_post("/init_weight_transfer_engine", self._join)
        application.on_cleanup.append(self._close)
        for path in ONE:
            application.router.add_get(path, self._ask_one)
        for path in ALL:
            application.router.add_post(path, self._ask_all)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Refuse who brings no token, and log every refusal: trainers may drop the body of an answer."""
        try:
            # The salt of tickets is no secret, and whoever asks for it has no token yet.
            if self._token and request.path != "/tickets" and not _brings(request, self._token):
                raise RefusedError("Got no token, or a wrong one. Expected the front's.", 401)
            if "Origin" in request.headers:
                raise RefusedError("Got a request of a web page. Expected a trainer's.", 403)
            return await handler(request)
        except web.HTTPException as refused:
            hint = f"; the front passes on {sorted((*ONE, *ALL))}" if refused.status == 404 else ""
            message, status = f"{refused.reason}{hint}", refused.status
        except (ImageError, TicketError, ValueError) as error:
            message, status = str(error), 422 if isinstance(error, UnsupportedModelError) else 400
        except RefusedError as error:
            message, status = str(error), error.status
        except ServersLostError as error:
            message, status = str(error), 503
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.path)
            message, status = f"vLLM's answer cannot be used: {type(error).__name__}: {error}", 502
        logger.error("%s %s: %d %s", request.method, request.path, status, message)
        return web.json_response(
            {"error": {"message": message, "type": "front", "code": status}}, status=status
        )

    async def _complete(self, request: web.Request) -> web.Response:
        body = await _json(request)
        if self._longest is None:
            models = checked(await self._servers.ask("GET", "/v1/models"), "/v1/models")
            self._longest = models["data"][0].get("max_model_len")
        due = any(self._due.values())
        read = await self._threaded(read_request, self._tokenizer, body, self._longest, due)
        asking = [asyncio.create_task(self._generate(read, row)) for row in range(len(read.prompts))]
        try:
            answers = await asyncio.gather(*asking)
        finally:
            for task in asking:  # after an error nobody waits for the others
                task.cancel()
        answer = await self._threaded(completions, read, self._tokenizer, answers)
        await self._compare_one(read, answers)
        return web.json_response(answer)

    async def _generate(self, read: Request, row: int) -> dict[str, Any]:
        prompt, processing = read.prompts[row], self._tokenizer.processing_class
        parts = await self._threaded(self._content_parts, prompt)
        model = read.body.get("model")
        return await ask(self._servers, processing, row, prompt, parts, model, read.sampling)

    def _content_parts(self, prompt: EnginePrompt) -> list[dict]:
        """The images of a prompt as vLLM takes them beside ids; those of late are kept encoded."""
        parts = []
        for (ticket, _), image in zip(prompt.carried, prompt.images, strict=True):
            part = self._parts.get(ticket)
            parts.append(self._parts.put(ticket, content_part(image)) if part is None else part)
        return parts

    async def _compare_one(self, read: Request, answers: Sequence[Mapping]) -> None:
        """Where a server is due, compare a completion of its row with the most images with the policy's."""
        if is_uncut(read.sampling, self._tokenizer.processing_class.state.never_sampled):
            for row in sorted(range(len(answers)), key=lambda row: -len(read.prompts[row].images)):
                url, first = answers[row]["url"], answers[row]["choices"][0]
                if not self._due[url] or not first["token_ids"] or first.get("logprobs") is None:
                    continue
                self._due[url] = False  # not by a request beside this one, too
                try:
                    await self._compare_row(read, row, url, first)
                except BaseException:
                    self._due[url] = True
                    raise
        for url in {answer["url"] for answer in answers}:
            self._answered[url] += 1
            if self._answered[url] % self._compare_every == 0:
                self._due[url] = self._compare is not None

    async def _compare_row(self, read: Request, row: int, url: str, first: Mapping) -> None:
        if not self._dtypes.get(url):  # "" where it did not say
            self._dtypes[url] = await self._servers.dtype(url)
        sampled = logprobs_of_sampled(read, self._tokenizer, row, first)
        temperature, dtype = read.sampling["temperature"], self._dtypes[url]
        compared = (row, read.prompts[row], first["token_ids"], sampled, temperature, dtype)
        if self._compare is not None:  # nothing is due without it
            await self._threaded(self._compare, *compared)

    async def _handshake(self, request: web.Request) -> web.Response:
        return web.json_response(handshake(self._tokenizer.processing_class))

    async def _ask_one(self, request: web.Request) -> web.Response:
        return _relayed(await self._servers.ask("GET", request.path, params=request.query))

    async def _ask_all(self, request: web.Request) -> web.Response:
        # A trainer that does not wait for the end must not keep features from being dropped.
        return await asyncio.shield(self._relay(request, await request.read()))

    async def _relay(self, request: web.Request, content: bytes) -> web.Response:
        path, params = request.path, dict(request.query)
        command = ALL[path]
        if path == "/pause":
            params, self._frozen = paused(params)
        elif path == "/resume":
            self._frozen = False
        elif self._frozen and command.idle:
            checked(await self._everywhere("POST", "/pause", params={"mode": "wait"}), "/pause")
            self._frozen = False
        passed = {"params": params, "data": content, "headers": JSON}
        answer = await self._everywhere("POST", path, weights=command.step, **passed)
        if answer.status == 200 and command.stale:
            reset = await self._everywhere("POST", "/reset_encoder_cache")
            if reset.status != 200:
                raise RefusedError(
                    f"vLLM answered {reset.status} to /reset_encoder_cache, and would keep the features of "
                    "images that older weights made. Expected 200: start it with VLLM_SERVER_DEV_MODE=1.",
                    500,
                )
            if not self._new_weights:
                self._new_weights, self._due = True, dict.fromkeys(self._due, self._compare is not None)
        return _relayed(answer)

    async def _everywhere(self, method: str, path: str, **options: Any) -> Answer:
        """One answer for those of all servers: the first that is not 200, if there is one."""
        answers = await self._servers.everywhere(method, path, **options)
        return max(answers, key=lambda answer: answer.status != 200)

    async def _world_size(self, request: web.Request) -> web.Response:
        """The workers of all servers: a trainer makes one group for weights of them."""
        sizes = await self._world_sizes()
        return web.json_response({"world_size": sum(sizes.values())})

    async def _world_sizes(self) -> dict[str, int]:
        path = "/get_world_size"
        answers = await self._servers.everywhere("GET", path)
        if missing := {server.url for server in self._servers.all} - {answer.url for answer in answers}:
            raise ServersLostError(
                f"{sorted(missing)} cannot be reached, and would never get weights. Expected all servers "
                "when a trainer starts: start them, or leave them out."
            )
        return {answer.url: checked(answer, path)["world_size"] for answer in answers}

    async def _join(self, request: web.Request) -> web.Response:
        """Let all servers join the group: the workers of each have the ranks behind those of the last."""
        body = await _json(request)
        try:
            bodies, behind = {}, int(body["init_info"]["rank_offset"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"Got the body {body!r}. Expected init_info with a rank_offset.") from error
        for url, size in (await self._world_sizes()).items():
            bodies[url] = {**body, "init_info": {**body["init_info"], "rank_offset": behind}}
            behind += size
        return _relayed(await self._everywhere("POST", request.path, bodies=bodies))

    async def _close(self, application: web.Application) -> None:
        await asyncio.to_thread(self._thread.shutdown)  # a comparison is a forward of the policy
        await self._servers.close()

    async def _threaded(self, function: Callable, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)


def _brings(request: web.Request, token: str) -> bool:
    """Whether a request has the token: TRL's clients can only send one as the password of an address."""
    header = request.headers.get("Authorization", "")
    kind, _, value = header.partition(" ")
    if kind.lower() == "basic":
        try:
            value = aiohttp.BasicAuth.decode(header).password
        except ValueError:
            return False
    password = value.encode(errors="surrogateescape")
    return kind.lower() in ("basic", "bearer") and hmac.compare_digest(password, token.encode())


async def _json(request: web.Request) -> Any:
    try:
        return json.loads(await request.read())
    except (RecursionError, ValueError) as error:
        raise RefusedError(f"The body is no JSON: {error}", 400) from error


def _relayed(answer: Answer) -> web.Response:
    return web.Response(body=answer.content, status=answer.status, content_type=answer.kind)
