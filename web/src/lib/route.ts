/** The address of a view: `#/talk/AGENT/THREAD/RUN`. The same address shows the same run in another browser. */

import { Observable } from "./store";

export interface Route {
  view: string;
  agent: string;
  thread: string;
  run: string;
}

export const VIEWS = ["talk", "look", "find", "decide", "operate", "view"];

function parse(): Route {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map(safeDecode);
  const [view = "", agent = "", thread = "", run = ""] = parts;
  return { view: VIEWS.includes(view) ? view : "talk", agent, thread, run };
}

function safeDecode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = new Observable<Route>(parse());
addEventListener("hashchange", () => route.set(parse()));

export function address({ view, agent = "", thread = "", run = "" }: Partial<Route> & { view: string }): string {
  const parts = [view, agent, thread, run].map(encodeURIComponent);
  while (parts.length > 1 && parts[parts.length - 1] === "") parts.pop();
  return `#/${parts.join("/")}`;
}

export function go(to: Partial<Route> & { view: string }, isReplace = false): void {
  const hash = address(to);
  if (isReplace) {
    history.replaceState(null, "", hash);
    route.set(parse());
  } else location.hash = hash;
}
