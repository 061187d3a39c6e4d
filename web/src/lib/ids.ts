/** Ids of threads, runs and messages: random, and short enough to be read in a timeline. */

const LETTERS = "0123456789abcdefghijkmnpqrstuvwxyz";

export function newId(prefix: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(14));
  return `${prefix}-${Array.from(bytes, (byte) => LETTERS[byte % LETTERS.length]).join("")}`;
}
