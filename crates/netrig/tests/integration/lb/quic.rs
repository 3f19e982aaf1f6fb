//! Connection IDs of QUIC: said in the file and by commands, seen in lists and traces, and real datagrams of a client that moves.

use std::net::UdpSocket;

use super::lab::SERVERS;
use super::{Duration, TIMEOUT, fs, thread, until, with_lab};

const QUIC: &str = "10.9.0.1:443";

#[test]
fn a_client_that_moves_goes_on_with_the_backend_that_its_id_names() {
    with_lab(|lab| {
        let path = lab.path("quic.toml").display().to_string();
        let text = "devices = ['lb0', 'lb1']\n[[service]]\nlisten = ['udp 10.9.0.1:443', 'tcp 10.9.0.1:443']\nforward = 'nat'\n\
                    scheduler = 'sh'\nquic = { configuration = 2, id_length = 3 }\n\
                    backend = [{ address = '10.2.0.2', quic_id = 0x010203 }, { address = '10.2.0.3', quic_id = 7 }]\n";
        fs::write(&path, text).unwrap();
        let _running = lab.run(&[&path]);

        let servers = SERVERS.map(|server| {
            let socket = lab.server.run(|| UdpSocket::bind((server, 443)).unwrap()).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        // Which server gets it, from another port each time; again where the way there was not known yet.
        let reached = |id: [u8; 3]| {
            let packet = [&[0x40, 2 << 5 | 9][..], &id, &[9; 25]].concat();
            let got = |server: &UdpSocket| {
                let mut buffer = [0; 100];
                server.recv(&mut buffer).is_ok_and(|length| buffer[..length] == packet)
            };
            until(TIMEOUT, || {
                let client = lab.client.run(|| UdpSocket::bind("10.1.0.2:0").unwrap()).unwrap();
                client.send_to(&packet, QUIC).unwrap();
                thread::sleep(Duration::from_millis(20));
                servers.iter().position(got)
            })
        };
        for (id, at) in [([1, 2, 3], 0), ([0, 0, 7], 1), ([1, 2, 3], 0), ([0, 0, 7], 1), ([0, 0, 7], 1)] {
            assert_eq!(reached(id), Some(at), "{id:?}");
        }

        let trace = |status: i32, more: &[&str]| {
            lab.netrig(status, &[&["trace", "udp 10.1.0.2:1000 > 10.9.0.1:443"], more].concat())
        };
        for (id, backend) in [("0x10203", "10.2.0.2:443"), ("7", "10.2.0.3:443")] {
            let traced = trace(0, &["--quic-id", id]).0;
            assert!(traced.contains(&format!("its QUIC connection ID names backend {backend}")), "{traced}");
        }
        for (id, status, why) in [("8", 0, "sh chooses backend"), ("0x1000000", 2, "3 bytes"), ("x", 2, "no server ID")]
        {
            let (said, error) = trace(status, &["--quic-id", id]);
            assert!(format!("{said}{error}").contains(why), "{said} {error}");
        }
        assert!(trace(0, &[]).0.contains("sh chooses backend"));

        let saved = lab.netrig(0, &["-S", "-n"]).0;
        assert!(saved.contains("-A -u 10.9.0.1:443 -s sh --quic 2/3\n"), "{saved}");
        assert!(
            saved.contains("-r 10.2.0.2:443 -m -w 1 --quic-id 66051\n") && saved.matches("--quic").count() == 3,
            "{saved}"
        );
        assert!(lab.netrig(0, &["status"]).0.contains("quic: 2/3, connection IDs name backends"));

        let server = ["-u", QUIC, "-r", "10.2.0.3:443", "-m"];
        let (_, error) = lab.netrig(2, &[&["-e"], &server[..], &["--quic-id", "66051"]].concat());
        assert!(error.contains("two backends have the same quic_id"), "{error}");
        lab.netrig(0, &[&["-e"], &server[..], &["--quic-id", "9"]].concat());
        assert_eq!(reached([0, 0, 9]), Some(1));
        // While it drains it keeps what is its own, which ends at the deadline; with a weight it is named again.
        lab.netrig(0, &[&["-e"], &server[..], &["--drain", "1h"]].concat());
        assert_eq!(reached([0, 0, 9]), Some(1));
        lab.netrig(0, &[&["-e"], &server[..], &["--drain", "50ms"]].concat());
        assert!(until(TIMEOUT, || (reached([0, 0, 9]) == Some(0)).then_some(())).is_some());
        lab.netrig(0, &[&["-e"], &server[..], &["-w", "1"]].concat());
        assert_eq!(reached([0, 0, 9]), Some(1));
        let (_, error) = lab.netrig(2, &["-E", "-u", QUIC, "--quic", "off"]);
        assert!(error.contains("a backend has a quic_id, and the service has no quic"), "{error}");
        for host in ["10.2.0.2", "10.2.0.3"] {
            lab.netrig(0, &["-e", "-u", QUIC, "-r", &format!("{host}:443"), "-m", "--quic-id", "off"]);
        }
        lab.netrig(0, &["-E", "-u", QUIC, "--quic", "off"]);
        let (_, error) = trace(2, &["--quic-id", "7"]);
        assert!(error.contains("no service at 10.9.0.1:443 that reads connection IDs"), "{error}");
    });
}
