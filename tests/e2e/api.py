"""A client of the node's API server: what kubectl does, without a process for each call.

A connection a request, made inside the node's network; the certificate is of this world and not checked. Objects are
plain JSON. ``watch`` begins with what is there, so that one request both reads and waits.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

import h11
import trio

Object = dict[str, Any]
"""A Kubernetes object as JSON."""
PORT = 6443
_CLUSTER_WIDE = {"Node", "Namespace", "RuntimeClass", "PriorityClass", "ClusterRole", "ClusterRoleBinding"}
_VERSIONS = {"DaemonSet": "apps/v1", "Deployment": "apps/v1", "ReplicaSet": "apps/v1", "Job": "batch/v1"}
_VERSIONS |= {
    "RuntimeClass": "node.k8s.io/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
}


class ApiError(Exception):
    """The API server said no: ``status`` is HTTP's, the text is the server's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Away(Exception):
    """No answer: it is down, or went down meanwhile."""


def path_of(kind: str, name: str = "", *, namespace: str = "default", version: str = "") -> str:
    """The path of a kind, or of one object of it. An empty namespace means all of them."""
    version = version or _VERSIONS.get(kind, "v1")
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    space = "" if kind in _CLUSTER_WIDE or not namespace else f"/namespaces/{namespace}"
    plural = kind.lower() + ("es" if kind.endswith("s") else "s")
    return f"{base}{space}/{plural}" + (f"/{name}" if name else "")


def _path_of_object(thing: Object) -> str:
    meta = thing["metadata"]
    return path_of(thing["kind"], meta["name"], namespace=meta.get("namespace", "default"), version=thing["apiVersion"])


class Api:
    def __init__(self, inside: Callable[[Callable[[], socket.socket]], socket.socket], token: str) -> None:
        self._inside = inside
        self._token = token
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    async def request(self, method: str, path: str, body: object = None, *, kind: str = "application/json") -> bytes:
        """One request and its whole answer. Raises ApiError, Away."""
        async with self._asked(method, path, body, kind) as answer:
            whole = await answer.whole()
        if answer.status >= 400:
            with suppress(ValueError):
                raise ApiError(answer.status, json.loads(whole)["message"])
            raise ApiError(answer.status, whole.decode(errors="replace"))
        return whole

    async def get(self, kind: str, name: str = "", *, namespace: str = "default") -> Object:
        """One object, or without a name the list of all."""
        answer: Object = json.loads(await self.request("GET", path_of(kind, name, namespace=namespace)))
        return answer

    async def find(self, kind: str, name: str, *, namespace: str = "default") -> Object | None:
        """The object, if there is one."""
        try:
            return await self.get(kind, name, namespace=namespace)
        except ApiError as exc:
            if exc.status == 404:
                return None
            raise

    async def items(self, kind: str, *, namespace: str = "default") -> list[Object]:
        """All objects of a kind; an empty namespace means all of them."""
        return list((await self.get(kind, namespace=namespace))["items"])

    async def create(self, thing: Object) -> Object:
        answer: Object = json.loads(await self.request("POST", _path_of_object(thing).rpartition("/")[0], thing))
        return answer

    async def apply(self, thing: Object) -> Object:
        """Server-side apply: make it so, whether it is there or not."""
        path = _path_of_object(thing) + "?fieldManager=e2e&force=true"
        answer: Object = json.loads(await self.request("PATCH", path, thing, kind="application/apply-patch+yaml"))
        return answer

    async def patch(self, kind: str, name: str, change: object, *, namespace: str = "default", sub: str = "") -> Object:
        """Merge patch: null removes a key. ``sub``: a subresource such as status."""
        path = path_of(kind, name, namespace=namespace) + (f"/{sub}" if sub else "")
        answer: Object = json.loads(await self.request("PATCH", path, change, kind="application/merge-patch+json"))
        return answer

    async def delete(self, kind: str, name: str, *, namespace: str = "default", grace: int | None = None) -> None:
        """Ask for its end; what is gone already is fine. ``grace=0`` takes a pod away at once, kubelet or not."""
        options = {} if grace is None else {"gracePeriodSeconds": grace}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background", **options}
        try:
            await self.request("DELETE", path_of(kind, name, namespace=namespace), body)
        except ApiError as exc:
            if exc.status != 404:
                raise

    async def ready(self) -> bool:
        """Does it call itself ready?"""
        try:
            await self.request("GET", "/readyz")
        except (ApiError, Away):
            return False
        return True

    @asynccontextmanager
    async def watch(self, kind: str, name: str = "", *, namespace: str = "default") -> AsyncIterator[Watch]:
        """Iterate over what it yields: (ADDED | MODIFIED | DELETED, object), first of what is there. Raises Away."""
        query = {"watch": "1"} | ({"fieldSelector": f"metadata.name={name}"} if name else {})
        path = f"{path_of(kind, namespace=namespace)}?{urlencode(query)}"
        async with self._asked("GET", path, None, "") as answer:
            if answer.status >= 400:
                raise ApiError(answer.status, (await answer.whole()).decode(errors="replace"))
            yield Watch(answer)

    @asynccontextmanager
    async def _asked(self, method: str, path: str, body: object, kind: str) -> AsyncIterator[Answer]:
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Host": "api", "Authorization": f"Bearer {self._token}", "Connection": "close"}
        headers |= {"Content-Length": str(len(content))} | ({"Content-Type": kind} if content else {})
        try:
            stream = await self._connect()
            try:
                answer = Answer(stream)
                await answer.ask(h11.Request(method=method, target=path, headers=list(headers.items())), content)
                yield answer
            finally:
                await trio.aclose_forcefully(stream)
        except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError) as exc:
            raise Away(f"{method} {path}: {exc!r}") from exc

    async def _connect(self) -> trio.SSLStream[trio.SocketStream]:
        plain = trio.socket.from_stdlib_socket(self._inside(socket.socket))
        try:
            await plain.connect(("127.0.0.1", PORT))
        except BaseException:
            plain.close()
            raise
        return trio.SSLStream(trio.SocketStream(plain), self._tls, https_compatible=True)


class Answer:
    """One exchange over a connection of its own."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.status = 0
        self._stream = stream
        self._talk = h11.Connection(h11.CLIENT)

    async def ask(self, request: h11.Request, content: bytes) -> None:
        parts = [self._talk.send(each) or b"" for each in (request, h11.Data(data=content), h11.EndOfMessage())]
        await self._stream.send_all(b"".join(parts))
        while not isinstance(event := await self._event(), h11.Response):
            pass
        self.status = event.status_code

    async def piece(self) -> bytes:
        """Some of the body; empty at its end."""
        event = await self._event()
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def whole(self) -> bytes:
        pieces = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)

    async def _event(self) -> object:
        while (event := self._talk.next_event()) is h11.NEED_DATA:
            self._talk.receive_data(await self._stream.receive_some(1 << 16))
        return event


class Watch:
    """Changes of objects, one by one; ends when the server ends it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._rest = b""

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> tuple[str, Object]:
        while b"\n" not in self._rest:
            piece = await self._answer.piece()
            if not piece:
                raise StopAsyncIteration
            self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        event = json.loads(line)
        if event["type"] == "ERROR":
            raise StopAsyncIteration
        return str(event["type"]), event["object"]
