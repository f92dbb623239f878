/bin/busybox --install -s
redis-cli --version | grep -q 'redis-cli 7'
