"""The sample of the HAI standard, section 4.2, as printed; only the `app.…` imports are replaced."""

import asyncio
import json

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from agentwire.hai import Agent, HAIAgentRequest
from agentwire.hai.agent import logger

router = APIRouter()


class Model:
    """The language model of the sample's base class."""

    async def ask_stream(self, messages):
        for word in ["你说：", *str(messages[-1]["content"]).split()]:
            await asyncio.sleep(0)
            yield word


async def translate_sse(agent, body):
    try:
        # 根据agent类型传递不同的参数
        response = agent.run(body)
        for message in response:
            sse_data = f"data: {json.dumps(message, ensure_ascii=False)}\n\n"
            yield sse_data
    except asyncio.CancelledError:
        logger.info("SSE流被取消，客户端可能已断开连接")
        raise
    except Exception as e:
        logger.error(f"SSE流处理过程中发生错误: {e}")
        raise
    finally:
        await asyncio.sleep(0.2)


@router.post("/chat")
def ai_app_chat(body: HAIAgentRequest):
    chat_agent = ChatAgent()
    return StreamingResponse(translate_sse(chat_agent, body), media_type="text/event-stream")


class ChatAgent(Agent):
    agent_name = "Agent"
    llm = Model()

    def __init__(self, agent_name: str = agent_name):
        super().__init__(agent_name=agent_name)

    async def run(self, body):
        # 解构body体
        threadId = body.threadId
        runId = body.runId
        messages = body.messages
        context = body.context
        tools = body.tools
        forwardedProps = body.forwardedProps
        # 发送任务开始数据
        yield self.outputer.build_sse_data(
            self.outputer.build_run_started("msgId-001", role="assistant")
        )
        # 发送Agent协同数据
        yield self.outputer.build_sse_data(
            self.outputer.build_agent_collaborative_message_start("USER", "Agent", "msgId-001", role="assistant")
        )
        yield self.outputer.build_sse_data(
            self.outputer.build_agent_collaborative_message_content("USER", "Agent", "msgId-001", role="assistant")
        )
        yield self.outputer.build_sse_data(
            self.outputer.build_agent_collaborative_message_end("msgId-001", role="assistant")
        )
        # 发送任务状态数据
        yield self.outputer.build_sse_data(
            self.outputer.build_state_delta("add", "/workflowItems/0/status", "running", role="assistant")
        )
        # 发送任务状态修改数据
        yield self.outputer.build_sse_data(
            self.outputer.build_state_delta("replace", "/workflowItems/0/status", "done", role="assistant")
        )
        # 发送任务步骤开始数据
        yield self.outputer.build_sse_data(
            self.outputer.build_step_started("智能处理", role="assistant")
        )
        # 发送任务过程数据
        yield self.outputer.build_sse_data(
            self.outputer.build_business_data_start("msgId-001", role="assistant")
        )
        # 调用LLM 实际业务内容，需要根据业务进行调整
        messages = self.get_agent_messages()
        response = self.llm.ask_stream(
            messages=messages
        )
        # 发送模型返回数据，如果需要根据业务发送不同业务，需要实现不同的业务逻辑处理
        async for chunk in response:
            chatInfo = self.outputer.build_text(chunk)
            # 发送任务开始数据
            yield self.outputer.build_sse_data(
                self.outputer.build_business_data_content(chatInfo, "msgId-001", role="assistant")
            )
        # 发送任务过程结束数据
        yield self.outputer.build_sse_data(
            self.outputer.build_business_data_end("msgId-001", role="assistant")
        )
        # 发送任务步骤结束数据
        yield self.outputer.build_sse_data(
            self.outputer.build_step_finished("智能处理", role="assistant")
        )
        # 发送任务结束数据
        yield self.outputer.build_sse_data(
            self.outputer.build_run_finished("msgId-001", role="assistant")
        )
