//! Messages of a wanted size, in the sizes of dperf's: a request of 85 bytes, a response with a header of 85 bytes.

use serde::{Deserialize, Serialize};

/// Bytes of the header of a response.
pub const HEADER: usize = 85;
/// Bytes of the smallest request that asks a host with a short name for a short path.
pub const REQUEST: usize = 85;

/// A request's method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
}

/// What is written behind the other fields, with its value left empty, and the line that ends the header.
const FILL: [&str; 2] = ["Fill: ", "\r\n\r\n"];

/// A request of `size` bytes, at least [`REQUEST`], or as many as it needs: 66 and those of host and path for GET. The
/// content of POST fills it up, otherwise a field of its own.
///
/// `host` and `path` stand in the message as they are: they have neither spaces nor control characters, and the path
/// begins with `/`.
pub fn request(method: Method, host: &str, path: &str, size: usize) -> Vec<u8> {
    let size = size.max(REQUEST);
    let name = match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
    };
    let mut head = format!("{name} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: netrig\r\nAccept: */*\r\n");
    let mut content = 0;
    if method == Method::Post {
        let fixed = head.len() + "Content-Length: \r\n".len() + FILL.concat().len();
        content = size.saturating_sub(fixed + size.to_string().len());
        head += &format!("Content-Length: {content}\r\n");
    }
    let mut message = fill(head, size - content);
    message.resize(message.len() + content, b'a');
    message
}

/// A response of [`HEADER`] bytes and `body`, with status 200. `close`: it says that it is the last one of its connection.
pub fn response(body: &[u8], close: bool) -> Vec<u8> {
    let connection = if close { "close" } else { "keep-alive" };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: {connection}\r\n", body.len());
    let mut message = fill(head, HEADER);
    message.extend_from_slice(body);
    message
}

/// Ends a header so that it has `size` bytes, or as many as it needs.
fn fill(mut head: String, size: usize) -> Vec<u8> {
    let [begin, end] = FILL;
    head += begin;
    let letters = size.saturating_sub(head.len() + end.len());
    head.extend(std::iter::repeat_n('a', letters));
    head += end;
    head.into_bytes()
}
