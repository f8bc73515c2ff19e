"""The Ray actor that stands on each node and measures TCP to its partners."""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from typing import Any

CHUNK = 1 << 20
PINGS = 20
TIMEOUT_S = 10.0


class Probe:
    """One per node. `serve` opens a port that echoes pings and swallows a stream; `measure` talks
    to another's.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._listener = socket.create_server((address, 0), backlog=16)
        threading.Thread(target=self._accept, daemon=True).start()

    def endpoint(self) -> tuple[str, int]:
        return self._address, int(self._listener.getsockname()[1])

    def environment(self, names: list[str]) -> dict[str, str | None]:
        """What a Ray worker of this node really has in its environment."""
        return {name: os.environ.get(name) for name in names}

    def measure(self, host: str, port: int, seconds: float) -> dict[str, Any]:
        """Half the median round trip in ms, then Gbit/s of a stream of `seconds`; or the error in
        words.
        """
        try:
            with socket.create_connection((host, port), timeout=TIMEOUT_S) as link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                latency = self._ping(link)
                return {"latency_ms": latency * 500.0, "gbit_s": self._stream(link, seconds)}
        except OSError as error:
            return {"error": f"{host}: {error.strerror or error}"}

    @staticmethod
    def _ping(link: socket.socket) -> float:
        times = []
        for _ in range(PINGS):
            start = time.perf_counter()
            link.sendall(b"p")
            if link.recv(1) != b"p":
                raise OSError("the partner hung up")
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    @staticmethod
    def _stream(link: socket.socket, seconds: float) -> float:
        """Bytes count as sent when the partner has confirmed that it read them all."""
        block, sent = bytes(CHUNK), 0
        link.sendall(b"s")
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            link.sendall(block)
            sent += CHUNK
        link.shutdown(socket.SHUT_WR)
        if link.recv(1) != b"d":
            raise OSError("the partner did not confirm the stream")
        return sent * 8 / 1e9 / (time.perf_counter() - start)

    def _accept(self) -> None:
        while True:
            link, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    @staticmethod
    def _serve(link: socket.socket) -> None:
        buffer = bytearray(CHUNK)
        with link:
            link.settimeout(TIMEOUT_S)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (kind := link.recv(1)) == b"p":
                link.sendall(b"p")
            if kind == b"s":
                while link.recv_into(buffer):
                    pass
                link.sendall(b"d")
