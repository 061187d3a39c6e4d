/** The addresses of the back end. */
export class RestAPI {
  static get chatUrl(): string {
    return (globalThis as any).CHAT_URL;
  }
  static get taskUrl(): string {
    return (globalThis as any).TASK_URL;
  }
}
