//! Settings and programs of the servers, as text.

use std::{net::IpAddr, path::Path};

use super::repository::Hook;
use crate::machine::SYSTEM_PATH;

/// Every file name in it is quoted once: `here` has no quotes.
pub(super) fn lighttpd(here: &Path, address: IpAddr, https: u16, http: u16) -> String {
    let here = here.display();
    format!(
        r#"server.modules = ("mod_accesslog", "mod_alias", "mod_auth", "mod_authn_file", "mod_cgi", "mod_openssl")
server.document-root = "{here}/uploads"
server.upload-dirs = ("{here}/uploads")
server.bind = "{address}"
server.port = {https}
$SERVER["socket"] == "{address}:{https}" {{
  ssl.engine = "enable"
  ssl.pemfile = "{here}/server.crt"
  ssl.privkey = "{here}/server.key"
}}
$SERVER["socket"] == "{address}:{http}" {{ }}
accesslog.filename = "{here}/access.log"
# What a program writes goes out at once: a slow one is seen to be slow.
server.stream-response-body = 2
auth.backend = "plain"
auth.backend.plain.userfile = "{here}/passwords"
auth.require = ("/" => ("method" => "basic", "realm" => "git", "require" => "valid-user"))
alias.url = ("/" => "{here}/serve-https/")
cgi.assign = ("" => "")
"#
    )
}

/// Key of the one client in, git's commands out, nothing else.
pub(super) fn sshd(here: &Path, address: IpAddr, port: u16) -> String {
    let here = here.display();
    format!(
        "ListenAddress {address}
Port {port}
HostKey {here}/host-ed25519
HostKey {here}/host-rsa
AuthorizedKeysFile {here}/authorized-keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
# The folder of a test may lie in one that others can write to.
StrictModes no
UsePAM no
ForceCommand {here}/serve-ssh
AcceptEnv GIT_PROTOCOL
PermitUserRC no
DisableForwarding yes
PermitTTY no
PidFile none
UseDNS no
# Tests connect at once and often.
MaxStartups 200
LoginGraceTime 20
"
    )
}

/// For all that the servers run.
pub(super) fn git_settings(here: &Path) -> String {
    let here = here.display();
    format!(
        "[safe]\n\tdirectory = *\n[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n\
         [receive]\n\tautogc = false\n[uploadpack]\n\tpackObjectsHook = {here}/send-objects\n"
    )
}

/// Names and texts of the programs beside the settings.
pub(super) fn programs(here: &Path) -> [(&'static str, String); 3] {
    let prelude = prelude(here);
    [
        ("serve-https", format!("{prelude}{SERVE_HTTPS}")),
        ("serve-ssh", format!("{prelude}{SERVE_SSH}")),
        ("send-objects", format!("{prelude}{SEND_OBJECTS}")),
    ]
}

/// Names and texts of a repository's hooks.
pub(super) fn hooks(here: &Path, repository: &str, hook: &Hook) -> [(&'static str, String); 2] {
    let (before, after) = match hook {
        Hook::Accept => (String::new(), String::new()),
        Hook::Refuse(why) => (
            format!("echo '{}' >&2\nexit 1\n", why.replace('\'', "'\\''")),
            String::new(),
        ),
        Hook::SlowBefore(time) => (format!("sleep {}\n", time.as_secs_f64()), String::new()),
        Hook::SlowAfter(time) => (String::new(), format!("sleep {}\n", time.as_secs_f64())),
    };
    let prelude = prelude(here);
    let read = "cat > /dev/null";
    [
        (
            "pre-receive",
            format!("{prelude}{read}\nnote push '{repository}'\n{before}"),
        ),
        (
            "post-receive",
            format!("{prelude}{read}\nnote accepted '{repository}'\n{after}"),
        ),
    ]
}

fn prelude(here: &Path) -> String {
    format!(
        r#"#!/bin/sh
set -eu
here='{}'
export PATH='{SYSTEM_PATH}' HOME="$here" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL="$here/gitconfig"
note() {{ printf '%s\n' "$*" >> "$here/activity"; }}
"#,
        here.display()
    )
}

/// Sets `how` and `value` to the behaviour of the repository `$name`; limits a stream's speed.
macro_rules! behave {
    () => {
        r#"
case $name in *[!a-z0-9/-]* | '') name=unknown ;; esac
how=normal value=
if [ -f "$here/repositories/$name.git/behaviour" ]; then
  read -r how value < "$here/repositories/$name.git/behaviour"
fi
throttle() {
  chunk=$here/uploads/chunk-$$
  # One read each: what is there goes on at once, also when it is less.
  while dd bs="$1" count=1 of="$chunk" status=none && [ -s "$chunk" ]; do cat "$chunk" && sleep 1; done
  rm -f "$chunk"
}
"#
    };
}

const SERVE_HTTPS: &str = concat!(
    "name=${PATH_INFO#/} name=${name%%.git/*}",
    behave!(),
    r#"
export GIT_PROJECT_ROOT="$here/repositories" GIT_HTTP_EXPORT_ALL=1
case $PATH_INFO in
  */info/refs) note visit "$name" "${QUERY_STRING#service=git-}" "${HTTP_GIT_PROTOCOL:-version=0}" ;;
esac
case $how in
  silent) exec sleep 600 ;;
  slow) git http-backend | throttle "$value" ;;
  status) printf 'Status: %s\r\nContent-Type: text/plain\r\n\r\nno\n' "$value" ;;
  redirect) printf 'Status: 302\r\nLocation: %s%s?%s\r\n\r\n' "$value" "${PATH_INFO#*.git}" "$QUERY_STRING" ;;
  *) exec git http-backend ;;
esac
"#
);

const SERVE_SSH: &str = concat!(
    r#"
command=${SSH_ORIGINAL_COMMAND:-}
case $command in
  "git-upload-pack '/"*".git'") service=upload-pack ;;
  "git-receive-pack '/"*".git'") service=receive-pack ;;
  *) echo 'only git may use this key' >&2; exit 128 ;;
esac
name=${command#*"'/"} name=${name%".git'"}"#,
    behave!(),
    r#"
note visit "$name" "$service" "${GIT_PROTOCOL:-version=0}"
cd "$here/repositories"
case $how in
  silent) exec sleep 600 ;;
  slow) git "$service" "$name.git" | throttle "$value" ;;
  *) exec git "$service" "$name.git" ;;
esac
"#
);

/// Started in the repository's folder.
const SEND_OBJECTS: &str = r#"
name=${PWD#"$here/repositories/"}
note fetch "${name%.git}"
exec "$@"
"#;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn programs_are_well_formed() {
        let folder = tempfile::tempdir().unwrap();
        let refuse = Hook::Refuse("it's 'so'".to_owned());
        let texts =
            programs(folder.path())
                .into_iter()
                .chain(hooks(folder.path(), "docs", &refuse));
        for (name, text) in texts {
            let status = Command::new("sh").args(["-n", "-c", &text]).status();
            assert!(status.unwrap().success(), "{name}: {text}");
        }
    }
}
