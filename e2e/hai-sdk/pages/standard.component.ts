// The sample of the HAI standard, section 4.1, as printed; the comment `......` stands where the standard has these dots.
// The sample uses `dialogueMessages` without a declaration: it is declared in the first of these places.

import { Component } from '@angular/core';
import { HttpAgent } from 'hai-client';
import { AgentSubscriber } from 'hai-client/dist/client/agent/subscriber';
import { PlxDialogue, PlxMessageRoleType } from 'paletx/ai/plx-chat';
import { RestAPI } from '../../shared/util/rest-api';
/* ...... */
export const dialogueMessages: any[] = [];
export const userRole = PlxMessageRoleType.USER;

@Component({
  selector: 'task',
  templateUrl: 'task.component.html',
  styleUrls: ['./task.component.less']
})
export class TaskComponent {
  public dialogue: PlxDialogue;
  /* ...... */

  public async onSend(dialogue: PlxDialogue): Promise<void> {
    // 初始化消息
    const initialMessages = dialogue.messages;
    // HAI发送POST请求的body参数
    const requestParam = {
      url: RestAPI.chatUrl,
      initialMessages,
    };
    // 初始化HAI的POST请求
    const agent = new HttpAgent(requestParam);
    // 根据事件订阅消息
    const subscriber: AgentSubscriber = {
      onRunStartedEvent: (eventData) => {
        // 开始事件，表示处理请求的第一个事件
        console.log("RunStarted:", eventData);
      },
      onStepStartedEvent: (eventData) => {
        // Agent某个步骤开始事件
        console.log("StepStarted:", eventData);
      },
      onBusinessDataStartEvent: (eventData) => {
        // 业务数据开始接收
        console.log("Streaming start:", eventData);
      },
      onBusinessDataContentEvent: (eventData) => {
        // 业务数据接收中，该事件可能会触发多次，HAI会自动拼接事件内容
        console.log("Streaming text:", eventData);
        // 根据接收的数据，处理业务逻辑
        this.updateDialogueMessages(eventData, dialogueMessages);
      },
      onBusinessDataEndEvent: (eventData) => {
        // 业务数据接收完成，最后返回完整的业务数据
        console.log("Streaming end:", eventData);
        // 根据接收的数据，处理业务逻辑
        this.updateDialogueMessages(eventData, dialogueMessages);
      },
      onAgentCollaborativeMessageStartEvent: (eventData) => {
        // Agent协同消息开始
        console.log("AgentCollaborativeMessageStart:", eventData);
      },
      onAgentCollaborativeMessageContentEvent: (eventData) => {
        // Agent协同消息内容，该事件可能会发送多次，HAI会自动拼接数据
        console.log("AgentCollaborativeMessageContent:", eventData);
      },
      onAgentCollaborativeMessageEndEvent: (eventData) => {
        // Agent协同消息结束
        console.log("AgentCollaborativeMessageEnd:", eventData);
      },
      onToolCallStartEvent: (eventData) => {
        // 工具调用开始，比如调用前端定义的工具
        console.log("ToolCallStart:", eventData);
      },
      onToolCallArgsEvent: (eventData) => {
        // 工具调用参数，该事件可能会发送多次，HAI会自动拼接数据
        console.log("ToolCallArgs:", eventData);
      },
      onToolCallEndEvent: (eventData) => {
        // 工具调用结束，表示参数接收完了，可以调用前端工具了
        console.log("ToolCallEnd:", eventData);
      },
      onStateDeltaEvent: (eventData) => {
        // 状态同步，这个只会同步部分状态数据，通过JSON PATCH的方式更新指定对象数据
        console.log("StateDelta:", eventData);
      },
      onStepFinishedEvent: (eventData) => {
        // Agent某个步骤调用结束
        console.log("StepFinished:", eventData);
      },
      onRunFinishedEvent: (eventData) => {
        // Agent运行完成
        console.log("RunFinished:", eventData);
      },
      // 还可以订阅其他HAI事件
      /* ...... */
    }
    // 订阅消息
    const subscription = agent.subscribe(subscriber);
    // HAI发送HTTP请求
    const result = await agent.runAgent();
    console.log(result);
  }

  private updateDialogueMessages(eventData: any, dialogueMessages: any[]): void {
    const { agent, event, messages } = eventData;
    const newAssistantMessage = messages[messages.length - 1];
    const { id, role, content } = newAssistantMessage || {};
    const contents = this.parseJsonString(content);
    let newDialogueMessage = dialogueMessages.find(message => message.id === id);
    if (newDialogueMessage) {
      newDialogueMessage.contents = contents;
    } else {
      newDialogueMessage = {
        id,
        role,
        avatar: 'assets/img/avatar.png',
        name: '智能体名称',
        contents,
        timestamp: event.timestamp,
      };
      dialogueMessages.push(newDialogueMessage);
    }
    this.dialogue = {
      ...this.dialogue,
      messages: dialogueMessages,
    };
  }

  private parseJsonString(jsonString: string): any[] {
    if (!jsonString || typeof jsonString !== 'string') {
      throw new Error('输入必须是有效的字符串');
    }
    try {
      // 处理原始字符串为合法JSON数组
      const legalJsonArrayStr = `[${jsonString.replace(/}{/g, '},{')}]`;
      // 解析并返回数组
      return JSON.parse(legalJsonArrayStr);
    } catch (error) {
      throw new Error(`JSON解析失败: ${(error as Error).message}`);
    }
  }
}
