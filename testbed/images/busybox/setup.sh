# A link for each command that this busybox has.
/bin/busybox --install -s
