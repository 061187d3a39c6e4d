//! Commands from one process to the holder of a run.

use super::{Fence, RunKey, Text};

/// The id of a command, unique in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// A command that [`Store::inbox`](crate::Store::inbox) has taken for the holder of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenCommand {
    /// Its id, for the reply.
    pub id: CommandId,
    /// The run that it is about.
    pub run: RunKey,
    /// The fencing token of the claim under which it was taken, for the reply.
    pub fence: Fence,
    /// The command, in the words of the sender.
    pub body: Text,
}

/// Result of [`Store::send`](crate::Store::send).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The holder has executed the command and replied.
    Replied(Text),
    /// No holder took the command before its deadline, and none will.
    Withdrawn,
    /// The run has ended, and the command was not executed.
    Ended,
}

/// The reply to a command, recorded in the same transaction as the events that it caused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandReply {
    /// The command.
    pub id: CommandId,
    /// The reply, in the words of the holder.
    pub body: Text,
}
