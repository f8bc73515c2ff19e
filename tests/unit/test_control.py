from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmmiles.control import HeadLine, WorkerLine, complain, join, listen

KEY = b"0123456789abcdef"
WELCOME = {"canary": "c", "gcs": "127.0.0.1:1"}


@pytest.fixture
def head() -> Iterator[HeadLine]:
    """A head that waits for nodes a and b on a port of its own (`port_of`)."""
    line = HeadLine(listen(0), KEY, ["a", "b"], WELCOME)
    yield line
    line.close()


def port_of(head: HeadLine) -> int:
    return int(head._listener.getsockname()[1])


def joined(head: HeadLine, node: str) -> WorkerLine:
    """A worker that has said hello and was welcomed."""
    line = join("127.0.0.1", port_of(head), KEY, node, timeout=5.0)
    line.report(stage="hello")
    assert line.receive(10.0) == WELCOME
    return line


def until(condition: Callable[[], object]) -> None:
    """Wait for what another thread does; fails after ten seconds without it."""
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def test_reports_are_gathered_by_node_newest_value_first(head: HeadLine) -> None:
    worker = joined(head, "a")
    worker.report(stage="agent", facts={"cpus": 2})
    worker.report(stage="ray")
    until(lambda: head.members()["a"].report["stage"] == "ray")
    member = head.members()["a"]
    assert member.report["facts"] == {"cpus": 2}
    assert member.report["peer"] == worker.address == "127.0.0.1"
    assert member.alive and set(head.members()) == {"a"}
    worker.close()


def test_the_head_speaks_to_all_or_to_some(head: HeadLine) -> None:
    a, b = joined(head, "a"), joined(head, "b")
    head.send({"type": "joined"})
    head.send({"type": "finish"}, nodes=["b"])
    assert a.receive(10.0) == {"type": "joined"}
    assert [b.receive(10.0), b.receive(10.0)] == [{"type": "joined"}, {"type": "finish"}]
    assert a.receive(0.0) is None
    a.close()
    b.close()


def test_an_agent_that_is_cut_off_is_lost_and_one_that_said_bye_is_not(head: HeadLine) -> None:
    a, b = joined(head, "a"), joined(head, "b")
    b.report(stage="bye", bye=True)
    until(lambda: head.members()["b"].said_bye)
    a.close()
    b.close()
    until(lambda: not any(m.alive for m in head.members().values()))
    assert head.lost() == ["a"]


def test_an_agent_that_comes_back_is_not_lost(head: HeadLine) -> None:
    first = joined(head, "a")
    first.close()
    until(lambda: head.lost() == ["a"])
    second = joined(head, "a")
    until(lambda: head.lost() == [])
    second.close()


def test_the_end_of_an_older_connection_does_not_end_the_newer(head: HeadLine) -> None:
    older, newer = joined(head, "a"), joined(head, "a")
    older.close()
    time.sleep(0.2)
    assert head.lost() == []
    newer.report(stage="ray")
    until(lambda: head.members()["a"].report["stage"] == "ray")
    newer.close()


def test_a_head_that_is_gone_is_a_connection_error() -> None:
    head = HeadLine(listen(0), KEY, ["a"], WELCOME)
    worker = joined(head, "a")
    head.close()
    with pytest.raises(ConnectionError, match="the head's agent is gone"):
        while True:
            worker.receive(5.0)
    with pytest.raises(ConnectionError, match="the head's agent is gone"):
        for _ in range(100):
            worker.report(stage="ray")
    worker.close()


def test_a_closed_head_leaves_its_port() -> None:
    head = HeadLine(listen(0), KEY, ["a"], WELCOME)
    port = port_of(head)
    head.close()
    until(lambda: refuses(port))
    listen(port).close()


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return True
    return False


def test_a_silent_stranger_keeps_nobody_waiting(head: HeadLine) -> None:
    strangers = [socket.create_connection(("127.0.0.1", port_of(head))) for _ in range(20)]
    half = socket.create_connection(("127.0.0.1", port_of(head)))
    half.sendall(b"J")  # and nothing more
    worker = joined(head, "a")
    assert head.members()["a"].alive
    assert not head.complaints
    for stranger in [*strangers, half]:
        stranger.close()
    worker.close()


def test_a_wrong_key_is_refused_on_both_sides(head: HeadLine) -> None:
    with pytest.raises((AuthenticationError, OSError, EOFError)):
        join("127.0.0.1", port_of(head), b"another run's key", "a", timeout=5.0)
    assert head.members() == {}


def test_a_node_that_is_not_of_the_run_is_not_let_in(head: HeadLine) -> None:
    line = join("127.0.0.1", port_of(head), KEY, "stranger", timeout=5.0)
    line.report(stage="hello")
    with pytest.raises(ConnectionError):
        line.receive(10.0)
    assert head.members() == {}
    line.close()


def test_a_complaint_explains_a_node_that_has_not_joined(head: HeadLine) -> None:
    heard = complain("127.0.0.1", port_of(head), "b", "no\x1b[31m token", time.monotonic() + 10)
    assert heard
    assert head.complaints == {"b": "no[31m token"}
    assert head.members() == {}


def test_a_complaint_about_anyone_else_changes_nothing(head: HeadLine) -> None:
    worker = joined(head, "a")
    for node in ("a", "stranger", "", "a\tb"):
        complain("127.0.0.1", port_of(head), node, "broken", time.monotonic() + 10)
    assert head.complaints == {} and head.lost() == []
    worker.close()


def test_a_complaint_that_nobody_hears_gives_up_at_its_deadline() -> None:
    listener = listen(0)
    port = listener.getsockname()[1]
    listener.close()
    assert not complain("127.0.0.1", port, "a", "why", time.monotonic() + 0.2)


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.0\r\n", b"\x00\x00\x00\x05hello", b"\x00\x00\x00\x00", b"H"]
)
def test_something_else_on_the_port_is_no_head(greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=greet_and_leave, args=(other, greeting), daemon=True).start()
        with pytest.raises((OSError, AuthenticationError)):
            join("127.0.0.1", other.getsockname()[1], KEY, "a", timeout=5.0)


def greet_and_leave(server: socket.socket, greeting: bytes) -> None:
    raw, _ = server.accept()
    with raw:
        raw.sendall(greeting)


def test_nobody_on_the_port_is_an_oserror() -> None:
    listener = listen(0)
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(OSError):
        join("127.0.0.1", port, KEY, "a", timeout=1.0)


def test_a_port_has_one_holder() -> None:
    with listen(0) as first, pytest.raises(OSError):
        listen(first.getsockname()[1])


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=4))
def test_random_bytes_change_nothing(chunks: list[bytes]) -> None:
    head = HeadLine(listen(0), KEY, ["a", "b"], WELCOME)
    with socket.create_connection(("127.0.0.1", port_of(head))) as raw:
        try:
            for chunk in chunks:
                raw.sendall(chunk)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
        except OSError:
            pass  # the head hung up, as it should
    assert head.members() == {} and head.complaints == {}
    worker = joined(head, "a")
    worker.close()
    head.close()


@pytest.mark.parametrize("message", [b"[1]", b"null", b"{", b"\xff", b'{"node": 7}', b""])
def test_a_message_that_is_not_one_ends_only_its_connection(head: HeadLine, message: bytes) -> None:
    line = join("127.0.0.1", port_of(head), KEY, "b", timeout=5.0)
    line._connection.send_bytes(message)
    with pytest.raises(ConnectionError):
        line.receive(10.0)
    line.close()
    joined(head, "a").close()
