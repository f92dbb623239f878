/bin/busybox --install -s

# More than half of the size: the just-in-time compiler, perl of Debian's wrappers, rarely used encodings.
rm -rf /usr/lib/*/libLLVM* /usr/lib/llvm* /usr/lib/postgresql/15/lib/llvmjit* /usr/lib/postgresql/15/lib/bitcode
rm -rf /usr/bin/*perl* /usr/lib/*/*perl* /usr/lib/*/perl* /usr/share/perl* /etc/perl
rm -rf /usr/lib/*/gconv /usr/share/postgresql-common /usr/share/bash-completion

# It starts, stores, and answers.
export PATH="/usr/lib/postgresql/15/bin:$PATH"
cat > /tmp/check <<'END'
set -eu
initdb --pgdata /tmp/data --auth trust --username postgres --locale C.UTF-8 --no-sync > /tmp/check.log
pg_ctl --pgdata /tmp/data --log /tmp/check.log --wait --silent --options "-k /tmp -c listen_addresses=" start
psql --host /tmp --username postgres --tuples-only --command 'select 40 + 2' | grep -q 42
pg_ctl --pgdata /tmp/data --silent --mode fast stop
END
su app -c 'sh /tmp/check'
