//! Lines with a planted password or token: uniformly random values of every alphabet and length, in the contexts where people
//! and programs write them. Nothing is adapted to the rules: a value may be letters only, begin with punctuation, or spell a
//! word by chance.

use super::corpus::Rng;

const SMALL: &str = "abcdefghijklmnopqrstuvwxyz";
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const SMALL_DIGITS: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const SOME_SIGNS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!@#$%^*-_=+.?~";
const ALL_SIGNS: &str =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// The alphabets of the values.
pub(crate) const ALPHABETS: &[(&str, &str)] = &[
    ("small letters", SMALL),
    ("letters", LETTERS),
    ("small letters and digits", SMALL_DIGITS),
    ("letters and digits", ALNUM),
    ("letters, digits, some signs", SOME_SIGNS),
    ("letters, digits, every sign", ALL_SIGNS),
];

/// A planted line.
pub(crate) struct Planted {
    /// The kind of context.
    pub(crate) place: &'static str,
    /// The alphabet of the value.
    pub(crate) alphabet: &'static str,
    pub(crate) text: String,
    /// The value as it is encoded in the text.
    pub(crate) secret: String,
}

/// How a context encodes a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// Unquoted; a value with a space or a quote would be quoted, so few punctuation characters.
    Bare,
    /// In double quotes, `\` before `"` and `\`.
    Double,
    /// In single quotes; values that contain one are excluded.
    Single,
    /// In a JSON string inside a JSON string.
    Twice,
    /// Percent-encoded.
    Percent,
    /// XML entities.
    Markup,
    /// Base64 of the value.
    Base64,
    /// Base64 of `user:value`.
    UserPair,
}

/// A context: its kind, the text with `@` for the value and `~` for the name, and the encoding.
type Context = (&'static str, &'static str, Encoding);

#[rustfmt::skip]
const PASSWORDS: &[Context] = &[
    ("environment", "~=@\n", Encoding::Bare),
    ("environment", "export ~=@\n", Encoding::Bare),
    ("environment", "~=\"@\"\nNEXT=1\n", Encoding::Double),
    ("environment", "export ~='@'\n", Encoding::Single),
    ("environment", "ENV ~=@\n", Encoding::Bare),
    ("environment", "      - ~=@\n", Encoding::Bare),
    ("environment", "PGPASSWORD=@ psql -h db.internal -U app\n", Encoding::Bare),
    ("environment", "MYSQL_PWD=@ mysqldump orders\n", Encoding::Bare),
    ("json", "{\"user\": \"ada\", \"~\": \"@\"}\n", Encoding::Double),
    ("json", "  \"~\": \"@\",\n  \"port\": 5432\n", Encoding::Double),
    ("json", "{\"~\":\"@\",\"x\":1}", Encoding::Double),
    ("json", "\"body\": \"{\\\"~\\\":\\\"@\\\"}\"\n", Encoding::Twice),
    ("yaml", "db:\n  user: app\n  ~: @\n", Encoding::Bare),
    ("yaml", "~: \"@\"\n", Encoding::Double),
    ("yaml", "  ~: '@'\n  port: 1\n", Encoding::Single),
    ("yaml", "- name: ~\n  value: \"@\"\n", Encoding::Double),
    ("yaml", "~: >-\n  @\nnext: 1\n", Encoding::Bare),
    ("settings", "[db]\n~ = @\nport = 1\n", Encoding::Bare),
    ("settings", "~=@\nport=1\n", Encoding::Bare),
    ("settings", "spring.datasource.password=@\n", Encoding::Bare),
    ("settings", "~ = \"@\"\n", Encoding::Double),
    ("settings", "  ~ = \"@\"\n  port     = 5432\n", Encoding::Double),
    ("settings", "[pypi]\nusername = ada\npassword = @\n", Encoding::Bare),
    ("source", "const dbPassword = '@';\n", Encoding::Single),
    ("source", "    password = \"@\"\n", Encoding::Double),
    ("source", "connect(user=\"app\", password=\"@\", port=1)\n", Encoding::Double),
    ("source", "config['~'] = '@'\n", Encoding::Single),
    ("source", "var Password string = \"@\"\n", Encoding::Double),
    ("command", "tool --password @ --verbose\n", Encoding::Bare),
    ("command", "tool --password=@ --verbose\n", Encoding::Bare),
    ("command", "tool --db-password '@' x\n", Encoding::Single),
    ("command", "mysql -u root -p@ orders\n", Encoding::Bare),
    ("command", "mysqldump -uroot -p'@' orders\n", Encoding::Single),
    ("command", "curl -u ada:@ https://files.internal/x\n", Encoding::Bare),
    ("command", "curl --user 'ada:@' https://files.internal/x\n", Encoding::Single),
    ("command", "sshpass -p '@' ssh ada@host\n", Encoding::Single),
    ("command", "docker login -u ada -p @ registry.internal\n", Encoding::Bare),
    ("command", "redis-cli -h cache -a @ ping\n", Encoding::Bare),
    ("address", "postgres://app:@@db.internal:5432/orders\n", Encoding::Percent),
    ("address", "DATABASE_URL=mysql://app:@@db/orders\n", Encoding::Percent),
    ("address", "mongodb+srv://svc:@@cluster0.abcde.mongodb.net/x?w=1\n", Encoding::Percent),
    ("address", "redis://:@@cache:6379/0\n", Encoding::Percent),
    ("address", "amqp://svc:@@queue:5672/%2f\n", Encoding::Percent),
    ("address", "git clone https://ada:@@git.internal/x.git\n", Encoding::Percent),
    ("address", "jdbc:postgresql://db/orders?user=app&password=@&ssl=true\n", Encoding::Percent),
    ("address", "\"url\": \"https://ada:@@files.internal/\",\n", Encoding::Percent),
    ("connection", "Server=db;Database=x;User Id=app;Password=@;Timeout=5\n", Encoding::Bare),
    ("connection", "Data Source=db;Initial Catalog=x;uid=sa;pwd=@;\n", Encoding::Bare),
    ("connection", "\"Default\": \"Server=db;User Id=app;Password=@\"\n", Encoding::Bare),
    ("connection", "host=db user=app password=@ dbname=orders\n", Encoding::Bare),
    ("files", "db.internal:5432:orders:app:@\n", Encoding::Bare),
    ("files", "machine files.internal login ada password @\n", Encoding::Bare),
    ("files", "machine files.internal\n  login ada\n  password @\n", Encoding::Bare),
    ("files", "ALTER USER app WITH PASSWORD '@';\n", Encoding::Single),
    ("files", "CREATE USER 'app'@@'%' IDENTIFIED BY '@';\n", Encoding::Single),
    ("files", "requirepass @\n", Encoding::Bare),
    ("files", "apiVersion: v1\nkind: Secret\nstringData:\n  ~: @\n", Encoding::Bare),
    ("files", "apiVersion: v1\nkind: Secret\ndata:\n  ~: @\n", Encoding::Base64),
    ("files", "{\"auths\": {\"registry.internal\": {\"auth\": \"@\"}}}\n", Encoding::UserPair),
    ("markup", "<password>@</password>\n", Encoding::Markup),
    ("markup", "<add key=\"DbPassword\" value=\"@\"/>\n", Encoding::Markup),
    ("markup", "<property name=\"password\" value=\"@\"/>\n", Encoding::Markup),
    ("basic", "Authorization: Basic @\n", Encoding::UserPair),
    ("basic", "curl -H \"Authorization: Basic @\" https://h/\n", Encoding::UserPair),
];

#[rustfmt::skip]
const TOKENS: &[Context] = &[
    ("bearer", "Authorization: Bearer @\n", Encoding::Bare),
    ("bearer", "curl -H \"Authorization: Bearer @\" https://h/\n", Encoding::Bare),
    ("bearer", "{\"authorization\": \"Bearer @\"}\n", Encoding::Bare),
    ("headers", "X-Api-Key: @\n", Encoding::Bare),
    ("headers", "curl -H 'X-Auth-Token: @' https://h/\n", Encoding::Bare),
    ("headers", "Authorization: token @\n", Encoding::Bare),
    ("headers", "Cookie: theme=dark; session=@; lang=en\n", Encoding::Bare),
    ("headers", "Set-Cookie: sessionid=@; Path=/; HttpOnly\n", Encoding::Bare),
    ("tokens", "API_KEY=@\n", Encoding::Bare),
    ("tokens", "export AUTH_TOKEN=\"@\"\n", Encoding::Bare),
    ("tokens", "\"api_key\": \"@\",\n", Encoding::Bare),
    ("tokens", "client_secret: @\n", Encoding::Bare),
    ("tokens", "  \"clientSecret\": \"@\",\n", Encoding::Bare),
    ("tokens", "secret_key = \"@\"\n", Encoding::Bare),
    ("tokens", "tool --token=@ run\n", Encoding::Bare),
    ("tokens", "tool --token @ run\n", Encoding::Bare),
    ("tokens", "//registry.internal/:_authToken=@\n", Encoding::Bare),
    ("tokens", "users:\n- name: ada\n  user:\n    token: @\n", Encoding::Bare),
    ("tokens", "https://h/hook?access_token=@&x=1\n", Encoding::Bare),
    ("tokens", "aws_secret_access_key = @\n", Encoding::Bare),
    ("tokens", "const apiKey = \"@\";\n", Encoding::Bare),
    ("tokens", "client-key-data: @\n", Encoding::Base64),
];

#[rustfmt::skip]
const NAMES: &[&str] = &[
    "password", "PASSWORD", "Password", "db_password", "DB_PASSWORD", "dbPassword", "db_pass", "DB_PASS", "SMTP_PASS", "passwd", "pwd",
    "MYSQL_ROOT_PASSWORD", "POSTGRES_PASSWORD", "admin_password", "userPassword", "redis-password", "MAIL_PASSWORD", "passphrase",
];

/// Planted passwords: 8 to 40 characters.
pub(crate) fn passwords(rng: &mut Rng, each: usize) -> Vec<Planted> {
    planted(rng, PASSWORDS, ALPHABETS, each, 8, 40)
}

/// Planted tokens: 16 to 64 letters, or letters and digits, with the punctuation of base64 variants.
pub(crate) fn tokens(rng: &mut Rng, each: usize) -> Vec<Planted> {
    let alphabets = [
        ("token, letters", LETTERS),
        ("token, small letters and digits", SMALL_DIGITS),
        ("token, letters and digits", ALNUM),
        ("token, hex", "0123456789abcdef"),
        ("token, base64", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
    ];
    planted(rng, TOKENS, &alphabets, each, 16, 64)
}

fn planted(
    rng: &mut Rng,
    places: &[Context],
    alphabets: &[(&'static str, &str)],
    each: usize,
    least: usize,
    most: usize,
) -> Vec<Planted> {
    let mut all = Vec::new();
    for &(place, template, encoding) in places {
        for &(alphabet, letters) in alphabets {
            for _ in 0..each {
                let length = least + rng.below(most - least + 1);
                let mut value = rng.letters(letters, length);
                while !fits(&value, encoding) {
                    value =
                        rng.letters(if encoding == Encoding::Bare { SOME_SIGNS } else { letters }, length);
                }
                let secret = spell(&value, encoding);
                let name = NAMES[rng.below(NAMES.len())];
                let text = template.replace("@@", "\u{1}@").replace('~', name).replacen('@', "\u{2}", 1);
                // The first `@` that is not part of an address stands for the value.
                let text = match template.contains("@@") {
                    false => text.replace('\u{2}', &secret),
                    true if template.starts_with("CREATE") => text
                        .replace('\u{1}', "")
                        .replace('\u{2}', "@")
                        .replacen("BY '@'", &format!("BY '{secret}'"), 1),
                    true => text.replace("\u{1}\u{2}", &format!("{secret}@")),
                };
                all.push(Planted { place, alphabet, text, secret });
            }
        }
    }
    all
}

/// Whether the value is valid in this encoding: no character that would end it or mean something else.
fn fits(value: &str, encoding: Encoding) -> bool {
    match encoding {
        Encoding::Bare => {
            !value.contains(|c: char| "\"'`\\;&|<>(){}[], ".contains(c))
                && !value.starts_with(['#', '!', '@', '%', '*', '-', '?', '$', '~', '=', ':'])
                && !value.contains('$')
        }
        Encoding::Single => !value.contains(['\'', '\\']),
        Encoding::Double | Encoding::Twice => !value.contains('$') || !value.contains('{'),
        _ => true,
    }
}

fn spell(value: &str, encoding: Encoding) -> String {
    let json = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    match encoding {
        Encoding::Bare | Encoding::Single => value.to_owned(),
        Encoding::Double => json(value),
        Encoding::Twice => json(&json(value)),
        Encoding::Percent => value
            .bytes()
            .map(|byte| match byte {
                byte if byte.is_ascii_alphanumeric() || b"-_.~!*".contains(&byte) => {
                    char::from(byte).to_string()
                }
                byte => format!("%{byte:02X}"),
            })
            .collect(),
        Encoding::Markup => value
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&quot;")
            .replace('\'', "&apos;"),
        Encoding::Base64 => super::corpus::pack(value.as_bytes()),
        Encoding::UserPair => super::corpus::pack(format!("ada:{value}").as_bytes()),
    }
}

/// Whether no six consecutive characters of the secret are left.
pub(crate) fn is_gone(clean: &str, secret: &str) -> bool {
    let letters: Vec<char> = secret.chars().collect();
    !letters.windows(letters.len().min(6)).any(|piece| clean.contains(&piece.iter().collect::<String>()))
}
