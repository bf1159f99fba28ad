//! Texts without secrets are left unchanged.

use std::sync::OnceLock;

use vambrace_core::redacted::Redact as _;
use vambrace_redact::Redactor;

use crate::fixtures::{ALNUM, HEX, SeededRng, clean, redactor};

fn untouched(text: &str) {
    static REDACTOR: OnceLock<Redactor> = OnceLock::new();
    let redactor = REDACTOR.get_or_init(|| redactor(&[]));
    assert_eq!(clean(redactor, text), text);
}

// T21: lockfiles, commits, UUIDs, integrity hashes, data URLs, public keys, certificates, minified code, placeholders
#[test]
fn public_values_that_look_random_are_left_alone() {
    let mut rng = SeededRng(21);
    for _ in 0..40 {
        let (hex32, hex40, hex64) = (rng.letters(HEX, 32), rng.letters(HEX, 40), rng.letters(HEX, 64));
        let uuid = format!(
            "{}-{}-{}-{}-{}",
            &hex32[..8],
            &hex32[8..12],
            &hex32[12..16],
            &hex32[16..20],
            &hex32[20..]
        );
        let base = rng.letters(&format!("{ALNUM}+/"), 86);
        for text in [
            format!("checksum = \"{hex64}\"\n"),
            format!("\"integrity\": \"sha512-{base}==\","),
            format!("  resolution: {{integrity: sha512-{base}==}}"),
            format!("golang.org/x/sys v0.1.0 h1:{}=\n", &base[..43]),
            format!("    --hash=sha256:{hex64} \\"),
            format!("commit {hex40}\nAuthor: A <a@b.c>\n"),
            format!("uses: actions/checkout@{hex40} # v4"),
            format!("\"commitSha\": \"{hex40}\", \"cacheKey\": \"{hex32}\", \"etag\": \"{hex32}\""),
            format!("id = {uuid}\nrequest_id: \"{uuid}\"\n"),
            format!("<img src=\"data:image/png;base64,{base}{base}\">"),
            format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} ada@host", &base[..43]),
            format!(
                "-----BEGIN CERTIFICATE-----\n{}\n{}\n-----END CERTIFICATE-----\n",
                &base[..64],
                &base[..64]
            ),
            format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", &base[..64]),
            format!("00000010: {} {}  ................", &hex32[..4], &hex32[4..8]),
            format!("docker.io/library/x@sha256:{hex64}"),
            format!("webpackChunk_{hex32}=[],e.exports={{a:1}},key:t.key,token:n.token"),
        ] {
            untouched(&text);
        }
    }
}

#[test]
fn placeholders_references_and_code_are_left_alone() {
    for text in [
        "password=${DB_PASSWORD}",
        "password: {{ .Values.password }}",
        "PASSWORD=$PASSWORD",
        "token = os.environ[\"TOKEN\"]",
        "api_key=process.env.API_KEY",
        "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "password: <your password>",
        "password = \"changeme\"",
        "password = \"********\"",
        "token: \"xxxxxxxxxxxxxxxxxxxx\"",
        "secret = get_secret(\"db/password\")",
        "let token = parse_token(&input)?;",
        "password: str",
        "password: Option<String>,",
        "if password == \"\" { return }",
        "max_tokens = 4096, token_type = \"bearer\"",
        "Authorization: Bearer <token>",
        "https://user:password@example.com/",
        "The password must have at least 8 characters.",
        "secretName: my-app-tls-secret",
        "passwordHash = sha256(password)",
        "key = \"user_profile_settings\"",
        "csrf_token = \"abc\"",
        "password_file: /run/secrets/db",
        "[REDACTED:password:0a1b2c3d]",
        "postgres://postgres:postgres@localhost:5432/test",
        "password = getPasswordFromVault",
        "self.p4passwd = p4passwd",
        "password: pasword_confirmation",
        "password=f\"password-{i}\"",
        "(?P<userpass>.+)@)?(?P<hostport>[^?]+)",
        "pub const MQMSG_AUTH_LEVEL: MQMSGAUTHLEVEL = 1;",
        "the packet identified by 'sequence' is sent",
        "\"DECRYPTBYPASSPHRASE\",\"ENCRYPTBYASYMKEY\"",
        "the password is required, and it must be kept",
        "message: 'should pass \\\"\"+g.keyword+\"\\\"'",
        "https://codecov.io/gh/a/b/graph/badge.svg?token=B1EnafGlRL",
        "arn:aws:logs:*:*:log-group:dms-tasks:log-stream:x",
        "Cookie: theme=dark; lang=en-GB; consent=accepted-by-the-user",
        "mysql -u root -p orders",
        "DUMMY_FUNCTION_PASS(\"sjljehprepare\", SjLj)",
        "  DenseMap<Pass *, Pass *> LastUser;",
        " * @GNUTLS_KX_ECDHE_PSK: ECDHE-PSK key-exchange",
        "columns identified by the \"aOrderBy\" field",
        "kind: ConfigMap\ndata:\n  greeting: aGVsbG8gd29ybGQ=\n",
    ] {
        untouched(text);
    }
}

// T21: the context layer
#[test]
fn contexts_reveal_secrets() {
    let redactor = redactor(&[]);
    for (text, secret) in [
        ("password = \"tr0ub4dor&3\"", "tr0ub4dor&3"),
        ("DB_PASSWORD=hunter2", "hunter2"),
        ("Uid=sa;Pwd=aB3dE6gH9jK2;Database=x", "aB3dE6gH9jK2"),
        ("pwd: \"aB3dE6gH9jK2\"", "aB3dE6gH9jK2"),
        ("pass=aB3dE6gH9jK2", "aB3dE6gH9jK2"),
        ("password: Summer2024!", "Summer2024!"),
        (
            "{\"auths\": {\"https://index.docker.io/v1/\": {\"auth\": \"YWRhOmh1bnRlcjIy\"}}}",
            "YWRhOmh1bnRlcjIy",
        ),
        (
            "    client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpNSUlFb3dJQkFBS0NBUUVBeDBWcWIzQmxibk56YUMxclpYa3RkakVBQUFBQQ",
            "LS0tLS1CRUdJ",
        ),
        ("machine h.internal\n  login ada\n  password 0a1b2c3d4e\n", "0a1b2c3d4e"),
        ("Server=db;Database=x;User Id=app;Password=q9!Zx7#p;", "q9!Zx7#p"),
        ("jdbc:mysql://db/x?user=app&password=q9Zx7pLm2&ssl=1", "q9Zx7pLm2"),
        ("- name: API_TOKEN\n  value: \"9f8e7d6c5b4a39281706\"", "9f8e7d6c5b4a39281706"),
        ("curl -u ada:q9Zx7pLm2 https://h/", "q9Zx7pLm2"),
        ("mysql --password=q9Zx7pLm2 -h db", "q9Zx7pLm2"),
        ("X-Api-Key: 9f8e7d6c5b4a39281706", "9f8e7d6c5b4a39281706"),
        ("Authorization: Basic YWRhOmh1bnRlcjIy", "YWRhOmh1bnRlcjIy"),
        ("client_secret=\"aB3dE5gH7jK9mN1pQ3sT5vX7\"", "aB3dE5gH7jK9mN1pQ3sT5vX7"),
        ("password=qzkvxwtrnb", "qzkvxwtrnb"),
        ("password: kTzQwvHbxJ", "kTzQwvHbxJ"),
        ("var Password string = \"qzkvxwtrnb\"", "qzkvxwtrnb"),
        ("<wsse:Password Type=\"x\">qzkvxwtrnb</wsse:Password>", "qzkvxwtrnb"),
        ("variable \"password\" {\n  type = string\n  default = \"qzkvxwtrnb\"\n}", "qzkvxwtrnb"),
        ("auth=(\"ada\", \"qzkvxwtrnb\")", "qzkvxwtrnb"),
        ("dsn = \"app:qzkvxwtrnb@tcp(db:3306)/x\"", "qzkvxwtrnb"),
        ("jdbc:oracle:thin:app/qzkvxwtrnb@db:1521:x", "qzkvxwtrnb"),
        ("smbclient -U ada%qzkvxwtrnb //h/s", "qzkvxwtrnb"),
        ("keytool -storepass qzkvxwtrnb -list", "qzkvxwtrnb"),
        ("psk=\"qzkvxwtrnb\"", "qzkvxwtrnb"),
        ("ansible_ssh_pass: qzkvxwtrnb", "qzkvxwtrnb"),
        ("Cookie: a=b; session=qzkvxwtrnbqzkw", "qzkvxwtrnbqzkw"),
        ("Authorization: ApiKey qzkvxwtrnbqzkw", "qzkvxwtrnbqzkw"),
        ("curl -H \"X-Api-Key: kTzQwvHbxJ\" https://h/", "kTzQwvHbxJ"),
        ("//registry.internal/:_authToken=kTzQwvHbxJ", "kTzQwvHbxJ"),
        ("my password is x8fk2pq9vd", "x8fk2pq9vd"),
    ] {
        let out = clean(&redactor, text);
        assert!(!out.contains(secret) && out.contains("[REDACTED:"), "{text} -> {out}");
    }
}

#[test]
fn the_name_of_a_field_is_used() {
    let redactor = redactor(&[]);
    assert_eq!(redactor.redact_named("password", "hunter2!x").unwrap().count, 1);
    assert_eq!(redactor.redact_named("path", "hunter2!x").unwrap().count, 0);
    assert_eq!(redactor.redact_named("password", "${PASSWORD}").unwrap().count, 0);
}

// Entropy never counts alone
#[test]
fn a_random_text_without_a_context_is_left_alone() {
    let mut rng = SeededRng(4);
    for _ in 0..500 {
        untouched(&format!("value {} end", rng.letters(ALNUM, 40)));
    }
}

// Collected from false positives in packages that were not used to write the rules.
#[test]
fn names_routes_and_resources_are_left_alone() {
    for text in [
        "{AWS.STS.assumeRoleWithWebIdentity}",
        "SIGN_IN_WITH_CUSTOM_TOKEN = '/v1/accounts:signInWithCustomToken',",
        "[\"/v1/accounts:signInWithPassword\",\"/v1/accounts:signInWithPhoneNumber\"]",
        "\"arn:aws:secretsmanager:us-east-1:012345678901:secret:myuser/ALL.SOURCE.ORACLE_12-0123456\"",
        "'X-KM-SECRET': this.opts.SECRET_KEY,\n        'X-KM-SERVER': this.opts.MACHINE_NAME,",
        "switch(s){case`password`:return!1}",
        "mongodb://val:psw@127.0.0.1:27017/mydb",
        "this._sendCommand('AUTH CRAM-MD5');",
        "SSHPASS = \"sshpass.%s\" % EXT",
        "printf(\"%2d:%2d\\n\", a, b)",
        "csrf_token = \"aQ9zX7pLm2Kd8fWq\"",
        "auth: oauth2\nauth = \"basic\"\n",
        "AUTH PLAIN LOGIN\n",
        "a/b.svg,sha256=-BSAgu51-R5Z3nFTk8qISnl4lewj3C3L3stNaxyQ-s8,289",
        "dependencies = [('authtoken', '0002_auto_20160226_1747'),]",
        "('2.5.4.35', OID_ATTRIBUTE_TYPE, 'userPassword', 'RFC4519'),",
        "\"derivedKey\",\"decodeUserPassword\",\"#decodeUserPassword\"",
        "msgstr \"Je wachtwoord is gewijzigd.\"",
    ] {
        untouched(text);
    }
}
