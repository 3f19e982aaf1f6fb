//! One probe of one backend: what is sent, what has to come back. Nothing here waits; the checker's loop goes on with what is ready.

mod command;
mod datagram;
mod echo;
mod judge;
mod stream;
mod tls;
pub(super) mod words;

pub use command::CommandProbe;
pub use datagram::DatagramProbe;
pub use echo::{EchoSocket, nonce_of as echo_nonce, request as echo_request};
pub use judge::{DatagramJudge, StreamJudge};
pub use stream::StreamProbe;
pub use tls::TlsTrust;
pub use words::{Verdict, no_answer, of_error};
