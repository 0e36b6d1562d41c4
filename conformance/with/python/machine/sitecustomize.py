"""What the machine of an application has: a name server that knows Kew, and Kew's authority among those of certifi."""

import os
import socket

import certifi

resolve = socket.getaddrinfo


def resolve_here(host, *arguments, **named):
    here = os.environ["KEW_BUS_NAME"]
    return resolve(os.environ["KEW_BUS_HOST"] if host == here else host, *arguments, **named)


socket.getaddrinfo = resolve_here
certifi.where = lambda: os.path.join(os.environ["KEW_TEST_TLS"], "ca.pem")
