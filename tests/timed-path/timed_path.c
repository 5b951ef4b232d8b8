// SPDX-License-Identifier: GPL-2.0
/*
 * The loops of messung.ko as a C programmer writes them, to compare what stands between the two time stamps. Measures
 * while it is being loaded, prints one line a loop, and fails to load, as messung.ko does.
 */
#include <linux/delay.h>
#include <linux/irqflags.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched.h>

static unsigned int iterations = 1000;
module_param(iterations, uint, 0);

/* Parameters, so that the compiler does not know them: a constant would take another path. */
static unsigned long usecs = 15;
module_param(usecs, ulong, 0);
static unsigned int msecs = 24;
module_param(msecs, uint, 0);

#define LOOP(name, enter, call, leave)						\
static noinline void loop_##name(void)						\
{										\
	u64 shortest = U64_MAX, highest = 0, sum = 0;				\
	unsigned long request = usecs;						\
	unsigned int sleep = msecs;						\
	unsigned long flags = 0;						\
	unsigned int i;								\
										\
	msleep(50);								\
	for (i = 0; i < iterations; i++) {					\
		ktime_t before, after;						\
		u64 elapsed;							\
										\
		enter;								\
		before = ktime_get();						\
		call;								\
		after = ktime_get();						\
		leave;								\
		elapsed = after - before;					\
		shortest = min(shortest, elapsed);				\
		highest = max(highest, elapsed);				\
		sum += elapsed;							\
		cond_resched();							\
	}									\
	(void)flags;								\
	(void)request;								\
	(void)sleep;								\
	pr_info(#name ": shortest: %llu mean: %llu highest: %llu ns\n",	\
		shortest, div_u64(sum, iterations), highest);			\
}

LOOP(none, local_irq_save(flags), barrier(), local_irq_restore(flags))
LOOP(udelay, local_irq_save(flags), udelay(request), local_irq_restore(flags))
LOOP(usleep_range, barrier(), usleep_range(request, request), barrier())
LOOP(msleep, barrier(), msleep(sleep), barrier())

static int __init timed_path_init(void)
{
	loop_none();
	loop_udelay();
	loop_usleep_range();
	loop_msleep();
	return -EIO;
}
module_init(timed_path_init);

MODULE_DESCRIPTION("The loops of messung.ko in C, for comparison");
MODULE_LICENSE("GPL");
