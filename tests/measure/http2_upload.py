"""A client of HTTP/2 that uploads as fast as the server's window permits, and asks for a byte on the same connection.

    http2_upload.py ADDRESS PORT SECONDS

Prints the seconds that the answer to the small request took, which was sent after so many seconds of upload.
"""

from __future__ import annotations

import socket
import ssl
import sys
import time

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import StreamEnded

LIMIT_S = 40


def main() -> None:
    address, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((address, port), LIMIT_S) as plain,
        context.wrap_socket(plain) as sealed,
    ):
        http = H2Connection(H2Configuration(header_encoding="utf-8"))
        http.initiate_connection()
        begun = time.monotonic()

        def ask(stream: int, method: str, path: str) -> None:
            named = {":method": method, ":scheme": "https", ":authority": address, ":path": path}
            http.send_headers(stream, list(named.items()), end_stream=method == "GET")

        ask(1, "POST", "/nq/upload")
        asked = 0.0
        # It ends when the other program is killed, if not before.
        while time.monotonic() < begun + LIMIT_S:
            while length := min(http.local_flow_control_window(1), http.max_outbound_frame_size):
                http.send_data(1, bytes(length))
                # All that it may send is in the socket, whether or not the link has taken it.
                sealed.sendall(http.data_to_send())
            if not asked and time.monotonic() > begun + seconds:
                asked = time.monotonic()
                ask(3, "GET", "/nq/small")
            sealed.sendall(http.data_to_send())
            for event in http.receive_data(sealed.recv(65536)):
                if isinstance(event, StreamEnded) and event.stream_id == 3:
                    print(time.monotonic() - asked)
                    return


if __name__ == "__main__":
    main()
