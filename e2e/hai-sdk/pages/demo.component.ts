// A page as the standard's public demo has it: the same imports, members of events, and rules of drawing, in words of our
// own, because the demo has no license. It draws the last output of the joined text at every event of a message, so that
// it shows each output once only if the text of CONTENT lacks the event's own delta.

import { Component } from '@angular/core';
import { applyPatch } from 'fast-json-patch';
import { HttpAgent, Message } from 'hai-client';
import { AgentSubscriber } from 'hai-client/dist/client/agent/subscriber';
import { PlxDialogue, PlxMessageRoleType } from 'paletx/ai/plx-chat';
import { RestAPI } from '../../shared/util/rest-api';

@Component({ selector: 'demo', template: '' })
export class DemoComponent {
  state = { workflowItems: [] };
  dialogue = new PlxDialogue();
  tasks = [];
  shownTools = new Map();
  selected: string[] = [];

  async work(): Promise<void> {
    const agent = new HttpAgent({ url: RestAPI.taskUrl, initialState: this.state });
    let task: any;
    let step: any;
    const draw = (text: string) => {
      if (!text) return;
      const document = this.documents(text).pop();
      const output = document.output;
      if (output.type === 'think') output.type = 'thinking';
      this.add(document.blockId ? this.block(step, document.blockId) : step, output);
    };
    const subscriber: AgentSubscriber = {
      onRunStartedEvent: ({ event }) => {
        task = { messageId: event['messageId'], steps: [] };
        this.tasks.push(task);
      },
      onStepStartedEvent: (eventData) => {
        this.shownTools.clear();
        step = step || { name: eventData.event['stepName'], info: [] };
        task.steps.push(step);
      },
      onBusinessDataContentEvent: (eventData) => {
        draw(eventData.textMessageBuffer);
      },
      onBusinessDataEndEvent: (eventData) => {
        draw(eventData.textMessageBuffer);
      },
      onAgentCollaborativeMessageStartEvent: (eventData) => {
        const to = eventData.event['to'];
        this.state.workflowItems.push({ avatar: `${to}.png` });
      },
      onAgentCollaborativeMessageEndEvent: ({ textMessageBuffer }) => {
        const { task: { id, name } } = JSON.parse(textMessageBuffer);
        const items = this.state.workflowItems;
        const item = items.find(item => item.id === id) || items[items.length - 1];
        item.id = id;
        item.name = name;
      },
      onToolCallArgsEvent: (eventData) => {
        const [args] = this.documents(eventData.event.delta);
        for (const [, shown] of this.shownTools) {
          for (const tool of shown.tools) if (tool.id === args.id) this.selected.push(tool.id);
        }
      },
      onStateDeltaEvent: (eventData) => {
        const { event: { delta } } = eventData;
        this.state = applyPatch(this.state, delta, true, false).newDocument;
      },
      onStepFinishedEvent: () => {
        step = null;
      },
      onRunFinishedEvent: () => {
        task = null;
      },
    };
    agent.subscribe(subscriber);
    const result = await agent.runAgent();
    console.log(result);
  }

  async say(dialogue: PlxDialogue): Promise<void> {
    const shown = dialogue.messages;
    const initialMessages = shown.map(({ id, name, role, timestamp, contents }) => {
      return { id, name, role, timestamp, content: contents.map(content => content.content).join('') };
    }) as Message[];
    const agent = new HttpAgent({ url: RestAPI.chatUrl, initialMessages });
    const update = ({ agent, event, messages }: any) => {
      const { id, role, content } = messages[messages.length - 1];
      const contents = this.documents(content).map(({ output }) => output);
      const known = shown.find(message => message.id === id + agent.agentId);
      if (known) known.contents = contents;
      else shown.push({ id: id + agent.agentId, role, contents, timestamp: event.timestamp });
    };
    const subscriber: AgentSubscriber = {
      onBusinessDataContentEvent: (eventData) => {
        update(eventData);
      },
      onBusinessDataEndEvent: (eventData) => {
        update(eventData);
      },
    };
    const subscription = agent.subscribe(subscriber);
    await agent.runAgent();
    subscription.unsubscribe();
    this.dialogue = { ...this.dialogue, messages: shown };
  }

  userRole() {
    return PlxMessageRoleType.USER;
  }

  private documents(text: string): any[] {
    if (!text || typeof text !== 'string') throw new Error('no text');
    return JSON.parse(`[${text.replace(/}{/g, '},{')}]`);
  }

  private block(step: any, blockId: string): any {
    const last = step.info[step.info.length - 1];
    if (last?.blockId === blockId) return last;
    step.info.push({ type: 'block', blockId, info: [] });
    return step.info[step.info.length - 1];
  }

  private add(place: any, output: any): void {
    if (!place) return;
    const last = place.info[place.info.length - 1];
    if (output.type === 'text') {
      if (last?.type === 'text') last.data += output.content;
      else place.info.push({ type: 'text', data: output.content });
    } else if (output.type === 'thinking') {
      if (last?.type === 'thinking') Object.assign(last.data, output.data, { content: last.data.content + output.data.content });
      else place.info.push(output);
    } else if (output.type === 'toolCallShow') {
      const known = this.shownTools.get(output.id);
      if (!known) {
        const shown = { type: output.type, ...output.data };
        this.shownTools.set(output.id, shown);
        place.info.push(shown);
      } else {
        for (const tool of output.data.tools) {
          const at = known.tools.findIndex(other => other.id === tool.id);
          if (at >= 0) known.tools[at] = tool;
          else known.tools.push(tool);
        }
      }
    } else if (output.type !== 'fold' || output.data.position !== 'end') {
      place.info.push({ type: output.type, data: output.data });
    }
  }
}
