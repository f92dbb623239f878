/bin/busybox --install -s
# perl is for Debian's wrappers around the client.
rm -rf /usr/bin/*perl* /usr/lib/*/*perl* /usr/lib/*/perl* /usr/share/perl* /etc/perl
rm -rf /usr/lib/*/gconv /usr/share/postgresql-common /usr/share/bash-completion
/usr/lib/postgresql/15/bin/psql --version | grep -q ' 15\.'
