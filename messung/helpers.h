/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel only offers as inline functions or macros, one wrapper each.
 *
 * bindgen reads this header with the kernel's userland headers alone, so it names no kernel type but task_struct.
 */
#ifndef MESSUNG_HELPERS_H
#define MESSUNG_HELPERS_H

#include <linux/types.h>

/* linux/delay.h */
void messung_ndelay(unsigned long nsecs);
void messung_udelay(unsigned long usecs);
void messung_mdelay(unsigned long msecs);
void messung_fsleep(unsigned long usecs);

/* linux/irqflags.h, linux/preempt.h */
unsigned long messung_local_irq_save(void);
void messung_local_irq_restore(unsigned long flags);
void messung_preempt_disable(void);
void messung_preempt_enable(void);

/* linux/sched.h, linux/sched/signal.h, uapi/linux/sched/types.h */
void messung_cond_resched(void);
int messung_fatal_signal_pending(void);
unsigned int messung_raw_smp_processor_id(void);
int messung_sched_setattr(__u32 policy, __u64 flags, __s32 nice, __u32 priority, __u64 runtime, __u64 deadline,
			  __u64 period);

/* linux/timekeeping.h, linux/jiffies.h */
__u64 messung_ktime_get_raw_ns(void);
__u64 messung_ktime_get_real_ns(void);
__u64 messung_ktime_get_boottime_ns(void);
__u64 messung_get_jiffies_64(void);
unsigned int messung_hz(void);

/* linux/hrtimer.h, linux/cpumask.h, linux/utsname.h */
unsigned int messung_hrtimer_resolution(void);
unsigned int messung_num_online_cpus(void);
const char *messung_utsname_release(void);
const char *messung_utsname_machine(void);

#endif
