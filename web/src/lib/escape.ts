/** Texts of strangers: invisible and direction-changing characters become visible, and addresses are checked. */

// Controls except tab and line ends, bidi controls, zero-width characters, tags, variation selectors of supplementary
// planes, and other default-ignorable characters that can hide a difference.
const HIDDEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|\u{e0000}|[\u{e0001}-\u{e0fff}]|[\u{1d173}-\u{1d17a}]/gu;

/** The text with hidden characters as escapes. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (char) => {
    const code = char.codePointAt(0)!;
    return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Prose: direction controls become visible, joiners of emoji and scripts stay. */
export function prose(text: string): string {
  return text.replace(BIDI, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** JSON with hidden characters as escapes. */
export function shownJson(value: unknown, indent = 2): string {
  return visible(JSON.stringify(value, null, indent) ?? "");
}

/** A link that may be followed: `http`, `https` or `mailto`; otherwise undefined. */
export function safeLink(address: unknown): string | undefined {
  if (typeof address !== "string") return undefined;
  try {
    const url = new URL(address, "https://invalid.invalid/");
    const isRelative = url.host === "invalid.invalid" && !/^[a-z][a-z0-9+.-]*:/i.test(address.trim());
    return ["http:", "https:", "mailto:"].includes(url.protocol) && !isRelative ? url.href : undefined;
  } catch {
    return undefined;
  }
}

export const hostOf = (address: string): string => {
  try {
    return new URL(address).host;
  } catch {
    return "";
  }
};

const MEDIA = /^(image\/(png|jpeg|gif|webp|avif|bmp)|audio\/[\w.+-]+|video\/[\w.+-]+)$/i;

/** The `data:` address of media that may be shown here; SVG is a document and is not. */
export function mediaData(data: unknown, mimeType: unknown): string | undefined {
  if (typeof data !== "string" || typeof mimeType !== "string" || !MEDIA.test(mimeType)) return undefined;
  if (!/^[A-Za-z0-9+/_=\s-]*$/.test(data)) return undefined;
  return `data:${mimeType};base64,${data}`;
}

/** A `data:` address of media that may be shown. */
export function safeMediaUrl(address: unknown): string | undefined {
  if (typeof address !== "string") return undefined;
  const match = /^data:([\w.+/-]+);base64,(.*)$/is.exec(address.trim());
  return match ? mediaData(match[2], match[1]) : undefined;
}
