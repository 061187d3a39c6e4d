// A TCP proxy between one gateway and PostgreSQL: cuts, black holes, delays, lost notifications, cuts at a commit.

import net from "node:net";

/**
 * `mode`: "pass", "cut" (connections are closed, new ones too), "hole" (nothing moves, nothing is closed).
 * `delay`: milliseconds by which the server's answers are late. `notifications`: false drops them.
 * `cutAtCommit(n)`: the n-th confirmation of a write from now is lost with its connection.
 */
export async function link(t, serverPort) {
  const self = { mode: "pass", delay: 0, notifications: true, dropped: 0, commitsCut: 0 };
  const pairs = new Set();
  let commitsLeft = 0;
  let port = serverPort;

  const server = net.createServer((client) => {
    if (self.mode === "cut") return client.destroy();
    const upstream = net.connect(port, "127.0.0.1");
    const pair = { client, upstream };
    pairs.add(pair);
    const close = () => {
      pairs.delete(pair);
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true);
      // In a black hole the end of a connection is lost too.
      socket.on("error", () => self.mode !== "hole" && close());
      socket.on("close", () => self.mode !== "hole" && close());
    }
    client.on("data", (bytes) => {
      if (self.mode === "pass") upstream.write(bytes);
    });
    let rest = Buffer.alloc(0);
    upstream.on("data", (bytes) => {
      if (self.mode !== "pass") return;
      rest = Buffer.concat([rest, bytes]);
      const passed = [];
      while (rest.length >= 5 && rest.length >= 1 + rest.readUInt32BE(1)) {
        const message = rest.subarray(0, 1 + rest.readUInt32BE(1));
        rest = rest.subarray(message.length);
        const kind = String.fromCharCode(message[0]);
        if (kind === "A" && !self.notifications) {
          self.dropped += 1;
          continue;
        }
        if (kind === "C" && commitsLeft > 0 && /^(COMMIT|SELECT [1-9])/.test(message.toString("latin1", 5))) {
          commitsLeft -= 1;
          if (commitsLeft === 0) {
            self.commitsCut += 1;
            return close();
          }
        }
        passed.push(message);
      }
      const out = Buffer.concat(passed);
      if (self.delay > 0) setTimeout(() => self.mode === "pass" && client.write(out), self.delay);
      else client.write(out);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const closeAll = () => {
    for (const { client, upstream } of pairs) {
      client.destroy();
      upstream.destroy();
    }
    pairs.clear();
  };
  t.after(() => {
    closeAll();
    server.close();
  });
  self.port = server.address().port;
  self.set = (mode) => {
    self.mode = mode;
    // What was lost in a black hole does not come back: its connections are useless.
    if (mode !== "hole") closeAll();
  };
  /** Leads to another server from now on. */
  self.redirect = (to) => {
    port = to;
    closeAll();
  };
  self.cutAtCommit = (count = 1) => (commitsLeft = count);
  return self;
}

/** A plain TCP proxy in front of a gateway's address for other gateways: `isOpen = false` and `cut()` close it. */
export async function neighbour(t, to) {
  const self = { isOpen: true, connections: 0 };
  const sockets = new Set();
  const server = net.createServer((client) => {
    if (!self.isOpen) return client.destroy();
    self.connections += 1;
    const upstream = net.connect(to, "127.0.0.1");
    for (const [from, onward] of [[client, upstream], [upstream, client]]) {
      sockets.add(from);
      from.setNoDelay(true);
      from.on("error", () => onward.destroy());
      from.on("close", () => (sockets.delete(from), onward.destroy()));
      from.pipe(onward);
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  self.port = server.address().port;
  self.cut = () => {
    self.isOpen = false;
    sockets.forEach((socket) => socket.destroy());
  };
  t.after(() => {
    self.cut();
    server.close();
  });
  return self;
}
