#!/usr/bin/env bash
# Runs the kernel tests on a processor with AVX-512 and VNNI that this machine need not have: in Bochs, which
# boots Debian's small kernel with nothing but the test program in its memory.
# Usage: scripts/check_avx512.sh [path/to/kernels_test] [gtest filter]
#
# Needs Debian's bochs, bochs-term, bochsbios, grub-pc-bin, grub-common, xorriso, mtools and cpio; installs them if
# it may. The kernel is fetched from the Debian archive. AVX-VNNI (without AVX-512) is in no processor of Bochs 2.7.
set -euo pipefail
cd "$(dirname "$0")/.."
test=$(realpath "${1:-build/release/kernels_test}")
filter=${2:-*/AVX3*:*Targets*}
work=$PWD/build/avx512
mkdir -p "$work/root" "$work/iso/boot/grub"

for tool in bochs grub-mkrescue xorriso mcopy cpio; do
  command -v $tool > /dev/null || missing=1
done
if [ -n "${missing-}" ] || [ ! -e /usr/share/bochs/BIOS-bochs-latest ]; then
  apt-get install -y -qq --no-install-recommends bochs bochs-term bochsbios vgabios grub-pc-bin grub-common xorriso \
    mtools cpio
fi

if [ ! -e "$work/iso/boot/vmlinuz" ]; then
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ {print $2; exit}')
  (cd "$work" && apt-get download -qq "$package" && dpkg -x "$package"_*.deb kernel)
  cp "$work"/kernel/boot/vmlinuz-* "$work/iso/boot/vmlinuz"
fi

# The first process: runs the test, says how it ended, and switches the machine off by a port of Bochs's.
cat > "$work/init.c" << 'END'
#include <fcntl.h>
#include <stdio.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

extern char** environ;

int main(void) {
  mount("none", "/dev", "devtmpfs", 0, "");
  mount("none", "/proc", "proc", 0, "");
  const int console = open("/dev/ttyS0", O_RDWR);
  dup2(console, 1);
  dup2(console, 2);
  char filter[4096] = {0};
  const int file = open("/filter", O_RDONLY);
  if (read(file, filter, sizeof(filter) - 1) < 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    char* arguments[] = {"/kernels_test", "--gtest_brief=0", filter, NULL};
    execve(arguments[0], arguments, environ);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("exit code %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  fflush(stdout);
  tcdrain(1);
  sleep(1);
  ioperm(0x8900, 1, 1);
  for (const char* c = "Shutdown"; *c != 0; ++c) outb(*c, 0x8900);
  for (;;) pause();
}
END
cc -O1 -static -o "$work/root/init" "$work/init.c"
mkdir -p "$work"/root/{dev,proc,tmp}
cp "$test" "$work/root/kernels_test"
printf '%s' "--gtest_filter=$filter" > "$work/root/filter"
ldd "$test" | grep -o '/[^ ]*' | while read -r library; do
  mkdir -p "$work/root$(dirname "$library")"
  cp -L "$library" "$work/root$library"
done
(cd "$work/root" && find . | cpio --quiet -o -H newc) > "$work/iso/boot/initrd"
cat > "$work/iso/boot/grub/grub.cfg" << 'END'
set timeout=0
menuentry "test" {
  linux /boot/vmlinuz console=ttyS0 quiet nokaslr mitigations=off
  initrd /boot/initrd
}
END
grub-mkrescue -o "$work/boot.iso" "$work/iso" 2> "$work/grub.log"

cat > "$work/bochsrc" << END
config_interface: textconfig
display_library: term
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
cpu: model=tigerlake, count=1, ips=40000000, reset_on_triple_fault=0
megs: 512
ata0-master: type=cdrom, path=$work/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$work/serial.txt
log: $work/bochs.log
panic: action=fatal
error: action=report
info: action=ignore
END
rm -f "$work/serial.txt"
echo "booting; what the machine prints is in $work/serial.txt"
TERM=vt100 timeout "${SECONDS_AT_MOST:-3600}" script -qec "bochs -q -f $work/bochsrc" /dev/null > /dev/null < /dev/null || true
tr -d '\r' < "$work/serial.txt" | grep -vE '^\[ (RUN|      OK)' || true
grep -q '^exit code 0' "$work/serial.txt"
