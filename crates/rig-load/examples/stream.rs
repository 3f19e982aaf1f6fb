//! One TCP stream over loopback between two worker processes, driven as a test rig drives them.
//!
//! ```text
//! cargo build -p rig-load --examples --release
//! target/release/examples/stream 3 '{"message":131072}' [sender cpu] [receiver cpu]
//! ```
//! The second argument changes fields of the sender's and the receiver's stream, as they stand in a plan.

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

use rig_load::driver::{Cancel, Driver, Worker, WorkerPair};
use rig_load::plan::{Engine, Flow, Load, Phases, ReceiveMode, Role, SendMode, TcpStream, WorkerPlan};
use rig_load::record::{TcpState, WorkerRecord};

/// Segments of the first connection inside the window.
fn segments(record: &WorkerRecord, of: impl Fn(&TcpState) -> u32) -> f64 {
    let connection = &record.connections[0];
    f64::from(of(&connection.end).wrapping_sub(of(&connection.begin)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds: f64 = arguments.first().map_or(Ok(1.0), |text| text.parse())?;
    let stream = TcpStream {
        flow: Flow::Forward,
        threads: 1,
        connections: 1,
        message: 128 << 10,
        send_buffer: None,
        receive_buffer: None,
        no_delay: false,
        throttle: None,
        congestion_control: Some("cubic".into()),
        engine: Engine::Blocking,
        send_mode: SendMode::Copy,
        receive_mode: ReceiveMode::Copy,
        options: Default::default(),
    };
    let mut value = serde_json::to_value(&stream)?;
    let changes: serde_json::Map<_, _> = serde_json::from_str(arguments.get(1).map_or("{}", String::as_str))?;
    value.as_object_mut().expect("a stream is an object").extend(changes);
    let stream: TcpStream = serde_json::from_value(value)?;
    let cpu = |n: usize| arguments.get(n).map(|text| text.parse()).transpose();
    let phases = Phases {
        warm_up: Duration::from_millis(300),
        window: Duration::from_secs_f64(seconds),
        cool_down: Duration::from_millis(50),
        interval: Duration::from_secs(1),
    };
    let worker = |name: &str, role, cpu: Option<u32>| {
        let plan = WorkerPlan {
            name: name.into(),
            cpus: cpu.into_iter().collect(),
            role,
            load: Load::TcpStream(stream.clone()),
            phases,
            ceiling: None,
            peer_clock_ns: 0,
        };
        Worker::here(plan, || {
            Command::new(std::env::current_exe()?.with_file_name("worker"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
        })
    };
    let address = "127.0.0.1:0".parse()?;
    let pair = WorkerPair {
        listen: worker("receiver", Role::Listen { address, only_from: None }, cpu(3)?),
        connect: worker("sender", Role::connect(address), cpu(2)?),
    };
    let records = Driver::new(&Cancel::new()?).start(vec![pair])?.finish()?;
    for record in &records {
        let cpu = &record.process_cpu;
        println!(
            "{:9} {:8.2} Gbit/s  {:6.3} CPU s/GB (user {:.3})  edge late {:4} us  {:6.0} B/segment out, {:6.0} in  {} retransmits  {:?}",
            record.name,
            record.bits_per_second() / 1e9,
            (cpu.user_ns + cpu.system_ns) as f64 / record.bytes() as f64,
            cpu.user_ns as f64 / record.bytes() as f64,
            (record.window_end_ns - record.window_begin_ns) as i64 / 1000 - (seconds * 1e6) as i64,
            record.bytes() as f64 / segments(record, |tcp| tcp.segments_out),
            record.bytes() as f64 / segments(record, |tcp| tcp.segments_in),
            record.retransmits(),
            record.notes,
        );
    }
    Ok(())
}
