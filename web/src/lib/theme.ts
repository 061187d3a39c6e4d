/** Light or dark: as the system says, unless the person has chosen. */

import { Observable } from "./store";

const THEME_KEY = "agentwire.theme";

export const theme = new Observable<string>(localStorage.getItem(THEME_KEY) ?? "auto");

export function applyTheme(): void {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}

export function setTheme(value: string): void {
  localStorage.setItem(THEME_KEY, value);
  theme.set(value);
  applyTheme();
}
