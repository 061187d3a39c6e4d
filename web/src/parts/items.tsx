/** The items of a conversation. */

import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { Block, Blocks, Json, Media, Source } from "../hai-blocks";
import { prose, shownJson, visible } from "../lib/escape";
import type { ActivityItem, Item, ReasoningItem, TextItem, ToolItem } from "../lib/fold";
import { duration, t } from "../lib/i18n";
import { Icon } from "./common";
import { Judge, type JudgeTarget } from "./judge";
import { Long } from "./long";
import { Markdown } from "./markdown";

export interface ItemContext {
  subagentName(id: string | undefined): string | undefined;
  onSay(text: string): void;
  judge(target: JudgeTarget): JudgeTarget;
}

/** Drawn again only if the item has changed. */
export const ItemView = memo(
  function ItemView({ item, context }: { item: Item; version: number; context: ItemContext }) {
    const by = context.subagentName(item.subagent);
    return (
      <div class={`item item-${item.kind}`} data-id={item.id}>
        {by && <div class="by">{prose(by)}</div>}
        {draw(item, context)}
      </div>
    );
  },
  (before, after) => before.item === after.item && before.version === after.version && before.context === after.context,
);

function draw(item: Item, context: ItemContext) {
  switch (item.kind) {
    case "user":
      return <UserMessage item={item} />;
    case "assistant":
    case "system":
      return (
        <article class="message" aria-label={prose(item.name ?? t("agent"))}>
          {item.name && <div class="by">{prose(item.name)}</div>}
          <Markdown text={item.text} isOpen={item.isOpen} />
          {item.isOpen && <span class="caret" aria-hidden="true" />}
          {!item.isOpen && item.text !== "" && <Judge target={context.judge({ messageId: item.of ?? item.id })} />}
        </article>
      );
    case "reasoning":
      return <Reasoning item={item} />;
    case "tool":
      return <ToolCard item={item} context={context} />;
    case "activity":
      return <Activity item={item} context={context} />;
    case "step":
      return (
        <h3 class={`step ${item.isOpen ? "is-open" : ""}`}>
          <span class="dot" aria-hidden="true" />
          {t("step", { name: prose(item.name) })} <span class="muted">{t(item.isOpen ? "tool.running" : "tool.done")}</span>
        </h3>
      );
    case "subagent":
      return (
        <div class={`subagent ${item.isOpen ? "is-open" : ""}`}>
          <span class="dot" aria-hidden="true" />
          <b>{t("subagent", { name: prose(item.name) })}</b> <span class="muted">{prose(item.description ?? "")}</span>
          {item.error && <span class="problem"> {prose(item.error)}</span>}
        </div>
      );
    case "error":
      return (
        <div class="problem-box" role="alert">
          <p>
            <b>{t("run.error")}</b> {item.code && <code>{visible(item.code)}</code>}
          </p>
          <Long text={prose(item.message)} />
        </div>
      );
    case "note":
      return <p class="note">{t(item.text === "cancelled" ? "run.cancelled" : "run.paused")}</p>;
  }
}

function UserMessage({ item }: { item: TextItem }) {
  const media = (item.parts ?? []).filter((part) => part?.type && part.type !== "text");
  return (
    <article class="message bubble" aria-label={t("you")}>
      <Long text={prose(item.text)} />
      {media.map((part, index) => (
        <Media key={index} kind={part.type === "document" ? "file" : part.type} data={part.source?.value ?? part.data} url={part.source?.type === "url" ? part.source.value : part.url} mimeType={part.source?.mimeType ?? part.mimeType} name={part.metadata?.filename ?? part.filename ?? part.name} />
      ))}
    </article>
  );
}

function Reasoning({ item }: { item: ReasoningItem }) {
  const known = item.elapsed !== undefined || (item.startedAt !== undefined && item.endedAt !== undefined);
  const seconds = item.elapsed ?? (known ? Math.max(0, (item.endedAt! - item.startedAt!) / 1000).toFixed(1) : "");
  const label = item.isOpen ? t("thinking", { seconds: "" }).replace(/\s*(s|秒)?\s*$/, "") : known ? t("thought", { seconds }) : t("thought.plain");
  return (
    <details class="thinking">
      <summary>
        {item.isOpen && <span class="dot is-live" aria-hidden="true" />}
        {label}
        {item.title && <span class="muted"> · {prose(item.title)}</span>}
      </summary>
      <Markdown text={item.text} isOpen={item.isOpen} />
    </details>
  );
}

/** Arguments as JSON if they are complete, otherwise as they come; hidden characters are visible. */
function argumentsText(args: string): string {
  try {
    return shownJson(JSON.parse(args));
  } catch {
    return visible(args);
  }
}

function ToolCard({ item, context }: { item: ToolItem; context: ItemContext }) {
  const state = item.error ? "failed" : item.result !== undefined ? "done" : item.isOpen ? "running" : "waiting";
  const took = item.startedAt !== undefined && item.endedAt !== undefined ? item.endedAt - item.startedAt : undefined;
  const [isOpen, setOpen] = useState(false);
  return (
    <section class={`card tool tool-${state}`} aria-label={prose(item.name)}>
      <header>
        <Icon name="tool" />
        <b class="mono">{visible(item.name)}</b>
        <span class={`status status-${state === "running" || state === "waiting" ? "running" : state === "failed" ? "failed" : "finished"}`}>{t(`tool.${state}`)}</span>
        {took !== undefined && <span class="muted">{duration(took)}</span>}
        <span class="spacer" />
        {state !== "running" && <Judge target={context.judge({ toolCallId: item.id })} />}
      </header>
      <dl>
        <dt>{t("tool.arguments")}</dt>
        <dd>
          <pre class={isOpen ? "" : "clamp"} tabIndex={0}><Long text={argumentsText(item.args)} isOpen={item.isOpen} /></pre>
        </dd>
        {item.error !== undefined && (
          <>
            <dt>{t("tool.error")}</dt>
            <dd class="problem"><Long text={visible(item.error)} /></dd>
          </>
        )}
        {item.result !== undefined && item.result !== item.error && (
          <>
            <dt>{t("tool.result")}</dt>
            <dd>
              <pre class={isOpen ? "" : "clamp"} tabIndex={0}><Long text={argumentsText(item.result)} /></pre>
            </dd>
          </>
        )}
      </dl>
      <>
        {item.args.length + (item.result?.length ?? 0) > 400 && (
          <button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {t("more")}
          </button>
        )}
      </>
    </section>
  );
}

function Activity({ item, context }: { item: ActivityItem; context: ItemContext }) {
  const { type, content } = item;
  if (type === "agentwire.file") return <Media kind={content?.kind ?? "file"} data={content?.source?.type === "data" ? content.source.value : undefined} url={content?.source?.type === "url" ? content.source.value : undefined} mimeType={content?.source?.mimeType} name={content?.name} />;
  if (type === "agentwire.source") return <Source url={content?.url} title={content?.title} />;
  if (type === "hai.agent_collaboration") return <Handover content={content} />;
  if (type.startsWith("hai.")) {
    const output = { type: type.slice(4), ...(typeof content === "object" ? content : { content }) };
    return (
      <div class={`block${content?.style?.background ? " block-background" : ""}`} data-block={output.type}>
        <Block output={output} onSay={context.onSay} />
      </div>
    );
  }
  const items = Array.isArray(content?.items) ? content.items : undefined;
  return (
    <section class="card activity" aria-label={t("activity")}>
      <header>
        <b class="mono">{visible(type)}</b>
      </header>
      {items ? (
        <ul class="checks">
          {items.slice(0, 100).map((entry: any, index: number) => (
            <li key={index} class={entry?.done ? "is-done" : ""}>
              <span aria-hidden="true">{entry?.done ? "✓" : "○"}</span> {prose(String(entry?.name ?? entry?.title ?? JSON.stringify(entry)))}
            </li>
          ))}
        </ul>
      ) : (
        <Json value={content} />
      )}
    </section>
  );
}

function Handover({ content }: { content: any }) {
  const tasks: any[] = Array.isArray(content?.tasks) ? content.tasks : [];
  return (
    <section class="card handover">
      <div><b>{t("handover", { from: prose(String(content?.from ?? "")), to: prose(String(content?.to ?? "")) })}</b> <span class="muted">{prose(String(content?.status ?? ""))}</span></div>
      <ul>
        {tasks.slice(0, 50).map((task, index) => <li key={index}>{prose(String(task?.name ?? JSON.stringify(task)))}</li>)}
      </ul>
    </section>
  );
}

/** Items in their places: blocks of one HAI message that follow each other are drawn together, so that folds contain theirs. */
export function grouped(items: Item[]): (Item | { kind: "blocks"; id: string; version: number; items: ActivityItem[]; texts: Item[] })[] {
  const result: any[] = [];
  for (let at = 0; at < items.length; at += 1) {
    const item = items[at];
    const isFold = item.kind === "activity" && item.type === "hai.fold" && item.content?.data?.position !== "end";
    if (!isFold) {
      if (!(item.kind === "activity" && item.type === "hai.fold")) result.push(item);
      continue;
    }
    // The items until the matching end.
    let depth = 1;
    let end = at + 1;
    for (; end < items.length && depth > 0; end += 1) {
      const inner = items[end];
      if (inner.kind === "activity" && inner.type === "hai.fold") depth += inner.content?.data?.position === "end" ? -1 : 1;
      else if (inner.kind === "user") break;
    }
    const group = items.slice(at, end);
    result.push({ kind: "blocks", id: item.id, version: group.reduce((sum, inner) => sum + inner.version + 1, 0), items: group });
    at = end - 1;
  }
  return result;
}

export const FoldView = memo(
  function FoldView({ items, context }: { items: Item[]; version: number; context: ItemContext }) {
    const [first, ...rest] = items;
    const data = first.kind === "activity" ? first.content?.data : undefined;
    return (
      <details class="block-fold item" open={!data?.fold} data-block="fold">
        <summary>{prose(String(data?.title ?? ""))}</summary>
        {grouped(rest.filter((item, index) => !(index === rest.length - 1 && item.kind === "activity" && item.type === "hai.fold"))).map((item) =>
          item.kind === "blocks" ? <FoldView key={item.id} items={item.items} version={item.version} context={context} /> : <ItemView key={`${item.kind}:${item.id}`} item={item} version={item.version} context={context} />,
        )}
      </details>
    );
  },
  (before, after) => before.version === after.version && before.items.length === after.items.length && before.context === after.context,
);

export { Blocks };
