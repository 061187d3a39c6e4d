//! A client of HTTP/2 that sends header fields as they are, in frames made by hand.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Server, with_timeout};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, stream];
    frame.extend_from_slice(payload);
    frame
}

/// Fields as literals without compression.
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short text"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The end of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The body of the response.
    Body(String),
    /// The stream or the connection was reset.
    Reset,
}

impl Server {
    /// Sends a request without a body on a connection of its own.
    pub(crate) async fn http2(&self, request: &[(&str, &str)]) -> Reply {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[]));
        bytes.extend(frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields(request)));
        let address = self.address().to_owned();
        let exchange = async {
            let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
            stream.write_all(&bytes).await.expect("sent");
            let mut body = Vec::new();
            loop {
                let mut head = [0; 9];
                if stream.read_exact(&mut head).await.is_err() {
                    return Reply::Reset;
                }
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let mut payload = vec![0; length];
                stream.read_exact(&mut payload).await.expect("a whole frame");
                match head[3] {
                    DATA => body.extend_from_slice(&payload),
                    RST_STREAM | GOAWAY => return Reply::Reset,
                    _ => {}
                }
                if matches!(head[3], DATA | HEADERS) && head[4] & END_STREAM != 0 {
                    return Reply::Body(String::from_utf8(body).expect("text"));
                }
            }
        };
        with_timeout("a response over HTTP/2", exchange).await
    }
}
