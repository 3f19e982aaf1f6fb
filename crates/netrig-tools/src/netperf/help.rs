//! What `-h` prints.

pub const NETPERF: &str = "\
Usage: netperf [global options] -- [test options]

Global options:
    -4, -6            Control connection over IPv4, IPv6
    -a, -A send,recv  Alignment of the local, the remote buffers (8)
    -b, -w lcl,rem    Sends in a burst, time from one to the next (10ms, 500us)
    -B text           A word beside brief output
    -c, -C            Measure CPU time here, at the server
    -D time[,units]   Interim results each so many seconds
    -f g|m|k|b|G|M|K|B|x|u  Unit of throughput
    -F file           Fill buffers from a file
    -h, -V            This text, the version
    -H host[,family]  The machine of netserver (localhost)
    -i max,min        Iterations of the confidence loop (10,3)
    -I level[,width]  Confidence level, 95 or 99, and whole width in percent (5)
    -j                Latencies, for the selectors that have them
    -l time           Seconds (10); below 0 bytes or transactions
    -L host[,family]  The local address
    -N                No control connection: the services echo, discard, chargen
    -o, -O send,recv  Offset of the local, the remote buffers (0)
    -p port[,local]   Port of netserver (12865)
    -P 0|1            Without, with banner and titles
    -r                Confidence of the throughput alone
    -s seconds        Wait before the load
    -S                SO_KEEPALIVE
    --store-run[=label]  Keep the test as a run of netrig's
    -t test           TCP_STREAM, TCP_MAERTS, TCP_SENDFILE, TCP_RR, TCP_CRR,
                      TCP_CC, UDP_STREAM, UDP_RR, SCTP_STREAM, SCTP_RR, OMNI,
                      UUID
    -T lcl,rem        CPU to run on
    -v level          0: one number, 1, 2: more
    -W send,recv      How many buffers take turns
    -y, -Y lcl,rem    SO_PRIORITY, type of service (CS5, EF, 0xb8)
    -Z phrase         Passphrase of netserver

One value without a comma is for both, of -D, -F, -H, -L, -p the first.
-- -h lists the options of a test.

Examples:
    netrig netperf -H 10.0.1.4 -t TCP_RR -c -C -- -r 100,1000
";

pub const TEST: &str = "\
Usage: netperf [global options] -- [test options]

Test options:
    -4, -6            Data connection over IPv4, IPv6
    -a, -F            TCP_DEFER_ACCEPT, TCP Fast Open
    -b number         Requests on their way beside the one waited for (RR)
    -c                A connection for each transaction
    -C, -D            TCP_CORK, TCP_NODELAY
    -d direction      xmit, recv, rr (of test OMNI)
    -e seconds        Requests without response for so long are lost (UDP_RR)
    -f                Packets are not cut on their way
    -G bytes          TCP_MAXSEG
    -H, -L host[,family]  Remote, local address of the data
    -k, -o, -O [list] Output by selectors: a line each, CSV, columns. The list has
                      names, or is a file with them, `all`, or `?`, which names them
    -K lcl,rem        Congestion control
    -m lcl,rem        Bytes of a send
    -M rem,lcl        Bytes of a receive
    -n, -N            Connected datagram sockets here, at the server
    -p min[,max]      Ports that connections come from (TCP_CRR)
    -P lcl,rem        Ports of the data
    -q rate           Pacing, bytes per second
    -r request,response  Bytes
    -R 0|1            Data may be routed (1; 0 of UDP_STREAM)
    -s, -S send,recv  Socket buffers here, at the server
    -t, -T type       stream, dgram; tcp, udp, sctp, udplite
    -u uuid           Of the selector UUID
    -U                Go on where a connection does not come up
    -W number         Buffers that take turns
";

pub const NETSERVER: &str = "
Usage: netserver [options]

Options:
    -4, -6            Listen on IPv4, IPv6 alone
    -d, -v level      Say what comes and goes
    -D                Stay in the foreground
    -f                One client after the other
    -h                This text
    -L host[,family]  The address to listen on
    -p port           The port (12865)
    -V                The version
    -Z passphrase     Serve only who says it first
";
