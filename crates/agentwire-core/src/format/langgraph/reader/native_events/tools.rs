//! Native events of tools.

use serde_json::value::RawValue;

use crate::{
    event::{Event, ToolCallId},
    format::langgraph::{
        namespace::outer,
        options::StepMode,
        raw_json,
        reader::{
            LangGraphReader, cx,
            ending::read_error,
            messages::{self, ShownIds},
            node_output,
            tool_calls::{self, NewToolResult},
        },
        wire::{EventData, NativeCall, NativeFrame, NativeMessage},
    },
};

/// Exceptions that stop a tool without being errors: interrupts, and commands to an outer graph.
const CONTROL_FLOW: &[&str] = &["GraphInterrupt", "NodeInterrupt", "ParentCommand", "GraphBubbleUp"];

impl LangGraphReader {
    pub(super) fn tool_start(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) {
        let name = self.runnable_name(native, data);
        let parents = raw_json::strings(native.parent_ids, &mut self.tally);
        let node = parents.iter().rev().find(|parent| self.nodes.is_running(parent));
        let node: Option<Box<str>> = node.map(|node| node.as_ref().into());
        if let Some(node) = &node
            && self.options.steps == StepMode::Tools
        {
            self.nodes.show_step(cx!(self, out), node);
        }
        if self.calls.call_of_run(run).is_some() {
            // An agent action has shown it.
            return;
        }
        let node_run = node.as_ref().and_then(|node| self.nodes.get(node));
        let (assigned, unseen) = node_run
            .map(|node| (node.assigned_calls.clone(), node.unseen_message.clone()))
            .unwrap_or_default();
        let mut call = self.calls.find_call(&name, data.input, &assigned);
        if call.is_none()
            && let Some((_, message)) =
                unseen.as_deref().and_then(|raw| NativeMessage::read(raw, &mut self.tally))
        {
            self.show_earlier_message(&message, native, out);
            call = self.calls.find_call(&name, data.input, &assigned);
        }
        let call = match call {
            Some(call) => call,
            None => self.show_bare_call(run.into(), &name, native, data.input, out),
        };
        // A nested node may receive a tool call without the message that contains it.
        let is_unseen = self.calls.get(&call).is_some_and(|call| !call.is_shown);
        if is_unseen && !outer(&self.namespace(native)).is_empty() && self.shown.holder(&call).is_none() {
            self.show_bare_call(call.clone(), &name, native, data.input, out);
        }
        self.calls.start_run(run, &call, node.as_deref());
    }

    /// Shows an assistant message of an earlier run whose tools run now.
    fn show_earlier_message(
        &mut self,
        message: &NativeMessage<'_>,
        native: &NativeFrame<'_>,
        out: &mut Vec<Event>,
    ) {
        let ns = self.namespace(native);
        if self.is_hidden(native) {
            return;
        }
        if let Some(id) = message.id(&mut self.tally) {
            self.run.usage.exclude(&id);
        }
        let owner = self.nodes.subagent_at(cx!(self, out), &ns, None);
        self.read_returned_message(message, &ns, owner.as_ref(), None, out);
    }

    /// Shows a tool call without a model: code made it, or the stream started later.
    fn show_bare_call(
        &mut self,
        id: ToolCallId,
        name: &str,
        native: &NativeFrame<'_>,
        input: Option<&RawValue>,
        out: &mut Vec<Event>,
    ) -> ToolCallId {
        let args = messages::arguments_text(input, &mut self.tally);
        let is_hidden = self.is_hidden(native);
        let ns = self.namespace(native);
        let owner = if is_hidden { None } else { self.nodes.subagent_at(cx!(self, out), &ns, None) };
        tool_calls::send_complete_call(cx!(self, out), &id, name, &args, None, owner.as_ref(), is_hidden);
        id
    }

    pub(super) fn agent_action(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) {
        let action = data.action.or(native.data).and_then(NativeCall::of).unwrap_or_default();
        let Some(name) = raw_json::non_empty(action.tool.or(action.name), &mut self.tally) else {
            return self.tally.note("wrong type", "on_agent_action data.action");
        };
        // All actions of an agent have the agent's run id.
        let mut id = run.to_owned();
        let mut number = 2;
        while self.calls.get(&id).is_some() {
            id = format!("{run}-{number}");
            number += 1;
        }
        let call =
            self.show_bare_call(id.as_str().into(), &name, native, action.tool_input.or(action.args), out);
        // Another run may execute it; if the same one does, its id finds the call.
        if native.run_id.is_some() {
            self.calls.start_run(&id, &call, None);
            self.calls.release(&call);
        }
    }

    /// The tool call that a tool run executes.
    fn call_of_tool_run(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) -> Option<ToolCallId> {
        if let Some(call) = self.calls.call_of_run(run) {
            return Some(call.clone());
        }
        let ns = self.namespace(native);
        // The start of the tool was not seen.
        if let Some(id) = raw_json::non_empty(data.tool_call_id, &mut self.tally) {
            return Some(self.shown.call_in_scope(&id, outer(&ns)));
        }
        for raw in data.output.map(node_output::messages).unwrap_or_default() {
            if let Some((_, message)) = NativeMessage::read(raw, &mut self.tally)
                && let Some(id) = raw_json::non_empty(message.tool_call_id, &mut self.tally)
            {
                return Some(self.shown.call_in_scope(&id, outer(&ns)));
            }
        }
        let name = self.runnable_name(native, data);
        if name.is_empty() && data.output.is_none() {
            // Neither the tool nor a result is known.
            return None;
        }
        let call = match self.calls.find_call(&name, data.input, &[]) {
            Some(call) => call,
            None => self.show_bare_call(run.into(), &name, native, data.input, out),
        };
        self.calls.start_run(run, &call, None);
        Some(call)
    }

    pub(super) fn tool_end(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) {
        if let Some(call) = self.call_of_tool_run(run, native, data, out) {
            let ns = self.namespace(native);
            tool_calls::send_tool_output(cx!(self, out), &call, data.output, outer(&ns));
        }
    }

    /// Reads a chunk of a tool's output.
    pub(super) fn tool_chunk(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) {
        let Some(chunk) = data.chunk else {
            return self.tally.note("wrong type", "on_tool_stream data.chunk");
        };
        if let Some(call) = self.call_of_tool_run(run, native, data, out) {
            tool_calls::send_output_chunk(cx!(self, out), &call, chunk);
        }
    }

    pub(super) fn tool_error(
        &mut self,
        run: &str,
        native: &NativeFrame<'_>,
        data: &EventData<'_>,
        out: &mut Vec<Event>,
    ) {
        let was_started = self.calls.call_of_run(run).is_some();
        let Some(mut call) = self.call_of_tool_run(run, native, data, out) else { return };
        if was_started && let Some(id) = raw_json::non_empty(data.tool_call_id, &mut self.tally) {
            let ns = self.namespace(native);
            let named = self.shown.call_in_scope(&id, outer(&ns));
            if self.calls.get(&named).is_some() {
                self.calls.reassign_run(run, &named);
                call = named;
            } else {
                self.shown.alias_call(&id, &call, outer(&ns));
            }
        }
        let (class, message) = read_error(data.error, &mut self.tally);
        let is_control_flow = CONTROL_FLOW
            .iter()
            .any(|name| class.as_deref() == Some(*name) || message.starts_with(&format!("{name}(")));
        if is_control_flow {
            self.calls.set_interrupted(&call, &message);
        } else {
            self.calls.set_failure(&call, &message);
        }
    }

    /// Emits results for failed tools whose node returned no message.
    pub(in super::super) fn fail_calls(&mut self, node: Option<&str>, out: &mut Vec<Event>) {
        for (call, message) in self.calls.take_failures(node) {
            tool_calls::send_result(cx!(self, out), &call, NewToolResult::failure(&message));
        }
    }
}
