# SPDX-License-Identifier: GPL-2.0

KDIR ?= /lib/modules/$(shell uname -r)/build

# An empty KDIR that was exported must not turn into the root folder.
ifeq ($(strip $(KDIR)),)
$(error KDIR is empty: give the kernel folder to build for, as in make KDIR=/usr/src/linux)
endif

# Where the kernel's configuration and metadata are: O= counts from here, not from KDIR.
objtree := $(if $(O),$(abspath $(O)),$(KDIR))
config = $(shell sed -n 's/^$(1)="\{0,1\}\([^"]*\)"\{0,1\}$$/\1/p' $(objtree)/.config 2>/dev/null)

# A compiler that is named. One in the environment is none: Kbuild does not look there, either. LLVM= counts from anywhere.
cc := $(if $(filter command override,$(origin CC)),$(CC))
kernel_cc := $(firstword $(call config,CONFIG_CC_VERSION_TEXT))
kernel_is_clang := $(filter y,$(call config,CONFIG_CC_IS_CLANG))
kernel_is_gcc := $(filter y,$(call config,CONFIG_CC_IS_GCC))

# LLVM=1 means clang and ld.lld, LLVM=-19 those with that suffix, LLVM=DIR/ those in that folder.
llvm := $(or $(LLVM),$(if $(cc),,$(kernel_is_clang:y=1)))
llvm_tools = $(if $(cc),,$(if $(llvm),$(addsuffix $(filter -%,$(llvm)),$(addprefix $(filter %/,$(llvm)),clang ld.lld))))
missing_tools = $(strip $(foreach tool,$(llvm_tools),$(if $(shell command -v $(tool) 2>/dev/null),,$(tool))))
is_clang = $(if $(cc),$(findstring clang,$(shell $(cc) --version 2>/dev/null)),$(llvm))

# The kernel's own tools, where they are here and no other ones are named: another name for its gcc already makes Kbuild warn.
tools := $(if $(cc)$(LLVM),,$(if $(llvm),LLVM=1,$(if $(shell command -v $(kernel_cc) 2>/dev/null),CC=$(kernel_cc))))

# Signing takes a key that only who built the kernel has.
key := $(call config,CONFIG_MODULE_SIG_KEY)
signs := $(if $(key),$(filter pkcs11:%,$(key))$(wildcard $(objtree)/$(key) $(filter /%,$(key))))

# Type information for BTF would need a vmlinux, which a kernel folder often lacks.
kbuild = $(MAKE) -C $(KDIR) M=$(CURDIR) $(if $(O),O=$(objtree)) $(if $(MO),MO=$(abspath $(MO))) CONFIG_DEBUG_INFO_BTF_MODULES= $(if $(signs),,CONFIG_MODULE_SIG_ALL=) $(tools)

# The rustc that wrote the kernel's Rust metadata; rustc itself would say no more than that it can't find a crate.
metadata := $(objtree)/rust/libcore.rmeta
metadata_rustc = $(shell head -c 512 $(metadata) | tr -c '[:print:]' '\n' | sed -n 's/.*\(rustc [0-9]\)/\1/p')
rustc = $(shell $(or $(RUSTC),rustc) --version 2>/dev/null)
remedy := `cargo xtask build` builds for a stock Debian kernel, `cargo xtask doctor` says what other kernels take

define check
$(if $(wildcard $(KDIR)/Makefile),,$(error $(KDIR) is no kernel folder (it has no Makefile): $(remedy)))
$(if $(filter y,$(call config,CONFIG_RUST))$(if $(wildcard $(objtree)/.config),,unknown),,$(error the kernel in $(objtree) is built without Rust (CONFIG_RUST), so no Rust module fits it: boot one with Rust, or measure one by `cargo xtask vm`))
$(if $(wildcard $(metadata)),,$(error $(objtree) has no Rust metadata (rust/libcore.rmeta), as the headers of many distributions: $(remedy)))
$(if $(filter-out $(subst $() ,_,$(rustc)),$(subst $() ,_,$(metadata_rustc))),$(error the Rust metadata of $(objtree) takes "$(metadata_rustc)", and rustc here is "$(or $(rustc),missing)": $(remedy)))
$(if $(kernel_is_clang),$(if $(is_clang),,$(error the kernel in $(objtree) was built by clang, and CC=$(cc) is none: add LLVM=1, and leave CC= out)))
$(if $(kernel_is_gcc),$(if $(is_clang),$(error the kernel in $(objtree) was built by $(kernel_cc), whose options clang does not know: leave $(if $(cc),CC=$(cc),LLVM=$(LLVM)) out)))
$(if $(missing_tools),$(error the kernel in $(objtree) was built by clang, and LLVM=$(llvm) does not find $(missing_tools): `cargo xtask doctor` says what to install))
endef

.PHONY: modules modules_install clean rust-analyzer help check
modules modules_install clean:
	+$(kbuild) $@

# What an editor wants to know: all crates, in rust-project.json. The kernel's script knows nothing of our bindings, which the build makes.
rust-analyzer: modules
	+$(kbuild) $@
	@sed -i 's|"RUST_MODFILE":|"MESSUNG_BINDINGS": "$(or $(abspath $(MO)),$(CURDIR))/messung/bindings.rs",\n                &|' $(if $(MO),$(MO)/)rust-project.json

modules rust-analyzer: check
check:
	@:$(check)

help:
	@echo 'make                       build messung.ko for the running kernel'
	@echo 'make modules_install       install it (INSTALL_MOD_PATH=DIR: below DIR)'
	@echo 'make clean                 remove what was made'
	@echo 'make rust-analyzer         make rust-project.json, for editors'
	@echo
	@echo '  KDIR=DIR                 for the kernel in DIR, a built kernel or its headers; now $(KDIR)'
	@echo '  O=DIR                    with its output in DIR, where KDIR is a source tree'
	@echo '  MO=DIR                   put all that is made into DIR'
	@echo '  LLVM=1, CC=, RUSTC=      other tools than those that the kernel names; one that clang built gets LLVM=1 by itself'
	@echo
	@echo 'sudo insmod messung.ko     measure; ends with "Input/output error", as it should'
