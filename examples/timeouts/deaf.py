#!/usr/bin/env python3
"""A server that listens and never accepts: its queue is full, so connections are neither accepted nor refused."""
import socket
import time

server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", 7118))
server.listen(0)
waiting = []
for _ in range(4):
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(server.getsockname())
    waiting.append(client)
print("listening on http://127.0.0.1:%d" % server.getsockname()[1], flush=True)
time.sleep(3600)
