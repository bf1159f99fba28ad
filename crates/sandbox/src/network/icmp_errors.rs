//! Parses ICMP errors about undeliverable datagrams (RFC 792, RFC 4443: destination unreachable, port): they quote
//! the datagram, and so its destination. Programs inside cannot forge such a message.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const UDP: u8 = 17;
const DNS: u16 = 53;

/// The destination of the datagram that an ICMP message quotes; `None` when the message is about something else, or
/// about a DNS reply that came too late.
#[must_use]
pub fn unreachable_destination(message: &[u8]) -> Option<SocketAddr> {
    // IPv4 messages include the IP header, IPv6 ones do not, and none of those begins with a four.
    match message.first()? >> 4 {
        4 => {
            let quoted = message
                .get(header_length_v4(message)?..)
                .and_then(|message| quoted_packet(message, [3, 3]))?;
            let (address, rest) = (quoted.get(16..20)?, quoted.get(header_length_v4(quoted)?..)?);
            let address: [u8; 4] = address.try_into().ok()?;
            udp_destination(*quoted.get(9)?, Ipv4Addr::from(address).into(), rest)
        }
        _ => {
            let quoted = quoted_packet(message, [1, 4])?;
            let address: [u8; 16] = quoted.get(24..40)?.try_into().ok()?;
            udp_destination(*quoted.get(6)?, Ipv6Addr::from(address).to_canonical(), quoted.get(40..)?)
        }
    }
}

fn header_length_v4(packet: &[u8]) -> Option<usize> {
    Some(usize::from(packet.first()? & 0xf) * 4)
}

/// The packet quoted by a message of this type and code.
fn quoted_packet(message: &[u8], kind: [u8; 2]) -> Option<&[u8]> {
    message.starts_with(&kind).then(|| message.get(8..)).flatten()
}

fn udp_destination(protocol: u8, address: IpAddr, datagram: &[u8]) -> Option<SocketAddr> {
    let port = |at: usize| Some(u16::from_be_bytes(datagram.get(at..at + 2)?.try_into().ok()?));
    let (from, to) = (port(0)?, port(2)?);
    (protocol == UDP && from != DNS).then(|| SocketAddr::new(address, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four(kind: [u8; 2], protocol: u8, from: u16) -> Vec<u8> {
        let mut message = vec![0x45; 20];
        message.extend([kind[0], kind[1], 0, 0, 0, 0, 0, 0]);
        // With an option in the quoted header.
        let mut quoted = vec![0; 24];
        quoted[0] = 0x46;
        quoted[9] = protocol;
        quoted[16..20].copy_from_slice(&[93, 184, 216, 34]);
        message.extend(quoted);
        message.extend(from.to_be_bytes());
        message.extend(443_u16.to_be_bytes());
        message
    }

    // P9
    #[test]
    fn destination_is_read_from_the_quoted_datagram() {
        assert_eq!(
            unreachable_destination(&four([3, 3], 17, 40_000)),
            Some("93.184.216.34:443".parse().unwrap())
        );
        let mut six = vec![1, 4, 0, 0, 0, 0, 0, 0, 0x60];
        six.resize(48, 0);
        six[14] = 17;
        six[32..48].copy_from_slice(&"2606:4700::1".parse::<Ipv6Addr>().unwrap().octets());
        six.extend([0x9c, 0x40, 1, 0xbb, 0, 0, 0, 0]);
        assert_eq!(unreachable_destination(&six), Some("[2606:4700::1]:443".parse().unwrap()));
        for (message, length) in [(four([3, 3], 17, 40_000), 56), (six, 52)] {
            assert_eq!(message.len(), length.max(message.len()));
            for end in 0..length {
                // Truncated before the port: `None`, and no panic.
                assert!(unreachable_destination(&message[..end]).is_none() || end >= length - 4, "{end}");
            }
        }
    }

    #[test]
    fn other_messages_are_ignored() {
        // Another reason, another protocol, a DNS reply after the timeout.
        for other in [
            four([3, 1], 17, 40_000),
            four([8, 0], 17, 40_000),
            four([3, 3], 6, 40_000),
            four([3, 3], 17, 53),
        ] {
            assert_eq!(unreachable_destination(&other), None, "{other:?}");
        }
    }
}
