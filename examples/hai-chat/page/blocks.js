// The blocks of HAI as elements. `register(type, draw)` adds or replaces one.

import DOMPurify from "dompurify";
import { mergeOutputs } from "hai-client";
import { marked } from "marked";

/** An element with its children; strings become text, never HTML. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const draws = new Map();

/** Draws outputs of a type: `draw(output, { say })` returns an element. */
export const register = (type, draw) => draws.set(type, draw);

/** Links and media of an agent may use these schemes only. */
function safe(url, schemes) {
  try {
    return schemes.includes(new URL(url, location.href).protocol) ? url : null;
  } catch {
    return null;
  }
}

function media({ data = {}, type }) {
  const mimeType = data.mimeType ?? "application/octet-stream";
  const url = safe(data.url ?? `data:${mimeType};base64,${data.data}`, ["https:", "http:", "data:", "blob:"]);
  const name = data.name ?? data.alt ?? type;
  if (!url) return element("span", { className: "note" }, `${name}: the address is not allowed`);
  if (type === "image") return element("img", { src: url, alt: data.alt ?? name });
  if (type === "audio" || type === "video") return element(type, { src: url, controls: true, title: name });
  const link = safe(url, ["https:", "http:", "blob:"]);
  return link ? element("a", { href: link, rel: "noreferrer", target: "_blank" }, name) : element("span", {}, name);
}

function table(columns, rows) {
  const row = (tag, cells) => element("tr", {}, ...cells.map((cell) => element(tag, {}, String(cell ?? ""))));
  return element("table", {}, row("th", columns), ...rows.map((cells) => row("td", cells)));
}

function thinking({ data = {} }) {
  const title = data.thinking ? `thinking… ${data.elapsed} s` : `thought ${data.elapsed} s`;
  return element("details", { open: !data.collapse }, element("summary", {}, title), data.content ?? "");
}

register("text", ({ content = "" }) => {
  const made = element("div");
  made.innerHTML = DOMPurify.sanitize(marked.parse(content));
  return made;
});
register("thinking", thinking);
register("think", thinking);
register("button", ({ data = {} }, { say }) => element("button", { className: "choice", onclick: () => say(data.name) }, data.name));
register("icon", ({ data = {} }) => {
  const made = element("span", { className: "icon" }, data.icon ?? "");
  made.style.color = data.color ?? "";
  return made;
});
register("toolCallShow", ({ data = {} }, { openSidePage }) =>
  element("section", {}, element("strong", {}, data.title ?? ""), ...(data.tools ?? []).map((tool) =>
    element("div", { className: "tool", onclick: () => openSidePage(tool.id) }, `${tool.name}: ${tool.description} `, element("progress", { max: 100, value: Number(tool.progress) || 0 }), ` ${tool.progress}`),
  )),
);
register("table", ({ data = {} }) => table(data.columns ?? [], data.rows ?? []));
// A chart as the table of its series. A page with Apache ECharts registers `echarts` again.
register("echarts", ({ data: { option = {} } = {} }) =>
  table(["", ...(option.xAxis?.data ?? [])], (option.series ?? []).map(({ name = "", data = [] }) => [name, ...data])),
);
for (const type of ["image", "audio", "video", "file"]) register(type, media);
register("source", ({ data = {} }) => {
  const url = safe(data.url, ["https:", "http:"]);
  return url ? element("sup", {}, element("a", { href: url, rel: "noreferrer", target: "_blank" }, data.title ?? url)) : element("span");
});

/** One output. A type without a drawing is shown as JSON with its name. */
export function drawOutput(output, actions) {
  const draw = draws.get(output.type);
  if (draw) return draw(output, actions);
  return element("pre", {}, `${output.type} ${JSON.stringify(output.data ?? output.content ?? {})}`);
}

/** Documents in their order: folds contain what follows until their end, neighbours with a layout share a grid. */
export function drawDocuments(documents, actions) {
  const root = element("div");
  const open = [root];
  let cells = null;
  for (const { output, layout, blockId, style } of mergeOutputs(documents)) {
    const parent = open.at(-1);
    if (output.type === "fold") {
      cells = null;
      if (output.data?.position === "end") {
        if (open.length > 1) open.pop();
        continue;
      }
      const section = element("details", { open: !output.data?.fold }, element("summary", {}, output.data?.title ?? ""));
      parent.append(section);
      open.push(section);
      continue;
    }
    const block = element("div", { className: `block ${output.type}${style?.background ? " filled" : ""}` }, drawOutput(output, actions));
    if (blockId) block.dataset.block = blockId;
    if (!layout) cells = null;
    else {
      if (!cells) parent.append((cells = element("div", { className: "cells" })));
      block.style.gridColumn = String((layout.x ?? 0) + 1);
      block.style.gridRow = String((layout.y ?? 0) + 1);
    }
    (cells ?? parent).append(block);
  }
  return root;
}
