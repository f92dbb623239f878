/bin/busybox mkdir -p /sbin
/bin/busybox cp /bin/busybox /sbin/busybox
/bin/busybox chmod 0700 /sbin/busybox
