#!/bin/sh
# GET ?KEY=VALUE stores a note, GET ?KEY tells it. Keys and values are letters and digits.
key=${QUERY_STRING%%=*}
value=${QUERY_STRING#*=}
case $QUERY_STRING in
    *=*) answer=$(redis-cli --no-auth-warning -u "$REDIS_URL" SET "$key" "$value" 2>&1) ;;
    *) answer=$(redis-cli --no-auth-warning -u "$REDIS_URL" GET "$key" 2>&1) ;;
esac
printf 'Content-Type: text/plain\r\n\r\n%s\n' "$answer"
