// The reading peer: frames, `JSON.parse`, and the standard's `parseJsonString` for each delta alone. The standard's own
// client parses the whole message again with every delta, which would be unfair beyond a few hundred deltas.
//
// Prints one JSON object: nanoseconds of CPU time per text delta, the best of several rounds.

const ROUNDS = 5;
const DELTAS = 20_000;
const ANSWERS = 10;
const words = ["Hello", " there", ", this", " is", ' "quoted"', " text", ".\n", " Und", " so", " wörter"];

let body = "";
for (let index = 0; index < DELTAS; index += 1) {
  const delta = JSON.stringify({ output: { type: "text", content: words[index % words.length] } });
  const event = { type: "BUSINESS_DATA_CONTENT", messageId: "run--7f1d1a52-8f0b-4a0e-9a55-0c5d5f0b7a11", delta, timestamp: 1763000000000 };
  body += `data: ${JSON.stringify(event)}\n\n`;
}
const bytes = new TextEncoder().encode(body);

const parseJsonString = (text) => JSON.parse(`[${text.replace(/}{/g, "},{")}]`);

function read() {
  const decoder = new TextDecoder();
  let [held, text, deltas] = ["", "", 0];
  for (let at = 0; at < bytes.length; at += 16 * 1024) {
    held += decoder.decode(bytes.subarray(at, at + 16 * 1024), { stream: true });
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      const event = JSON.parse(block.slice("data: ".length));
      for (const { output } of parseJsonString(event.delta)) text += output.content;
      deltas += 1;
    }
  }
  if (deltas !== DELTAS || text.length < DELTAS) throw new Error("the peer lost something");
}

let best = Infinity;
for (let round = 0; round < ROUNDS; round += 1) {
  const before = process.cpuUsage();
  for (let answer = 0; answer < ANSWERS; answer += 1) read();
  const { user, system } = process.cpuUsage(before);
  best = Math.min(best, ((user + system) * 1000) / (DELTAS * ANSWERS));
}
console.log(JSON.stringify({ client: best }));
