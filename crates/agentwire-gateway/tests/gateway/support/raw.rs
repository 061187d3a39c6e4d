//! A client that sends bytes as they are and reads as much as it wants.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use super::{Server, with_timeout};

impl Server {
    /// The address without the scheme.
    pub(crate) fn address(&self) -> &str {
        self.base.split_once("://").expect("it has one").1
    }

    /// Connects with a small receive buffer and sends these bytes.
    pub(crate) async fn raw(&self, bytes: impl AsRef<[u8]>) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        let mut stream =
            socket.connect(self.address().parse().expect("an address")).await.expect("a connection");
        stream.write_all(bytes.as_ref()).await.expect("sent");
        stream
    }

    /// Sends a whole request as it is, and returns the response up to the end of the connection.
    pub(crate) async fn exchange(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = self.raw(request).await;
        let mut response = Vec::new();
        let _ = with_timeout("a raw response", stream.read_to_end(&mut response)).await;
        String::from_utf8_lossy(&response).into_owned()
    }
}

/// The status of a raw response; 0 if there is none.
pub(crate) fn raw_status(response: &str) -> u16 {
    response.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}
