#!/bin/sh
# Well, if there is no Redis to be had, or if it answers.
if [ -n "$REDIS_URL" ]; then
    answer=$(redis-cli --no-auth-warning -u "$REDIS_URL" PING 2>&1)
else
    answer=PONG
fi
case $answer in
    PONG) printf 'Status: 200 OK\r\n' ;;
    *) printf 'Status: 503 Service Unavailable\r\n' ;;
esac
printf 'Content-Type: text/plain\r\n\r\n%s\n' "$answer"
