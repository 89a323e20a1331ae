# SPDX-License-Identifier: Apache-2.0
"""Ray Serve in front of pagefuse: each replica starts a server and passes requests on, streams as they come.

MODEL=models/gemma3_recall serve run ray_serve:app     in this folder, with ray[serve] and httpx installed
"""
import os
import subprocess

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from ray import serve

passed_on = FastAPI()


@serve.deployment(num_replicas=int(os.environ.get("REPLICAS", "1")), max_ongoing_requests=256,
                  health_check_period_s=5, graceful_shutdown_timeout_s=45)
@serve.ingress(passed_on)
class Pagefuse:
    def __init__(self, program, model):
        self.server = subprocess.Popen([program, "serve", model, "--port", "0", "--no-page", "--log", "json"],
                                       stdout=subprocess.PIPE, text=True)
        # It says where it is when it serves.
        line = self.server.stdout.readline()
        if not line.startswith("serving "):
            raise RuntimeError(f"pagefuse ended with status {self.server.wait()}")
        self.client = httpx.AsyncClient(base_url=line.rsplit(" ", 1)[1].strip(), timeout=httpx.Timeout(300, connect=5))

    async def check_health(self):
        (await self.client.get("/health")).raise_for_status()

    def __del__(self):
        self.server.terminate()  # it drains
        self.server.wait(45)

    @passed_on.api_route("/{path:path}", methods=["GET", "POST"])
    async def answer(self, request: Request, path: str):
        headers = {name: request.headers[name] for name in ("content-type", "authorization") if name in request.headers}
        call = self.client.build_request(request.method, "/" + path, content=await request.body(), headers=headers)
        reply = await self.client.send(call, stream=True)

        async def pieces():
            try:
                async for piece in reply.aiter_raw():
                    yield piece
            finally:
                await reply.aclose()  # a client that leaves ends its request at the server

        return StreamingResponse(pieces(), reply.status_code, {"content-type": reply.headers.get("content-type", "text/plain")})


app = Pagefuse.bind(os.environ.get("PAGEFUSE", "pagefuse"), os.path.abspath(os.environ.get("MODEL", "/model")))
