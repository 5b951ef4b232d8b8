/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel only offers as inline functions or macros, one wrapper each.
 *
 * bindgen reads this header with the kernel's userland headers alone, so it names none of
 * the kernel's own types.
 */
#ifndef MESSUNG_HELPERS_H
#define MESSUNG_HELPERS_H

#include <linux/types.h>

/* linux/delay.h */
void messung_ndelay(unsigned long nsecs);
void messung_udelay(unsigned long usecs);
void messung_mdelay(unsigned long msecs);
void messung_fsleep(unsigned long usecs);
unsigned int messung_max_udelay_ms(void);

/*
 * The same with an argument that the compiler knows, which takes another path in C. Requests as in abi/src/plan.rs:
 * UDELAY_CONST and NDELAY_CONST.
 */
#define MESSUNG_UDELAY_CONST(X) X(1) X(2) X(5) X(10) X(15) X(20) X(50) X(100) X(500) X(1000)
#define MESSUNG_NDELAY_CONST(X) X(100) X(200) X(500) X(1000) X(2000) X(5000) X(10000)
#define MESSUNG_DECLARE(usecs) void messung_udelay_const_##usecs(void);
MESSUNG_UDELAY_CONST(MESSUNG_DECLARE)
#undef MESSUNG_DECLARE
#define MESSUNG_DECLARE(nsecs) void messung_ndelay_const_##nsecs(void);
MESSUNG_NDELAY_CONST(MESSUNG_DECLARE)
#undef MESSUNG_DECLARE

/* linux/hrtimer.h, linux/completion.h */
long messung_schedule_hrtimeout(__s64 nsecs);
void messung_init_completion(void *done);
void messung_reinit_completion(void *done);

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

/* linux/cpumask.h */
int messung_set_cpu(unsigned int cpu);
int messung_cpu_online(unsigned int cpu);
unsigned int messung_nr_cpu_ids(void);
unsigned int messung_num_online_cpus(void);

/* linux/timekeeping.h, linux/jiffies.h */
__u64 messung_ktime_get_raw_ns(void);
__u64 messung_ktime_get_real_ns(void);
__u64 messung_ktime_get_boottime_ns(void);
__u64 messung_get_jiffies_64(void);
unsigned int messung_hz(void);

/* linux/hrtimer.h, linux/utsname.h */
unsigned int messung_hrtimer_resolution(void);
const char *messung_utsname_release(void);
const char *messung_utsname_machine(void);

#endif
