/**
 * HAI blocks as elements: a module that a page of your own can take as it is, or as an example.
 *
 *     import { Blocks, registerBlock } from "./hai-blocks";
 *     registerBlock("weather", ({ output }) => <b>{output.data.degrees}°</b>);
 *     <Blocks documents={parseContents(message.content)} onSay={send} />
 *
 * A document is `{output, layout?, blockId?, style?}`, as BUSINESS_DATA_CONTENT carries it. Nothing of a document is ever
 * parsed as HTML, and media of other sites are links.
 */

import type { ComponentType } from "preact";
import { memo } from "preact/compat";
import { useEffect, useRef, useState } from "preact/hooks";
import { hostOf, mediaData, prose, safeLink, safeMediaUrl, shownJson } from "../lib/escape";
import { t } from "../lib/i18n";
import { Long } from "../parts/long";
import { Markdown, SafeLink } from "../parts/markdown";

export interface BlockDocument {
  output: { type: string; [key: string]: any };
  layout?: { x?: number; y?: number };
  blockId?: string;
  style?: { background?: boolean; [key: string]: any };
}

export interface BlockProps {
  output: any;
  /** Sends a message of the person: buttons do. */
  onSay?(text: string): void;
  isOpen?: boolean;
}

const registry = new Map<string, ComponentType<BlockProps>>();

/** Draws blocks of a type; replaces a known one. */
export function registerBlock(type: string, component: ComponentType<BlockProps>): void {
  registry.set(type, component);
}

/** Documents in their order: folds contain the blocks until their end, and neighbours with a layout are a grid. */
export const Blocks = memo(function Blocks({ documents, onSay, isOpen }: { documents: BlockDocument[]; onSay?(text: string): void; isOpen?: boolean }) {
  return <>{nested(documents).map((node, index) => drawn(node, index, onSay, isOpen))}</>;
});

interface Node {
  document: BlockDocument;
  inner?: Node[];
}

function nested(documents: BlockDocument[]): Node[] {
  const root: Node[] = [];
  const open: Node[][] = [root];
  for (const document of documents) {
    const { type, data } = document.output;
    if (type === "fold" && data?.position === "end") {
      if (open.length > 1) open.pop();
      continue;
    }
    const node: Node = { document };
    open[open.length - 1].push(node);
    if (type === "fold") {
      node.inner = [];
      open.push(node.inner);
    }
  }
  return root;
}

function drawn(node: Node, key: number, onSay?: (text: string) => void, isOpen?: boolean) {
  const { output, layout, style } = node.document;
  const inner = node.inner ? (
    <details class="block-fold" open={!output.data?.fold}>
      <summary>{prose(String(output.data?.title ?? ""))}</summary>
      {node.inner.map((child, index) => drawn(child, index, onSay, isOpen))}
    </details>
  ) : (
    <Block output={output} onSay={onSay} isOpen={isOpen} />
  );
  const place = layout && (layout.x !== undefined || layout.y !== undefined) ? { gridColumn: cell(layout.x), gridRow: cell(layout.y) } : undefined;
  return (
    <div key={key} class={`block${style?.background ? " block-background" : ""}`} style={place} data-block={output.type}>
      {inner}
    </div>
  );
}

const cell = (value: unknown): string | undefined => (Number.isInteger(value) && Number(value) >= 0 && Number(value) < 24 ? String(Number(value) + 1) : undefined);

/** One block. */
export function Block({ output, onSay, isOpen }: BlockProps) {
  const Component = registry.get(String(output?.type)) ?? Unknown;
  return <Component output={output} onSay={onSay} isOpen={isOpen} />;
}

function Unknown({ output }: BlockProps) {
  return (
    <details class="block-unknown" open>
      <summary>{t("blocks.unknown", { type: prose(String(output?.type ?? "?")).slice(0, 80) })}</summary>
      <Json value={output} />
    </details>
  );
}

/** JSON with hidden characters visible; long values are cut with a note. */
export function Json({ value }: { value: unknown }) {
  const text = shownJson(value);
  const shown = text.length > 20_000 ? `${text.slice(0, 20_000)}\n… ${text.length - 20_000}` : text;
  return (
    <pre class="json" tabIndex={0}>
      <code><Long text={shown} /></code>
    </pre>
  );
}

registerBlock("text", ({ output, isOpen }) => <Markdown text={String(output.content ?? output.data?.content ?? "")} isOpen={isOpen} />);

function Thinking({ output }: BlockProps) {
  const data = output.data ?? output;
  const seconds = Number(data.elapsed) || 0;
  return (
    <details class="thinking" open={data.collapse === false}>
      <summary>{t(data.thinking ? "thinking" : "thought", { seconds })}</summary>
      <Markdown text={String(data.content ?? "")} />
    </details>
  );
}
registerBlock("thinking", Thinking);
registerBlock("think", Thinking);

registerBlock("button", ({ output, onSay }) => {
  const name = prose(String(output.data?.name ?? ""));
  return (
    <button type="button" class="chip" disabled={!onSay} onClick={() => onSay?.(String(output.data?.name ?? ""))}>
      {name}
    </button>
  );
});

registerBlock("icon", ({ output }) => {
  const { icon = "", color } = output.data ?? {};
  const style = typeof color === "string" && /^(#[0-9a-f]{3,8}|[a-z]{3,20})$/i.test(color) ? { color } : undefined;
  return (
    <span class="block-icon" role="img" aria-label={prose(String(icon))} style={style}>
      ● <span class="muted">{prose(String(icon)).slice(0, 60)}</span>
    </span>
  );
});

registerBlock("toolCallShow", ({ output, onSay }) => {
  const { title, tools = [] } = output.data ?? {};
  const list: any[] = Array.isArray(tools) ? tools : [];
  const asked = output.openToolSidePage?.id ?? output.data?.openToolSidePage?.id;
  const [chosen, choose] = useState<unknown>(asked ?? list.find((tool) => tool.selected)?.id);
  useEffect(() => {
    if (asked !== undefined) choose(asked);
  }, [asked]);
  const side = list.find((tool) => tool.id === chosen)?.data;
  return (
    <section class="block-tools" aria-label={prose(String(title ?? ""))}>
      {title && <h4>{prose(String(title))}</h4>}
      <ul>
        {list.map((tool, index) => {
          const progress = Math.max(0, Math.min(100, Number(tool.progress) || 0));
          const label = (
            <>
              <b>{prose(String(tool.name ?? ""))}</b> <span class="muted">{prose(String(tool.description ?? ""))}</span>
            </>
          );
          return (
            <li key={index}>
              {tool.data ? (
                <button type="button" class="link" aria-expanded={chosen === tool.id} onClick={() => choose(chosen === tool.id ? undefined : tool.id)}>
                  {label}
                </button>
              ) : (
                <span>{label}</span>
              )}
              {tool.progress !== undefined && <progress max={100} value={progress} aria-label={prose(String(tool.name ?? ""))} />}
            </li>
          );
        })}
      </ul>
      {side && (
        <aside class="side-page" aria-label={t("blocks.side", { name: prose(String(side.title ?? "")) })}>
          {side.title && <h4>{prose(String(side.title))}</h4>}
          {side.description && <p class="muted">{prose(String(side.description))}</p>}
          <Blocks documents={Array.isArray(side.data) ? side.data.filter((entry: any) => entry?.output) : []} onSay={onSay} />
        </aside>
      )}
    </section>
  );
});

const MAX_ROWS = 200;

function DataTable({ columns, rows }: { columns: unknown[]; rows: unknown[][] }) {
  const text = (value: unknown) => prose(typeof value === "string" ? value : typeof value === "object" && value !== null ? String((value as any).title ?? (value as any).name ?? JSON.stringify(value)) : String(value ?? ""));
  return (
    <div class="table-scroll" tabIndex={0} role="region" aria-label="table">
      <table>
        <thead>
          <tr>{columns.map((column, index) => <th key={index} scope="col">{text(column)}</th>)}</tr>
        </thead>
        <tbody>
          {rows.slice(0, MAX_ROWS).map((row, at) => (
            <tr key={at}>{(Array.isArray(row) ? row : [row]).map((value, index) => <td key={index}>{text(value)}</td>)}</tr>
          ))}
        </tbody>
      </table>
      {rows.length > MAX_ROWS && <p class="muted">… {rows.length - MAX_ROWS}</p>}
    </div>
  );
}

registerBlock("table", ({ output }) => {
  const { columns, rows } = output.data ?? {};
  if (!Array.isArray(columns) || !Array.isArray(rows)) return <Unknown output={output} />;
  return <DataTable columns={columns} rows={rows} />;
});

/** The series of a chart as rows. */
function seriesTable(option: any): { columns: string[]; rows: unknown[][] } {
  const series: any[] = Array.isArray(option?.series) ? option.series : option?.series ? [option.series] : [];
  const axis = [option?.xAxis, option?.yAxis].flat().find((entry: any) => Array.isArray(entry?.data));
  const names: unknown[] = axis?.data ?? [];
  const count = Math.max(names.length, ...series.map((entry) => (Array.isArray(entry?.data) ? entry.data.length : 0)), 0);
  const value = (entry: any) => (typeof entry === "object" && entry !== null && !Array.isArray(entry) ? entry.value ?? JSON.stringify(entry) : Array.isArray(entry) ? entry.join(", ") : entry);
  const rows = Array.from({ length: Math.min(count, MAX_ROWS) }, (_, at) => [names[at] ?? series[0]?.data?.[at]?.name ?? at + 1, ...series.map((entry) => value(entry?.data?.[at]))]);
  return { columns: ["", ...series.map((entry, index) => String(entry?.name ?? `${t("blocks.series")} ${index + 1}`))], rows };
}

registerBlock("echarts", ({ output }) => {
  const place = useRef<HTMLDivElement>(null);
  const [isDrawn, setDrawn] = useState(false);
  const option = output.data?.option;
  useEffect(() => {
    if (!place.current || typeof option !== "object" || option === null) return;
    let isOver = false;
    let dispose = () => {};
    // The library is large and most conversations have no chart.
    import("./charts").then(
      ({ draw }) => {
        if (isOver || !place.current) return;
        dispose = draw(place.current, option);
        setDrawn(true);
      },
      () => setDrawn(false),
    );
    return () => {
      isOver = true;
      dispose();
    };
  }, [option]);
  if (typeof option !== "object" || option === null) return <Unknown output={output} />;
  const title = prose(String([option.title].flat()[0]?.text ?? t("blocks.chart")));
  const { columns, rows } = seriesTable(option);
  return (
    <figure class="chart">
      <div ref={place} class="chart-canvas" role="img" aria-label={title} />
      <details open={!isDrawn}>
        <summary>{title}</summary>
        <DataTable columns={columns} rows={rows} />
      </details>
    </figure>
  );
});

/** Media in place if its bytes are here; a link with name and host if it is elsewhere. */
export function Media({ kind, url, data, mimeType, name, alt }: { kind: string; url?: unknown; data?: unknown; mimeType?: unknown; name?: unknown; alt?: unknown }) {
  const label = prose(String(name ?? alt ?? kind)).slice(0, 200);
  const source = mediaData(data, mimeType) ?? safeMediaUrl(url);
  if (source) {
    const type = source.slice(5, source.indexOf("/"));
    if (type === "image") return <img class="media" src={source} alt={prose(String(alt ?? label))} />;
    if (type === "audio") return <audio class="media" controls src={source} aria-label={label} />;
    return <video class="media" controls src={source} aria-label={label} />;
  }
  const href = safeLink(url);
  if (href) return <SafeLink href={href}>{t("media.foreign", { name: label, host: hostOf(href) })}</SafeLink>;
  if (typeof data === "string" && kind === "file") {
    // Saved, never shown: a file of any type is only bytes here.
    return (
      <button type="button" class="chip" onClick={() => save(label, data)}>
        {t("media.file", { name: label })}
      </button>
    );
  }
  return <span class="muted">{t("media.unsafe", { name: label })}</span>;
}

function save(name: string, data: string): void {
  try {
    const bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
    const url = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = name.replace(/[/\\:]/g, "_");
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  } catch {
    // Not base64: there is nothing to save.
  }
}

for (const kind of ["image", "audio", "video", "file"]) {
  registerBlock(kind, ({ output }) => <Media kind={kind} {...(output.data ?? output)} />);
}

registerBlock("source", ({ output }) => {
  const { url, title } = output.data ?? {};
  return <Source url={url} title={title} />;
});

export function Source({ url, title }: { url: unknown; title?: unknown }) {
  const href = safeLink(url);
  const name = prose(String(title ?? url ?? "")).slice(0, 200);
  return (
    <p class="source">
      <span class="muted">{t("source")}:</span>{" "}
      {href ? (
        <SafeLink href={href}>
          {name} <span class="muted">({hostOf(href)})</span>
        </SafeLink>
      ) : (
        <span>{t("source.unsafe", { address: prose(String(url ?? "")).slice(0, 200) })}</span>
      )}
    </p>
  );
}
