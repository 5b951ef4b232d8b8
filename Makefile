# SPDX-License-Identifier: GPL-2.0

KDIR ?= /lib/modules/$(shell uname -r)/build

# An empty KDIR that was exported must not turn into the root folder.
ifeq ($(strip $(KDIR)),)
$(error KDIR is empty: give the kernel folder to build for, as in make KDIR=/usr/src/linux)
endif

# The kernel's own compiler, where it is here: another name for it already makes Kbuild warn.
kernel_cc := $(shell sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' $(KDIR)/.config 2>/dev/null)
ifeq ($(origin CC)$(LLVM),default)
export_cc := $(if $(shell command -v $(kernel_cc) 2>/dev/null),CC=$(kernel_cc))
endif

# Type information for BTF would need a vmlinux, which a kernel folder often lacks.
kbuild = $(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(MO),MO=$(MO)) CONFIG_DEBUG_INFO_BTF_MODULES= $(export_cc)

.PHONY: modules modules_install clean help
modules modules_install clean:
	+$(kbuild) $@

help:
	@echo 'make [KDIR=...] [MO=...]   build messung.ko for the running kernel, or the one in KDIR;'
	@echo '                           MO=DIR puts all that is made into DIR'
	@echo 'make modules_install       install it'
	@echo 'make clean                 remove what was made'
	@echo
	@echo 'sudo insmod messung.ko     measure; ends with "Input/output error", as it should'
	@echo 'KDIR is now $(KDIR)'
