//! Parses Landlock's audit records: `key=value` words, text in quotes, or in hex if it contains a space, a quote or a
//! control character. So a path cannot pretend to be another word.
//! Format: Documentation/admin-guide/LSM/landlock.rst in the kernel.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::denial::DeniedOperation;

const ACCESS: u16 = 1423;
const DOMAIN: u16 = 1424;

/// A Landlock right: the kernel's name, the operation that needs it, and its object if that is not a file.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct LandlockRight {
    pub(crate) name: &'static str,
    pub(crate) operation: DeniedOperation,
    object: Option<&'static str>,
}

const fn file_right(name: &'static str, operation: DeniedOperation) -> LandlockRight {
    LandlockRight { name, operation, object: None }
}

const fn call_right(name: &'static str, object: &'static str) -> LandlockRight {
    LandlockRight { name, operation: DeniedOperation::Call, object: Some(object) }
}

const RIGHTS: &[LandlockRight] = &[
    file_right("fs.execute", DeniedOperation::Execute),
    file_right("fs.write_file", DeniedOperation::Write),
    file_right("fs.read_file", DeniedOperation::Read),
    file_right("fs.read_dir", DeniedOperation::Read),
    file_right("fs.remove_dir", DeniedOperation::Delete),
    file_right("fs.remove_file", DeniedOperation::Delete),
    file_right("fs.make_char", DeniedOperation::Write),
    file_right("fs.make_dir", DeniedOperation::Write),
    file_right("fs.make_reg", DeniedOperation::Write),
    file_right("fs.make_sock", DeniedOperation::Write),
    file_right("fs.make_fifo", DeniedOperation::Write),
    file_right("fs.make_block", DeniedOperation::Write),
    file_right("fs.make_sym", DeniedOperation::Write),
    file_right("fs.refer", DeniedOperation::Write),
    file_right("fs.truncate", DeniedOperation::Write),
    file_right("fs.ioctl_dev", DeniedOperation::Write),
    call_right("fs.change_topology", "mount"),
    call_right("net.bind_tcp", "bind"),
    call_right("net.connect_tcp", "connect"),
    call_right("scope.abstract_unix_socket", "connect"),
    call_right("scope.signal", "kill"),
    call_right("ptrace", "ptrace"),
];

/// A right of a kernel that is newer than this table.
const UNKNOWN_RIGHT: LandlockRight = call_right("another right", "another right");

/// A parsed record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LandlockRecord {
    /// A denial in a domain.
    Access { domain: u64, rights: Vec<&'static LandlockRight>, path: Option<PathBuf> },
    /// The creator of a domain: its pid in the initial namespace, and its UID.
    Domain { domain: u64, pid: u32, uid: u32 },
}

impl LandlockRecord {
    /// `None` for another type of record, or an unknown format.
    pub(crate) fn read(kind: u16, text: &[u8]) -> Option<Self> {
        let number = |key, base| u64::from_str_radix(std::str::from_utf8(word(text, key)?).ok()?, base).ok();
        let small = |key| u32::try_from(number(key, 10)?).ok();
        let domain = || number("domain", 16);
        match kind {
            ACCESS => {
                let names = std::str::from_utf8(word(text, "blockers")?).ok()?;
                let known = |name| RIGHTS.iter().find(|right| right.name == name).unwrap_or(&UNKNOWN_RIGHT);
                let rights = names.split(',').take(RIGHTS.len()).map(known).collect();
                let path = word(text, "path").and_then(untrusted);
                let path = path.map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
                Some(Self::Access { domain: domain()?, rights, path })
            }
            // The other status, of a deallocated domain, has no pid.
            DOMAIN => Some(Self::Domain { domain: domain()?, pid: small("pid")?, uid: small("uid")? }),
            _ => None,
        }
    }
}

impl LandlockRight {
    /// What access was denied to.
    pub(crate) fn object(&self, path: Option<&PathBuf>) -> PathBuf {
        match (path, self.object) {
            (Some(path), None) => path.clone(),
            (_, object) => PathBuf::from(object.unwrap_or("an unknown path")),
        }
    }
}

/// The value of the first such word: the kernel's own words come before those that a program can influence.
fn word<'a>(text: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut words = text.split(|byte| *byte == b' ');
    words.find_map(|word| word.strip_prefix(key.as_bytes())?.strip_prefix(b"="))
}

fn untrusted(value: &[u8]) -> Option<Vec<u8>> {
    if let Some(rest) = value.strip_prefix(b"\"") {
        let inner = rest.strip_suffix(b"\"")?;
        return (!inner.contains(&b'"')).then(|| inner.to_vec());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = value.as_chunks::<2>();
    if !rest.is_empty() || pairs.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::{ACCESS, DOMAIN, LandlockRecord};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    const STAMP: &str = "audit(1794822597.969:243): ";

    #[track_caller]
    fn check(words: &str, rights: &[&str], path: Option<&[u8]>) {
        let read = LandlockRecord::read(ACCESS, format!("{STAMP}domain=12b2c5b65 {words}").as_bytes());
        let Some(LandlockRecord::Access { domain: 0x1_2b2c_5b65, rights: found, path: at }) = read else {
            panic!("{words}: {read:?}")
        };
        assert_eq!(found.iter().map(|right| right.name).collect::<Vec<_>>(), rights, "{words}");
        assert_eq!(at.as_deref(), path.map(|path| Path::new(OsStr::from_bytes(path))), "{words}");
    }

    #[test]
    fn denial_names_the_path_and_every_right() {
        let file = r#"blockers=fs.read_file path="/etc/hosts" dev="vda" ino=612"#;
        check(file, &["fs.read_file"], Some(b"/etc/hosts"));
        let two = r#"blockers=fs.write_file,fs.truncate path="/etc/hosts" dev="vda" ino=612"#;
        check(two, &["fs.write_file", "fs.truncate"], Some(b"/etc/hosts"));
        let hex = r#"blockers=fs.read_file path=2F746D702F6120620AFF dev="vda" ino=1"#;
        check(hex, &["fs.read_file"], Some(b"/tmp/a b\n\xff"));
        check("blockers=scope.signal opid=1 ocomm=\"init\"", &["scope.signal"], None);
        check("blockers=fs.of_tomorrow path=\"/a\"", &["another right"], Some(b"/a"));
    }

    #[test]
    fn hostile_file_name_cannot_forge_a_word() {
        // How the kernel writes a file called `x" domain=1 blockers=ptrace`.
        let name = br#"/tmp/x" domain=1 blockers=ptrace path="/etc/shadow""#;
        let hex: String = name.iter().map(|byte| format!("{byte:02X}")).collect();
        check(&format!("blockers=fs.read_file path={hex} dev=\"vda\""), &["fs.read_file"], Some(name));
        check("blockers=fs.read_file path=\"/a=b,domain=1\"", &["fs.read_file"], Some(b"/a=b,domain=1"));
        for broken in ["\"/a\"b\"", "\"/a", "2F7", "2Fg0", "", "\""] {
            check(&format!("blockers=fs.read_file path={broken}"), &["fs.read_file"], None);
        }
    }

    #[test]
    fn domain_record_is_parsed_only_with_its_creator() {
        let made =
            r#"domain=f status=allocated mode=enforcing pid=1110 uid=1990000000 exe="/x" comm=70696420"#;
        let read = |text: &str| LandlockRecord::read(DOMAIN, format!("{STAMP}{text}").as_bytes());
        assert_eq!(read(made), Some(LandlockRecord::Domain { domain: 15, pid: 1110, uid: 1_990_000_000 }));
        assert_eq!(read("domain=f status=deallocated denials=18"), None);
        for broken in ["", "domain=g pid=1 uid=1", "domain=1 pid=-1 uid=1", "domain=1 pid=99999999999 uid=1"]
        {
            assert_eq!(read(broken), None, "{broken}");
        }
        let text = format!("{STAMP}domain=1 blockers=ptrace pid=1 uid=1");
        assert_eq!(LandlockRecord::read(1300, text.as_bytes()), None);
        assert_eq!(LandlockRecord::read(ACCESS, b"\xff\xfe blockers=\xff domain=1"), None);
    }
}
