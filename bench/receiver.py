"""Receivers of webhooks: /at-once answers 204 immediately, /slow after 100 ms, and /hang never.

The command line names a file. The id of each event that arrives is appended to it, on a line of its own.
"""

import asyncio
import os
import re
import sys

ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"
EVENTS = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the calls of one connection. The path decides how."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if length := re.search(rb"(?i)content-length: *(\d+)", head):
                await reader.readexactly(int(length[1]))
            if id := re.search(rb"(?i)webhook-id: *(\S+)", head):
                os.write(EVENTS, id[1] + b"\n")
            path = head.split()[1]
            if path == b"/hang":
                await reader.read()  # until the service gives up
                break
            if path == b"/slow":
                await asyncio.sleep(0.1)
            writer.write(ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the service closed the connection
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
