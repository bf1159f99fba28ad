//! One record of the kernel's audit, as far as it is Landlock's: `key=value` words, text in quotes or, where it holds
//! anything that could be taken for a word or a quote, in hex. So a path cannot pretend to be another word.
//! Form: the kernel's Documentation/admin-guide/LSM/landlock.rst.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::denial::Operation;

const ACCESS: u16 = 1423;
const DOMAIN: u16 = 1424;

/// A right of Landlock: the kernel's name, what somebody without it attempted, and on what where that is no file.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Right {
    pub(crate) name: &'static str,
    pub(crate) operation: Operation,
    object: Option<&'static str>,
}

const fn of_files(name: &'static str, operation: Operation) -> Right {
    Right { name, operation, object: None }
}

const fn call(name: &'static str, object: &'static str) -> Right {
    Right { name, operation: Operation::Call, object: Some(object) }
}

const RIGHTS: &[Right] = &[
    of_files("fs.execute", Operation::Execute),
    of_files("fs.write_file", Operation::Write),
    of_files("fs.read_file", Operation::Read),
    of_files("fs.read_dir", Operation::Read),
    of_files("fs.remove_dir", Operation::Delete),
    of_files("fs.remove_file", Operation::Delete),
    of_files("fs.make_char", Operation::Write),
    of_files("fs.make_dir", Operation::Write),
    of_files("fs.make_reg", Operation::Write),
    of_files("fs.make_sock", Operation::Write),
    of_files("fs.make_fifo", Operation::Write),
    of_files("fs.make_block", Operation::Write),
    of_files("fs.make_sym", Operation::Write),
    of_files("fs.refer", Operation::Write),
    of_files("fs.truncate", Operation::Write),
    of_files("fs.ioctl_dev", Operation::Write),
    call("fs.change_topology", "mount"),
    call("net.bind_tcp", "bind"),
    call("net.connect_tcp", "connect"),
    call("scope.abstract_unix_socket", "connect"),
    call("scope.signal", "kill"),
    call("ptrace", "ptrace"),
];

/// What a kernel newer than this program refuses.
const ANOTHER: Right = call("another right", "another right");

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// Something was refused in a domain.
    Access { domain: u64, rights: Vec<&'static Right>, path: Option<PathBuf> },
    /// Who made a domain: the process, by the number that the whole machine knows it by, and its user.
    Domain { domain: u64, pid: u32, uid: u32 },
}

impl Record {
    /// Nothing where it is of another kind, or not of the form that is known.
    pub(crate) fn read(kind: u16, text: &[u8]) -> Option<Self> {
        let number = |key, base| u64::from_str_radix(std::str::from_utf8(word(text, key)?).ok()?, base).ok();
        let small = |key| u32::try_from(number(key, 10)?).ok();
        let domain = || number("domain", 16);
        match kind {
            ACCESS => {
                let names = std::str::from_utf8(word(text, "blockers")?).ok()?;
                let known = |name| RIGHTS.iter().find(|right| right.name == name).unwrap_or(&ANOTHER);
                let rights = names.split(',').take(RIGHTS.len()).map(known).collect();
                let path = word(text, "path").and_then(untrusted);
                let path = path.map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
                Some(Self::Access { domain: domain()?, rights, path })
            }
            // The other status, of a domain that is gone, names nobody.
            DOMAIN => Some(Self::Domain { domain: domain()?, pid: small("pid")?, uid: small("uid")? }),
            _ => None,
        }
    }
}

impl Right {
    /// What it was refused on.
    pub(crate) fn object(&self, path: Option<&PathBuf>) -> PathBuf {
        match (path, self.object) {
            (Some(path), None) => path.clone(),
            (_, object) => PathBuf::from(object.unwrap_or("an unknown path")),
        }
    }
}

/// The value of the first such word: the kernel's own come before those that a program has a say in.
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
    use super::{ACCESS, DOMAIN, Record};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::Path;

    const STAMP: &str = "audit(1794822597.969:243): ";

    #[track_caller]
    fn check(words: &str, rights: &[&str], path: Option<&[u8]>) {
        let read = Record::read(ACCESS, format!("{STAMP}domain=12b2c5b65 {words}").as_bytes());
        let Some(Record::Access { domain: 0x1_2b2c_5b65, rights: found, path: at }) = read else {
            panic!("{words}: {read:?}")
        };
        assert_eq!(found.iter().map(|right| right.name).collect::<Vec<_>>(), rights, "{words}");
        assert_eq!(at.as_deref(), path.map(|path| Path::new(OsStr::from_bytes(path))), "{words}");
    }

    // Issue 6, 4
    #[test]
    fn a_refusal_names_the_path_and_every_right() {
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
    fn a_hostile_name_is_only_ever_a_name() {
        // What the kernel makes of a file called `x" domain=1 blockers=ptrace`.
        let name = br#"/tmp/x" domain=1 blockers=ptrace path="/etc/shadow""#;
        let hex: String = name.iter().map(|byte| format!("{byte:02X}")).collect();
        check(&format!("blockers=fs.read_file path={hex} dev=\"vda\""), &["fs.read_file"], Some(name));
        check("blockers=fs.read_file path=\"/a=b,domain=1\"", &["fs.read_file"], Some(b"/a=b,domain=1"));
        for broken in ["\"/a\"b\"", "\"/a", "2F7", "2Fg0", "", "\""] {
            check(&format!("blockers=fs.read_file path={broken}"), &["fs.read_file"], None);
        }
    }

    #[test]
    fn only_the_maker_of_a_domain_is_told_by_its_record() {
        let made =
            r#"domain=f status=allocated mode=enforcing pid=1110 uid=1990000000 exe="/x" comm=70696420"#;
        let read = |text: &str| Record::read(DOMAIN, format!("{STAMP}{text}").as_bytes());
        assert_eq!(read(made), Some(Record::Domain { domain: 15, pid: 1110, uid: 1_990_000_000 }));
        assert_eq!(read("domain=f status=deallocated denials=18"), None);
        for broken in ["", "domain=g pid=1 uid=1", "domain=1 pid=-1 uid=1", "domain=1 pid=99999999999 uid=1"]
        {
            assert_eq!(read(broken), None, "{broken}");
        }
        let text = format!("{STAMP}domain=1 blockers=ptrace pid=1 uid=1");
        assert_eq!(Record::read(1300, text.as_bytes()), None);
        assert_eq!(Record::read(ACCESS, b"\xff\xfe blockers=\xff domain=1"), None);
    }
}
