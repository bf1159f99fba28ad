//! Options of package managers that take the next word as their value: it is no subcommand and no package.

/// Options before or after the subcommand whose value is the next word.
pub(super) fn value_options(program: &str) -> &'static [&'static str] {
    match program {
        "npm" | "npx" => &[
            "--prefix",
            "-C",
            "-w",
            "--workspace",
            "--registry",
            "--cache",
            "--userconfig",
            "-p",
            "--package",
            "--loglevel",
        ],
        "pnpm" => &["-C", "--dir", "-F", "--filter", "--registry", "--reporter"],
        "yarn" => &["--cwd", "--registry", "--cache-folder"],
        "pip" => &[
            "-r",
            "--requirement",
            "-c",
            "--constraint",
            "-i",
            "--index-url",
            "--extra-index-url",
            "-f",
            "--find-links",
            "-t",
            "--target",
            "--prefix",
            "--root",
            "--proxy",
            "--cert",
            "--python",
            "--log",
            "--timeout",
            "--retries",
            "-d",
            "--dest",
        ],
        "uv" | "uvx" => &[
            "--directory",
            "--project",
            "-p",
            "--python",
            "--index-url",
            "--cache-dir",
            "--with",
            "--from",
            "--config-file",
        ],
        "poetry" => {
            &["-C", "--directory", "-P", "--project", "-G", "--group", "--with", "--without", "--only"]
        }
        "cargo" => &[
            "--manifest-path",
            "--config",
            "-Z",
            "-C",
            "--color",
            "--target",
            "--target-dir",
            "-p",
            "--package",
        ],
        "go" => &["-C", "-modfile", "-overlay"],
        "bundle" | "bundler" => &["--gemfile", "--path", "--jobs", "-j", "--retry", "--with", "--without"],
        "apt" | "apt-get" => &["-o", "-c", "-t"],
        _ => &[],
    }
}
