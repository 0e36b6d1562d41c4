"""RabbitMQ from Debian, for one comparison: on free ports of this machine, with its data elsewhere.

It is taken from the distribution's packages, unpacked below target/ and never installed.
"""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from servers import Server

PACKAGES = """rabbitmq-server libsctp1 erlang-base erlang-asn1 erlang-crypto erlang-eldap erlang-ftp
erlang-inets erlang-mnesia erlang-os-mon erlang-parsetools erlang-public-key erlang-runtime-tools
erlang-snmp erlang-ssl erlang-syntax-tools erlang-tftp erlang-tools erlang-xmerl""".split()
FETCH_TIMEOUT_SECONDS = 300


class RabbitMq(Server):
    """A node with the plugin for AMQP 1.0, and the port mapper that it needs."""

    def __init__(self, options, data):
        root = options.target / "tools" / "rabbitmq"
        home = fetch(root)
        data = data / "rabbitmq"
        data.mkdir()
        self.mapper_port, distribution, port = free_ports(3)
        environment = self._environment(root, home, data, distribution, port)
        (data / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
        (data / "rabbitmq.conf").touch()
        self.mapper = subprocess.Popen(
            [root / "usr/lib/erlang/bin/epmd"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        try:
            self._wait_for_mapper()
            super().__init__(
                "rabbitmq",
                [home / "sbin" / "rabbitmq-server"],
                "Starting broker... completed",
                data / "stderr",
                environment,
            )
        except BaseException:
            self._stop_mapper()
            raise
        self.address = f"127.0.0.1:{port}"

    def _environment(self, root, home, data, distribution, port):
        libraries = [str(path) for path in root.glob("**/*-linux-gnu") if path.is_dir()]
        return {
            "PATH": f"{root}/usr/lib/erlang/bin:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": ":".join(libraries),
            "HOME": str(data),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.mapper_port),
            "RABBITMQ_HOME": str(home),
            "RABBITMQ_NODENAME": "kew-bench@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(data / "log"),
            "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(data / "absent"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(data / "pid"),
            # This makes its start script become the node, instead of its parent.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def _wait_for_mapper(self):
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.mapper_port)) == 0:
                    return
            time.sleep(0.05)
        raise SystemExit("the port mapper of Erlang does not listen")

    def stop(self, how=signal.SIGTERM):
        super().stop(how)
        self._stop_mapper()

    def _stop_mapper(self):
        self.mapper.terminate()
        self.mapper.wait(timeout=20)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def fetch(root):
    """The path of the server, after it was fetched."""
    marker = root / "complete"
    if not marker.exists():
        print("fetching rabbitmq from the distribution", flush=True)
        root.mkdir(parents=True, exist_ok=True)
        limits = {"cwd": root, "check": True, "timeout": FETCH_TIMEOUT_SECONDS}
        try:
            subprocess.run(["apt-get", "download", "-qq", *PACKAGES], **limits)
            for package in root.glob("*.deb"):
                subprocess.run(["dpkg", "-x", package.name, "."], **limits)
                package.unlink()
        except (OSError, subprocess.SubprocessError) as error:
            raise SystemExit(f"cannot fetch RabbitMQ ({error}); leave it out with --no-rabbitmq")
        start = root / "usr/lib/erlang/bin/erl"
        script = start.read_text()
        start.write_text(script.replace("ROOTDIR=/usr/lib", f"ROOTDIR={root}/usr/lib"))
        marker.touch()
    homes = sorted((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))
    if not homes:
        raise SystemExit(f"there is no RabbitMQ in {root}: remove it, to fetch it again")
    return Path(homes[-1])
