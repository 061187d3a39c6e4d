//! The order rules by name.

use std::fmt;

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident $name:literal $about:literal $client:literal;)+) => {
        /// An order rule. Its name is stable: reports, metrics and tests use it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = $about] $variant,)+
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The rule's name in reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The rule as a sentence.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Self::$variant => $about),+ }
            }

            /// Whether the official client 1.0.0 rejects a stream that breaks this rule. The others are in the
            /// specification, or are limits of agentwire, and newer clients may enforce them.
            #[must_use]
            pub fn enforced_by_client(self) -> bool {
                match self { $(Self::$variant => $client),+ }
            }
        }
    };
}

rules! {
    RunFirst "run-first" "the first event of a stream is RUN_STARTED or RUN_ERROR" true;
    RunActive "run-active" "a run starts only when no other run is active" true;
    RunOver "run-over" "nothing but another RUN_STARTED follows the end of a run" true;
    RunIds "run-ids" "RUN_FINISHED names the thread and run that RUN_STARTED named" false;
    OneThread "one-thread" "all runs of a stream belong to one thread" false;
    NoTerminal "no-terminal" "every run ends with RUN_FINISHED or RUN_ERROR" false;
    OneTerminal "one-terminal" "a run ends once: RUN_ERROR does not follow RUN_FINISHED" false;
    Unclosed "unclosed" "everything open is closed before RUN_FINISHED" true;
    OpenAtError "open-at-error" "everything open is closed before RUN_ERROR" false;
    TextOpen "text-open" "a text message starts only when it is not open" true;
    TextNotOpen "text-not-open" "text content and text end name an open text message" true;
    ToolOpen "tool-open" "a tool call starts only when it is not open" true;
    ToolNotOpen "tool-not-open" "tool arguments and tool end name an open tool call" true;
    ReasoningOpen "reasoning-open" "a reasoning message starts only when it is not open" true;
    ReasoningNotOpen "reasoning-not-open" "reasoning content and end name an open reasoning message" true;
    SpanOpen "span-open" "a reasoning span starts only when it is not open" true;
    SpanNotOpen "span-not-open" "REASONING_END names an open reasoning span" true;
    StepOpen "step-open" "a step starts only when its owner has no open step of that name" true;
    StepNotOpen "step-not-open" "STEP_FINISHED names an open step" true;
    StepOwner "step-owner" "a step is finished by whoever started it" true;
    SubagentId "subagent-id" "a subagent event names its subagent" true;
    SubagentOpen "subagent-open" "a subagent starts only when it is not active" true;
    SubagentReused "subagent-reused" "a subagent id is used for one invocation per run" true;
    SubagentNotOpen "subagent-not-open" "a subagent ends only while it is active" true;
    SubagentParent "subagent-parent" "a named parent subagent has been started in the run" true;
    Owner "owner" "an event agrees with the owner of the thing it continues" true;
    ParentOwner "parent-owner" "a tool call has the owner of the message that holds it" true;
    InterruptEmpty "interrupt-empty" "an interrupt outcome names at least one interrupt" true;
    InterruptIds "interrupt-ids" "the interrupts of a run have different ids" false;
    TooManyOpen "too-many-open" "no more things are open at once than the limit allows" false;
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
