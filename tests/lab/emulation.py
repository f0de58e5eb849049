"""The emulator by itself between two namespaces, without the lab around it, and small programs that run in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from unbloat.lab.process import Child
from unbloat.lab.requirements import found
from unbloat.lab.testbed import TIMEOUT_S, Testbed

ADDRESSES = {"client": "10.0.0.1", "server": "10.0.0.2"}


class Emulation(Testbed):
    """`unbloat-emu run` on a scenario of client and server."""

    def __init__(self, folder: Path, text: str, *options: str) -> None:
        # Neighbour discovery would count among the packets.
        sysctls = {"net.ipv6.conf.default.disable_ipv6": "1"}
        super().__init__(folder, *ADDRESSES, sysctls=sysctls)
        self.text, self.options = text, options

    def build(self) -> None:
        """Addresses and routes as the lab's."""
        for device in self.emulate(self.text, *self.options):
            node, peer = (list(ADDRESSES)[end] for end in (device.node, device.peer))
            own, other = ADDRESSES[node], ADDRESSES[peer]
            self.address(node, device.name, f"{own}/32")
            self.ip(node, f"route add {other}/32 dev {device.name} src {own}")
        self.go()

    @property
    def child(self) -> Child:
        """The emulator's process."""
        assert self.emulator is not None
        return self.emulator.child

    def end(self) -> tuple[int, str]:
        """Closes its input and waits for its end: exit code and errors."""
        self.child.let_go()
        return self.ended()

    def ended(self) -> tuple[int, str]:
        """Waits for an end that comes without a word to it."""
        code = self.child.process.wait(TIMEOUT_S)
        return code, self.child.errors.read_text()


def replay(folder: Path) -> subprocess.CompletedProcess[str]:
    """`unbloat-emu replay`."""
    argv = [found("unbloat-emu") or "", "replay", str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)


# Sends 20 MB over TCP; what arrives is summed up.
SEND = """
import hashlib, random, socket, sys
data = random.Random(1).randbytes(int(sys.argv[2]))
with socket.create_connection((sys.argv[1], 5001)) as s:
    s.sendall(data)
print(hashlib.sha256(data).hexdigest())
"""
RECEIVE = """
import hashlib, socket
with socket.create_server(("", 5001)) as listening:
    s, _ = listening.accept()
    total = hashlib.sha256()
    while data := s.recv(1 << 20):
        total.update(data)
print(total.hexdigest())
"""
# So many datagrams of so many bytes, as fast as they go; how many the kernel took.
FLOOD = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
sent = 0
for _ in range(int(sys.argv[2])):
    try:
        sent += s.sendto(bytes(int(sys.argv[3])), (sys.argv[1], 9)) > 0
    except OSError:
        pass
print(sent)
"""
