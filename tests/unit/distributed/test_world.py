import ipaddress
import socket

import pytest

from tba_hpc.distributed.world import own_address


@pytest.fixture
def resolves_to(monkeypatch):
    """Makes the own host name resolve to an address, or to nothing."""

    def set_address(address):
        def gethostbyname(name):
            if address is None:
                raise socket.gaierror("unknown")
            return address

        monkeypatch.setattr(socket, "gethostbyname", gethostbyname)

    return set_address


def test_the_address_of_the_host_name_is_used_if_others_can_reach_it(resolves_to):
    resolves_to("10.1.2.3")
    assert own_address() == "10.1.2.3"


@pytest.mark.parametrize("address", ["127.0.1.1", None])
def test_otherwise_that_of_the_interface_with_the_default_route(resolves_to, monkeypatch, address):
    class Probe:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def connect(self, _):
            pass

        def getsockname(self):
            return ("192.168.7.7", 1)

    resolves_to(address)
    monkeypatch.setattr(socket, "socket", Probe)
    assert own_address() == "192.168.7.7"


def test_a_machine_without_a_network_has_an_address_still(resolves_to, monkeypatch):
    def no_route(self, _):
        raise OSError("Network is unreachable")

    resolves_to("127.0.1.1")
    monkeypatch.setattr(socket.socket, "connect", no_route)
    assert own_address() == "127.0.1.1"


def test_the_address_of_this_machine_is_one():
    assert ipaddress.ip_address(own_address())
