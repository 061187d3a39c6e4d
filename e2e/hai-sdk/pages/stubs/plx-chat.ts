/** The part of the demo's user interface kit, which is not published, that the pages use. */
export class PlxDialogue {
  messages: any[] = [];
}
export enum PlxMessageRoleType {
  USER = 'user',
  ASSISTANT = 'assistant',
}
export enum PlxContentType {
  TEXT = 'text',
}
export interface HeaderAction {
  [key: string]: any;
}
