//! Parts shared by the formats of model servers (chat completions, Responses, Messages): one response per request, no
//! threads on the server, tools that the client runs.

pub(in crate::format) mod citations;
mod failure;
pub(in crate::format) mod fields;
pub(in crate::format) mod input;
mod run;
mod streamed;
mod used_ids;

pub(in crate::format) use self::{
    failure::ModelFailure, run::ModelRun, streamed::StreamedText, used_ids::UsedIds,
};
