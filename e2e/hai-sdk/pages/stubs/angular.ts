/** The part of Angular that the pages use. */
export function Component(_: object): (page: any) => void {
  return () => undefined;
}
