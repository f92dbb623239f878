#!/bin/sh
set -eu
if [ ! -e "$PGDATA/PG_VERSION" ]; then
    # Aside first: a container that is killed now must not leave half a database under the final name.
    rm -rf "$PGDATA.new"
    initdb --pgdata "$PGDATA.new" --auth trust --username postgres --encoding UTF8 --locale C.UTF-8
    echo 'host all all all trust' >> "$PGDATA.new/pg_hba.conf"
    mv "$PGDATA.new" "$PGDATA"
fi
# For `fsGroup`, the kubelet gives the group access at each start. PostgreSQL refuses such a directory.
chmod 0700 "$PGDATA"
# The log of changes stays small: the volumes of tests are small.
postgres -D "$PGDATA" -k /tmp -c listen_addresses='*' -c max_wal_size=128MB -c min_wal_size=32MB &
server=$!
# SIGTERM would wait for all clients to leave; SIGINT ends their sessions and stops cleanly.
trap 'kill -INT $server' TERM INT
status=0
wait "$server" || status=$?
# The signal interrupts the first wait.
if kill -0 "$server" 2>/dev/null; then
    status=0
    wait "$server" || status=$?
fi
exit "$status"
