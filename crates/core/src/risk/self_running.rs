//! Names of files that run code or configure what runs: one table, `self_running_names.txt`. Every name is HIGH risk for a
//! change; the protected ones are never written back after a confined program changed them, because what it wrote would
//! run without being asked.

use std::sync::LazyLock;

/// The table.
pub static SELF_RUNNING: LazyLock<SelfRunningNames> =
    LazyLock::new(|| SelfRunningNames::parse(include_str!("self_running_names.txt")));

/// Names with their categories, in the order of the table.
#[derive(Debug)]
pub struct SelfRunningNames {
    names: Vec<(Category, &'static str)>,
}

/// Why a name is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Category {
    Hook,
    Shell,
    Interpreter,
    Editor,
    Agent,
    Binary,
    Script,
    HookName,
    Service,
    Ci,
    Container,
    Build,
    Package,
    /// Not a category: protected, until a test has found it.
    Unknown,
}

impl Category {
    fn parse(word: &str) -> Self {
        match word {
            "hook" => Self::Hook,
            "shell" => Self::Shell,
            "interpreter" => Self::Interpreter,
            "editor" => Self::Editor,
            "agent" => Self::Agent,
            "binary" => Self::Binary,
            "script" => Self::Script,
            "hook-name" => Self::HookName,
            "service" => Self::Service,
            "ci" => Self::Ci,
            "container" => Self::Container,
            "build" => Self::Build,
            "package" => Self::Package,
            _ => Self::Unknown,
        }
    }

    /// Whether such a file runs without being asked, as soon as it is there.
    fn is_protected(self) -> bool {
        match self {
            Self::Hook | Self::Shell | Self::Interpreter | Self::Editor | Self::Agent | Self::Unknown => true,
            Self::Binary
            | Self::Script
            | Self::HookName
            | Self::Service
            | Self::Ci
            | Self::Container
            | Self::Build
            | Self::Package => false,
        }
    }
}

impl SelfRunningNames {
    fn parse(text: &'static str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let split = |line: &'static str| line.split_once(' ').unwrap_or(("", line));
        Self { names: lines.map(split).map(|(word, name)| (Category::parse(word), name)).collect() }
    }

    /// Every name: a change is HIGH risk.
    pub fn all(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.names.iter().map(|(_, name)| *name)
    }

    /// The names whose change by a confined program is never written back.
    pub fn protected(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.names.iter().filter(|(category, _)| category.is_protected()).map(|(_, name)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked_paths::BlockList;

    /// Names that were HIGH risk before there was one table.
    const FORMERLY_HIGH: &str = "*.exe *.bin *.so *.so.* *.dll *.dylib *.sh *.bash *.zsh *.fish *.bat *.cmd *.ps1 *.conf *.sys *.service \
         *.timer **/.github/workflows/ **/.github/actions/ .gitlab-ci.yml .circleci/ .travis.yml azure-pipelines.yml \
         bitbucket-pipelines.yml Jenkinsfile Dockerfile Dockerfile.* *.dockerfile Containerfile docker-compose*.yml \
         docker-compose*.yaml compose.yml compose.yaml package.json config.json Makefile GNUmakefile *.mk justfile \
         Rakefile Gemfile Vagrantfile build.rs .cargo/ setup.py conftest.py noxfile.py .npmrc .yarnrc* \
         .pre-commit-config.yaml .husky/ .githooks/ applypatch-msg commit-msg fsmonitor-watchman post-applypatch \
         post-checkout post-commit post-index-change post-merge post-receive post-rewrite post-update pre-applypatch \
         pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase pre-receive prepare-commit-msg proc-receive \
         push-to-checkout reference-transaction sendemail-validate **/hooks/update lefthook.yml .gitattributes \
         .gitmodules .gitconfig .editorconfig .vscode/ .idea/ .devcontainer/ *.code-workspace .vimrc .exrc .nvimrc \
         .bashrc .bash_profile .profile .zshrc .mcp.json mcp.json .claude/ .cursor/";
    /// Names that were protected before there was one table.
    const FORMERLY_PROTECTED: &str = ".aider.conf.yml .amazonq/ .augment/ .bash_aliases .bash_login .bash_logout .bash_profile .bashrc .byebugrc \
         .claude/ .cline/ *.code-workspace .codex/ **/.config/fish/ **/.config/mise.toml **/.config/mise/ .continue/ \
         .copilot/ .crush.json .cshrc .cursor/ .devcontainer.json .devcontainer/ .dir-locals-2.el .dir-locals.el .emacs \
         .emacs.d/ .emacs.el .envrc .exrc .factory/ .fleet/ .flow/ .gdbinit .gemini/ .ghci **/.git/commondir \
         **/.git/config **/.git/config.worktree **/.git/hooks/ **/.git/info/attributes **/.git/modules/ \
         **/.git/rebase-merge/git-rebase-todo **/.git/sl/config **/.git/worktrees/ .gitconfig .githooks/ \
         **/.github/hooks/ .gitmodules .goose/ .gvimrc .helix/ **/.hg/hgrc **/.hg/hgrc-not-shared **/.hg/requires \
         **/.hg/sharedpath .husky/ .idea/ .iex.exs .inputrc .irbrc .jj/ .junie/ .kiro/ .kshrc .lefthook.* .lldbinit \
         .login .logout .lvimrc .mcp.json .mise.* .mise/ .mkshrc .nova/ .nvim.lua .nvimrc .ocamlinit .octaverc \
         .opencode/ .overcommit.yml .pam_environment .pdbrc .perldb .pre-commit-config.yaml .profile .pryrc .qwen/ \
         .rdata .rdbgrc .rdbgrc.rb .renviron .ripgreprc .roo/ .roomodes .rprofile .shrc **/.sl/config *.sublime-project \
         .tcshrc .theia/ .trae/ .vambrace/ .vimrc .vs/ .vscode/ .windsurf/ .xinitrc .xprofile .xsession .xsessionrc \
         .zed/ .zlogin .zlogout .zprofile .zshenv .zshrc config.fish crush.json lefthook-local.* lefthook.* mcp.json \
         mise.*.toml mise.toml opencode.json opencode.jsonc";

    /// A path that a pattern matches.
    fn sample(pattern: &str) -> String {
        let path = pattern.trim_start_matches("**/").replace('*', "x");
        if path.ends_with('/') { format!("{path}x") } else { path }
    }

    #[test]
    fn no_name_of_the_former_tables_is_lost() {
        let high = BlockList::new(SELF_RUNNING.all()).unwrap();
        let protected = BlockList::new(SELF_RUNNING.protected()).unwrap();
        for (list, table) in
            [(&high, FORMERLY_HIGH), (&high, FORMERLY_PROTECTED), (&protected, FORMERLY_PROTECTED)]
        {
            for pattern in table.split_whitespace() {
                for path in [sample(pattern), format!("a/b/{}", sample(pattern))] {
                    assert!(list.blocks(&path).is_some(), "{path}");
                }
            }
        }
    }

    // A5
    #[test]
    fn files_that_a_build_a_shell_or_an_agent_runs_are_listed() {
        let high = BlockList::new(SELF_RUNNING.all()).unwrap();
        let protected = BlockList::new(SELF_RUNNING.protected()).unwrap();
        for (path, is_protected) in [
            (".zshenv", true),
            (".codex/config.toml", true),
            (".gdbinit", true),
            ("mise.toml", true),
            ("a/build.gradle", false),
            ("a/build.gradle.kts", false),
            ("CMakeLists.txt", false),
            ("pom.xml", false),
            ("pyproject.toml", false),
            ("Cargo.toml", false),
            ("tox.ini", false),
            ("jest.config.js", false),
            ("web/webpack.config.ts", false),
            ("etc/crontab", false),
            ("cron.d/nightly", false),
        ] {
            assert!(high.blocks(path).is_some(), "{path}");
            assert_eq!(protected.blocks(path).is_some(), is_protected, "{path}");
        }
        for path in ["src/main.rs", "README.md", "AGENTS.md", "Cargo.lock", "cronology/x", "configured.txt"] {
            assert_eq!(high.blocks(path), None, "{path}");
        }
    }

    #[test]
    fn table_is_sorted_and_every_category_is_known() {
        let mut seen = std::collections::HashSet::new();
        for (category, name) in &SELF_RUNNING.names {
            assert_ne!(*category, Category::Unknown, "{name}");
            assert!(seen.insert(name.to_lowercase()), "{name} is listed twice");
        }
        let bare = |name: &str| name.trim_start_matches("**/").trim_start_matches('*').to_lowercase();
        for pair in SELF_RUNNING.names.windows(2) {
            let ((one, first), (other, second)) = (pair[0], pair[1]);
            assert!(one != other || bare(first) <= bare(second), "{first} before {second}");
        }
    }
}
