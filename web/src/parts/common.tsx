/** Small parts that all views use. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../lib/api";
import { t, word } from "../lib/i18n";

export function Icon({ name }: { name: keyof typeof ICONS }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={ICONS[name]} />
    </svg>
  );
}

const ICONS = {
  talk: "M4 5h16v11H9l-5 4z",
  find: "M10 4a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM14.5 14.5 20 20",
  decide: "M4 12l5 5L20 6",
  operate: "M4 18V10M10 18V5M16 18v-6M21 18H2",
  look: "M4 6h9M8 12h12M4 18h7",
  view: "M6 3h8l4 4v14H6zM14 3v4h4",
  settings: "M4 7h10M18 7h2M4 17h4M12 17h8M14 5v4M8 15v4",
  send: "M5 12h13M12 5l7 7-7 7",
  stop: "M7 7h10v10H7z",
  pause: "M8 6v12M16 6v12",
  play: "M8 5l11 7-11 7z",
  cut: "M5 5l14 14M5 19L19 5",
  attach: "M8 12l6-6a3 3 0 0 1 4 4l-8 8a5 5 0 0 1-7-7l7-7",
  up: "M7 11v8H4v-8zM7 11l4-7c2 0 2 2 2 3v2h5l-1 10H7",
  down: "M17 13V5h3v8zM17 13l-4 7c-2 0-2-2-2-3v-2H6l1-10h10",
  comment: "M4 5h16v11H9l-5 4z",
  close: "M6 6l12 12M6 18L18 6",
  plus: "M12 5v14M5 12h14",
  tool: "M14 6a4 4 0 0 0 4 5l-7 7-3-3 7-7a4 4 0 0 0-1-2zM5 19l3-3",
} as const;

export function Status({ status }: { status: string }) {
  return <span class={`status status-${status}`}>{word("status", status)}</span>;
}

export function Empty({ title, text, children }: { title: string; text: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      <p>{text}</p>
      {children}
    </div>
  );
}

/** An error for a person: a sentence, then the gateway's own words and code. */
export function Problem({ error, onRetry }: { error: unknown; onRetry?(): void }) {
  const known = error instanceof ApiError ? error : undefined;
  const sentence = known?.code === "NETWORK" ? t("error.network") : known?.code === "NOT_AN_APPROVER" ? t("decide.others") : known?.status === 403 ? t("error.forbidden") : t("error.title");
  return (
    <div class="problem-box" role="alert">
      <p>
        <b>{sentence}</b>
      </p>
      {known?.code !== "NETWORK" && (
        <p class="muted">
          {known ? known.message : String((error as Error)?.message ?? error)} {known && <code>{known.code}</code>}
          {known?.hint && <span> {known.hint}</span>}
        </p>
      )}
      {onRetry && (
        <button type="button" onClick={onRetry}>
          {t("retry")}
        </button>
      )}
    </div>
  );
}

/** A dialogue that keeps the focus, closes by Escape, and returns the focus. */
export function Dialog({ title, onClose, children }: { title: string; onClose(): void; children: ComponentChildren }) {
  const place = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    place.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog ref={place} aria-label={title} onCancel={onClose} onClick={(event) => event.target === place.current && onClose()}>
      <div class="dialog-body">
        <header>
          <h2>{title}</h2>
          <button type="button" class="icon-button" aria-label={t("close")} onClick={onClose}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}

export function CopyButton({ text, label }: { text: string | (() => string); label?: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    const value = typeof text === "string" ? text : text();
    try {
      await navigator.clipboard.writeText(value);
    } catch {
      // Without HTTPS there is no clipboard interface.
      const area = document.createElement("textarea");
      area.value = value;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" onClick={copy}>
      {isCopied ? t("copied") : (label ?? t("copy"))}
    </button>
  );
}

/** A message that assistive technology announces. */
export function Announce({ text }: { text: string }) {
  return (
    <div class="visually-hidden" role="status" aria-live="polite">
      {text}
    </div>
  );
}
