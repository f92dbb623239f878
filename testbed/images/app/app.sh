#!/bin/sh
# Usage: app VERSION | app migrate | app ready
# Version 1 needs the column `note`. Versions 2 and 3 drop it at each start; version 3 then fails. `migrate` drops
# it and ends. `ready` succeeds if the database answers.
set -eu
trap 'exit 0' TERM

sql() { psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 --command "$1" postgres; }

if [ "$1" = ready ]; then
    sql 'select count(*) from items' >/dev/null
    exit 0
fi

tries=0
until sql 'select 1' >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -ge 15 ]; then
        echo "the database '$PGHOST' does not answer" >&2
        exit 1
    fi
    sleep 1
done

sql 'create table if not exists items (id bigserial primary key, note text)'
case $1 in
    1)
        if ! sql 'select note from items limit 1' >/dev/null; then
            echo "version 1 cannot use the data of a newer version" >&2
            exit 1
        fi
        ;;
    2 | 3 | migrate) sql 'alter table items drop column if exists note' ;;
    *)
        echo "'$1' is no version" >&2
        exit 64
        ;;
esac
case $1 in
    3)
        echo "version 3 fails after its migration" >&2
        exit 1
        ;;
    migrate) exit 0 ;;
esac
echo "version $1 is running"
while :; do
    sleep 3600 &
    wait $!
done
