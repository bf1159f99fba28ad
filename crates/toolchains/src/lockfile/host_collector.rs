//! Collects hosts from URLs of hostile files. A URL counts only if every program reads it alike: what is ambiguous is a
//! problem and no host.

use std::collections::BTreeMap;

use url::{Host, Url};
use vambrace_core::network::{HostName, special};

use super::{
    LockfileFacts, LockfileHost, LockfileProblem, LockfileProblemKind, MAX_LOCKFILE_HOSTS,
    MAX_LOCKFILE_PROBLEMS,
};
use crate::bounded_text::clip_name;
use crate::project_view::{file_name, parent};

/// Maximum length of a URL, in bytes.
const MAX_URL_BYTES: usize = 4096;

/// Collects what the files of one install name.
#[derive(Debug, Default)]
pub(crate) struct HostCollector {
    /// By host, port and scheme.
    hosts: BTreeMap<(String, u16, String), LockfileHost>,
    hosts_left_out: u64,
    problems: Vec<LockfileProblem>,
    problems_left_out: u64,
    packages: u64,
    file: String,
    /// Depth of the directory that local paths are relative to, below the service root.
    depth: i64,
}

/// A URL taken apart.
struct UrlParts {
    scheme: String,
    host: String,
    port: u16,
    problems: Vec<(LockfileProblemKind, String)>,
}

impl HostCollector {
    /// Names the file that the following entries come from.
    pub(crate) fn file(&mut self, file: &str) {
        // Paths are relative to the directory of the file; those in `.cargo` to the directory above.
        let directory = parent(file);
        let directory = if file_name(directory) == ".cargo" { parent(directory) } else { directory };
        self.depth = directory.split('/').filter(|name| !name.is_empty()).map(|_| 1_i64).sum();
        file.clone_into(&mut self.file);
    }

    /// Counts a package.
    pub(crate) fn package(&mut self) {
        self.packages += 1;
    }

    /// Reports a problem.
    pub(crate) fn problem(&mut self, kind: LockfileProblemKind, subject: &str, detail: impl Into<String>) {
        if self.problems.len() >= MAX_LOCKFILE_PROBLEMS {
            self.problems_left_out += 1;
            return;
        }
        let file = self.file.clone();
        self.problems.push(LockfileProblem {
            kind,
            subject: clip_name(subject),
            file,
            detail: detail.into(),
        });
    }

    /// Adds a host of the manager's public registry.
    pub(crate) fn default_host(&mut self, host: &str) {
        let file = std::mem::replace(&mut self.file, "default".to_owned());
        self.add("https".to_owned(), host.to_owned(), 443, false, 0);
        self.file = file;
    }

    /// Adds what an entry is fetched from: a URL, a short form of a repository, or a local path.
    pub(crate) fn location(&mut self, location: &str, subject: &str) {
        let lower = location.get(..11).unwrap_or(location).to_ascii_lowercase();
        for (prefix, hosts) in [
            ("github:", ["github.com", "codeload.github.com"]),
            ("gitlab:", ["gitlab.com", "gitlab.com"]),
            ("bitbucket:", ["bitbucket.org", "bitbucket.org"]),
        ] {
            if lower.starts_with(prefix) {
                for host in hosts {
                    self.add("https".to_owned(), host.to_owned(), 443, false, 1);
                }
                return;
            }
        }
        let local =
            ["file:", "link:", "portal:", "workspace:"].iter().find(|prefix| lower.starts_with(**prefix));
        match local {
            Some(prefix) => self.local_path(location.get(prefix.len()..).unwrap_or_default(), subject),
            None if location.contains("://") || is_scp_form(location) => self.url(location, subject),
            None => self.local_path(location, subject),
        }
    }

    /// Adds the host of a URL.
    pub(crate) fn url(&mut self, url: &str, subject: &str) {
        match taken_apart(url) {
            Ok(parts) => {
                let suspicious = !parts.problems.is_empty();
                for (kind, detail) in parts.problems {
                    self.problem(kind, subject, detail);
                }
                self.add(parts.scheme, parts.host, parts.port, suspicious, 1);
            }
            Err((kind, detail)) => self.problem(kind, subject, detail),
        }
    }

    /// Reports a local path that leaves the service.
    pub(crate) fn local_path(&mut self, path: &str, subject: &str) {
        let path = path.split(['#', '?']).next().unwrap_or_default();
        let mut depth = self.depth;
        for name in path.split('/') {
            depth += match name {
                "" | "." => 0,
                ".." => -1,
                _ => 1,
            };
            if depth < 0 {
                break;
            }
        }
        if depth < 0 || path.starts_with(['/', '~', '\\']) {
            self.problem(
                LockfileProblemKind::OutsideService,
                subject,
                format!("the path `{}` leads out of the service", clip_name(path)),
            );
        }
    }

    fn add(&mut self, scheme: String, host: String, port: u16, suspicious: bool, entries: u64) {
        let key = (host.clone(), port, scheme.clone());
        if let Some(known) = self.hosts.get_mut(&key) {
            known.entries += entries;
            known.suspicious |= suspicious;
        } else if self.hosts.len() >= MAX_LOCKFILE_HOSTS {
            self.hosts_left_out += 1;
        } else {
            let origin = self.file.clone();
            self.hosts.insert(key, LockfileHost { host, port, scheme, origin, entries, suspicious });
        }
    }

    /// Everything that was collected.
    pub(crate) fn finish(self) -> LockfileFacts {
        LockfileFacts {
            hosts: self.hosts.into_values().collect(),
            hosts_left_out: self.hosts_left_out,
            problems: self.problems,
            problems_left_out: self.problems_left_out,
            packages: self.packages,
        }
    }
}

/// `git@github.com:owner/repository.git`
fn is_scp_form(text: &str) -> bool {
    text.split_once('@').is_some_and(|(user, rest)| {
        !user.contains(['/', ':'])
            && rest.split_once(':').is_some_and(|(host, path)| !host.contains('/') && !path.is_empty())
    })
}

/// Scheme, host and port of a URL, with what is wrong about them.
fn taken_apart(url: &str) -> Result<UrlParts, (LockfileProblemKind, String)> {
    let bad = |why: &str| (LockfileProblemKind::BadUrl, why.to_owned());
    if url.len() > MAX_URL_BYTES {
        return Err(bad("a URL of more than 4096 bytes"));
    }
    // Programs disagree about these characters: one strips them, another ends the host there.
    if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['\\', '"', '<', '>']) {
        return Err(bad("a URL with characters that programs read differently"));
    }
    let url = url.strip_prefix("git+").unwrap_or(url);
    if is_scp_form(url) && !url.contains("://") {
        let host =
            url.split_once('@').and_then(|(_, rest)| rest.split_once(':')).map_or("", |(host, _)| host);
        let mut parts = host_parts(host, "ssh".to_owned(), 22)?;
        parts.problems.push((LockfileProblemKind::NotHttps, "fetched over ssh".to_owned()));
        return Ok(parts);
    }
    let parsed = Url::parse(url).map_err(|error| bad(&format!("not a URL: {error}")))?;
    let scheme = parsed.scheme().to_owned();
    let default = match scheme.as_str() {
        "https" => 443,
        "http" => 80,
        "ssh" => 22,
        "git" => 9418,
        "ftp" => 21,
        _ => {
            return Err((
                LockfileProblemKind::NotHttps,
                format!("the scheme `{}` is not https", clip_name(&scheme)),
            ));
        }
    };
    let host = match parsed.host() {
        Some(Host::Domain(name)) => name.to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => return Err(bad("a URL without a host")),
    };
    let mut parts = host_parts(&host, scheme, parsed.port().unwrap_or(default))?;
    if parts.scheme != "https" {
        parts.problems.push((LockfileProblemKind::NotHttps, format!("fetched over {}", parts.scheme)));
    }
    let git_user = parts.scheme == "ssh" && parsed.username() == "git" && parsed.password().is_none();
    if (!parsed.username().is_empty() || parsed.password().is_some()) && !git_user {
        let detail = format!("the URL of {} contains a credential", parts.host);
        parts.problems.push((LockfileProblemKind::Credentials, detail));
    }
    if parts.port != default {
        parts.problems.push((LockfileProblemKind::Port, format!("port {} of {}", parts.port, parts.host)));
    }
    Ok(parts)
}

fn host_parts(host: &str, scheme: String, port: u16) -> Result<UrlParts, (LockfileProblemKind, String)> {
    let mut problems = Vec::new();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<std::net::IpAddr>() {
        let kind = special(address).map_or("an address instead of a name", |kind| kind.as_str());
        problems.push((LockfileProblemKind::Address, format!("{address}: {kind}")));
        return Ok(UrlParts { scheme, host: address.to_string(), port, problems });
    }
    let name = HostName::parse(host)
        .map_err(|error| (LockfileProblemKind::BadUrl, format!("host `{}`: {error}", clip_name(host))))?;
    if name.is_localhost()
        || name.is_metadata()
        || !name.as_str().contains('.')
        || has_local_suffix(name.as_str())
    {
        problems.push((LockfileProblemKind::LocalName, format!("`{name}` is not a public name")));
    }
    Ok(UrlParts { scheme, host: name.to_string(), port, problems })
}

/// Names that only resolve inside a network.
fn has_local_suffix(name: &str) -> bool {
    [".local", ".internal", ".localdomain", ".lan", ".home.arpa", ".onion"]
        .iter()
        .any(|suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `scheme://host:port` of the hosts, and the kinds of the problems.
    fn read(location: &str) -> (Vec<String>, Vec<&'static str>, String) {
        let mut collector = HostCollector::default();
        collector.file("lock");
        collector.location(location, "pkg");
        let facts = collector.finish();
        let hosts =
            facts.hosts.iter().map(|host| format!("{}://{}:{}", host.scheme, host.host, host.port)).collect();
        let kinds = facts.problems.iter().map(|problem| problem.kind.as_str()).collect();
        (hosts, kinds, format!("{:?}", facts.problems))
    }

    #[track_caller]
    fn check(location: &str, hosts: &[&str], problems: &[&str]) {
        let (found, kinds, text) = read(location);
        assert_eq!(
            (found.as_slice(), kinds.as_slice()),
            (hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>().as_slice(), problems),
            "{location}"
        );
        assert!(!text.contains("s3cret"), "{text}");
    }

    // T16
    #[test]
    fn ordinary_urls_are_hosts_without_problems() {
        check("https://registry.npmjs.org/x/-/x-1.0.0.tgz", &["https://registry.npmjs.org:443"], &[]);
        check("https://REGISTRY.npmjs.org:443/x", &["https://registry.npmjs.org:443"], &[]);
        check("git+https://github.com/a/b.git#abc", &["https://github.com:443"], &[]);
        check("github:a/b#abc", &["https://codeload.github.com:443", "https://github.com:443"], &[]);
        check("file:packages/a", &[], &[]);
        check("packages/a", &[], &[]);
    }

    // T16
    #[test]
    fn hostile_urls_are_reported_and_their_credentials_are_not_repeated() {
        check("https://user:s3cret@evil.example/x", &["https://evil.example:443"], &["credentials"]);
        check("https://s3cret@evil.example/x", &["https://evil.example:443"], &["credentials"]);
        check("http://registry.example.org/x", &["http://registry.example.org:80"], &["not_https"]);
        check("https://127.0.0.1/x", &["https://127.0.0.1:443"], &["address"]);
        check("https://0x7f000001/x", &["https://127.0.0.1:443"], &["address"]);
        check("https://2130706433/x", &["https://127.0.0.1:443"], &["address"]);
        check("https://[::1]:8443/x", &["https://::1:8443"], &["address", "port"]);
        check("http://169.254.169.254/latest", &["http://169.254.169.254:80"], &["address", "not_https"]);
        check("https://localhost/x", &["https://localhost:443"], &["local_name"]);
        check(
            "https://metadata.google.internal/x",
            &["https://metadata.google.internal:443"],
            &["local_name"],
        );
        check("https://nexus/x", &["https://nexus:443"], &["local_name"]);
        check("https://registry.npmjs.org:8080/x", &["https://registry.npmjs.org:8080"], &["port"]);
        check("git+ssh://git@github.com/a/b.git#abc", &["ssh://github.com:22"], &["not_https"]);
        check("git@github.com:a/b.git", &["ssh://github.com:22"], &["not_https"]);
        check("git://github.com/a/b", &["git://github.com:9418"], &["not_https"]);
        check("https://good.example\\@evil.example/x", &[], &["bad_url"]);
        check("https://good.example\t.evil.example/x", &[], &["bad_url"]);
        check("https://ex\u{430}mple.org/x", &[], &["bad_url"]);
        check("https://a..b/x", &[], &["bad_url"]);
        check("https://", &[], &["bad_url"]);
        check("gopher://x.example/", &[], &["not_https"]);
        check("file:../../etc", &[], &["outside_service"]);
        check("/etc/x", &[], &["outside_service"]);
        check("link:a/../..", &[], &["outside_service"]);
        let mut collector = HostCollector::default();
        for (file, path) in [
            ("web/package-lock.json", "../shared"),
            ("web/.cargo/config.toml", "../shared"),
            (".cargo/config.toml", "x"),
        ] {
            collector.file(file);
            collector.local_path(path, "inside");
        }
        collector.local_path("../x", "outside");
        let subjects: Vec<String> =
            collector.finish().problems.into_iter().map(|problem| problem.subject).collect();
        assert_eq!(subjects, ["outside"]);
    }

    #[test]
    fn hosts_and_problems_are_limited_and_counted() {
        let mut collector = HostCollector::default();
        for number in 0..MAX_LOCKFILE_HOSTS + 9 {
            collector.url(&format!("http://h{number}.example.org/"), "x");
        }
        let facts = collector.finish();
        assert_eq!((facts.hosts.len(), facts.hosts_left_out), (MAX_LOCKFILE_HOSTS, 9));
        assert_eq!((facts.problems.len(), facts.problems_left_out), (MAX_LOCKFILE_PROBLEMS, 9));
    }

    proptest! {
        #[test]
        fn any_location_gives_canonical_hosts(location in "(https?://|git\\+|ssh://|@|:|/|\\.|[a-z0-9]{1,4}|\\[|\\]|%|\u{e9}|\\\\| ){0,12}") {
            let (hosts, _, _) = read(&location);
            for host in hosts {
                prop_assert!(host.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase()), "{host}");
            }
        }
    }
}
