#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=dash
#
# Init of the smallest machine that somebody can type at: busybox, with a kernel log in /var/log/kern.log and a shell of root on the
# serial line that the kernel's command line names (typed=).

/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
export PATH=/bin HOME=/home
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
hostname board
syslogd -O /var/log/kern.log -s 0
klogd

# Root needs no sudo, but documents have it.
printf '#!/bin/sh\nexec "$@"\n' >/bin/sudo
chmod +x /bin/sudo

# What is typed is not echoed, lines end as the commands end them, and the prompt tells the exit status.
cd || exit
stty -F "${typed:?}" -echo -onlcr
export PS1='pc[$?]$ '
# Not in place of this one, whose children the daemons are: `wait` would wait for them.
setsid sh -c "exec sh -i <$typed >$typed 2>&1"
poweroff -f
