/**
 * Long text in pieces. A browser lays out one line of a million characters for minutes; pieces bound the work, and while
 * text streams only the last one is laid out again.
 */

import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { t } from "../lib/i18n";

const PIECE = 4_000;
const PIECES = 25;

/** Cuts at a line end or a space if there is one near the end of a piece. */
function pieces(text: string): string[] {
  const found: string[] = [];
  let start = 0;
  while (text.length - start > PIECE) {
    const window = text.slice(start, start + PIECE);
    const at = Math.max(window.lastIndexOf("\n"), window.lastIndexOf(" "));
    let end = start + (at > PIECE / 2 ? at + 1 : PIECE);
    // Not between the halves of a character.
    if (at <= PIECE / 2 && /[\ud800-\udbff]/.test(text[end - 1])) end -= 1;
    found.push(text.slice(start, end));
    start = end;
  }
  found.push(text.slice(start));
  return found;
}

const Piece = memo(function Piece({ text }: { text: string }) {
  if (!/\S{300}/.test(text)) return <div class="plain">{text}</div>;
  // Places to break, so that the browser need not look for them in a run that is longer than any word.
  const parts = text.match(/[^]{1,60}/gu) ?? [];
  return <div class="plain">{parts.map((part, index) => (index === 0 ? part : [<wbr key={index} />, part]))}</div>;
});

/** `isOpen`: the end is shown, because it is still being written; otherwise the start. */
export function Long({ text, isOpen }: { text: string; isOpen?: boolean }) {
  const [limit, setLimit] = useState(PIECES);
  if (text.length <= PIECE) return <Piece text={text} />;
  const all = pieces(text);
  const hidden = Math.max(0, all.length - limit);
  const first = isOpen ? hidden : 0;
  const more = hidden > 0 && (
    <button type="button" class="link" onClick={() => setLimit(limit + 5 * PIECES)}>
      {t("more")} ({(hidden * PIECE).toLocaleString()})
    </button>
  );
  return (
    <>
      {isOpen && more}
      {all.slice(first, first + limit).map((piece, index) => <Piece key={first + index} text={piece} />)}
      {!isOpen && more}
    </>
  );
}
