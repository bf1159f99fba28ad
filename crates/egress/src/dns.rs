//! DNS messages as far as the gate needs them: parses a query with one question and writes the response. Pure: no lookups.
//!
//! The parser accepts exactly one question of a standard query and rejects everything else. It reads every byte through
//! checked access and rejects compression pointers, because a question has none.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum size of a query in bytes.
pub(crate) const MAX_QUERY_BYTES: usize = 4096;

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const CLASS_IN: u16 = 1;
const CLASS_ANY: u16 = 255;
/// TTL of an answer: addresses are stable for the session.
const TTL_SECONDS: u32 = 300;
const HEADER_BYTES: usize = 12;

/// The question of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DnsQuestion {
    id: u16,
    recursion_desired: bool,
    /// The question section of the query, repeated in the response.
    section: Vec<u8>,
    /// The name, its labels joined by dots; not yet validated.
    pub(crate) name: Vec<u8>,
    kind: u16,
    class: u16,
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DnsAnswer {
    /// The name has these addresses.
    Addresses(Ipv4Addr, Ipv6Addr),
    /// NXDOMAIN.
    NoSuchName,
    /// SERVFAIL.
    Failure,
}

/// A query that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadQuery {
    /// Not a query at all, or too short to answer: send nothing.
    Silence,
    /// Send this error response.
    Reply(Vec<u8>),
}

impl DnsQuestion {
    /// Parses a query.
    pub(crate) fn read(packet: &[u8]) -> Result<Self, BadQuery> {
        const FORMAT_ERROR: u8 = 1;
        const NOT_IMPLEMENTED: u8 = 4;
        if packet.len() > MAX_QUERY_BYTES {
            return Err(BadQuery::Silence);
        }
        let id = read_u16(packet, 0).ok_or(BadQuery::Silence)?;
        let flags = read_u16(packet, 2).ok_or(BadQuery::Silence)?;
        let counted = read_u16(packet, 4).ok_or(BadQuery::Silence)?;
        if packet.len() < HEADER_BYTES || flags & 0x8000 != 0 {
            return Err(BadQuery::Silence);
        }
        let recursion_desired = flags & 0x0100 != 0;
        let failed = |code: u8| BadQuery::Reply(header(id, recursion_desired, code, 0, 0));
        if flags & 0x7800 != 0 {
            return Err(failed(NOT_IMPLEMENTED));
        }
        if counted != 1 {
            return Err(failed(FORMAT_ERROR));
        }
        let (name, end) = read_name(packet, HEADER_BYTES).ok_or_else(|| failed(FORMAT_ERROR))?;
        let kind = read_u16(packet, end).ok_or_else(|| failed(FORMAT_ERROR))?;
        let class = read_u16(packet, end + 2).ok_or_else(|| failed(FORMAT_ERROR))?;
        let section = packet.get(HEADER_BYTES..end + 4).ok_or_else(|| failed(FORMAT_ERROR))?.to_vec();
        Ok(Self { id, recursion_desired, section, name, kind, class })
    }

    /// Encodes the response.
    #[must_use]
    pub(crate) fn encode_response(&self, answer: DnsAnswer) -> Vec<u8> {
        const NO_SUCH_NAME: u8 = 3;
        const FAILURE: u8 = 2;
        let address: Option<Vec<u8>> = match answer {
            DnsAnswer::Addresses(..) if !matches!(self.class, CLASS_IN | CLASS_ANY) => None,
            DnsAnswer::Addresses(four, _) if self.kind == TYPE_A => Some(four.octets().to_vec()),
            DnsAnswer::Addresses(_, six) if self.kind == TYPE_AAAA => Some(six.octets().to_vec()),
            _ => None,
        };
        let code = match answer {
            DnsAnswer::Addresses(..) => 0,
            DnsAnswer::NoSuchName => NO_SUCH_NAME,
            DnsAnswer::Failure => FAILURE,
        };
        let mut packet = header(self.id, self.recursion_desired, code, 1, u16::from(address.is_some()));
        packet.extend_from_slice(&self.section);
        if let Some(address) = address {
            // A compression pointer to the name in the question.
            packet.extend_from_slice(&[0xc0, 0x0c]);
            packet.extend_from_slice(&self.kind.to_be_bytes());
            packet.extend_from_slice(&CLASS_IN.to_be_bytes());
            packet.extend_from_slice(&TTL_SECONDS.to_be_bytes());
            packet.extend_from_slice(&u16::try_from(address.len()).unwrap_or(0).to_be_bytes());
            packet.extend_from_slice(&address);
        }
        packet
    }

    /// The name for an event; bytes that are not printable are escaped as `\NNN`.
    #[must_use]
    pub(crate) fn printable_name(&self) -> String {
        let letter = |byte: &u8| match byte {
            b'!'..=b'~' if *byte != b'\\' => char::from(*byte).to_string(),
            other => format!("\\{other:03}"),
        };
        self.name.iter().map(letter).collect()
    }
}

fn header(id: u16, recursion_desired: bool, code: u8, questions: u16, answers: u16) -> Vec<u8> {
    // Response, recursion available, not authoritative.
    let flags = 0x8080 | if recursion_desired { 0x0100 } else { 0 } | u16::from(code);
    [id, flags, questions, answers, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Reads a name; returns it and the offset behind it.
fn read_name(packet: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let mut name = Vec::new();
    let mut at = start;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        match length {
            0 => return Some((name, at)),
            1..=63 => {
                if !name.is_empty() {
                    name.push(b'.');
                }
                let label = packet.get(at..at + length)?;
                // A dot inside a label would turn one label into two; NUL makes the name invalid.
                name.extend(label.iter().map(|byte| if *byte == b'.' { 0 } else { *byte }));
                at += length;
            }
            // Compression pointers and unassigned label types.
            _ => return None,
        }
        if name.len() > 253 {
            return None;
        }
    }
}

fn read_u16(packet: &[u8], at: usize) -> Option<u16> {
    let bytes = packet.get(at..at.checked_add(2)?)?;
    bytes.try_into().ok().map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn query(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            packet.push(label.len() as u8);
            packet.extend_from_slice(label);
        }
        packet.push(0);
        packet.extend_from_slice(&kind.to_be_bytes());
        packet.extend_from_slice(&CLASS_IN.to_be_bytes());
        packet
    }

    const FOUR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 7);
    const SIX: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);

    #[test]
    fn address_queries_are_answered_and_other_types_have_no_data() {
        let read = |kind| DnsQuestion::read(&query(&[b"example", b"com"], kind)).unwrap();
        let four = read(TYPE_A).encode_response(DnsAnswer::Addresses(FOUR, SIX));
        assert_eq!(four.get(..12), Some(&[0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0][..]));
        assert!(four.ends_with(&[0, 4, 198, 18, 0, 7]));
        assert!(read(TYPE_AAAA).encode_response(DnsAnswer::Addresses(FOUR, SIX)).ends_with(&SIX.octets()));
        // HTTPS, TXT, MX, ANY: NOERROR without answers.
        for kind in [65, 16, 15, 255] {
            let none = read(kind).encode_response(DnsAnswer::Addresses(FOUR, SIX));
            assert_eq!(none.get(2..8), Some(&[0x81, 0x80, 0, 1, 0, 0][..]), "type {kind}");
        }
        assert_eq!(read(TYPE_A).encode_response(DnsAnswer::NoSuchName).get(3), Some(&0x83));
        assert_eq!(read(TYPE_A).encode_response(DnsAnswer::Failure).get(3), Some(&0x82));
    }

    #[test]
    fn malformed_queries_are_rejected() {
        let silent =
            |packet: &[u8]| assert_eq!(DnsQuestion::read(packet), Err(BadQuery::Silence), "{packet:?}");
        let format = |packet: &[u8], code: u8| match DnsQuestion::read(packet) {
            Err(BadQuery::Reply(reply)) => assert_eq!(reply.get(3).map(|byte| byte & 15), Some(code)),
            other => panic!("{other:?}"),
        };
        silent(b"");
        silent(&[0; 11]);
        let good = query(&[b"a"], TYPE_A);
        let with = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            packet
        };
        // A response gets no response: two gates would loop.
        silent(&with(2, 0x81));
        format(&with(2, 0x28), 4);
        format(&with(5, 0), 1);
        format(&with(5, 2), 1);
        // A compression pointer, an unassigned label type, a label that is too long, a truncated query.
        format(&with(12, 0xc0), 1);
        format(&with(12, 0x40), 1);
        format(&with(12, 63), 1);
        format(&good[..good.len() - 1], 1);
        format(&query(&[&[b'a'; 63][..]; 5], TYPE_A), 1);
        silent(&vec![0; MAX_QUERY_BYTES + 1]);
    }

    #[test]
    fn dot_inside_a_label_makes_the_name_invalid() {
        let question = DnsQuestion::read(&query(&[b"evil.com", b"google", b"com"], TYPE_A)).unwrap();
        assert_eq!(question.name, b"evil\0com.google.com");
        assert!(crate::host_name::HostName::from_bytes(&question.name).is_err());
        assert_eq!(question.printable_name(), "evil\\000com.google.com");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(question) = DnsQuestion::read(&packet) {
                prop_assert!(question.name.len() <= 253);
                let answer = question.encode_response(DnsAnswer::Addresses(FOUR, SIX));
                prop_assert!(answer.len() <= packet.len() + 28);
            }
        }

        #[test]
        fn response_repeats_the_question(labels in proptest::collection::vec("[a-z]{1,10}", 1..6)) {
            let labels: Vec<&[u8]> = labels.iter().map(String::as_bytes).collect();
            let packet = query(&labels, TYPE_A);
            let question = DnsQuestion::read(&packet).unwrap();
            prop_assert_eq!(&question.name, &labels.join(&b'.'));
            prop_assert!(question.encode_response(DnsAnswer::NoSuchName)[12..] == packet[12..]);
        }
    }
}
