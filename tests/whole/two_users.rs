//! Two users of one state directory: with a token of one, nothing of the other is listed, shown, decided or ended. An
//! administrator reads both, which is recorded each time, and decides about neither.

use serde_json::{Value, json};

use crate::changes::{PHRASE, decide, read};
use crate::home::{Home, Ran};

/// A user of the state directory, with something in every list, and a token.
struct User {
    name: &'static str,
    token: String,
    /// A pending approval request, and another one.
    pending: String,
    second: String,
    /// An applied change.
    applied: String,
    grant: String,
    call: String,
    session: String,
    record: String,
}

fn with(home: &Home, variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let output = home.command(args).envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn with_token(home: &Home, token: &str, args: &[&str]) -> Ran {
    with(home, &[("VAMBRACE_TOKEN", token)], args)
}

fn make_token(home: &Home, kind: &str, user: &str) -> (String, String) {
    let made = decide(home, &["token", "create", kind, "--user", user, "--json"]).json();
    (made["id"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
}

impl User {
    fn new(home: &Home, name: &'static str) -> Self {
        let violation =
            with(home, &[("USER", name)], &["call", "read_file", r#"{"path": "../outside"}"#, "--json"]);
        assert_eq!(violation.code, 4, "{violation:?}");
        let propose = |file: &str| {
            let args = json!({"path": format!("{name}-{file}.txt"), "content": "x\n"}).to_string();
            let proposed = with(home, &[("USER", name)], &["call", "write_file", &args, "--json"]);
            assert_eq!(proposed.code, 3, "{proposed:?}");
            proposed.json()
        };
        let id = |answer: &Value| answer["details"]["hitl"]["hitl_id"].as_str().unwrap().to_owned();
        let pending = propose("pending");
        let second = id(&propose("second"));
        let applied = id(&propose("applied"));
        assert_eq!(decide(home, &["approvals", "approve", &applied, "--scope", "class"]).code, 0);
        let own = |rows: Value, key: &str| {
            let row = rows.as_array().unwrap().iter().find(|row| row["user"] == name).unwrap().clone();
            row[key].as_str().unwrap().to_owned()
        };
        let session = own(home.run(["session", "list", "--json"]).json(), "id");
        let record = home.records().iter().rev().find(|record| record["session"] == *session).unwrap()["seq"]
            .to_string();
        Self {
            name,
            token: make_token(home, "approver", name).1,
            call: pending["metadata"]["call_id"].as_str().unwrap().to_owned(),
            pending: id(&pending),
            second,
            applied,
            grant: own(home.run(["grants", "list", "--json"]).json(), "id"),
            session,
            record,
        }
    }

    fn run(&self, home: &Home, args: &[&str]) -> Ran {
        with_token(home, &self.token, args)
    }

    /// Every list, and what of this user is in it.
    fn lists(&self) -> [(Vec<&'static str>, &str); 13] {
        [
            (vec!["approvals", "list", "--json"], &self.pending),
            (vec!["approvals", "list", "--all", "--json"], &self.applied),
            (vec!["proposals", "list", "--json"], &self.applied),
            (vec!["proposals", "list", "--json"], &self.pending),
            (vec!["session", "list", "--json"], &self.session),
            (vec!["timeline", "--json"], &self.call),
            (vec!["grants", "list", "--json"], &self.grant),
            (vec!["token", "list", "--json"], self.name),
            (vec!["audit", "tail", "--lines", "500", "--json"], &self.session),
            (vec!["audit", "query", "--limit", "500", "--json"], &self.session),
            (vec!["audit", "query", "--violations", "--json"], &self.session),
            (vec!["audit", "export"], &self.session),
            (vec!["audit", "export", "--format", "ocsf"], &self.session),
        ]
    }

    /// Everything of this user that can be read by its name.
    fn shown(&self) -> [Vec<&str>; 6] {
        [
            vec!["approvals", "show", &self.pending],
            vec!["approvals", "show", &self.applied],
            vec!["proposals", "show", &self.applied],
            vec!["timeline", &self.call],
            vec!["timeline", &self.call, "--json"],
            vec!["audit", "prove", &self.record],
        ]
    }

    /// Every decision about this user, in an order in which all of them succeed.
    fn decisions(&self) -> [Vec<&str>; 6] {
        [
            vec!["approvals", "approve", &self.pending],
            vec!["approvals", "reject", &self.second],
            vec!["proposals", "rollback", &self.applied],
            vec!["grants", "revoke", &self.grant],
            vec!["session", "end", &self.session],
            vec!["session", "end", &self.session],
        ]
    }

    /// Fails unless no decision about this user was made.
    fn is_untouched(&self, home: &Home) {
        let name = self.name;
        assert_eq!(read(home, &format!("{name}-pending.txt")), None);
        assert_eq!(read(home, &format!("{name}-applied.txt")).as_deref(), Some("x\n"));
        let row = |args: [&str; 3], id: &str| {
            let rows = home.run(args).json();
            rows.as_array().unwrap().iter().find(|row| row["id"] == id).cloned().unwrap_or_default()
        };
        for id in [&self.pending, &self.second] {
            assert_eq!(row(["approvals", "list", "--json"], id)["state"], "pending", "{name}");
        }
        assert_eq!(row(["grants", "list", "--json"], &self.grant)["counts"], true, "{name}");
        assert_eq!(row(["session", "list", "--json"], &self.session)["state"], "active", "{name}");
    }
}

// A12: every list, everything that is named by its id, and every decision
#[test]
fn owner_of_a_token_reads_and_decides_only_what_belongs_to_its_user() {
    let home = Home::new();
    let (ada, bob) = (User::new(&home, "ada"), User::new(&home, "bob"));
    for (own, other) in [(&ada, &bob), (&bob, &ada)] {
        for ((args, theirs), (_, not)) in own.lists().into_iter().zip(other.lists()) {
            let ran = own.run(&home, &args);
            assert!(ran.code == 0 && ran.out.contains(theirs), "{args:?}: {ran:?}");
            assert!(!ran.out.contains(not) && !ran.out.contains(&other.session), "{args:?}: {ran:?}");
        }
        let tokens = own.run(&home, &["token", "list", "--json"]).json();
        assert!(tokens.as_array().unwrap().iter().all(|row| row["user"] == own.name), "{tokens}");
        for args in own.shown() {
            assert_eq!(own.run(&home, &args).code, 0, "{args:?}");
        }
        for args in other.shown().into_iter().chain(other.decisions()) {
            let ran = own.run(&home, &args);
            let unknown = ran.err.contains("ProposalNotFound") && ran.code == 4;
            assert!(unknown || ran.code == 2, "{args:?}: {ran:?}");
            assert!(!ran.out.contains(other.name), "{args:?}: {ran:?}");
        }
        // The end of an id is searched among the own ones only.
        let end = other.pending.get(other.pending.len() - 12..).unwrap();
        assert_eq!(own.run(&home, &["approvals", "show", end]).code, 4);
        other.is_untouched(&home);
    }
    // The owner of the state directory reads everything; it could read the files too.
    assert_eq!(home.run(["approvals", "list", "--json"]).json().as_array().unwrap().len(), 4);
    for user in [&ada, &bob] {
        for args in user.decisions() {
            let ran = user.run(&home, &args);
            assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        }
        assert_eq!(read(&home, &format!("{}-pending.txt", user.name)).as_deref(), Some("x\n"));
        assert_eq!(read(&home, &format!("{}-second.txt", user.name)), None);
        assert_eq!(read(&home, &format!("{}-applied.txt", user.name)), None);
    }
    let verified = home.run(["audit", "verify"]);
    assert_eq!(verified.code, 0, "{verified:?}");
}

// A12: an administrator reads everything, each read is recorded before it happens, and it decides nothing of another user
#[test]
fn administrator_reads_everybody_on_record_and_decides_for_nobody_else() {
    let home = Home::new();
    let (ada, bob) = (User::new(&home, "ada"), User::new(&home, "bob"));
    let (_, admin) = make_token(&home, "admin", "carol");
    let reads = || -> Vec<Value> {
        home.records().into_iter().filter(|record| record["op"] == "admin.read").collect()
    };
    assert_eq!(reads(), Vec::<Value>::new());
    let mut expected = 0;
    for ((args, of_ada), (_, of_bob)) in ada.lists().into_iter().zip(bob.lists()) {
        let ran = with_token(&home, &admin, &args);
        expected += 1;
        assert!(ran.code == 0 && ran.out.contains(of_ada) && ran.out.contains(of_bob), "{args:?}: {ran:?}");
        let recorded = reads();
        assert_eq!(recorded.len(), expected, "{args:?}");
        let last = recorded.last().unwrap();
        assert_eq!((last["user"].as_str(), last["level"].as_str()), (Some("carol"), Some("WARN")));
        let command = args.iter().take(2).copied().filter(|word| !word.starts_with('-')).collect::<Vec<_>>();
        assert!(last["message"].as_str().unwrap().contains(&command.join(" ")), "{args:?}: {last}");
    }
    for args in ada.shown().into_iter().chain(bob.shown()) {
        let ran = with_token(&home, &admin, &args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        expected += 1;
        assert_eq!(reads().len(), expected, "{args:?}");
    }
    for user in [&ada, &bob] {
        for args in user.decisions() {
            let ran = with_token(&home, &admin, &args);
            assert_eq!(ran.code, 4, "{args:?}: {ran:?}");
            assert!(ran.err.contains("PermissionDenied"), "{args:?}: {ran:?}");
        }
        user.is_untouched(&home);
    }
    // Its own user's rows are like those of anyone, and tokens of others are recorded as nothing special.
    let carol = User::new(&home, "carol");
    for args in carol.decisions() {
        let ran = with_token(&home, &admin, &args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
    }
    let before = reads().len();
    assert_eq!(ada.run(&home, &["approvals", "list"]).code, 0);
    assert_eq!(reads().len(), before);
    assert_eq!(home.run(["audit", "verify"]).code, 0);
}

// A12: a token that is not valid reads nothing
#[test]
fn invalid_tokens_read_nothing() {
    let home = Home::new();
    let args = json!({"path": "a.txt", "content": "x\n"}).to_string();
    assert_eq!(home.run(["call", "write_file", &args]).code, 3);
    let (id, admin) = make_token(&home, "admin", "carol");
    let listed = |token: &str| with_token(&home, token, &["approvals", "list", "--json"]);
    assert_eq!(listed(&admin).json().as_array().unwrap().len(), 1);
    assert_eq!(with(&home, &[("VAMBRACE_PASSPHRASE", PHRASE)], &["token", "revoke", &id]).code, 0);
    let before = home.records().len();
    for token in [admin.as_str(), "vmb_nonsense"] {
        let ran = listed(token);
        assert_eq!(
            (ran.code, ran.json()["error"]["code"].as_str()),
            (4, Some("PermissionDenied")),
            "{ran:?}"
        );
    }
    assert_eq!(home.records().len(), before, "nothing was read, so nothing is recorded");
}

// A12: the token of an agent or a runner decides nothing, and no token changes the ledger's key
#[test]
fn tokens_of_agents_change_no_session_and_no_token_rotates_the_key() {
    let home = Home::new();
    let bob = User::new(&home, "bob");
    let session = bob.session.as_str();
    for kind in ["agent", "runner"] {
        let (_, token) = make_token(&home, kind, bob.name);
        for change in ["end", "resume"] {
            let ran = with_token(&home, &token, &["session", change, session]);
            // A session that is active already needs no change.
            assert!(
                ran.code == 4 || (change == "resume" && ran.err.contains("already")),
                "{kind} {change}: {ran:?}"
            );
        }
        let ran =
            with_token(&home, &token, &["audit", "forget", "--before", "2030-01-01T00:00:00Z", "--yes"]);
        assert_eq!(ran.code, 4, "{kind}: {ran:?}");
    }
    for kind in ["agent", "approver", "admin"] {
        let (_, token) = make_token(&home, kind, bob.name);
        let ran = with_token(&home, &token, &["audit", "rotate-key"]);
        assert_eq!(ran.code, 4, "{kind}: {ran:?}");
    }
    assert_eq!(home.run(["audit", "rotate-key"]).code, 0);
}
