"""A DNS server with one name: prints a line when it listens, and one for each question.

    dns_server.py ADDRESS NAME ANSWER
"""

import socket
import struct
import sys


def question(packet):
    """The name and the type that a packet asks for, and the end of its question."""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode())
        at += 1 + packet[at]
    return ".".join(labels).lower(), struct.unpack(">H", packet[at + 1 : at + 3])[0], at + 5


address, known, answer = sys.argv[1:]
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((address, 53))
print("ready", flush=True)
while True:
    packet, client = server.recvfrom(4096)
    name, kind, end = question(packet)
    print(f"asked {name} {kind}", flush=True)
    is_answered = name == known and kind == 1
    # Recursion available; code 3 for an unknown name.
    flags = 0x8180 | (0 if name == known else 3)
    head = packet[:2] + struct.pack(">HHHHH", flags, 1, 1 if is_answered else 0, 0, 0)
    record = struct.pack(">HHHIH", 0xC00C, 1, 1, 5, 4) + socket.inet_aton(answer)
    server.sendto(head + packet[12:end] + (record if is_answered else b""), client)
