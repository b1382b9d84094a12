"""An address at which no Ray can be met is refused within seconds, each with what is wrong with it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from raymega.driver.cluster.ray_address import refuse_dead
from raymega.errors import ClusterError


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Someone who says `answer` to the first who comes, and nothing more."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def answer_one() -> None:
            connection, _ = server.accept()
            with closing(connection):
                connection.sendall(answer)
                connection.recv(1024)

        thread = threading.Thread(target=answer_one)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_server_that_speaks_grpc_is_taken():
    with answering(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + bytes(6)) as address:
        refuse_dead(address)


def test_a_server_of_another_kind_is_refused():
    with answering(b"HTTP/1.0 400 Bad request\r\n\r\n") as address, pytest.raises(ClusterError, match="is no Ray"):
        refuse_dead(address)


def test_a_server_that_says_nothing_is_refused_in_time():
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        pytest.raises(ClusterError, match=r"nobody answers at .*timed out.*unset RAY_ADDRESS"),
    ):
        refuse_dead(f"127.0.0.1:{server.getsockname()[1]}", limit_s=0.1)


def test_a_port_at_which_nobody_listens_is_refused():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    with pytest.raises(ClusterError, match=r"nobody answers at .*refused.*unset RAY_ADDRESS"):
        refuse_dead(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["foo", "head:", ":6379", "head:port", "head:70000"])
def test_what_is_no_address_is_refused(address: str):
    with pytest.raises(ClusterError, match="is no address of a cluster"):
        refuse_dead(address)


def test_the_address_of_a_dashboard_is_none_of_rays():
    with pytest.raises(ClusterError, match=r"http://head:8265 is a dashboard.*RAY_API_SERVER_ADDRESS"):
        refuse_dead("http://head:8265")


@pytest.mark.parametrize("address", ["", "auto", "local", "ray://nowhere.invalid:10001"])
def test_what_ray_itself_knows_soon_is_left_to_it(address: str):
    refuse_dead(address)
