/**
 * Markdown as elements. No HTML of the text is ever parsed: raw HTML is shown as it was written, links go to http, https
 * or mail only, and images are links.
 */

import { Marked, type Token, type Tokens } from "marked";
import { memo } from "preact/compat";
import type { ComponentChildren, VNode } from "preact";
import { hostOf, prose, safeLink, safeMediaUrl } from "../lib/escape";
import { t } from "../lib/i18n";
import { Long } from "./long";

const marked = new Marked({ gfm: true, breaks: false });

/** The most characters of one block that are parsed; a longer one is shown as plain text. */
const MAX_BLOCK = 20_000;

/** While text streams, a block above this size is plain until it ends: parsing it for every token would take too long. */
const MAX_STREAMED_BLOCK = 4_000;

/** Splits text at blank lines outside of code, so that only the last block changes while text streams. */
function blocks(text: string): string[] {
  const found: string[] = [];
  let lines: string[] = [];
  let fence = "";
  let isList = false;
  for (const line of text.split("\n")) {
    const mark = /^ {0,3}(```+|~~~+)/.exec(line)?.[1];
    if (fence) {
      if (mark && mark[0] === fence[0] && mark.length >= fence.length) fence = "";
    } else if (mark) fence = mark;
    const isBlank = !fence && line.trim() === "";
    // A list or an indented paragraph goes on after a blank line.
    if (lines.length > 0 && !fence && lines[lines.length - 1].trim() === "" && line.trim() !== "" && !(isList && /^(\s|[-*+]\s|\d+[.)]\s)/.test(line)) && !mark) {
      found.push(lines.join("\n"));
      lines = [];
      isList = false;
    }
    if (lines.length === 0 || !isBlank) isList ||= /^\s*([-*+]|\d+[.)])\s/.test(line);
    lines.push(line);
  }
  if (lines.length > 0) found.push(lines.join("\n"));
  return found;
}

export const Markdown = memo(function Markdown({ text, isOpen }: { text: string; isOpen?: boolean }) {
  const parts = blocks(text);
  return (
    <div class="markdown">
      {parts.map((part, index) => (
        <Block key={index} text={part} isOpen={!!isOpen && index === parts.length - 1} />
      ))}
    </div>
  );
});

const Block = memo(function Block({ text, isOpen }: { text: string; isOpen: boolean }) {
  if (text.length > (isOpen ? MAX_STREAMED_BLOCK : MAX_BLOCK) || (text.length > 1000 && /\S{1000}/.test(text))) return <Long text={prose(text)} isOpen={isOpen} />;
  try {
    return <>{marked.lexer(text).map((token, index) => block(token, index))}</>;
  } catch {
    return <Long text={prose(text)} isOpen={isOpen} />;
  }
});

function block(token: Token, key: number): ComponentChildren {
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      // Below the headings of the page.
      const depth = Math.min(6, token.depth + 2);
      const Tag = `h${depth}` as "h3";
      return <Tag key={key}>{inline(token.tokens)}</Tag>;
    }
    case "paragraph":
      return <p key={key}>{inline(token.tokens)}</p>;
    case "code":
      return (
        <pre key={key} tabIndex={0}>
          <code><Long text={prose(token.text)} /></code>
        </pre>
      );
    case "blockquote":
      return <blockquote key={key}>{token.tokens?.map((inner, index) => block(inner, index))}</blockquote>;
    case "list": {
      const items = (token as Tokens.List).items.map((item, index) => (
        <li key={index}>
          {item.task && <input type="checkbox" checked={item.checked} disabled aria-label={item.text.slice(0, 80)} />}
          {item.tokens.map((inner, at) => block(inner, at))}
        </li>
      ));
      return token.ordered ? (
        <ol key={key} start={Number(token.start) || 1}>
          {items}
        </ol>
      ) : (
        <ul key={key}>{items}</ul>
      );
    }
    case "table": {
      const table = token as Tokens.Table;
      return (
        <div key={key} class="table-scroll" tabIndex={0} role="region" aria-label="table">
          <table>
            <thead>
              <tr>{table.header.map((cell, index) => <th key={index}>{inline(cell.tokens)}</th>)}</tr>
            </thead>
            <tbody>
              {table.rows.map((row, at) => (
                <tr key={at}>{row.map((cell, index) => <td key={index}>{inline(cell.tokens)}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    }
    case "hr":
      return <hr key={key} />;
    case "text":
      return "tokens" in token && token.tokens ? <span key={key}>{inline(token.tokens)}</span> : <span key={key}>{prose(token.text)}</span>;
    default:
      return <p key={key} class="plain">{prose(token.raw)}</p>;
  }
}

function inline(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token, key) => span(token, key));
}

function span(token: Token, key: number): VNode | string {
  switch (token.type) {
    case "strong":
      return <strong key={key}>{inline(token.tokens)}</strong>;
    case "em":
      return <em key={key}>{inline(token.tokens)}</em>;
    case "del":
      return <del key={key}>{inline(token.tokens)}</del>;
    case "codespan":
      return <code key={key}>{prose(unescape(token.text))}</code>;
    case "br":
      return <br key={key} />;
    case "link": {
      const href = safeLink(token.href);
      if (!href) return <span key={key} title={t("source.unsafe", { address: token.href })}>{inline(token.tokens)}</span>;
      return <SafeLink key={key} href={href}>{inline(token.tokens)}</SafeLink>;
    }
    case "image": {
      const data = safeMediaUrl(token.href);
      if (data) return <img key={key} src={data} alt={token.text} />;
      const href = safeLink(token.href);
      const name = token.text || "image";
      return href ? <SafeLink key={key} href={href}>{t("media.foreign", { name, host: hostOf(href) })}</SafeLink> : <span key={key}>{name}</span>;
    }
    case "text":
    case "escape":
      return "tokens" in token && token.tokens ? <span key={key}>{inline(token.tokens)}</span> : prose(unescape(token.text));
    default:
      return prose(token.raw);
  }
}

/** A link to another site: in a tab of its own that knows nothing of this page. */
export function SafeLink({ href, children }: { href: string; children: ComponentChildren }) {
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow" title={href}>
      {children}
    </a>
  );
}

/** The lexer escapes text for HTML; elements need the text itself. */
function unescape(text: string): string {
  return text.replace(/&(lt|gt|amp|quot|#39);/g, (_, name) => ({ lt: "<", gt: ">", amp: "&", quot: '"', "#39": "'" })[name as "lt"]!);
}
