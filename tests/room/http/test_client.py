"""One request and its answer, whatever the other side does."""

import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.backends.http.address import EgressPolicy, HttpAddress
from penstock.backends.http.client import HttpAnswer, HttpClient
from tests.support.servers.scripted_server import Answer, Hang, Server, one_after_the_other, serving
from tests.support.waiting import eventually

LONG_SECONDS = 30
SHORT_SECONDS = 0.2


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def ask(server: Server, seconds_max: float = LONG_SECONDS) -> HttpAnswer:
    return client_of(server.url, seconds_max).request("POST", {"X-Name": "ada"}, b"{}")


def client_of(url: str, seconds_max: float = LONG_SECONDS) -> HttpClient:
    address = HttpAddress.of(url, "The address")
    return HttpClient(address, seconds_max=seconds_max, egress=None, bytes_max=100)


def test_what_is_asked_arrives_and_what_is_answered_comes_back(server: Server) -> None:
    said = {"Location": "/jobs/1", "Retry-After": "7"}
    server.script = one_after_the_other(Answer(202, "later", said))
    heard = ask(server)
    assert (heard.status, heard.problem, heard.body, heard.sent) == (202, "", b"later", True)
    assert (heard.headers["location"], heard.retry_after_s) == ("/jobs/1", 7)
    assert heard.if_whole() is heard
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/train", b"{}")
    assert asked.headers["x-name"] == "ada"


@pytest.mark.parametrize("size", [100, 101, 50_000_000])
def test_an_answer_is_read_to_one_byte_more_than_its_bound(server: Server, size: int) -> None:
    server.script = one_after_the_other(Answer(200, "x" * size))
    heard = ask(server)
    assert (heard.status, heard.problem, len(heard.body)) == (200, "", min(size, 101))


def test_who_closes_without_a_word_gave_no_answer(server: Server) -> None:
    server.script = one_after_the_other(None)
    heard = ask(server)
    assert (heard.status, heard.sent) == (0, True)
    assert "RemoteDisconnected" in heard.problem


def test_of_an_answer_that_is_cut_off_the_status_is_known(server: Server) -> None:
    server.script = one_after_the_other(Answer(200, "half", missing=50))
    heard = ask(server)
    assert (heard.status, heard.body) == (200, b"")
    assert heard.problem == "its answer was cut off"
    assert heard.if_whole() == HttpAnswer(0, heard.problem)


def test_who_sends_a_byte_now_and_then_is_over_in_time(server: Server) -> None:
    server.script = one_after_the_other(Hang())
    assert ask(server, SHORT_SECONDS) == HttpAnswer(0, "it did not answer within 0.2 s")


def test_another_thread_may_cut_it_off(server: Server) -> None:
    server.script = one_after_the_other(Hang())
    client = client_of(server.url)
    answers: list[HttpAnswer] = []
    asking = threading.Thread(target=lambda: answers.append(client.request("GET", {})))
    asking.start()
    eventually(lambda: bool(server.asked))
    client.cut()
    asking.join()
    assert answers == [HttpAnswer(0, "it was broken off")]
    assert client.request("GET", {}).status == 0  # and nothing more is sent
    assert len(server.asked) == 1


def test_where_nobody_listens_nothing_was_sent() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        heard = client_of(url).request("GET", {})
    assert (heard.status, heard.sent) == (0, False)
    assert "ConnectionRefusedError" in heard.problem


@pytest.mark.parametrize("asked", ["", "soon", "-1", "1.5", "²", "9" * 10, "Wed, 21 Oct 2026"])
def test_what_is_no_count_of_seconds_is_none(server: Server, asked: str) -> None:
    quoted = asked.encode().decode("latin-1")
    server.script = one_after_the_other(Answer(503, headers={"Retry-After": quoted}))
    assert ask(server).retry_after_s == 0


def test_what_the_policy_forbids_is_not_sent() -> None:
    """Nor is it waited for. The keys of a cloud's machine are no judge and no trainer."""
    address = HttpAddress.of("http://169.254.169.254/latest/meta-data", "The address")
    for egress in (EgressPolicy(), EgressPolicy(of_operator=True)):
        client = HttpClient(address, seconds_max=LONG_SECONDS, egress=egress)
        heard = client.request("GET", {})
        assert (heard.status, heard.sent) == (0, False)
        assert heard.problem.startswith("169.254.169.254 is not dialled: ")
