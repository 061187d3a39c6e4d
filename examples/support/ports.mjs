// Ports for servers that cannot choose a free one themselves.

import fs from "node:fs";
import net from "node:net";

/** Lower ports are often used by well-known programs. */
const FIRST = 12_000;

/** The first ephemeral port: the system assigns it and higher ones to connections and to servers that request any port. */
function systems() {
  try {
    return Number(fs.readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8").split(/\s+/)[0]);
  } catch {
    return 32_768;
  }
}

/** Listens briefly on a port; fails if it is in use. */
export const probe = (port) =>
  new Promise((resolve, reject) => {
    const server = net.createServer().on("error", reject);
    server.listen(port, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

/**
 * A free loopback port below the ephemeral range. An ephemeral port that is passed to a server with a start time of
 * seconds may be taken by another connection in the meantime; the system never assigns the ports used here.
 */
export async function freePort() {
  const last = systems();
  // Fallback for machines whose ephemeral range leaves too few ports below.
  if (last - FIRST < 1000) return probe(0);
  for (;;) {
    const port = FIRST + Math.floor(Math.random() * (last - FIRST));
    const found = await probe(port).catch(() => null);
    if (found) return found;
  }
}
