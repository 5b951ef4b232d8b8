# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=dash
#
# Makes a PC of a fresh Debian tree, from inside it: somebody may log in on the second serial line, and use sudo.
# Then writes all of the tree to /userland.cpio.

useradd --uid 1000 --create-home --groups sudo,adm --shell /bin/sh user
echo 'user ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/user
chmod 0440 /etc/sudoers.d/user
echo pc >/etc/hostname
echo 127.0.0.1 localhost pc >/etc/hosts

# What is typed is not echoed, lines end as the commands end them, and the prompt tells the exit status.
cat >>/home/user/.profile <<'END'
stty -echo -onlcr
PS1='pc[$?]$ '
END

# Debian's own units for serial lines wait for udev, which is not there.
cat >/etc/systemd/system/typed.service <<'END'
[Unit]
Description=A login on the second serial line
After=systemd-user-sessions.service rsyslog.service

[Service]
Type=idle
ExecStart=-/sbin/agetty --autologin user --noclear --keep-baud 115200 ttyS1 dumb
StandardInput=tty
StandardOutput=tty
TTYPath=/dev/ttyS1
TTYReset=yes

[Install]
WantedBy=multi-user.target
END
systemctl enable typed.service
systemctl mask serial-getty@ttyS0.service getty@tty1.service apt-daily.timer dpkg-db-backup.timer fstrim.timer

# Beside Debian's own format those that other distributions use.
cat >/etc/rsyslog.d/formats.conf <<'END'
kern.* -/var/log/kern-traditional.log;RSYSLOG_TraditionalFileFormat
kern.* -/var/log/kern-5424.log;RSYSLOG_SyslogProtocol23Format
END

cd /
find . -xdev \( -path './proc/*' -o -path './sys/*' -o -path './dev/*' -o -path './tmp/*' \
    -o -path './var/cache/apt/*' -o -path './var/lib/apt/*' -o -path ./userland.cpio \) -prune -o -print |
    busybox cpio -o -H newc >/userland.cpio
