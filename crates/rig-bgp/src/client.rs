//! Calls of GoBGP's service.

use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::message::{
    AddPathStreamRequest, Empty, GetBgpResponse, Global, Path, WatchEventRequest, WatchEventResponse, WatchFilter,
    WatchTable,
};

/// An answer that has not come by then does not come.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(2);
/// All routes that there are come as one message; GoBGP sends and takes none that is larger.
const LARGEST: usize = 256 << 20;
/// Paths of one call: for each the speaker looks through all EVPN routes that it has.
const BATCH: usize = 128;

/// Why it does not go on, in words.
pub type Result<T> = std::result::Result<T, String>;

#[derive(Debug)]
pub struct Client(Grpc<Channel>);

impl Client {
    pub async fn connect(address: &str) -> Result<Self> {
        let uri = if address.starts_with("unix:") { address.to_owned() } else { format!("http://{address}") };
        let endpoint = Endpoint::from_shared(uri).map_err(|error| root(&error))?;
        let endpoint = endpoint.connect_timeout(CONNECT).tcp_keepalive(Some(TIMEOUT));
        let channel =
            timeout(TIMEOUT, endpoint.connect()).await.map_err(|_| silent())?.map_err(|error| root(&error))?;
        Ok(Self(Grpc::new(channel).max_decoding_message_size(LARGEST).max_encoding_message_size(LARGEST)))
    }

    /// What the speaker is, if it is one that can be used.
    pub async fn global(&mut self) -> Result<Global> {
        self.ready().await?;
        let codec = ProstCodec::<Empty, GetBgpResponse>::default();
        let call = self.0.unary(Request::new(Empty {}), path("GetBgp"), codec);
        let answer = timeout(TIMEOUT, call).await.map_err(|_| silent())?.map_err(|status| in_words(&status))?;
        let global = answer.into_inner().global.unwrap_or_default();
        if global.asn == 0 {
            return Err("it has no AS yet: give it 'as' and 'router-id' in [global.config]".to_owned());
        }
        if global.use_multiple_paths {
            let why = "its use-multiple-paths is on, which hides withdrawn routes: switch it off";
            return Err(why.to_owned());
        }
        Ok(global)
    }

    /// The first event has all the best paths that there are.
    pub async fn watch(&mut self) -> Result<Events> {
        self.ready().await?;
        let table = Some(WatchTable { filters: vec![WatchFilter { kind: 0, init: true }] });
        let codec = ProstCodec::<WatchEventRequest, WatchEventResponse>::default();
        let call = self.0.server_streaming(Request::new(WatchEventRequest { table }), path("WatchEvent"), codec);
        let answer = timeout(TIMEOUT, call).await.map_err(|_| silent())?.map_err(|status| in_words(&status))?;
        Ok(Events(answer.into_inner()))
    }

    /// Announces and withdraws, as each of them says.
    pub async fn send(&mut self, mut paths: Vec<Path>) -> Result<()> {
        while !paths.is_empty() {
            let rest = paths.split_off(paths.len().min(BATCH));
            let batch = std::mem::replace(&mut paths, rest);
            self.ready().await?;
            let request = AddPathStreamRequest { table_type: 0, paths: batch };
            let codec = ProstCodec::<AddPathStreamRequest, Empty>::default();
            let call = self.0.client_streaming(Request::new(tokio_stream::once(request)), path("AddPathStream"), codec);
            let answer = timeout(TIMEOUT, call).await.map_err(|_| silent())?;
            answer.map_err(|status| format!("it does not take routes: {}", in_words(&status)))?;
        }
        Ok(())
    }

    async fn ready(&mut self) -> Result<()> {
        timeout(TIMEOUT, self.0.ready()).await.map_err(|_| silent())?.map_err(|error| root(&error))
    }
}

/// What the speaker tells, one change after another.
#[derive(Debug)]
pub struct Events(Streaming<WatchEventResponse>);

impl Events {
    /// It can be given up at any time and asked again.
    pub async fn next(&mut self) -> Result<Vec<Path>> {
        match self.0.message().await {
            Ok(Some(WatchEventResponse { table })) => Ok(table.unwrap_or_default().paths),
            Ok(None) => Err("it has ended".to_owned()),
            Err(status) => Err(in_words(&status)),
        }
    }

    /// All that there is at the beginning.
    pub async fn first(&mut self) -> Result<Vec<Path>> {
        timeout(TIMEOUT, self.next()).await.map_err(|_| silent())?
    }
}

fn path(method: &'static str) -> PathAndQuery {
    let path = format!("/apipb.GobgpApi/{method}");
    // Of letters and dots.
    PathAndQuery::try_from(path).unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

fn silent() -> String {
    format!("it does not answer within {} s", TIMEOUT.as_secs())
}

fn in_words(status: &Status) -> String {
    match status.code() {
        Code::Unimplemented => "it does not have the service apipb.GobgpApi, which GoBGP 3 has".to_owned(),
        _ if std::error::Error::source(status).is_some() => root(status),
        _ => status.message().to_owned(),
    }
}

/// What an error came from.
fn root(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

/// Whether there is a speaker that can be used, and which: its AS and its identifier. Waits for it a few seconds.
///
/// # Errors
/// Why not, in words.
pub fn probe(address: &str) -> std::result::Result<(u32, String), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let global = runtime.map_err(|error| error.to_string())?.block_on(async {
        let mut client = Client::connect(address).await?;
        client.global().await
    })?;
    Ok((global.asn, global.router_id))
}
