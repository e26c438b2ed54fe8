/*
 * The records of a session's log of runs.  One that is unknown is skipped, so
 * that a later version may add some.
 */
#ifndef CORE_RUN_LOG_H
#define CORE_RUN_LOG_H

enum run_log_type {
	/* id[16], digest[32], u64 asked (wall clock, us), u64 deadline (CLOCK_MONOTONIC, ms), u8
	 * flags, str argv quoted: written before init hears of the run. */
	RUN_LOG_START = 1,
	/* run_record.c: written before init is told to forget it. */
	RUN_LOG_END = 2,
	/* id[16]: it was never begun, or has nothing to keep. */
	RUN_LOG_DROP = 3,
};

enum run_log_flags { RUN_LOG_KEEP = 1, RUN_LOG_DETACHED = 2, RUN_LOG_INPUT = 4 };

#endif
