//! What reaches a server and ssh in a push, and what a repository cannot change about it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use vambrace_git::{
    BranchName, GitInvocation, PlainHttp, PushError, PushMode, PushTarget, RemoteName, Repository,
    SshSettings,
};

use super::lab::{Lab, run, versions};
use super::operations::ssh;

fn target(repository: &Repository) -> Result<PushTarget, PushError> {
    PushTarget::find(repository, &RemoteName::new("origin").unwrap(), PlainHttp::LoopbackOnly)
}

fn push(lab: &Lab, ssh: Option<&SshSettings>) -> Result<GitInvocation, PushError> {
    let repository = lab.open().unwrap();
    let main = BranchName::new("main").unwrap();
    lab.operations(&repository).push(&target(&repository)?, &main, PushMode::DryRun, ssh)
}

fn variable<'i>(invocation: &'i GitInvocation, name: &str) -> Option<&'i str> {
    let found = invocation.environment.iter().find(|(variable, _)| variable == name);
    found.map(|(_, value)| value.to_str().unwrap())
}

/// A server that answers every request with "not found" and keeps what it was sent.
fn recording_server() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&requests);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            kept.lock().unwrap().push_str(&String::from_utf8_lossy(&request[..length]));
            let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (format!("http://{address}/r"), requests)
}

// T15
#[test]
fn headers_of_the_repository_are_sent_without_and_not_with_the_protection() {
    for git in versions() {
        if !git.has_http() {
            vambrace_skip::skip_part("this git has no http");
            continue;
        }
        let lab = Lab::new(&git);
        let (url, requests) = recording_server();
        lab.git_must(&["remote", "set-url", "origin", &url]);
        lab.config(&format!(
            "[http]\n\textraHeader = X-General: 1\n[http \"{url}\"]\n\textraHeader = X-Special: 1"
        ));
        lab.plain(&["push", "origin", "main"]);
        let sent = std::mem::take(&mut *requests.lock().unwrap());
        assert!(sent.contains("X-Special") || sent.contains("X-General"), "{sent}");
        run(&push(&lab, None).unwrap());
        let sent = requests.lock().unwrap().clone();
        assert!(sent.contains("git-receive-pack") && !sent.contains("X-"), "{sent}");
    }
}

// T15
#[test]
fn settings_that_change_the_connection_are_rejected() {
    let git = versions().remove(0);
    for setting in
        ["sslCAInfo = x", "sslCert = x", "curloptResolve = h:443:1.2.3.4", "cookieFile = x", "invented = x"]
    {
        let lab = Lab::new(&git);
        lab.config(&format!("[http \"https://h\"]\n\t{setting}"));
        assert!(target(&lab.open().unwrap()).is_ok(), "a push by ssh is not concerned");
        lab.git_must(&["remote", "set-url", "origin", "https://h/x"]);
        let error = target(&lab.open().unwrap()).unwrap_err().to_string();
        assert!(error.contains("would change how git connects"), "{error}");
    }
    let lab = Lab::new(&git);
    let missing = RemoteName::new("missing").unwrap();
    let error = PushTarget::find(&lab.open().unwrap(), &missing, PlainHttp::Deny).unwrap_err();
    assert_eq!(error, PushError::UnknownRemote("missing".to_owned()));
}

#[test]
fn ssh_gets_options_and_only_one_transport_is_allowed() {
    let lab = Lab::new(&versions()[0]);
    assert_eq!(push(&lab, None), Err(PushError::NoSsh("origin".to_owned())));
    let settings = SshSettings { agent_socket: Some("/run/agent".into()), ..ssh(&lab) };
    let invocation = push(&lab, Some(&settings)).unwrap();
    assert_eq!(variable(&invocation, "GIT_ALLOW_PROTOCOL"), Some("ssh"));
    assert_eq!(variable(&invocation, "SSH_AUTH_SOCK"), Some("/run/agent"));
    let command = variable(&invocation, "GIT_SSH_COMMAND").unwrap();
    assert!(
        command.contains(" -F /dev/null ") && command.ends_with(" -o UserKnownHostsFile=/dev/null"),
        "{command}"
    );
    for program in ["ssh -x", "ssh;id", "$(id)", "-x", ""] {
        let settings = SshSettings { program: program.to_owned(), ..ssh(&lab) };
        assert!(matches!(push(&lab, Some(&settings)), Err(PushError::SshPath(_))), "{program}");
    }
    let repository = lab.open().unwrap();
    let status = lab.operations(&repository).status(vambrace_git::UntrackedFiles::All);
    assert_eq!(variable(&status, "GIT_ALLOW_PROTOCOL"), Some("none"));
    assert_eq!(variable(&status, "GIT_SSH_COMMAND"), Some("false"));
    let mut names: Vec<_> = status.environment.iter().map(|(name, _)| name).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "a variable is set twice");
}
