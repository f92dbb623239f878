/bin/busybox --install -s

# What update-ca-certificates would do when the package is configured.
mkdir -p /etc/ssl/certs
cat /usr/share/ca-certificates/mozilla/*.crt > /etc/ssl/certs/ca-certificates.crt
chmod 644 /etc/ssl/certs/ca-certificates.crt

# More than half of the size is perl, for git's mail commands and the like.
for program in /usr/bin/* /usr/lib/git-core/*; do
    if head -c 64 "$program" 2>/dev/null | grep -q '^#!.*perl'; then rm "$program"; fi
done
rm -rf /usr/bin/*perl* /usr/lib/*/*perl* /usr/lib/*/perl* /usr/share/perl* /etc/perl
# Mail, rarely used servers, character sets other than UTF-8, package hooks.
cd /usr/lib/git-core
rm -f git-daemon git-http-fetch git-http-push git-imap-send git-shell scalar
rm -f /usr/bin/git-shell /usr/bin/scalar /usr/bin/openssl /usr/bin/c_rehash
rm -rf /usr/lib/*/gconv /usr/share/bash-completion /usr/share/initramfs-tools
# The same program twice.
ln -sf ../../bin/git git

# Of ssh only the client.
rm -rf /usr/lib/openssh /usr/lib/systemd /usr/bin/ssh-add /usr/bin/ssh-agent /usr/bin/ssh-argv0 \
    /usr/bin/ssh-copy-id /usr/bin/ssh-keygen /usr/bin/ssh-keyscan

# Nothing that git needs went with it: the libraries of https and ssh are there.
git ls-remote https://127.0.0.1:1/ 2>&1 | grep -q 'Failed to connect'
git ls-remote ssh://127.0.0.1:1/ 2>&1 | grep -q 'Connection refused'
