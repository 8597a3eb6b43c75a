"""A stand-in for a judge's server on loopback: it fails, lags and lies as it is told."""

import asyncio
import base64
import io
import json

import PIL.Image
from aiohttp import web


def said(content, **more):
    """The body of a chat completion."""
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"choices": [choice | more], "usage": {"total_tokens": 7}}


class StandInJudge:
    """Answers `/v1/chat/completions`.

    Args:
        verdict: Gives a verdict of the decoded JSON object and the images.

    Attributes:
        acts: What the next requests get in place of a verdict: functions of the request.
        asked: The bodies of all requests.
        keys: What they brought as `Authorization`.
        images: All images, decoded, in order.
        most: The most requests that were open at the same time.
        lag: Seconds before each answer.
    """

    def __init__(self, verdict=lambda document, images: {"reason": "seen", "score": 5}):
        self.verdict, self.acts, self.asked, self.keys, self.images = verdict, [], [], [], []
        self.open = self.most = 0
        self.lag = 0.0

    def application(self):
        application = web.Application(client_max_size=1 << 26)
        application.router.add_post("/v1/chat/completions", self.answer)
        return application

    async def answer(self, request):
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            body = await request.json()
            self.asked.append(body)
            self.keys.append(request.headers.get("Authorization"))
            await asyncio.sleep(self.lag)
            if self.acts:
                return await self.acts.pop(0)(request)
            *blocks, text = body["messages"][1]["content"]
            images = list(map(picture, blocks))
            self.images += images
            verdict = self.verdict(json.loads(text["text"]), images)
            if isinstance(verdict, int):
                return web.json_response({"error": {"message": "no"}}, status=verdict)
            return web.json_response(said(json.dumps(verdict)))
        finally:
            self.open -= 1


def picture(block):
    """The image of a block of a message."""
    kind, _, content = block["image_url"]["url"].partition(";base64,")
    assert kind == "data:image/png"
    opened = PIL.Image.open(io.BytesIO(base64.b64decode(content)))
    opened.load()
    return opened


def status(code, text="no", **headers):
    """An act: answer with a status."""

    async def act(request):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=code, text=text, headers=names)

    return act


def content(text, **more):
    """An act: answer with the content of a message."""

    async def act(request):
        return web.json_response(said(text, **more))

    return act


def raw(text):
    """An act: answer 200 with a body."""

    async def act(request):
        return web.Response(text=text)

    return act


async def drop(request):
    """An act: close the connection without an answer."""
    request.transport.close()
    return web.Response()


async def cut(request):
    """An act: close the connection amidst an answer."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    request.transport.close()
    return response


async def hang(request):
    """An act: answer much later than anybody waits."""
    await asyncio.sleep(2)
    return web.Response()
