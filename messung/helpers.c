// SPDX-License-Identifier: GPL-2.0
/*
 * One-line wrappers of what is inline in C, in the manner of the kernel's rust/helpers, and nothing else.
 */
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/timekeeping.h>
#include <linux/utsname.h>
#include <uapi/linux/sched/types.h>

#include "helpers.h"

void messung_ndelay(unsigned long nsecs)
{
	ndelay(nsecs);
}

void messung_udelay(unsigned long usecs)
{
	udelay(usecs);
}

void messung_mdelay(unsigned long msecs)
{
	mdelay(msecs);
}

void messung_fsleep(unsigned long usecs)
{
	fsleep(usecs);
}

unsigned int messung_max_udelay_ms(void)
{
	return MAX_UDELAY_MS;
}

#define MESSUNG_DEFINE(usecs) void messung_udelay_const_##usecs(void) { udelay(usecs); }
MESSUNG_UDELAY_CONST(MESSUNG_DEFINE)
#undef MESSUNG_DEFINE
#define MESSUNG_DEFINE(nsecs) void messung_ndelay_const_##nsecs(void) { ndelay(nsecs); }
MESSUNG_NDELAY_CONST(MESSUNG_DEFINE)
#undef MESSUNG_DEFINE

long messung_schedule_hrtimeout(__s64 nsecs)
{
	set_current_state(TASK_UNINTERRUPTIBLE);
	return schedule_hrtimeout(&nsecs, HRTIMER_MODE_REL);
}

void messung_init_completion(void *done)
{
	init_completion(done);
}

void messung_reinit_completion(void *done)
{
	reinit_completion(done);
}

unsigned long messung_local_irq_save(void)
{
	unsigned long flags;

	local_irq_save(flags);
	return flags;
}

void messung_local_irq_restore(unsigned long flags)
{
	local_irq_restore(flags);
}

void messung_preempt_disable(void)
{
	preempt_disable();
}

void messung_preempt_enable(void)
{
	preempt_enable();
}

void messung_cond_resched(void)
{
	cond_resched();
}

int messung_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

unsigned int messung_raw_smp_processor_id(void)
{
	return raw_smp_processor_id();
}

int messung_sched_setattr(__u32 policy, __u64 flags, __s32 nice, __u32 priority, __u64 runtime, __u64 deadline,
			  __u64 period)
{
	return sched_setattr_nocheck(current, &(const struct sched_attr) {
		.size = sizeof(struct sched_attr),
		.sched_policy = policy,
		.sched_flags = flags,
		.sched_nice = nice,
		.sched_priority = priority,
		.sched_runtime = runtime,
		.sched_deadline = deadline,
		.sched_period = period,
	});
}

int messung_set_cpu(unsigned int cpu)
{
	return set_cpus_allowed_ptr(current, cpumask_of(cpu));
}

int messung_cpu_online(unsigned int cpu)
{
	return cpu < nr_cpu_ids && cpu_online(cpu);
}

unsigned int messung_nr_cpu_ids(void)
{
	return nr_cpu_ids;
}

unsigned int messung_num_online_cpus(void)
{
	return num_online_cpus();
}

__u64 messung_ktime_get_raw_ns(void)
{
	return ktime_get_raw_ns();
}

__u64 messung_ktime_get_real_ns(void)
{
	return ktime_get_real_ns();
}

__u64 messung_ktime_get_boottime_ns(void)
{
	return ktime_get_boottime_ns();
}

__u64 messung_get_jiffies_64(void)
{
	return get_jiffies_64();
}

unsigned int messung_hz(void)
{
	return HZ;
}

unsigned int messung_hrtimer_resolution(void)
{
	return hrtimer_resolution;
}

const char *messung_utsname_release(void)
{
	return init_utsname()->release;
}

const char *messung_utsname_machine(void)
{
	return init_utsname()->machine;
}
