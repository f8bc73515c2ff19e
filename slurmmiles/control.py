"""The line between the agents of a run: each worker's agent holds one TCP connection to the head's
agent.

It carries what the head needs to say who is missing and why, tells workers when the run is over,
and shows within
seconds that an agent is gone, without asking Slurm anything. Messages are JSON; both sides prove
that they know the
run's token (the HMAC challenge of multiprocessing.connection). A node that cannot read the token,
because it does
not see the run directory, may only leave a complaint, which explains why it is missing and changes
nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

JOIN, COMPLAIN = b"J", b"C"
HANDSHAKE_S = 10.0
# A powered-off node is noticed after idle + count x interval = 11 s (tcp(7)).
KEEPALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3))
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """What the head knows of one node: all that it reported, newest value first, and whether it is
    still there.
    """

    report: Message
    alive: bool
    said_bye: bool = False


def listen(port: int) -> socket.socket:
    """A listening socket on every interface; OSError when the port is taken."""
    return socket.create_server(("", port), backlog=256, reuse_port=False)


class HeadLine:
    """The head's end: collects reports, sends to all, knows who is lost."""

    def __init__(
        self, listener: socket.socket, key: bytes, nodes: Iterable[str], welcome: Message
    ) -> None:
        self._listener, self._key, self._welcome = listener, key, welcome
        self._nodes = frozenset(nodes)
        self._lock = threading.Lock()
        self._members: dict[str, Member] = {}
        self._connections: dict[str, Connection] = {}
        self.complaints: dict[str, str] = {}
        threading.Thread(target=self._accept, daemon=True, name="control").start()

    def members(self) -> dict[str, Member]:
        """A snapshot, by node name."""
        with self._lock:
            return dict(self._members)

    def lost(self) -> list[str]:
        """Nodes whose agent's connection ended without a goodbye."""
        return sorted(n for n, m in self.members().items() if not m.alive and not m.said_bye)

    def send(self, message: Message, nodes: Iterable[str] | None = None) -> None:
        """To `nodes`, or to all; a connection that is gone is left to `lost`."""
        with self._lock:
            targets = [c for n, c in self._connections.items() if nodes is None or n in set(nodes)]
        for connection in targets:
            try:
                connection.send_bytes(json.dumps(message).encode())
            except OSError:
                continue

    def close(self) -> None:
        """Leave the port and hang up on everyone.

        close(2) alone would wait for the threads that accept and read there; shutdown(2) ends them.
        """
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._connections.values():
                _hang_up(connection)

    def _accept(self) -> None:
        while True:
            try:
                raw, address = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(raw, address[0]), daemon=True).start()

    def _serve(self, raw: socket.socket, peer: str) -> None:
        try:
            raw.settimeout(HANDSHAKE_S)
            kind = raw.recv(1)
            if kind == COMPLAIN:
                self._complaint(raw)
                return
            raw.settimeout(None)
            keep_alive(raw)
            with Connection(raw.detach()) as connection:
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                self._read(connection, peer)
        except (OSError, EOFError, ValueError, AuthenticationError):
            return  # a stranger, or a worker that left; `lost` tells the difference

    def _complaint(self, raw: socket.socket) -> None:
        """Written down before we hang up, which tells the other side that it was heard."""
        with raw, raw.makefile("rb") as file:
            text = file.readline(4096)
            node, _, reason = text.decode(errors="replace").strip().partition("\t")
            if node in self._nodes and node not in self.members():
                self.complaints[node] = "".join(c for c in reason if c.isprintable())

    def _read(self, connection: Connection, peer: str) -> None:
        node = ""
        try:
            while True:
                message = json.loads(connection.recv_bytes())
                name = str(message.get("node", "")) if isinstance(message, dict) else ""
                if name not in self._nodes:
                    return
                first, node = not node, name
                with self._lock:
                    known = self._members[node].report if node in self._members else {}
                    self._connections[node] = connection
                    self._members[node] = Member(
                        {**known, **message, "peer": peer}, True, bool(message.get("bye"))
                    )
                if first:
                    connection.send_bytes(json.dumps(self._welcome).encode())
        finally:
            with self._lock:
                member = self._members.get(node)
                if member and self._connections.get(node) is connection:
                    del self._connections[node]
                    self._members[node] = Member(member.report, False, member.said_bye)


def _hang_up(connection: Connection) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as raw:
        raw.shutdown(socket.SHUT_RDWR)


class WorkerLine:
    """A worker's end: reports up, messages down."""

    def __init__(self, connection: Connection, node: str, address: str) -> None:
        self._connection, self._node = connection, node
        self.address = address
        """This node's address on the route to the head."""

    def report(self, **fields: Any) -> None:
        """Tell the head about this node; ConnectionError when the head is gone."""
        try:
            self._connection.send_bytes(json.dumps({"node": self._node, **fields}).encode())
        except OSError as error:
            raise ConnectionError("the head's agent is gone") from error

    def receive(self, timeout: float) -> Message | None:
        """The next message, None after `timeout` seconds; ConnectionError when the head is gone."""
        try:
            if not self._connection.poll(timeout):
                return None
            message = json.loads(self._connection.recv_bytes())
        except (OSError, EOFError) as error:
            raise ConnectionError("the head's agent is gone") from error
        return message if isinstance(message, dict) else None

    def close(self) -> None:
        self._connection.close()


def keep_alive(raw: socket.socket) -> None:
    """Notice within seconds that the other side's machine is gone."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        raw.setsockopt(socket.IPPROTO_TCP, option, value)


def join(host: str, port: int, key: bytes, node: str, timeout: float) -> WorkerLine:
    """One try to reach the head; OSError when nothing answers, AuthenticationError when it is
    another run's.
    """
    raw = socket.create_connection((host, port), timeout=timeout)
    address = str(raw.getsockname()[0])
    raw.sendall(JOIN)
    raw.settimeout(None)
    keep_alive(raw)
    connection = Connection(raw.detach())
    if not connection.poll(HANDSHAKE_S):  # something else listens there and says nothing
        connection.close()
        raise TimeoutError(f"{host}:{port} does not speak the agents' protocol")
    try:
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    except (EOFError, AssertionError) as error:  # the latter before Python 3.12: another protocol
        connection.close()
        raise ConnectionError(f"{host}:{port} hung up or speaks another protocol") from error
    return WorkerLine(connection, node, address)


def complain(host: str, port: int, node: str, reason: str, deadline: float) -> bool:
    """Tell the head why this node cannot take part, trying until `deadline` (time.monotonic); says
    if it was heard.
    """
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, port), timeout=5.0) as raw:
                raw.sendall(COMPLAIN + f"{node}\t{reason}\n".encode())
                raw.shutdown(socket.SHUT_WR)
                return raw.recv(1) == b""
        except OSError:
            time.sleep(0.5)
    return False
