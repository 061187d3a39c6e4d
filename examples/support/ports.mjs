// Ports for servers that cannot choose one themselves.

import fs from "node:fs";
import net from "node:net";

/** Below this are the ports that programs like to have for themselves. */
const FIRST = 12_000;

/** Where the system begins to take ports for connections, and for servers that ask for any port. */
function systems() {
  try {
    return Number(fs.readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8").split(/\s+/)[0]);
  } catch {
    return 32_768;
  }
}

/** Listens for a moment, so that a port that is taken is an error. */
export const probe = (port) =>
  new Promise((resolve, reject) => {
    const server = net.createServer().on("error", reject);
    server.listen(port, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

/**
 * A free port of the loopback. Whoever asks the system for one and gives it to a server that needs seconds to start may
 * lose it to any connection that is made meanwhile; these are ports that the system gives to nobody.
 */
export async function freePort() {
  const last = systems();
  // A machine that leaves no room below has to make do with what it gives.
  if (last - FIRST < 1000) return probe(0);
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * (last - FIRST));
    const found = await probe(port).catch(() => null);
    if (found) return found;
  }
}
