/bin/busybox --install -s
# It starts, and its client asks it.
redis-server --version | grep -q 'v=7'
redis-cli --version | grep -q 'redis-cli 7'
