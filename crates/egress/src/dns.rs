//! DNS as far as a gate needs it: one question in, one answer out. Nothing is ever asked of anybody else here.
//!
//! The parser takes exactly one question of a plain query and refuses the rest; it reads every byte through checked
//! access and follows no compression pointer, because a question has none.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The largest query that is looked at.
pub(crate) const MOST: usize = 4096;

const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;
const ANY_CLASS: u16 = 255;
/// How long a program may keep an answer: addresses are stable for the session.
const SECONDS: u32 = 300;
const HEADER: usize = 12;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    id: u16,
    recursion_desired: bool,
    /// The question as it stands in the query, to be repeated in the answer.
    section: Vec<u8>,
    /// The name, its labels joined by dots; not yet judged.
    pub(crate) name: Vec<u8>,
    kind: u16,
    class: u16,
}

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The name has these addresses.
    Addresses(Ipv4Addr, Ipv6Addr),
    /// There is no such name.
    NoSuchName,
    /// Not now.
    Failure,
}

/// A query that is not answered by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BadQuery {
    /// Not a query at all, or too short to answer: silence.
    Silence,
    /// This is the whole answer.
    Reply(Vec<u8>),
}

impl Question {
    /// Reads a query.
    pub(crate) fn read(packet: &[u8]) -> Result<Self, BadQuery> {
        const FORMAT_ERROR: u8 = 1;
        const NOT_IMPLEMENTED: u8 = 4;
        if packet.len() > MOST {
            return Err(BadQuery::Silence);
        }
        let id = word(packet, 0).ok_or(BadQuery::Silence)?;
        let flags = word(packet, 2).ok_or(BadQuery::Silence)?;
        let counted = word(packet, 4).ok_or(BadQuery::Silence)?;
        if packet.len() < HEADER || flags & 0x8000 != 0 {
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
        let (name, end) = read_name(packet, HEADER).ok_or_else(|| failed(FORMAT_ERROR))?;
        let kind = word(packet, end).ok_or_else(|| failed(FORMAT_ERROR))?;
        let class = word(packet, end + 2).ok_or_else(|| failed(FORMAT_ERROR))?;
        let section = packet.get(HEADER..end + 4).ok_or_else(|| failed(FORMAT_ERROR))?.to_vec();
        Ok(Self { id, recursion_desired, section, name, kind, class })
    }

    /// Writes the answer.
    #[must_use]
    pub(crate) fn answer(&self, answer: Answer) -> Vec<u8> {
        const NO_SUCH_NAME: u8 = 3;
        const FAILURE: u8 = 2;
        let address: Option<Vec<u8>> = match answer {
            Answer::Addresses(..) if !matches!(self.class, INTERNET | ANY_CLASS) => None,
            Answer::Addresses(four, _) if self.kind == A => Some(four.octets().to_vec()),
            Answer::Addresses(_, six) if self.kind == AAAA => Some(six.octets().to_vec()),
            _ => None,
        };
        let code = match answer {
            Answer::Addresses(..) => 0,
            Answer::NoSuchName => NO_SUCH_NAME,
            Answer::Failure => FAILURE,
        };
        let mut packet = header(self.id, self.recursion_desired, code, 1, u16::from(address.is_some()));
        packet.extend_from_slice(&self.section);
        if let Some(address) = address {
            // The name of the question, by a pointer to it.
            packet.extend_from_slice(&[0xc0, 0x0c]);
            packet.extend_from_slice(&self.kind.to_be_bytes());
            packet.extend_from_slice(&INTERNET.to_be_bytes());
            packet.extend_from_slice(&SECONDS.to_be_bytes());
            packet.extend_from_slice(&u16::try_from(address.len()).unwrap_or(0).to_be_bytes());
            packet.extend_from_slice(&address);
        }
        packet
    }

    /// The name for an event: what is no letter of a name is written as a number.
    #[must_use]
    pub(crate) fn shown(&self) -> String {
        let letter = |byte: &u8| match byte {
            b'!'..=b'~' if *byte != b'\\' => char::from(*byte).to_string(),
            other => format!("\\{other:03}"),
        };
        self.name.iter().map(letter).collect()
    }
}

fn header(id: u16, recursion_desired: bool, code: u8, questions: u16, answers: u16) -> Vec<u8> {
    // An answer, recursion available, authoritative for nothing.
    let flags = 0x8080 | if recursion_desired { 0x0100 } else { 0 } | u16::from(code);
    [id, flags, questions, answers, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A name and where it ends.
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
                // A dot inside a label would make two names of one.
                name.extend(label.iter().map(|byte| if *byte == b'.' { 0 } else { *byte }));
                at += length;
            }
            // Pointers and what was never assigned.
            _ => return None,
        }
        if name.len() > 253 {
            return None;
        }
    }
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
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
        packet.extend_from_slice(&INTERNET.to_be_bytes());
        packet
    }

    const FOUR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 7);
    const SIX: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);

    #[test]
    fn addresses_are_answered_and_other_types_have_no_data() {
        let read = |kind| Question::read(&query(&[b"example", b"com"], kind)).unwrap();
        let four = read(A).answer(Answer::Addresses(FOUR, SIX));
        assert_eq!(four.get(..12), Some(&[0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0][..]));
        assert!(four.ends_with(&[0, 4, 198, 18, 0, 7]));
        assert!(read(AAAA).answer(Answer::Addresses(FOUR, SIX)).ends_with(&SIX.octets()));
        // HTTPS, TXT, MX, ANY: no error, no answer.
        for kind in [65, 16, 15, 255] {
            let none = read(kind).answer(Answer::Addresses(FOUR, SIX));
            assert_eq!(none.get(2..8), Some(&[0x81, 0x80, 0, 1, 0, 0][..]), "type {kind}");
        }
        assert_eq!(read(A).answer(Answer::NoSuchName).get(3), Some(&0x83));
        assert_eq!(read(A).answer(Answer::Failure).get(3), Some(&0x82));
    }

    #[test]
    fn hostile_queries_are_refused() {
        let silent = |packet: &[u8]| assert_eq!(Question::read(packet), Err(BadQuery::Silence), "{packet:?}");
        let format = |packet: &[u8], code: u8| match Question::read(packet) {
            Err(BadQuery::Reply(reply)) => assert_eq!(reply.get(3).map(|byte| byte & 15), Some(code)),
            other => panic!("{other:?}"),
        };
        silent(b"");
        silent(&[0; 11]);
        let good = query(&[b"a"], A);
        let with = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            packet
        };
        // An answer is not answered: two gates would talk for ever.
        silent(&with(2, 0x81));
        format(&with(2, 0x28), 4);
        format(&with(5, 0), 1);
        format(&with(5, 2), 1);
        // A pointer, to itself and elsewhere; a length of the future; an end too soon.
        format(&with(12, 0xc0), 1);
        format(&with(12, 0x40), 1);
        format(&with(12, 63), 1);
        format(&good[..good.len() - 1], 1);
        format(&query(&[&[b'a'; 63][..]; 5], A), 1);
        silent(&vec![0; MOST + 1]);
    }

    #[test]
    fn a_dot_inside_a_label_makes_no_second_name() {
        let question = Question::read(&query(&[b"evil.com", b"google", b"com"], A)).unwrap();
        assert_eq!(question.name, b"evil\0com.google.com");
        assert!(crate::names::HostName::from_bytes(&question.name).is_err());
        assert_eq!(question.shown(), "evil\\000com.google.com");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(packet in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(question) = Question::read(&packet) {
                prop_assert!(question.name.len() <= 253);
                let answer = question.answer(Answer::Addresses(FOUR, SIX));
                prop_assert!(answer.len() <= packet.len() + 28);
            }
        }

        #[test]
        fn a_query_comes_back_with_its_question(labels in proptest::collection::vec("[a-z]{1,10}", 1..6)) {
            let labels: Vec<&[u8]> = labels.iter().map(String::as_bytes).collect();
            let packet = query(&labels, A);
            let question = Question::read(&packet).unwrap();
            prop_assert_eq!(&question.name, &labels.join(&b'.'));
            prop_assert!(question.answer(Answer::NoSuchName)[12..] == packet[12..]);
        }
    }
}
