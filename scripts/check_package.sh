#!/usr/bin/env bash
# Installs the .deb in a fresh Debian 12 (mmdebstrap), boots that with systemd as its first process (systemd-nspawn) and
# asks the service, which runs under its unit's restrictions. Root, and the Debian archive, are needed.
# Usage: scripts/check_package.sh [path/to/spa_*.deb]      (`make package` makes one)
set -euo pipefail
cd "$(dirname "$0")/.."
package=$(realpath "${1:-$(ls -t build/release/spa_*.deb | head -n 1)}")
work=$PWD/build/package
root=$work/root
mkdir -p "$work"

for tool in mmdebstrap systemd-nspawn; do
  command -v $tool > /dev/null || apt-get install -y -qq --no-install-recommends mmdebstrap systemd-container
done
if [ ! -e "$work/debian.tar" ]; then
  mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,curl bookworm "$work/debian.tar"
fi
rm -rf "$root"
mkdir "$root"
tar -xf "$work/debian.tar" -C "$root"
cp "$package" "$root/spa.deb"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
chroot "$root" env DEBIAN_FRONTEND=noninteractive sh -c \
  'apt-get update -qq && apt-get install -y -qq --no-install-recommends /spa.deb && rm /spa.deb' > "$work/install.log" 2>&1 ||
  { cat "$work/install.log"; exit 1; }
echo "installed: $(chroot "$root" spa --version | head -n 1)"
chroot "$root" spa demo --pause 0 > "$work/demo.log" 2>&1 < /dev/null || { cat "$work/demo.log"; exit 1; }

cat > "$root/check.sh" << 'END'
#!/bin/bash
exec > /result 2>&1
key=$(cat /etc/spa/api-key)
for _ in $(seq 300); do curl -s -m 5 http://127.0.0.1:8080/health > /dev/null && break; sleep 0.1; done
ask() { curl -s -m 60 http://127.0.0.1:8080/v1/chat/completions "$@" -d '{"messages":[{"role":"user","content":"not ( True ) is"}]}'; }
echo "without the key: $(ask | grep -o '"message":"[^"]*"')"
echo "with the key: $(ask -H "Authorization: Bearer $key" | grep -o '"content":"[^"]*"')"
pid=$(systemctl show -p MainPID --value spa)
echo "user: $(stat -c %u /proc/$pid)"
grep -E '^(NoNewPrivs|Seccomp|CapBnd|CapEff):' /proc/$pid/status
# In its own view of the files: what it may write, and what it sees of others.
inside() { nsenter -t "$pid" -m setpriv --reuid "$(stat -c %u /proc/$pid)" --regid "$(stat -c %g /proc/$pid)" \
  --clear-groups "$@" 2> /dev/null; }
for folder in / /etc /usr /var/lib /home /root; do inside touch $folder/x && echo "WRITES $folder"; done
inside touch /var/cache/private/spa/x /var/lib/private/spa/x && echo "writes its cache and its state"
echo "processes it sees: $(inside ls /proc | grep -cE '^[0-9]+$')"
echo "devices it sees: $(inside ls /dev | wc -l)"
systemctl is-active spa
systemctl stop spa && echo "stopped: $(systemctl show -p Result --value spa)"
systemd-analyze security spa --no-pager | tail -n 1
END
chmod +x "$root/check.sh"
cat > "$root/etc/systemd/system/check.service" << 'END'
[Unit]
Wants=spa.service
After=spa.service
[Service]
Type=oneshot
ExecStart=/check.sh
ExecStopPost=/bin/systemctl poweroff --no-block
[Install]
WantedBy=multi-user.target
END
chroot "$root" systemctl enable -q spa check
rm -f "$root/result"
timeout 180 systemd-nspawn -q --boot --register=no --keep-unit --private-network -D "$root" \
  > "$work/boot.log" 2>&1 < /dev/null || true
cat "$root/result" || { tail -n 30 "$work/boot.log"; exit 1; }
grep -q '"content":"[^"]*False' "$root/result"
grep -q 'NoNewPrivs:.1' "$root/result"
grep -q 'Seccomp:.2' "$root/result"
grep -q 'CapBnd:.0000000000000000' "$root/result"
grep -q '^writes its cache' "$root/result"
grep -q '^stopped: success' "$root/result"
grep -qE '^user: [1-9]' "$root/result"
if grep -q WRITES "$root/result"; then exit 1; fi
echo "all passed"
