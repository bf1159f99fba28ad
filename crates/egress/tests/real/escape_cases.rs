//! The network escape suite, a table. Each case gives what the program receives, which event must appear, and whether anything
//! may reach the internet or its name server. `real table` prints it.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Once;

use libtest_mimic::{Failed, Trial};
use vambrace_egress::{GateConfig, TrafficCaps};

use super::harness::{ProbeRun, harness, line, setting};

/// What may leave the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// Not even a DNS question.
    Nothing,
    /// A DNS question for an allowed name, and no connection.
    Names,
    /// A connection.
    Connection,
}
use Leaves::{Connection, Names, Nothing};

/// Name, rules, the probe's arguments, its expected output, the event, what leaves.
type Case =
    (&'static str, &'static [&'static str], &'static [&'static str], &'static str, &'static str, Leaves);

const GET: &str = "GET / HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n";
const GOOD: &[&str] = &["good.example"];
const OPEN: &[&str] = &["allow"];
const NET: &[&str] = &["93.184.216.32/29"];
const SERVED: &str = "served good.example";
const NO: &str = "ERROR PermissionDenied";

/// P3: by name.
const BY_NAME: &[Case] = &[
    (
        "listed host",
        GOOD,
        &["tcp", "good.example", "80", GET],
        SERVED,
        "connect good.example 80 allowed",
        Connection,
    ),
    (
        "other host",
        GOOD,
        &["tcp", "evil.example", "80", GET],
        "no such name",
        "dns evil.example denied host_not_allowed",
        Nothing,
    ),
    (
        "secret in a name",
        GOOD,
        &["tcp", "c2VjcmV0.evil.example", "80", ""],
        "no such name",
        "dns c2vjcmv0.evil.example denied host_not_allowed",
        Nothing,
    ),
    (
        "name below a listed host",
        GOOD,
        &["tcp", "www.good.example", "80", ""],
        "no such name",
        "dns www.good.example denied host_not_allowed",
        Nothing,
    ),
    (
        "listed host as prefix",
        GOOD,
        &["tcp", "good.example.evil.example", "80", ""],
        "no such name",
        "dns good.example.evil.example denied host_not_allowed",
        Nothing,
    ),
    (
        "upper case",
        GOOD,
        &["tcp", "GOOD.Example", "80", GET],
        SERVED,
        "connect good.example 80 allowed",
        Connection,
    ),
    (
        "wildcard, deep below",
        &["*.good.example"],
        &["tcp", "a.b.c.good.example", "22", ""],
        NO,
        "connect a.b.c.good.example 22 denied port_not_allowed",
        Nothing,
    ),
    (
        "wildcard, deep below, port",
        &["*.good.example:22"],
        &["tcp", "a.b.c.good.example", "22", ""],
        "SSH-2.0-test",
        "connect a.b.c.good.example 22 allowed",
        Connection,
    ),
    (
        "wildcard, not itself",
        &["*.good.example"],
        &["tcp", "good.example", "80", GET],
        "no such name",
        "dns good.example denied host_not_allowed",
        Nothing,
    ),
    (
        "deny rule",
        &["allow", "!evil.example"],
        &["tcp", "evil.example", "80", ""],
        "no such name",
        "dns evil.example denied refused_by_rule",
        Nothing,
    ),
    (
        "international name",
        &["bücher.example:22"],
        &["tcp", "xn--bcher-kva.example", "22", ""],
        "SSH-2.0-test",
        "connect xn--bcher-kva.example 22 allowed",
        Connection,
    ),
    (
        "other port of a listed host",
        GOOD,
        &["tcp", "good.example", "22", ""],
        NO,
        "connect good.example 22 denied port_not_allowed",
        Nothing,
    ),
    (
        "the proxy's port number elsewhere",
        GOOD,
        &["tcp", "good.example", "3128", GET],
        NO,
        "connect good.example 3128 denied port_not_allowed",
        Nothing,
    ),
    (
        "over IPv6 alone",
        &["six.example:22"],
        &["tcp", "six.example", "22", ""],
        "SSH-2.0-test",
        "connect six.example 22 allowed",
        Connection,
    ),
    (
        "numeric spelling",
        OPEN,
        &["tcp", "0x7f.1", "8080", ""],
        "no such name",
        "dns 0x7f.1 denied bad_name",
        Nothing,
    ),
    (
        "name without address",
        &["silent.example"],
        &["tcp", "silent.example", "80", ""],
        "ERROR ConnectionReset",
        "connect silent.example 80 failed not_found",
        Names,
    ),
    (
        "public resolver",
        GOOD,
        &["dns", "8.8.8.8", "good.example"],
        "GOT 198.18.",
        "dns good.example allowed",
        Nothing,
    ),
    (
        "resolver over IPv6",
        GOOD,
        &["dns", "2001:4860:4860::8888", "good.example"],
        "GOT fd76:",
        "dns good.example allowed",
        Nothing,
    ),
    (
        "resolver over TCP",
        GOOD,
        &["dns-tcp", "9.9.9.9", "good.example"],
        "GOT 198.18.",
        "dns good.example allowed",
        Nothing,
    ),
    (
        "denied name over TCP",
        GOOD,
        &["dns-tcp", "9.9.9.9", "evil.example"],
        "no such name",
        "dns evil.example denied host_not_allowed",
        Nothing,
    ),
    (
        "two questions at once",
        OPEN,
        &["tcp", "9.9.9.9", "53", "\\0\\x0c\\x12\\x34\\x01\\0\\0\\x02\\0\\0\\0\\0\\0\\0"],
        "GOT ",
        "dns ? denied not_understood",
        Nothing,
    ),
    (
        "a name in the machine's hosts file",
        &["pinned.example"],
        &["library", "pinned.example", "80", "GET / HTTP/1.1\\r\\nHost: pinned.example\\r\\n\\r\\n"],
        "served pinned.example",
        "connect pinned.example 80 allowed",
        Connection,
    ),
    (
        "another name in the machine's hosts file",
        GOOD,
        &["library", "evil.example", "80", ""],
        "ERROR",
        "dns evil.example denied host_not_allowed",
        Nothing,
    ),
    ("localhost", GOOD, &["library", "localhost", "8080", ""], "ERROR ConnectionRefused", "local ", Nothing),
    (
        "a relay in the sandbox",
        GOOD,
        &["relayed", "evil.example", "80", GET],
        "no such name",
        "dns evil.example denied host_not_allowed",
        Nothing,
    ),
    (
        "a relay in the sandbox, listed host",
        GOOD,
        &["relayed", "good.example", "80", GET],
        SERVED,
        "connect good.example 80 allowed",
        Connection,
    ),
    (
        "DNS over TLS",
        GOOD,
        &["tcp", "9.9.9.9", "853", ""],
        NO,
        "connect 9.9.9.9 853 denied address_not_allowed",
        Nothing,
    ),
    (
        "DNS over TLS at a listed host",
        GOOD,
        &["tcp", "good.example", "853", ""],
        NO,
        "connect good.example 853 denied port_not_allowed",
        Nothing,
    ),
    (
        "DNS over HTTPS by name",
        GOOD,
        &["tcp", "dns.example", "443", ""],
        "no such name",
        "dns dns.example denied host_not_allowed",
        Nothing,
    ),
    (
        "DNS over HTTPS by address",
        GOOD,
        &["tls", "8.8.8.8", "dns.example"],
        NO,
        "connect 8.8.8.8 443 denied address_not_allowed",
        Nothing,
    ),
    (
        "server sends first",
        &["good.example:22"],
        &["tcp", "good.example", "22", ""],
        "SSH-2.0-test",
        "connect good.example 22 allowed",
        Connection,
    ),
    (
        "binary protocol",
        DATABASE,
        &["tcp", "good.example", "5432", ENCRYPTED],
        "GOT N",
        "connect good.example 5432 allowed",
        Connection,
    ),
];

/// P2, P9: no rules at all, as with `loopback` and an observed `deny`.
const NO_LIST: &[Case] = &[
    (
        "a secret in a name",
        &[],
        &["tcp", "c2VjcmV0.evil.example", "80", ""],
        "no such name",
        "dns c2vjcmv0.evil.example denied host_not_allowed",
        Nothing,
    ),
    (
        "an address",
        &[],
        &["tcp", "93.184.216.34", "443", ""],
        NO,
        "connect 93.184.216.34 443 denied address_not_allowed",
        Nothing,
    ),
    (
        "the proxy",
        &[],
        &["socks", "good.example", "443", ""],
        "socks says 2",
        "socks good.example 443 denied host_not_allowed",
        Nothing,
    ),
    (
        "datagrams",
        &[],
        &["udp", "93.184.216.34", "443"],
        "ERROR ConnectionRefused",
        "udp 93.184.216.34 443 denied datagram",
        Nothing,
    ),
    ("a server in the sandbox", &[], &["own"], "GOT myself", "local 127.0.0.1 8080 allowed", Nothing),
];

/// P2, P3: by address.
const BY_ADDRESS: &[Case] = &[
    (
        "address of a listed host",
        GOOD,
        &["tcp", "93.184.216.34", "80", GET],
        NO,
        "connect 93.184.216.34 80 denied address_not_allowed",
        Nothing,
    ),
    (
        "network, first address",
        NET,
        &["tcp", "93.184.216.32", "80", GET],
        SERVED,
        "connect 93.184.216.32 80 allowed",
        Connection,
    ),
    (
        "network, last address, any port",
        NET,
        &["tcp", "93.184.216.39", "22", ""],
        "SSH-2.0-test",
        "connect 93.184.216.39 22 allowed",
        Connection,
    ),
    (
        "network, before the first",
        NET,
        &["tcp", "93.184.216.31", "80", GET],
        NO,
        "connect 93.184.216.31 80 denied address_not_allowed",
        Nothing,
    ),
    (
        "network, after the last",
        NET,
        &["tcp", "93.184.216.40", "80", GET],
        NO,
        "connect 93.184.216.40 80 denied address_not_allowed",
        Nothing,
    ),
    (
        "network with a port, another one",
        &["93.184.216.32/29:80"],
        &["tcp", "93.184.216.34", "22", ""],
        NO,
        "connect 93.184.216.34 22 denied port_not_allowed",
        Nothing,
    ),
    (
        "IPv6 address of a listed host",
        GOOD,
        &["tcp", "2606:4700::1", "80", GET],
        NO,
        "connect 2606:4700::1 80 denied address_not_allowed",
        Nothing,
    ),
    (
        "IPv6 network",
        &["2606:4700::/32"],
        &["tcp", "2606:4700::1", "80", GET],
        SERVED,
        "connect 2606:4700::1 80 allowed",
        Connection,
    ),
    (
        "IPv4-mapped IPv6 address, not listed",
        GOOD,
        &["tcp", "::ffff:93.184.216.35", "80", GET],
        NO,
        "connect 93.184.216.35 80 denied address_not_allowed",
        Nothing,
    ),
    (
        "IPv4-mapped IPv6 address, listed",
        NET,
        &["tcp", "::ffff:93.184.216.35", "80", GET],
        SERVED,
        "connect 93.184.216.35 80 allowed",
        Connection,
    ),
    (
        "private address",
        GOOD,
        &["tcp", "10.9.8.7", "80", GET],
        NO,
        "connect 10.9.8.7 80 denied special_address",
        Nothing,
    ),
    (
        "private address, everything as network",
        &["0.0.0.0/0"],
        &["tcp", "10.9.8.7", "80", GET],
        NO,
        "connect 10.9.8.7 80 denied special_address",
        Nothing,
    ),
    (
        "private address, listed",
        &["10.9.8.0/24"],
        &["tcp", "10.9.8.7", "80", GET],
        SERVED,
        "connect 10.9.8.7 80 allowed",
        Connection,
    ),
    (
        "private address, open network",
        OPEN,
        &["tcp", "10.9.8.7", "80", GET],
        SERVED,
        "connect 10.9.8.7 80 allowed",
        Connection,
    ),
    (
        "any address, open network",
        OPEN,
        &["tcp", "93.184.216.35", "22", ""],
        "SSH-2.0-test",
        "connect 93.184.216.35 22 allowed",
        Connection,
    ),
    (
        "metadata, open network",
        OPEN,
        &["tcp", "169.254.169.254", "80", GET],
        NO,
        "connect 169.254.169.254 80 denied special_address",
        Nothing,
    ),
    (
        "metadata of Alibaba, open network",
        OPEN,
        &["tcp", "100.100.100.200", "80", GET],
        NO,
        "connect 100.100.100.200 80 denied special_address",
        Nothing,
    ),
    (
        "metadata of Azure, open network",
        OPEN,
        &["tcp", "168.63.129.16", "80", GET],
        NO,
        "connect 168.63.129.16 80 denied special_address",
        Nothing,
    ),
    (
        "metadata over IPv6, open network",
        OPEN,
        &["tcp", "fd00:ec2::254", "80", GET],
        NO,
        "connect fd00:ec2::254 80 denied special_address",
        Nothing,
    ),
    (
        "metadata mapped, open network",
        OPEN,
        &["tcp", "::ffff:169.254.169.254", "80", GET],
        NO,
        "connect 169.254.169.254 80 denied special_address",
        Nothing,
    ),
    (
        "metadata by NAT64, open network",
        OPEN,
        &["tcp", "64:ff9b::a9fe:a9fe", "80", GET],
        NO,
        "connect 64:ff9b::a9fe:a9fe 80 denied special_address",
        Nothing,
    ),
    (
        "metadata by 6to4, open network",
        OPEN,
        &["tcp", "2002:a9fe:a9fe::1", "80", GET],
        NO,
        "connect 2002:a9fe:a9fe::1 80 denied special_address",
        Nothing,
    ),
    (
        "metadata, its whole network listed",
        &["169.254.0.0/16"],
        &["tcp", "169.254.169.254", "80", GET],
        NO,
        "connect 169.254.169.254 80 denied special_address",
        Nothing,
    ),
    (
        "metadata, listed by itself",
        &["169.254.169.254"],
        &["tcp", "169.254.169.254", "80", GET],
        SERVED,
        "connect 169.254.169.254 80 allowed",
        Connection,
    ),
    (
        "link-local with a zone",
        OPEN,
        &["tcp", "fe80::1%1", "80", GET],
        NO,
        "connect fe80::1 80 denied special_address",
        Nothing,
    ),
    (
        "metadata with a zone",
        OPEN,
        &["tcp", "fe80::a9fe:a9fe%1", "80", GET],
        NO,
        "connect fe80::a9fe:a9fe 80 denied special_address",
        Nothing,
    ),
    (
        "loopback is the sandbox's own",
        OPEN,
        &["tcp", "127.0.0.1", "8080", ""],
        "ERROR ConnectionRefused",
        "local 127.0.0.1 8080 allowed",
        Nothing,
    ),
    (
        "loopback over IPv6",
        OPEN,
        &["tcp", "::1", "8080", ""],
        "ERROR ConnectionRefused",
        "local ::1 8080 allowed",
        Nothing,
    ),
    (
        "unspecified address",
        OPEN,
        &["tcp", "0.0.0.0", "8080", ""],
        "ERROR ConnectionRefused",
        "local 0.0.0.0 8080 allowed",
        Nothing,
    ),
    (
        "the machine's loopback, listed",
        &["127.0.0.1:8080"],
        &["tcp", "127.0.0.1", "8080", ""],
        "GOT the machine",
        "connect 127.0.0.1 8080 allowed",
        Nothing,
    ),
    (
        "the machine's own address",
        OPEN,
        &["tcp", "2606:4700:ffff::1", "8080", ""],
        "ERROR",
        "connect 2606:4700:ffff::1 8080 denied this_machine",
        Nothing,
    ),
    ("a server in the sandbox", GOOD, &["own"], "GOT myself", "local 127.0.0.1", Nothing),
    (
        "a synthetic address that was never assigned",
        GOOD,
        &["tcp", "198.18.77.77", "80", GET],
        NO,
        "connect 198.18.77.77 80 denied unknown_address",
        Nothing,
    ),
    (
        "QUIC",
        GOOD,
        &["udp", "good.example", "443"],
        "ERROR ConnectionRefused",
        "udp good.example 443 denied datagram",
        Nothing,
    ),
    (
        "QUIC without connecting",
        GOOD,
        &["udp-to", "good.example", "443"],
        "UNHEARD",
        "udp good.example 443 denied datagram",
        Nothing,
    ),
    (
        "IPv6 datagrams without connecting",
        OPEN,
        &["udp-to", "2606:4700::1111", "443"],
        "UNHEARD",
        "udp 2606:4700::1111 443 denied datagram",
        Nothing,
    ),
    (
        "datagrams",
        OPEN,
        &["udp", "93.184.216.34", "123"],
        "ERROR ConnectionRefused",
        "udp 93.184.216.34 123 denied datagram",
        Nothing,
    ),
];

/// P3: names that resolve to internal addresses.
const REBINDING: &[Case] = &[
    (
        "to a private address",
        &["private.example"],
        &["tcp", "private.example", "80", GET],
        "ERROR ConnectionReset",
        "connect private.example 80 denied special_address",
        Names,
    ),
    (
        "to a private address, listed",
        &["private.example:22", "10.9.8.0/24"],
        &["tcp", "private.example", "22", ""],
        "SSH-2.0-test",
        "connect private.example 22 allowed",
        Connection,
    ),
    (
        "by an alias to a private name",
        &["cname.example"],
        &["tcp", "cname.example", "80", GET],
        "ERROR ConnectionReset",
        "connect cname.example 80 denied special_address",
        Names,
    ),
    (
        "by an alias to a private name, open network, listed",
        &["allow", "10.9.8.7"],
        &["tcp", "cname.example", "22", ""],
        "SSH-2.0-test",
        "connect cname.example 22 allowed",
        Connection,
    ),
    (
        "by an alias to another host",
        &["alias.example:22"],
        &["tcp", "alias.example", "22", ""],
        "SSH-2.0-test",
        "connect alias.example 22 allowed",
        Connection,
    ),
    (
        "to metadata",
        &["metadata.example"],
        &["tcp", "metadata.example", "80", GET],
        "ERROR ConnectionReset",
        "connect metadata.example 80 denied special_address",
        Names,
    ),
    (
        "to metadata, open network",
        OPEN,
        &["tcp", "metadata.example", "80", GET],
        "ERROR ConnectionReset",
        "connect metadata.example 80 denied special_address",
        Names,
    ),
    (
        "to metadata over IPv6",
        OPEN,
        &["tcp", "metadata6.example", "80", GET],
        "ERROR ConnectionReset",
        "connect metadata6.example 80 denied special_address",
        Names,
    ),
    (
        "to metadata by NAT64",
        OPEN,
        &["tcp", "nat64.example", "80", GET],
        "ERROR ConnectionReset",
        "connect nat64.example 80 denied special_address",
        Names,
    ),
    (
        "to the machine's loopback",
        OPEN,
        &["tcp", "loopback.example", "8080", ""],
        "ERROR ConnectionReset",
        "connect loopback.example 8080 denied special_address",
        Names,
    ),
    (
        "to the machine",
        OPEN,
        &["tcp", "machine.example", "8080", ""],
        "ERROR ConnectionReset",
        "connect machine.example 8080 denied",
        Names,
    ),
    (
        "one private, one not",
        &["mixed.example:22"],
        &["tcp", "mixed.example", "22", ""],
        "SSH-2.0-test",
        "connect mixed.example 22 allowed",
        Connection,
    ),
    (
        "public address at first",
        &["rebind.example:*"],
        &["tcp", "rebind.example", "22", ""],
        "SSH-2.0-test",
        "connect rebind.example 22 allowed",
        Connection,
    ),
    (
        "loopback from then on",
        &["rebind.example:*"],
        &["tcp", "rebind.example", "8080", ""],
        "ERROR ConnectionReset",
        "connect rebind.example 8080 denied special_address",
        Names,
    ),
];

const REFUSED: &[&str] = &["allow", "!evil.example", "!*.worse.example", "93.184.216.34"];
const DATABASE: &[&str] = &["good.example:5432"];
const ENCRYPTED: &str = "\\0\\0\\0\\x08\\x04\\xd2\\x16\\x2f";
const MISMATCH: &str = "connect good.example 80 denied name_mismatch";
const UNCLEAR: &str = "connect good.example 80 denied not_understood";

/// P3: the names inside a connection.
const INSIDE: &[Case] = &[
    (
        "SNI agrees",
        GOOD,
        &["tls", "good.example", "good.example"],
        "GOT ",
        "connect good.example 443 allowed",
        Connection,
    ),
    (
        "SNI of another host",
        GOOD,
        &["tls", "good.example", "evil.example"],
        "ERROR",
        "connect good.example 443 denied name_mismatch",
        Connection,
    ),
    (
        "SNI below the host",
        GOOD,
        &["tls", "good.example", "www.good.example"],
        "ERROR",
        "connect good.example 443 denied name_mismatch",
        Connection,
    ),
    (
        "no SNI, by synthetic address",
        GOOD,
        &["tls-nameless", "good.example"],
        "GOT ",
        "connect good.example 443 allowed",
        Connection,
    ),
    (
        "no SNI, by address",
        GOOD,
        &["tls-nameless", "93.184.216.34"],
        NO,
        "connect 93.184.216.34 443 denied address_not_allowed",
        Nothing,
    ),
    (
        "an encrypted ClientHello with the host's name outside",
        GOOD,
        &["tls-encrypted", "good.example", "good.example"],
        "GOT ",
        "connect good.example 443 allowed",
        Connection,
    ),
    (
        "an encrypted ClientHello with another name outside",
        GOOD,
        &["tls-encrypted", "good.example", "cloud.example"],
        "ERROR",
        "connect good.example 443 denied name_mismatch",
        Connection,
    ),
    (
        "an encrypted ClientHello, by address",
        GOOD,
        &["tls-encrypted", "93.184.216.34", "good.example"],
        NO,
        "connect 93.184.216.34 443 denied address_not_allowed",
        Nothing,
    ),
    (
        "SNI with a NUL",
        GOOD,
        &["tls", "good.example", "good.example\\0.evil.example"],
        "ERROR",
        "connect good.example 443 denied bad_name",
        Connection,
    ),
    (
        "Host of another host",
        GOOD,
        &["tcp", "good.example", "80", "GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        MISMATCH,
        Connection,
    ),
    (
        "Host of another host behind a space",
        GOOD,
        &["tcp", "good.example", "80", " GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "Host of another host before a space",
        GOOD,
        &["tcp", "good.example", "80", "PROPFIND / HTTP/1.1 \\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "Host of another host with an odd method",
        GOOD,
        &["tcp", "good.example", "80", "-GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        MISMATCH,
        Connection,
    ),
    (
        "SNI after PostgreSQL's SSLRequest",
        DATABASE,
        &["tls-after", ENCRYPTED, "good.example", "5432", "good.example"],
        "GOT E",
        "connect good.example 5432 allowed",
        Connection,
    ),
    (
        "SNI of another host after PostgreSQL's SSLRequest",
        DATABASE,
        &["tls-after", ENCRYPTED, "good.example", "5432", "evil.example"],
        "ERROR",
        "connect good.example 5432 denied name_mismatch",
        Connection,
    ),
    (
        "Host after a PROXY protocol line",
        GOOD,
        &[
            "ask",
            "good.example",
            "80",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 80\\r\\nGET / HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n",
        ],
        SERVED,
        "connect good.example 80 allowed",
        Connection,
    ),
    (
        "Host of another host after a PROXY protocol line",
        GOOD,
        &[
            "ask",
            "good.example",
            "80",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 80\\r\\nGET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n",
        ],
        "403 Forbidden",
        MISMATCH,
        Connection,
    ),
    (
        "Host of another host, behind a quote",
        GOOD,
        &["ask", "good.example", "80", "\"GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "Host of another host, behind a bracket",
        GOOD,
        &["ask", "good.example", "80", "(GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "Host of another host, behind DEL",
        GOOD,
        &["ask", "good.example", "80", "\\x7fGET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "Host of another host, behind a byte order mark",
        GOOD,
        &["ask", "good.example", "80", "\\xef\\xbb\\xbfGET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "Host of another host, with an odd target",
        GOOD,
        &["ask", "good.example", "80", "PROPFIND /\\x01 HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "Host of another host, with a NUL in its target",
        GOOD,
        &["ask", "good.example", "80", "BREW /\\0 HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "SNI of a denied host at an address",
        REFUSED,
        &["tls", "93.184.216.34", "EVIL.example."],
        "ERROR",
        "connect 93.184.216.34 443 denied refused_by_rule",
        Connection,
    ),
    (
        "SNI of another host at an address",
        REFUSED,
        &["tls", "93.184.216.34", "good.example"],
        "GOT ",
        "connect 93.184.216.34 443 allowed",
        Connection,
    ),
    (
        "Host of a denied host at an address",
        REFUSED,
        &["ask", "93.184.216.34", "80", "GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        "connect 93.184.216.34 80 denied refused_by_rule",
        Connection,
    ),
    (
        "Host of a host below a denied one at an address, second request",
        REFUSED,
        &[
            "ask",
            "93.184.216.34",
            "80",
            "GET / HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: a.worse.example\\r\\n\\r\\n",
        ],
        "",
        "connect 93.184.216.34 80 denied refused_by_rule",
        Connection,
    ),
    (
        "Host of another host at an address",
        REFUSED,
        &["ask", "93.184.216.34", "80", GET],
        SERVED,
        "connect 93.184.216.34 80 allowed",
        Connection,
    ),
    (
        "address of a denied host",
        REFUSED,
        &["tcp", "93.184.216.35", "80", GET],
        "ERROR ConnectionReset",
        "connect 93.184.216.35 80 denied refused_by_rule",
        Names,
    ),
    (
        "two Hosts",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "GET / HTTP/1.1\\r\\nHost: good.example\\r\\nHost: evil.example\\r\\n\\r\\n",
        ],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "absolute URL of another host",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "GET http://evil.example/ HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n",
        ],
        "403 Forbidden",
        MISMATCH,
        Connection,
    ),
    (
        "CONNECT to a server",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "CONNECT evil.example:443 HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n",
        ],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "two lengths",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "POST / HTTP/1.1\\r\\nHost: good.example\\r\\nContent-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
        ],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "HTTP/2 without TLS",
        GOOD,
        &["tcp", "good.example", "80", "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n"],
        "ERROR",
        UNCLEAR,
        Connection,
    ),
    (
        "upgrade to HTTP/2",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "GET / HTTP/1.1\\r\\nHost: good.example\\r\\nUpgrade: h2c\\r\\n\\r\\n",
        ],
        "403 Forbidden",
        UNCLEAR,
        Connection,
    ),
    (
        "second request for another host",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "GET / HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n",
        ],
        "",
        MISMATCH,
        Connection,
    ),
    (
        "request hidden in a body",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "POST / HTTP/1.1\\r\\nHost: good.example\\r\\nContent-Length: 4\\r\\n\\r\\nabcdGET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n",
        ],
        "",
        MISMATCH,
        Connection,
    ),
    (
        "upgrade, accepted",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "GET /upgrade HTTP/1.1\\r\\nHost: good.example\\r\\nUpgrade: echo\\r\\n\\r\\nping",
        ],
        "||ping",
        "connect good.example 80 allowed",
        Connection,
    ),
    (
        "upgrade, not accepted",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "GET / HTTP/1.1\\r\\nHost: good.example\\r\\nUpgrade: echo\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n",
        ],
        "",
        MISMATCH,
        Connection,
    ),
    (
        "chunks",
        GOOD,
        &[
            "tcp",
            "good.example",
            "80",
            "POST / HTTP/1.1\\r\\nHost: good.example\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n",
        ],
        SERVED,
        "connect good.example 80 allowed",
        Connection,
    ),
];

/// The explicit proxy.
const PROXY: &[Case] = &[
    (
        "CONNECT",
        GOOD,
        &[
            "proxy",
            "CONNECT good.example:80 HTTP/1.1\\r\\nHost: good.example:80\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n",
        ],
        SERVED,
        "http_proxy good.example 80 allowed",
        Connection,
    ),
    (
        "CONNECT to another host",
        GOOD,
        &["proxy", "CONNECT evil.example:443 HTTP/1.1\\r\\nHost: evil.example:443\\r\\n\\r\\n"],
        "403 Forbidden",
        "http_proxy evil.example 443 denied host_not_allowed",
        Nothing,
    ),
    (
        "CONNECT to another port",
        GOOD,
        &["proxy", "CONNECT good.example:22 HTTP/1.1\\r\\nHost: good.example:22\\r\\n\\r\\n"],
        "403 Forbidden",
        "http_proxy good.example 22 denied port_not_allowed",
        Nothing,
    ),
    (
        "CONNECT to loopback",
        OPEN,
        &["proxy", "CONNECT 127.0.0.1:8080 HTTP/1.1\\r\\nHost: 127.0.0.1:8080\\r\\n\\r\\n"],
        "403 Forbidden",
        "http_proxy 127.0.0.1 8080 denied special_address",
        Nothing,
    ),
    (
        "CONNECT to metadata",
        OPEN,
        &["proxy", "CONNECT 169.254.169.254:80 HTTP/1.1\\r\\nHost: 169.254.169.254:80\\r\\n\\r\\n"],
        "403 Forbidden",
        "http_proxy 169.254.169.254 80 denied special_address",
        Nothing,
    ),
    (
        "CONNECT to metadata inside IPv6",
        OPEN,
        &[
            "proxy",
            "CONNECT [::ffff:169.254.169.254]:80 HTTP/1.1\\r\\nHost: [::ffff:169.254.169.254]:80\\r\\n\\r\\n",
        ],
        "403 Forbidden",
        "http_proxy 169.254.169.254 80 denied special_address",
        Nothing,
    ),
    (
        "CONNECT with another Host",
        OPEN,
        &["proxy", "CONNECT 93.184.216.34:80 HTTP/1.1\\r\\nHost: x.example\\r\\n\\r\\n"],
        "403 Forbidden",
        "http_proxy 93.184.216.34 80 denied name_mismatch",
        Nothing,
    ),
    (
        "CONNECT with a zone",
        OPEN,
        &["proxy", "CONNECT [fe80::1%25lo]:80 HTTP/1.1\\r\\nHost: [fe80::1%25lo]:80\\r\\n\\r\\n"],
        "403 Forbidden",
        "http_proxy CONNECT [fe80::1%25lo]:80 HTTP/1.1 denied bad_name",
        Nothing,
    ),
    (
        "SOCKS with a zone",
        OPEN,
        &["socks", "fe80::1%lo", "80", GET],
        "socks says 2",
        "socks fe80::1%lo 80 denied bad_name",
        Nothing,
    ),
    (
        "CONNECT, then another host inside",
        GOOD,
        &[
            "proxy",
            "CONNECT good.example:80 HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\nGET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n",
        ],
        "",
        "http_proxy good.example 80 denied name_mismatch",
        Connection,
    ),
    (
        "plain request",
        GOOD,
        &["proxy", "GET http://good.example/ HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n"],
        SERVED,
        "http_proxy good.example 80 allowed",
        Connection,
    ),
    (
        "plain request to another host",
        GOOD,
        &["proxy", "GET http://evil.example/ HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        "http_proxy evil.example 80 denied host_not_allowed",
        Nothing,
    ),
    (
        "plain request, other Host",
        GOOD,
        &["proxy", "GET http://good.example/ HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "403 Forbidden",
        "http_proxy good.example 80 denied name_mismatch",
        Nothing,
    ),
    (
        "plain request, rebinding",
        &["private.example"],
        &["proxy", "GET http://private.example/ HTTP/1.1\\r\\nHost: private.example\\r\\n\\r\\n"],
        "403 Forbidden",
        "http_proxy private.example 80 denied special_address",
        Names,
    ),
    (
        "SOCKS",
        GOOD,
        &["socks", "good.example", "80", GET],
        SERVED,
        "socks good.example 80 allowed",
        Connection,
    ),
    (
        "SOCKS to another host",
        GOOD,
        &["socks", "evil.example", "80", GET],
        "socks says 2",
        "socks evil.example 80 denied host_not_allowed",
        Nothing,
    ),
    (
        "SOCKS with a NUL",
        GOOD,
        &["socks", "evil.example\\0.good.example", "80", GET],
        "socks says 2",
        "socks evil.example\\x00.good.example 80 denied bad_name",
        Nothing,
    ),
    (
        "SOCKS to loopback",
        OPEN,
        &["socks", "127.0.0.1", "8080", ""],
        "socks says 2",
        "socks 127.0.0.1 8080 denied special_address",
        Nothing,
    ),
    (
        "SOCKS to a number",
        OPEN,
        &["socks", "2130706433", "8080", ""],
        "socks says 2",
        "socks 2130706433 8080 denied bad_name",
        Nothing,
    ),
    (
        "SOCKS to a synthetic address",
        GOOD,
        &["socks-by-address", "good.example", "80", GET],
        SERVED,
        "socks good.example 80 allowed",
        Connection,
    ),
    (
        "CONNECT to a synthetic address, another host inside",
        GOOD,
        &["connect-by-address", "good.example", "80", "GET / HTTP/1.1\\r\\nHost: evil.example\\r\\n\\r\\n"],
        "",
        "http_proxy good.example 80 denied name_mismatch",
        Connection,
    ),
    (
        "SOCKS to a synthetic address that was never assigned",
        OPEN,
        &["socks", "198.18.7.7", "80", GET],
        "socks says 2",
        "socks 198.18.7.7 80 denied unknown_address",
        Nothing,
    ),
    (
        "SOCKS UDP ASSOCIATE",
        OPEN,
        &["proxy", "\\x05\\x01\\x00\\x05\\x03\\x00\\x01\\x01\\x02\\x03\\x04\\x00\\x50"],
        "GOT ",
        "socks 1.2.3.4 80 denied not_understood",
        Nothing,
    ),
    (
        "SOCKS with a password only",
        OPEN,
        &["proxy", "\\x05\\x01\\x02"],
        "GOT ",
        "socks \\x05\\x01\\x02 denied not_understood",
        Nothing,
    ),
];

const GROUPS: &[(&str, &[Case])] = &[
    ("by_name", BY_NAME),
    ("no_rules", NO_LIST),
    ("by_address", BY_ADDRESS),
    ("rebinding", REBINDING),
    ("names_inside", INSIDE),
    ("proxy", PROXY),
];

pub(crate) fn trials() -> Vec<Trial> {
    let group = |(name, cases): &(&'static str, &'static [Case])| {
        let cases = *cases;
        Trial::test(format!("escape::{name}_every_case_has_its_verdict_and_event"), move || {
            every_case_has_its_verdict_and_event(cases)
        })
    };
    let mut trials: Vec<Trial> = GROUPS.iter().map(group).collect();
    trials.extend([
        Trial::test("caps::connections_over_the_cap_are_denied", connections_over_the_cap_are_denied),
        Trial::test("caps::slow_clients_do_not_block_others", slow_clients_do_not_block_others),
        Trial::test(
            "escape::invalid_host_names_are_denied_at_every_entry_point",
            invalid_host_names_are_denied_at_every_entry_point,
        ),
        Trial::test("caps::rate_limit_is_enforced", rate_limit_is_enforced),
        Trial::test("caps::bytes_over_the_cap_are_not_relayed", bytes_over_the_cap_are_not_relayed),
        Trial::test("caps::number_of_open_ports_is_bounded", number_of_open_ports_is_bounded),
        Trial::test("caps::one_thousand_connections_are_served", one_thousand_connections_are_served),
    ]);
    trials
}

/// Starts the machine's own server, on loopback and all its other addresses.
pub(crate) fn machine() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let listener = TcpListener::bind("[::]:8080").unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.write_all(b"the machine");
            }
        });
    });
}

// P2, P3, P9: names, addresses, rebinding, names inside a connection, the explicit proxy
fn every_case_has_its_verdict_and_event(cases: &[Case]) -> Result<(), Failed> {
    machine();
    let failed: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

fn check(case: &Case) -> Result<ProbeRun, String> {
    let (name, rules, words, hears, event, leaves) = case;
    let ran = harness().probe(rules, words);
    let lines: Vec<String> = ran.events.iter().map(line).collect();
    let refused = ran.events.iter().any(|event| event.reason.is_some());
    let error = if !ran.out.contains(hears) {
        Some(format!("the output does not contain `{hears}`"))
    } else if ran.out.contains("served evil.example") {
        Some("another host was served".to_owned())
    } else if event.is_empty() || !lines.iter().any(|line| line.starts_with(event)) {
        Some(format!("there is no event `{event}`"))
    } else if event.ends_with(" allowed") && refused {
        Some("an attempt was denied or failed".to_owned())
    } else if *leaves != Connection && !ran.reached.is_empty() {
        Some("a connection left the machine".to_owned())
    } else if *leaves == Connection && ran.reached.is_empty() {
        Some("no connection left the machine".to_owned())
    } else if *leaves == Nothing && !ran.asked.is_empty() {
        Some("a DNS question left the machine".to_owned())
    } else {
        None
    };
    match error {
        None => Ok(ran),
        Some(error) => Err(format!("{name}: {error}: {}", ran.report())),
    }
}

/// Prints every case with its result.
pub(crate) fn table() {
    machine();
    println!("| group | case | verdict | as expected |\n|---|---|---|---|");
    for (group, cases) in GROUPS {
        for case in *cases {
            let (name, _, _, _, event, _) = case;
            let expected = if check(case).is_ok() { "yes" } else { "NO" };
            let otherwise = if event.starts_with("local") { "stays inside" } else { "allowed" };
            let verdict = event.split(" denied ").nth(1).unwrap_or(otherwise);
            println!("| {group} | {name} | {verdict} | {expected} |");
        }
    }
    for program in super::programs::PROGRAMS {
        let here = if super::programs::is_here(program) {
            "checked like the others"
        } else {
            "NOT INSTALLED, not tested"
        };
        println!("| programs | {program} | {here} | |");
    }
    for (name, verdict, is_right) in super::tls_termination::table() {
        println!("| inside_tls | {name} | {verdict} | {} |", if is_right { "yes" } else { "NO" });
    }
}

fn with_caps(caps: TrafficCaps, words: &[&str]) -> ProbeRun {
    let setting = GateConfig { caps, ..setting(&["good.example:*"]) };
    let words: Vec<&str> = ["probe"].iter().chain(words).copied().collect();
    harness().run(setting, std::env::current_exe().unwrap().to_str().unwrap(), &words)
}

fn expect(ran: &ProbeRun, said: &str, event: &str) -> Result<(), Failed> {
    let found = event.is_empty() || ran.events.iter().any(|one| line(one) == event);
    if ran.out.contains(said) && found {
        Ok(())
    } else {
        Err(format!("`{said}` `{event}`: {}", ran.report()).into())
    }
}

// P3
fn connections_over_the_cap_are_denied() -> Result<(), Failed> {
    let caps = TrafficCaps { connections: 20, ..TrafficCaps::default() };
    let ran = with_caps(caps, &["many", "good.example", "80", "50"]);
    expect(&ran, "20 served", "connect good.example 80 denied cap")
}

// P3
fn slow_clients_do_not_block_others() -> Result<(), Failed> {
    let ran = with_caps(TrafficCaps::default(), &["slow", "good.example", "80", "200"]);
    expect(&ran, "served good.example", "connect good.example 80 allowed")
}

// P3
fn bytes_over_the_cap_are_not_relayed() -> Result<(), Failed> {
    let caps = TrafficCaps { bytes: 1 << 20, ..TrafficCaps::default() };
    let get = "GET /large HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n";
    let ran = with_caps(caps, &["tcp", "good.example", "80", get]);
    expect(&ran, "", "connect good.example 80 denied cap")?;
    if ran.out.len() < 2 << 20 { Ok(()) } else { Err("too much passed".into()) }
}

fn rate_limit_is_enforced() -> Result<(), Failed> {
    let caps = TrafficCaps { rate: Some(8 << 20), ..TrafficCaps::default() };
    let ran = with_caps(
        caps,
        &["ask", "good.example", "80", "GET /large HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n"],
    );
    expect(&ran, "200 OK", "connect good.example 80 allowed")?;
    let Some(event) = ran.events.iter().find(|event| event.port == 80) else {
        return Err(ran.report().into());
    };
    // 3 MiB at 8 MiB/s take 375 ms; the rest is tolerance.
    let slow = event.duration.as_millis() >= 300 && event.received > 3 << 20;
    if slow { Ok(()) } else { Err(format!("{} bytes in {:?}", event.received, event.duration).into()) }
}

/// Characters that have fooled host name comparisons, at every entry point for a name: none reaches another host, and
/// each is logged.
// P3
fn invalid_host_names_are_denied_at_every_entry_point() -> Result<(), Failed> {
    let long = format!("{}.good.example", "a".repeat(64));
    let names = [
        "evil.example\\0.good.example",
        "evil.example .good.example",
        "evil.example\\x09.good.example",
        "evil.example@good.example",
        "evil.example#.good.example",
        "evil.example\\\\.good.example",
        "evil.example/.good.example",
        "evil.example%00.good.example",
        "evil.example%2egood.example",
        "evil.example..good.example",
        "evil.example\\x0d.good.example",
        "evil.example\\xa0.good.example",
        &long,
    ];
    type Entrance = (&'static str, fn(&str) -> Vec<String>);
    let entrances: [Entrance; 6] = [
        ("dns", |name| vec!["dns".into(), "127.0.0.1".into(), name.into()]),
        ("connect", |name| vec!["tls".into(), "good.example".into(), name.into()]),
        ("connect", |name| {
            let request = format!("GET / HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n");
            vec!["ask".into(), "good.example".into(), "80".into(), request]
        }),
        ("http_proxy", |name| {
            let request = format!("GET http://{name}/ HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n");
            vec!["ask".into(), "127.0.0.1".into(), "3128".into(), request]
        }),
        ("http_proxy", |name| {
            let request = format!("CONNECT {name}:80 HTTP/1.1\\r\\nHost: {name}:80\\r\\n\\r\\n");
            vec!["ask".into(), "127.0.0.1".into(), "3128".into(), request]
        }),
        ("socks", |name| vec!["socks".into(), name.into(), "80".into(), String::new()]),
    ];
    for (at, (action, entrance)) in entrances.iter().enumerate() {
        let all = names.map(entrance).join(&"then".to_owned());
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let ran = harness().probe(&["good.example", "*.good.example"], &all);
        let refused = ran.events.iter().filter(|event| event.denied() && event.action.as_str() == *action);
        let reported: u64 = refused.map(|event| event.times).sum();
        let heard = ran.out.lines().filter(|line| !line.contains("served")).count();
        if reported != names.len() as u64 || heard != names.len() {
            return Err(format!(
                "{at} {action}: {reported} of {} denials are logged: {}",
                names.len(),
                ran.report()
            )
            .into());
        }
    }
    Ok(())
}

// P3
fn number_of_open_ports_is_bounded() -> Result<(), Failed> {
    let ran = with_caps(TrafficCaps::default(), &["ports", "good.example", "40"]);
    // One of the 32 sockets is reserved for DNS.
    expect(&ran, "9 refused", "connect good.example 10031 denied cap")
}

fn one_thousand_connections_are_served() -> Result<(), Failed> {
    let ran = with_caps(TrafficCaps::default(), &["many", "good.example", "80", "1000"]);
    expect(&ran, "1000 served, 0 not, 0 refused", "connect good.example 80 allowed")
}
