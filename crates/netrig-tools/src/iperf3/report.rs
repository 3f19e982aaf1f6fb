//! What one test says, as lines or as JSON.

use std::net::SocketAddr;

use jiff::Timestamp;
use rig_cli::streams;

use super::console::Console;
use super::error::TestError;
use super::figures::Summary;
use super::json::{Json, object};
use super::record;
use super::settings::{Flow, OutputSettings, Protocol, Role, Settings, TestSettings};
use super::sockets::host_text;
use super::text::{DONE, Layout, StreamInterval};
use super::told::test_of;
use super::wire::{Cookie, ServerOutput, cookie_text};
use crate::store_run::ToolTest;

/// The version as it is printed: that of the original whose options and layout these are, and this program's.
pub const SHOWN_VERSION: &str = concat!("iperf 3.21 (netrig ", env!("CARGO_PKG_VERSION"), ")");

/// What scripts look for in what `-v` prints, in the original's words for it.
pub const FEATURES: &str = "Optional features available: CPU affinity setting, IPv6 flow label, TCP congestion algorithm setting, \
    sendfile / zerocopy, socket pacing, authentication, bind to device, support IPv4 don't fragment, POSIX threads, GSO/GRO support";

/// The kernel's name, host, release, version and machine.
pub fn system_info() -> String {
    let system = rustix::system::uname();
    let parts = [system.sysname(), system.nodename(), system.release(), system.version(), system.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

/// The intervals of single streams that a server tells its client of, each of some 300 bytes.
const MOST_STREAM_INTERVALS: usize = 50_000;

/// What a JSON report has so far.
#[derive(Debug, Clone)]
struct Objects {
    start: Json,
    connected: Vec<Json>,
    intervals: Vec<Json>,
    end: Json,
    /// The start has been printed as an event.
    started: bool,
    errors: Vec<String>,
}

/// The report of one test.
#[derive(Debug)]
pub struct Report {
    console: Console,
    output: OutputSettings,
    role: Role,
    host: String,
    port: u16,
    every: f64,
    objects: Option<Objects>,
    first_interval: bool,
    server_output: Option<ServerOutput>,
}

impl Report {
    /// With `keeps` what JSON would have is remembered, also where text is printed.
    pub fn new(settings: &Settings, console: Console, keeps: bool) -> Self {
        let output = settings.output.clone();
        let start = object([("version", SHOWN_VERSION.into()), ("system_info", system_info().into())]);
        let objects = Objects {
            start,
            connected: Vec::new(),
            intervals: Vec::new(),
            end: object([]),
            started: false,
            errors: Vec::new(),
        };
        Self {
            console,
            objects: (output.json || keeps).then_some(objects),
            output,
            role: settings.role,
            host: settings.host.clone(),
            port: settings.network.port,
            every: settings.interval,
            first_interval: true,
            server_output: None,
        }
    }

    /// With `-V`, before anything else.
    pub fn greet(&self) {
        if !self.output.json && self.output.verbose {
            self.console.line(&format!("{SHOWN_VERSION}\n"));
            self.console.line(&format!("{}\n", system_info()));
        }
    }

    /// Goes on with what the client wants to see captured.
    pub fn capture(&mut self) {
        self.console = self.console.capturing();
    }

    fn line(&self, text: &str) {
        self.console.line(text);
    }

    /// A line for people, and only with `-V`.
    pub fn verbose(&self, text: &str) {
        if !self.output.json && self.output.verbose {
            self.line(text);
        }
    }

    /// A line for the server's operator, also where what it prints is JSON.
    pub fn note(&self, text: &str) {
        if !self.output.json {
            self.line(&format!("{text}\n"));
        } else {
            self.console.error(text);
        }
    }

    fn layout<'a>(&self, test: &'a TestSettings) -> Layout<'a> {
        Layout { test, role: self.role, format: self.output.format, verbose: self.output.verbose }
    }

    /// The control connection is up and the parameters are exchanged. `peer`: of a server, where its client is.
    pub fn connected(&mut self, test: &TestSettings, peer: SocketAddr, cookie: &Cookie, mss: u32) {
        let now = Timestamp::now();
        let time = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let (host, port) = (host_text(peer), peer.port());
        if let Some(objects) = &mut self.objects {
            let start = &mut objects.start;
            let timestamp = object([
                ("time", time.as_str().into()),
                ("timesecs", now.as_second().into()),
                ("timemillisecs", now.as_millisecond().into()),
            ]);
            start.add("timestamp", timestamp);
            match self.role {
                Role::Client => {
                    let to = object([("host", self.host.as_str().into()), ("port", self.port.into())]);
                    start.add("connecting_to", to);
                }
                Role::Server => {
                    start.add("accepted_connection", object([("host", host.as_str().into()), ("port", port.into())]));
                }
            }
            start.add("cookie", cookie_text(cookie));
            match (test.protocol, test.mss) {
                (Protocol::Udp | Protocol::Sctp, _) => {}
                (Protocol::Tcp, 0) => start.add("tcp_mss_default", mss),
                (Protocol::Tcp, mss) => start.add("tcp_mss", mss),
            }
            start.add("target_bitrate", test.rate);
            start.add("fq_rate", test.fq_rate);
        }
        if self.output.json {
            return;
        }
        self.verbose(&format!("Time: {time}\n"));
        match self.role {
            Role::Client => {
                self.line(&format!("Connecting to host {}, port {}\n", self.host, self.port));
                if test.flow == Flow::Reverse {
                    self.line(&format!("Reverse mode, remote host {} is sending\n", self.host));
                }
            }
            Role::Server => self.line(&format!("Accepted connection from {host}, port {port}\n")),
        }
        self.verbose(&format!("      Cookie: {}\n", cookie_text(cookie)));
        match (test.protocol, test.mss) {
            (Protocol::Udp | Protocol::Sctp, _) => {}
            (Protocol::Tcp, 0) => self.verbose(&format!("      TCP MSS: {mss} (default)\n")),
            (Protocol::Tcp, mss) => self.verbose(&format!("      TCP MSS: {mss}\n")),
        }
        if test.rate > 0 {
            self.verbose(&format!("      Target Bitrate: {}\n", test.rate));
        }
    }

    /// A stream is open.
    pub fn stream(&mut self, label: i32, local: SocketAddr, remote: SocketAddr) {
        let ([local_host, remote_host], [local_port, remote_port]) =
            ([local, remote].map(host_text), [local, remote].map(|address| address.port()));
        if !self.output.json {
            self.line(&format!(
                "[{label:3}] local {local_host} port {local_port} connected to {remote_host} port {remote_port}\n"
            ));
        }
        if let Some(objects) = &mut self.objects {
            objects.connected.push(object([
                ("socket", label.into()),
                ("local_host", local_host.into()),
                ("local_port", local_port.into()),
                ("remote_host", remote_host.into()),
                ("remote_port", remote_port.into()),
            ]));
        }
    }

    /// The buffers of the first stream, as asked for and as the kernel has them.
    pub fn buffers(&mut self, asked: u32, send: u32, receive: u32) {
        if let Some(objects) = &mut self.objects {
            objects.start.add("sock_bufsize", asked);
            objects.start.add("sndbuf_actual", send);
            objects.start.add("rcvbuf_actual", receive);
        }
    }

    /// The test begins.
    pub fn test_start(&mut self, test: &TestSettings) {
        let line = self.layout(test).test_start();
        self.verbose(&line);
        let every = self.every;
        if let Some(objects) = &mut self.objects {
            objects.start.add("test_start", record::test_start(test, every));
        }
        self.start_event();
    }

    fn start_event(&mut self) {
        let Some(objects) = &mut self.objects else { return };
        if self.output.json_stream && !objects.started {
            objects.started = true;
            self.console.event("start", objects.whole_start());
        }
    }

    /// An interval is over.
    pub fn interval(&mut self, test: &TestSettings, streams: &[StreamInterval]) {
        match &mut self.objects {
            Some(objects) if self.output.json => {
                let interval = record::interval(test, self.role, streams);
                if self.output.json_stream {
                    self.console.event("interval", interval.clone());
                }
                // A stream that goes on for days need not be held.
                let wanted = self.role == Role::Server
                    && test.get_server_output
                    && objects.intervals.len() <= MOST_STREAM_INTERVALS / streams.len().max(1);
                if !self.output.json_stream || self.output.json_full || wanted {
                    objects.intervals.push(interval);
                }
            }
            _ => {
                let lines = self.layout(test).interval(streams, self.first_interval);
                self.console.lines(&lines);
            }
        }
        self.first_interval = false;
    }

    /// What is omitted is over.
    pub fn omit_done(&self) {
        if self.every == 0.0 {
            self.verbose("Finished omit period, starting real test\n");
        }
    }

    /// The test is over.
    pub fn summary(&mut self, test: &TestSettings, summary: &Summary) {
        if let Some(objects) = &mut self.objects {
            objects.end = record::end(test, self.role, summary);
        }
        if !self.output.json {
            let lines = self.layout(test).summary(summary);
            self.console.lines(&lines);
        }
    }

    /// What the server printed.
    pub fn server_output(&mut self, output: Option<ServerOutput>) {
        match (self.output.json, output) {
            (true, output) => self.server_output = output,
            (false, Some(ServerOutput::Text(text))) => self.line(&format!("\nServer output:\n{text}\n")),
            (false, Some(ServerOutput::Json(json))) => {
                self.line(&format!("\nServer JSON output:\n{}\n", json.pretty()));
            }
            (false, None) => {}
        }
    }

    /// What this server has printed of the test, for its client.
    pub fn for_the_client(&self) -> ServerOutput {
        match &self.objects {
            Some(objects) if self.output.json => ServerOutput::Json(self.first_of(objects)),
            _ => ServerOutput::Text(self.console.captured()),
        }
    }

    /// With `-d`, a message of the protocol, on standard error.
    pub fn debug(&self, what: &str, message: &Json) {
        if self.output.debug {
            streams::note(format_args!("{what}:\n{}", message.pretty()));
        }
    }

    /// Something that went wrong.
    pub fn error(&mut self, text: &str) {
        match &mut self.objects {
            Some(objects) if self.output.json => objects.errors.push(text.to_owned()),
            _ => self.console.error(text),
        }
    }

    /// What ended the test.
    pub fn failed(&mut self, trouble: &TestError) {
        match &mut self.objects {
            Some(objects) if self.output.json => objects.errors.push(format!("error - {trouble}")),
            _ => self.console.error(&format!("error - {trouble}")),
        }
    }

    /// What is to be kept of a test that came to its end.
    pub fn told(&self) -> Option<Result<ToolTest, String>> {
        let whole = self.whole(self.objects.as_ref()?);
        let whole = serde_json::to_value(&whole).map_err(|error| error.to_string());
        Some(whole.and_then(|whole| test_of(&whole)))
    }

    fn whole(&self, objects: &Objects) -> Json {
        object([
            ("start", objects.whole_start()),
            ("intervals", objects.intervals.clone().into()),
            ("end", objects.end.clone()),
        ])
    }

    /// The same, of a test without end no more than a client takes.
    fn first_of(&self, objects: &Objects) -> Json {
        let streams = objects.connected.len().max(1);
        let most = MOST_STREAM_INTERVALS / streams;
        if objects.intervals.len() <= most {
            return self.whole(objects);
        }
        let mut json = self.whole(&Objects { intervals: objects.intervals[..most].to_vec(), ..objects.clone() });
        json.add("intervals_left_out", format!("all but the first {most}").as_str());
        json
    }

    /// Ends the report. `completed`: the test came to its end.
    pub fn finish(self, test: &TestSettings, completed: bool) {
        let Some(objects) = self.objects.as_ref().filter(|_| self.output.json) else {
            if completed && self.role == Role::Client {
                self.line("\n");
                self.line(DONE);
            }
            return;
        };
        let mut json = self.whole(objects);
        for (name, text) in [("title", &test.title), ("extra_data", &test.extra_data)] {
            if let Some(text) = text {
                json.add(name, text.as_str());
            }
        }
        // The original has them all under one name, of which readers keep the last.
        let error = objects.errors.last().map(|error| Json::from(error.as_str()));
        let output = self.server_output.as_ref().map(|output| match output {
            ServerOutput::Text(text) => ("server_output_text", Json::from(text.as_str())),
            ServerOutput::Json(json) => ("server_output_json", json.clone()),
        });
        let more = error.map(|error| ("error", error)).into_iter().chain(output);
        for (name, value) in more {
            if self.output.json_stream {
                self.console.event(name, value.clone());
            }
            json.add(name, value);
        }
        if self.output.json_stream {
            self.console.event("end", objects.end.clone());
        }
        if !self.output.json_stream || self.output.json_full {
            self.console.object(&json);
        }
    }
}

impl Objects {
    fn whole_start(&self) -> Json {
        let mut start = object([("connected", self.connected.clone().into())]);
        if let (Json::Object(members), Json::Object(more)) = (&mut start, &self.start) {
            members.extend(more.iter().cloned());
        }
        start
    }
}
