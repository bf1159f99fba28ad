//! What a hostile or careless program prints: secrets of common files and services, in the formats of 2026. None of
//! them may appear in the output. Tokens are concatenated here, so that no scanner finds one in this file.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use vambrace_core::redacted::Redacted;

use crate::fixtures::{ALNUM, HEX, SeededRng, clean, redactor};

const DIGITS: &str = "0123456789";
const CAPITALS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const URL_SAFE: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const SMALL: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
const BECH: &str = "023456789ACDEFGHJKLMNPQRSTUVWXYZ";

/// A piece of the secret that is left in the output and would help to guess the rest.
fn left<'a>(out: &str, secret: &'a str) -> Option<&'a str> {
    let letters: Vec<usize> = secret.char_indices().map(|(n, _)| n).chain([secret.len()]).collect();
    letters.windows(9).map(|nine| &secret[nine[0]..nine[8]]).find(|piece| out.contains(piece))
}

/// Tokens with a fixed text in them.
fn tokens(rng: &mut SeededRng) -> Vec<(&'static str, String)> {
    let mut t = |alphabet: &str, count: usize| rng.letters(alphabet, count);
    vec![
        ("aws key id", format!("AK{}{}", "IA", t(CAPITALS, 16))),
        ("aws session key id", format!("AS{}{}", "IA", t(CAPITALS, 16))),
        ("github classic", format!("gh{}_{}", "p", t(ALNUM, 36))),
        ("github fine-grained", format!("github_{}_{}_{}", "pat", t(ALNUM, 22), t(ALNUM, 59))),
        ("github app", format!("gh{}_{}", "s", t(ALNUM, 36))),
        ("github refresh", format!("gh{}_{}", "r", t(ALNUM, 76))),
        ("gitlab", format!("gl{}-{}", "pat", t(URL_SAFE, 20))),
        ("gitlab routable", format!("gl{}-{}.01.{}", "pat", t(URL_SAFE, 27), t(SMALL, 9))),
        ("gitlab runner", format!("gl{}-{}", "rt", t(URL_SAFE, 20))),
        ("openai project", format!("sk-{}-{}T3BlbkFJ{}", "proj", t(URL_SAFE, 74), t(URL_SAFE, 74))),
        (
            "openai service account",
            format!("sk-{}-{}T3BlbkFJ{}", "svcacct", t(URL_SAFE, 58), t(URL_SAFE, 58)),
        ),
        ("openai admin", format!("sk-{}-{}T3BlbkFJ{}", "admin", t(URL_SAFE, 58), t(URL_SAFE, 58))),
        ("openai old", format!("sk-{}{}T3BlbkFJ{}", "", t(ALNUM, 20), t(ALNUM, 20))),
        ("anthropic", format!("sk-{}-api03-{}AA", "ant", t(URL_SAFE, 93))),
        ("anthropic admin", format!("sk-{}-admin01-{}AA", "ant", t(URL_SAFE, 93))),
        ("anthropic oauth", format!("sk-{}-oat01-{}AA", "ant", t(URL_SAFE, 93))),
        ("openrouter", format!("sk-{}-v1-{}", "or", t(HEX, 64))),
        ("groq", format!("gs{}_{}", "k", t(ALNUM, 52))),
        ("xai", format!("xa{}-{}", "i", t(ALNUM, 80))),
        ("perplexity", format!("pp{}-{}", "lx", t(ALNUM, 48))),
        ("replicate", format!("r8{}{}", "_", t(ALNUM, 37))),
        ("deepseek", format!("sk-{}{}", "", t(HEX, 32))),
        (
            "hugging face",
            format!("hf{}{}", "_", t("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 34)),
        ),
        ("langsmith", format!("ls{}2_pt_{}_{}", "v", t(HEX, 32), t(HEX, 10))),
        ("tavily", format!("tv{}-dev-{}", "ly", t(ALNUM, 32))),
        ("cerebras", format!("cs{}-{}", "k", t(SMALL, 48))),
        ("fireworks", format!("fw{}{}", "_", t(ALNUM, 24))),
        ("slack bot", format!("xo{}-{}-{}-{}", "xb", t(DIGITS, 12), t(DIGITS, 13), t(ALNUM, 24))),
        ("slack app", format!("xa{}-1-A{}-{}-{}", "pp", t(CAPITALS, 10), t(DIGITS, 13), t(HEX, 64))),
        ("slack cookie", format!("xo{}-{}", "xd", t(URL_SAFE, 80))),
        (
            "slack web hook",
            format!(
                "https://hooks.{}.com/services/T{}/B{}/{}",
                "slack",
                t(CAPITALS, 8),
                t(CAPITALS, 8),
                t(ALNUM, 24)
            ),
        ),
        (
            "discord web hook",
            format!("https://discord.{}/api/webhooks/{}/{}", "com", t(DIGITS, 18), t(URL_SAFE, 68)),
        ),
        ("stripe live", format!("sk{}live_51{}", "_", t(ALNUM, 97))),
        ("stripe restricted", format!("rk{}live_51{}", "_", t(ALNUM, 97))),
        ("stripe web hook", format!("wh{}_{}", "sec", t(ALNUM, 32))),
        ("npm", format!("np{}_{}", "m", t(ALNUM, 36))),
        ("pypi", format!("py{}-AgEIcHlwaS5vcmc{}", "pi", t(URL_SAFE, 150))),
        ("rubygems", format!("ruby{}_{}", "gems", t(HEX, 48))),
        ("crates", format!("ci{}{}", "o", t(ALNUM, 32))),
        ("docker", format!("dc{}_pat_{}", "kr", t(URL_SAFE, 27))),
        ("twilio", format!("S{}{}", "K", t(HEX, 32))),
        ("sendgrid", format!("S{}.{}.{}", "G", t(URL_SAFE, 22), t(URL_SAFE, 43))),
        ("mailgun", format!("ke{}-{}", "y", t(HEX, 32))),
        ("telegram", format!("{}:AA{}", t(DIGITS, 10), t(URL_SAFE, 33))),
        ("google", format!("AI{}{}", "za", t(URL_SAFE, 35))),
        ("google oauth secret", format!("GO{}-{}", "CSPX", t(URL_SAFE, 28))),
        ("google oauth token", format!("ya{}.a0{}", "29", t(URL_SAFE, 160))),
        ("digitalocean", format!("do{}_v1_{}", "p", t(HEX, 64))),
        ("databricks", format!("da{}{}", "pi", t(HEX, 32))),
        ("hashicorp vault", format!("hv{}.{}", "s", t(URL_SAFE, 94))),
        ("terraform cloud", format!("{}.atlas{}.{}", t(ALNUM, 14), "v1", t(URL_SAFE, 67))),
        ("grafana", format!("gl{}_{}_{}", "sa", t(ALNUM, 32), t(HEX, 8))),
        ("sentry", format!("snt{}_eyJ{}", "rys", t(ALNUM, 120))),
        ("new relic", format!("NR{}-{}", "AK", t(CAPITALS, 27))),
        ("atlassian", format!("AT{}3xFfGF0{}={}", "ATT", t(URL_SAFE, 180), t("0123456789ABCDEF", 8))),
        ("linear", format!("lin{}_{}", "_api", t(ALNUM, 40))),
        ("notion", format!("nt{}_{}", "n", t(ALNUM, 46))),
        ("figma", format!("fi{}_{}", "gd", t(URL_SAFE, 40))),
        ("postman", format!("PM{}-{}-{}", "AK", t(HEX, 24), t(HEX, 34))),
        ("shopify", format!("sh{}_{}", "pat", t(HEX, 32))),
        ("supabase", format!("sb{}_{}", "p", t(HEX, 40))),
        ("tailscale", format!("ts{}-auth-{}-{}", "key", t(ALNUM, 12), t(ALNUM, 32))),
        ("age", format!("AGE-SECRET-{}-1{}", "KEY", t(BECH, 58))),
        ("doppler", format!("dp.{}.{}", "st.prd", t(ALNUM, 43))),
        ("1password", format!("ops{}eyJ{}", "_", t(ALNUM, 300))),
        ("airtable", format!("pat{}.{}", t(ALNUM, 14), t(HEX, 64))),
        ("netlify", format!("nf{}_{}", "p", t(ALNUM, 36))),
        ("buildkite", format!("bk{}_{}", "ua", t(HEX, 40))),
        ("circleci", format!("CCI{}_{}_{}", "PAT", t(ALNUM, 22), t(HEX, 40))),
        ("sonar", format!("sq{}_{}", "u", t(HEX, 40))),
        (
            "web token",
            format!(
                "ey{}.eyJzdWIiOiI{}.{}",
                "JhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
                t(ALNUM, 60),
                t(URL_SAFE, 43)
            ),
        ),
    ]
}

// T21
#[test]
fn well_known_tokens_are_redacted_in_any_context() {
    let redactor = redactor(&[]);
    let mut leaked = Vec::new();
    for (name, token) in tokens(&mut SeededRng(2026)) {
        let spelled = |sign: fn(char) -> String| {
            token
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c.to_string() } else { sign(c) })
                .collect::<String>()
        };
        for text in [
            token.clone(),
            format!("{token}\n"),
            format!("\"{token}\""),
            format!("{{\"data\":[\"{token}\"]}}"),
            format!("x-header: {token}\r\n"),
            format!("docs/{token}.txt"),
            format!("-{token}\n+none\n"),
            format!("src/a.rs:12:{token}"),
            format!("\u{1b}[31m{token}\u{1b}[0m"),
            format!("a\\n{token}\\nb"),
            format!("a\\t{token}\\tb"),
            format!("<{token}>"),
            format!("({token})"),
            format!("\u{e9}{token}\u{e9}"),
            format!("\0{token}\0"),
            format!("'{token}'"),
            format!("x={token}&y=1"),
            spelled(|c| format!("%{:02X}", u32::from(c))),
            spelled(|c| format!("%{:02x}", u32::from(c))),
            spelled(|c| format!("\\u{:04x}", u32::from(c))),
            spelled(|c| format!("\\u{:04X}", u32::from(c))),
            spelled(|c| format!("\\\\u{:04x}", u32::from(c))),
            spelled(|c| format!("\\x{:02x}", u32::from(c))),
            spelled(|c| format!("&#{};", u32::from(c))),
            spelled(|c| format!("&#x{:X};", u32::from(c))),
            spelled(|c| if c == '/' { "\\/".to_owned() } else { c.to_string() }),
            spelled(|c| if c == '/' || c == ':' { format!("%{:02X}", u32::from(c)) } else { c.to_string() }),
        ] {
            let out = clean(&redactor, &text);
            // The address of a web hook and the prefix reveal nothing without the rest.
            let body = token.rsplit(['/', '.', '-', ':', '_']).max_by_key(|part| part.len()).unwrap();
            if let Some(piece) = left(&out, body) {
                leaked.push(format!("{name}: {text:?} -> {piece}"));
            }
        }
    }
    assert!(leaked.is_empty(), "{} leaked:\n{}", leaked.len(), leaked.join("\n"));
}

/// Files, responses and command lines with secrets that have no fixed text in them. What is in angle brackets is filled
/// in: a password, a key, a UUID, a token, base64 of a user and a password. Upper case means URL-encoded; a number is
/// the length of a part of the token.
#[rustfmt::skip]
const PLACES: &[&str] = &[
    // A password of letters, digits and punctuation, and a key.
    // dotfiles
    "machine github.com\n  login ada\n  password <p>\n",
    "machine github.com login ada password <p> account x\n",
    "default login ada password <p>\n",
    "db.internal:5432:orders:ada:<p>\n",
    "10.0.0.4:5432:*:ada:<p>\n",
    "{\n\t\"auths\": {\n\t\t\"ghcr.io\": {\n\t\t\t\"auth\": \"<pair>\"\n\t\t}\n\t}\n}\n",
    "{\"auths\":{\"ghcr.io\":{\"username\":\"ada\",\"password\":\"<p>\"}}}",
    "{\"auths\":{\"x\":{\"identitytoken\":\"<long>\"}}}",
    "users:\n- name: admin\n  user:\n    client-key-data: <long64>\n",
    "users:\n- name: admin\n  user:\n    token: <long>\n",
    "users:\n- name: admin\n  user:\n    username: admin\n    password: <p>\n",
    "[default]\naws_access_key_id = x\naws_secret_access_key = <k>\naws_session_token = <long><k>\n",
    "aws_session_token=<long><k>",
    "//registry.npmjs.org/:_authToken=<u>\n",
    "//registry.internal/:_auth=<pair>\n",
    "//registry.internal/:_password=<p64>\n",
    "_auth = <pair>\nemail=a@b.c\n",
    "https://ada:<P>@github.com\n",
    "https://x-access-token:<long>@github.com/a/b.git\n",
    "[url \"https://oauth2:<long>@gitlab.com/\"]\n  insteadOf = x\n",
    "[distutils]\n[pypi]\nusername: ada\npassword: <p>\n",
    "[client]\nuser=ada\npassword=<p>\n",
    "[client]\nuser = ada\npassword = \"<p>\"\n",
    "[registry]\ntoken = \"<long>\"\n",
    "machines:\n  - {host: x, password: '<p>'}\n",
    "bindpw <p>\n",
    "bind_password: <p>\n",
    "requirepass <p>\n",
    "masterauth <p>\n",
    "AUTH <p>\r\n",
    "AUTH default <p>\r\n",
    "127.0.0.1:6379> AUTH <p>\nOK\n",
    "1) \"requirepass\"\n2) \"<p>\"\n",
    "*2\r\n$4\r\nAUTH\r\n$16\r\n<p>\r\n",
    "psk=\"<p>\"\n",
    "    wpa-psk <p>\n",
    "network={\n  ssid=\"x\"\n  psk=\"<p>\"\n}\n",
    "{\"type\": \"service_account\", \"private_key_id\": \"x\", \"private_key\": \"-----BEGIN <mark>-----\\n<long>\\n<long>\\n-----END <mark>-----\\n\"}",
    "-----BEGIN OPENSSH <mark>-----\n<long>\n<long>\n-----END OPENSSH <mark>-----\n",
    "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPublic-Lines: 1\nAAAA\nPrivate-Lines: 1\n<k>\nPrivate-MAC: x\n",
    "[Interface]\nPrivateKey = <43>=\nAddress = 10.0.0.1\n",
    "export DB_PASSWORD=<p>\n",
    "export DB_PASSWORD='<p>'\n",
    "declare -x API_TOKEN=\"<long>\"\n",
    "set -x API_TOKEN <long>\n",
    "set -gx API_TOKEN <long>\n",
    "setenv API_TOKEN <long>\n",
    "$env:API_TOKEN = \"<long>\"\n",
    "$Env:API_TOKEN='<long>'\n",
    "setx API_TOKEN <long>\n",
    "set API_TOKEN=<long>\r\n",
    "HOME=/root\0API_TOKEN=<long>\0PATH=/bin\0",
    "HOME=/root\0DB_PASSWORD=<p>\0PATH=/bin\0",
    "HOME=/root\\0DB_PASSWORD=<p>\\0PATH=/bin\\0",
    "b'HOME=/root\\x00DB_PASSWORD=<p>\\x00PATH=/bin\\x00'",
    "{\"environ\":\"HOME=/root\\u0000DB_PASSWORD=<p>\\u0000PATH=/bin\\u0000\"}",
    "environ({'HOME': '/root', 'DB_PASSWORD': '<p>', 'X': 'y'})",
    "{\n  HOME: '/root',\n  DB_PASSWORD: '<p>',\n}\n",
    "Environment=\"DB_PASSWORD=<p>\"\n",
    "ENV DB_PASSWORD=<p>\n",
    "ENV DB_PASSWORD <p>\n",
    "docker run -e DB_PASSWORD=<p> -d x\n",
    "      - DB_PASSWORD=<p>\n",
    "\"Env\": [\n  \"DB_PASSWORD=<p>\",\n  \"PATH=/bin\"\n]",
    "env:\n  - name: DB_PASSWORD\n    value: \"<p>\"\n",
    "DB_PASSWORD: <p>\n",
    "++ DB_PASSWORD=<p>\n++ export DB_PASSWORD\n",
    "password: |\n  <p>\n",
    "password: >-\n    <p>\nother: 1\n",
    "password: |-\n  <p>\n",
    "password: |2-\n    <p>\n",
    "password: !!str <p>\n",
    "password: &pw <p>\n",
    "db_password = \"<p>\"\n",
    "db_password = <<EOT\n<p>\nEOT\n",
    "password = \"\"\"\n<p>\"\"\"\n",
    "password = '''<p>'''\n",
    "variable \"db_password\" {\n  default = \"<p>\"\n}\n",
    "  + password = \"<p>\"\n",
    "  ~ password = \"<p>\" -> (known after apply)\n",
    "  ~ password = \"old-one\" -> \"<p>\"\n",
    "{\"password\":\"<p>\"}",
    "{\"password\" : [\"<p>\"]}",
    "{\"password\":{\"value\":\"<p>\",\"type\":\"string\"}}",
    "{\"outputs\":{\"db_password\":{\"sensitive\":true,\"type\":\"string\",\"value\":\"<p>\"}}}",
    "{\"key\":\"db_password\",\"value\":\"<p>\"}",
    "{\"Key\": \"DB_PASSWORD\", \"Value\": \"<p>\"}",
    "{\"ParameterKey\": \"DbPassword\", \"ParameterValue\": \"<p>\"}",
    "{\"SecretString\":\"{\\\"username\\\":\\\"ada\\\",\\\"password\\\":\\\"<p>\\\"}\"}",
    "{\"SecretAccessKey\": \"<k>\", \"SessionToken\": \"<long>\"}",
    "<password><p></password>",
    "<server><username>ada</username><password><p></password></server>",
    "<property name=\"hibernate.connection.password\"><p></property>",
    "<property name=\"password\" value=\"<p>\"/>",
    "<Parameter name=\"password\" type=\"string\"><p></Parameter>",
    "<add name=\"x\" connectionString=\"Server=db;User ID=ada;Password=<p>;\"/>",
    "<key>password</key>\n<string><p></string>\n",
    "spring.datasource.password=<p>\n",
    "spring:\n  datasource:\n    password: <p>\n",
    "csrf_secret=<long>\n",
    "csrf_secret = \"<p>\"\n",
    "state_secret: <long>\n",
    "auth: <long>\n",
    "auth: <p>\n",
    "auth = \"<long>\"\n",
    "\"auth\": \"<long>\"\n",
    "--auth <long> -x\n",
    "passwd: <p>\n",
    "pass: <p>\n",
    "Kennwort: <p>\nPasswort: <p>\n",
    "mot_de_passe=<p>\n",
    "postgres://ada:<P>@db:5432/x",
    "mongodb+srv://ada:<P>@c.mongodb.net/?x=1",
    "redis://:<P>@cache:6379/0",
    "amqp://ada:<P>@mq//",
    "Server=db;Database=x;User Id=ada;Password=<p>;Encrypt=true",
    "Server=db;Uid=ada;Pwd=<p>;",
    "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=<k><k>==;EndpointSuffix=core.windows.net",
    "Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=<k>abc=",
    "jdbc:postgresql://db/x?user=ada&password=<P>",
    "jdbc:oracle:thin:ada/<P>@//db:1521/x",
    "ada:<p>@tcp(db:3306)/x",
    "host=db port=5432 user=ada password=<p> dbname=x",
    "postgres%3A%2F%2Fada%3A<P>%40db%3A5432%2Fx",
    "postgres:\\/\\/ada:<P>@db:5432\\/x",
    "sentry: https://<h>@o1.ingest.sentry.io/2",
    "Authorization: Bearer <long>\r\n",
    "authorization: bearer <p>\r\n",
    "Authorization: Basic <pair>\r\n",
    "Authorization: Token <long>\r\n",
    "Authorization: token <p><p>\r\n",
    "Authorization: ApiKey <pair>\r\n",
    "Authorization: <long>\r\n",
    "Proxy-Authorization: Basic <pair>\r\n",
    "X-Api-Key: <long>\r\n",
    "x-auth-token: <long>\r\n",
    "X-Vault-Token: <u>\r\n",
    "PRIVATE-TOKEN: <20>\r\n",
    "X-Amz-Security-Token: <long><k>\r\n",
    "Cookie: theme=dark; session=<long>; lang=de\r\n",
    "Set-Cookie: sid=s%3A<32>.<k>; Path=/; HttpOnly\r\n",
    "set-cookie: sessionid=<32>; Path=/\r\n",
    "< set-cookie: JSESSIONID=<32S>; Path=/\r\n",
    "'cookie': 'sessionid=<32>; a=b'",
    "(\"set-cookie\", \"sessionid=<32>; a=b\")",
    "[\"Cookie\", \"sessionid=<32>; a=b\"]",
    "Cookie:sessionid=<32>\r\n",
    ".example.com\tTRUE\t/\tTRUE\t1799999999\tsessionid\t<32>\n",
    "> Authorization: Bearer <long>\n> Accept: */*\n",
    "('Authorization', 'Bearer <long>')",
    "[\"Authorization\",\"Bearer <long>\"]",
    "{\"name\":\"Authorization\",\"value\":\"Bearer <long>\"}",
    "{\"name\":\"X-Api-Key\",\"value\":\"<long>\"}",
    "https://x.blob.core.windows.net/c?sv=2024&sig=<K>%3D&se=x",
    "https://h/cb?access_token=<long>&x=1",
    "https://h/cb#access_token=<long>&x=1",
    "https://h/cb?code=x&client_secret=<P>",
    "curl -u ada:<p> https://h",
    "curl -uada:<p> https://h",
    "curl --user 'ada:<p>' https://h",
    "curl -sSLu ada:<p> https://h",
    "curl -H 'X-Api-Key: <long>' https://h",
    "curl -H \"Authorization: Bearer <long>\" https://h",
    "curl -d '{\"password\":\"<p>\"}' https://h",
    "curl -b 'sid=<32>' https://h",
    "curl --oauth2-bearer <long> https://h",
    "wget --password=<p> --user=ada https://h",
    "mysql -uroot -p<p> x",
    "mysql --password=<p> x",
    "PGPASSWORD=<p> psql -h db",
    "MYSQL_PWD=<p> mysql",
    "REDISCLI_AUTH=<p> redis-cli ping",
    "redis-cli -a <p> ping",
    "redis-cli -a '<p>' ping",
    "redis-cli --pass <p> ping",
    "sshpass -p '<p>' ssh ada@h",
    "SSHPASS=<p> sshpass -e ssh ada@h",
    "docker login -u ada -p <p> ghcr.io",
    "docker login --username ada --password <p> ghcr.io",
    "echo <p> | docker login -u ada --password-stdin",
    "echo \"<p>\" | docker login -u ada --password-stdin",
    "echo '<p>' | sudo -S ls",
    "printf '%s' '<p>' | helm registry login -u ada --password-stdin h",
    "net use Z: \\\\srv\\share <p> /user:ada",
    "net user ada <p> /add",
    "cmdkey /add:srv /user:ada /pass:<p>",
    "psexec \\\\srv -u ada -p <p> cmd",
    "openssl enc -aes-256-cbc -k <p> -in x",
    "openssl rsa -passin pass:<p> -in k.pem",
    "gpg --batch --passphrase <p> -d x",
    "keytool -storepass <p> -list",
    "ldapsearch -x -D cn=admin -w <p> -b dc=x",
    "vault kv put secret/x password=<p>",
    "kubectl create secret generic x --from-literal=password=<p>",
    "aws configure set aws_secret_access_key <k>",
    "git config user.password <p>",
    "az login --service-principal -u x -p <p> --tenant y",
    "htpasswd -bc f ada <p>",
    "echo 'ada:<p>' | chpasswd",
    "smbclient //srv/share -U ada%<p>",
    "xfreerdp /u:ada /p:<p> /v:h",
    "ALTER USER ada WITH PASSWORD '<p>';",
    "CREATE USER 'ada'@'%' IDENTIFIED BY '<p>';",
    "SET PASSWORD FOR ada = PASSWORD('<p>');",
    "ALTER LOGIN ada WITH PASSWORD = '<p>';",
    "client = Client(api_key=\"<long>\")",
    "const apiKey = '<long>';",
    "requests.get(u, auth=('ada', '<p>'))",
    "conn = psycopg2.connect(host='db', user='ada', password='<p>')",
    "DriverManager.getConnection(url, \"ada\", \"<p>\")",
    "new NetworkCredential(\"ada\", \"<p>\")",
    "password := []byte(\"<p>\")",
    "static PASSWORD: &str = \"<p>\";",
    "#define PASSWORD \"<p>\"",
    "define('DB_PASSWORD', '<p>');",
    "'password' => '<p>',",
    "$password = '<p>';",
    "password: \"<p>\",",
    "E: login failed for ada: password '<p>' is wrong",
    "invalid api key: <long>",
    "Error: Incorrect API key provided: <long>.",
    "DEBUG auth token=<long>",
    "Temporary password: <p>",
    "A temporary password is generated for root@localhost: <p>",
    "Your password is <p>",
    "\u{1b}[32mpassword\u{1b}[0m: <p>",
    "| password | <p> |",
    "+password=<p>\n-password=old\n",
    "config.yml:12:password: <p>\n",
    "config.yml-12-  password: <p>\n",
    "  12\tpassword: <p>\n",
    "2026-01-01T00:00:00Z INFO password=<p> user=ada\n",
];

// T21
#[test]
fn secrets_in_common_files_are_redacted() {
    let redactor = redactor(&[]);
    let mut rng = SeededRng(2026);
    let mut leaked = Vec::new();
    for round in 0..4 {
        let p = match round {
            0 => rng.letters(ALNUM, 16),
            1 => format!("{}!{}#{}", rng.letters(ALNUM, 5), rng.letters(DIGITS, 2), rng.letters(ALNUM, 4)),
            2 => rng.letters(SMALL, 14),
            _ => rng.letters(HEX, 32),
        };
        let k = rng.letters(&format!("{ALNUM}+/"), 40);
        let h = rng.letters(HEX, 32);
        let u = format!("{}-{}-4{}-a{}-{}", &h[..8], &h[8..12], &h[13..16], &h[17..20], &h[20..]);
        let long = rng.letters(ALNUM, 64);
        let filled = [
            ("<p>", p.clone()),
            ("<P>", p.replace('#', "%23")),
            ("<p64>", BASE64_STANDARD.encode(&p)),
            ("<pair>", BASE64_STANDARD.encode(format!("ada:{p}"))),
            ("<k>", k.clone()),
            ("<K>", k.replace('+', "%2B").replace('/', "%2F")),
            ("<h>", h.clone()),
            ("<u>", u),
            ("<20>", long[..20].to_owned()),
            ("<32>", long[..32].to_owned()),
            ("<32S>", long[..32].to_uppercase()),
            ("<43>", long[..43].to_owned()),
            ("<long64>", BASE64_STANDARD.encode(&long)),
            ("<long>", long.clone()),
            ("<mark>", format!("{} KEY", "PRIVATE")),
        ];
        for place in PLACES {
            let fill = |text: String, (mark, with): &(&str, String)| text.replace(mark, with);
            let text = filled.iter().fold((*place).to_owned(), fill);
            let out = clean(&redactor, &text);
            let secrets = filled.iter().filter(|(mark, _)| *mark != "<mark>" && place.contains(mark));
            for (_, secret) in secrets {
                if left(&out, secret).is_some() {
                    leaked.push(format!("{text:?} -> {out:?}"));
                }
            }
        }
    }
    assert!(leaked.is_empty(), "{} leaked:\n{}", leaked.len(), leaked.join("\n"));
}

// T21: results are redacted field by field; the name of a field and its neighbours still count
#[test]
fn structured_results_reveal_no_more_than_their_text() {
    let p = SeededRng(7).letters(ALNUM, 16);
    let redactor = redactor(&["4815162342"]);
    for value in [
        json!({"password": p}),
        json!({"headers": {"X-Api-Key": [p]}}),
        json!({"headers": [["X-Api-Key", p]]}),
        json!({"headers": [{"name": "X-Api-Key", "value": p}]}),
        json!({"Parameters": [{"Key": "db_password", "Value": p}]}),
        json!({"outputs": {"db_password": {"sensitive": true, "value": p}}}),
        json!({"argv": ["docker", "login", "-u", "ada", "-p", p]}),
        json!({"argv": ["curl", "-u", format!("ada:{p}"), "https://h"]}),
        json!({"argv": ["psql", "--password", p]}),
        json!({"argv": ["mysql", format!("-p{p}"), "orders"]}),
        json!({ format!("postgres://ada:{p}@db/x"): 1 }),
        json!({"content": format!("password: {p}\n")}),
        json!({"pin": 4_815_162_342_u64, "password": p}),
    ] {
        let clean = Redacted::json(value.clone(), &redactor).unwrap();
        let out = clean.get().to_string();
        assert!(left(&out, &p).is_none() && !out.contains("4815162342"), "{value} -> {out}");
        let again = Redacted::json(clean.get().clone(), &redactor).unwrap();
        assert_eq!((again.count(), again.get()), (0, clean.get()));
    }
    let plain =
        json!({"argv": ["cargo", "test", "-p", "redact"], "name": "value", "value": "key", "n": 12345678});
    assert_eq!(Redacted::json(plain.clone(), &redactor).unwrap().into_inner(), plain);
}
