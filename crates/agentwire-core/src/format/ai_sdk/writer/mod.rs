//! Writers: canonical events to the four stream protocols of the AI SDK.
//!
//! [`response`] is the state machine of the UI message stream and the data stream: it assigns parts to steps, closes them in
//! the order that clients require and tracks the content that the client already holds. [`ui_message_stream`] and
//! [`data_stream`] encode its output. [`langchain_dialect`] and [`text_stream`] are simple enough to work without it.

mod data_stream;
pub(super) mod encode;
mod langchain_dialect;
pub(super) mod part_metadata;
mod response;
mod snapshot;
mod speaker_queue;
mod text_stream;
mod tool_calls;
mod ui_message_stream;

use self::{
    data_stream::DataStreamEncoder, langchain_dialect::LangChainDialectWriter, response::ResponseWriter,
    text_stream::TextStreamWriter, ui_message_stream::UiMessageStreamEncoder,
};
use super::options::WriterOptions;
use crate::format::{Profile, Setup, Writer};

/// Creates the writer of a profile.
pub(super) fn new(profile: &Profile, setup: &Setup<'_>) -> Box<dyn Writer> {
    let options = WriterOptions::new(setup.options);
    match profile.name {
        "4" => Box::new(ResponseWriter::new(DataStreamEncoder::default(), setup, options)),
        "langchain-adapter" => Box::new(LangChainDialectWriter::new(setup, &options)),
        "text" => Box::new(TextStreamWriter::default()),
        version => {
            Box::new(ResponseWriter::new(UiMessageStreamEncoder::new(version, &options), setup, options))
        }
    }
}
