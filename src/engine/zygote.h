/*
 * The zygote: a small process with an empty past that forks a helper for every
 * slot.  A helper prepares what takes long (cgroups, user and network
 * namespaces), clones the session's first process, which mounts what every session
 * has, and waits.  With an order it gives the ordered mounts their ids, hands the
 * order on to that process, and ends.
 *
 * The zygote is the parent of every init (CLONE_PARENT) and reports their ends.
 * It and all waiting helpers end when the engine's side of their socket closes.
 */
#ifndef ENGINE_ZYGOTE_H
#define ENGINE_ZYGOTE_H

#include "engine/wire.h"
#include "init/init.h"

typedef void zygote_init_fn(const struct init_params *p);

/* What helpers inherit. */
struct zygote {
	int sock, proc_fd, host_net_fd, sessions_fd;
	int makers_fd; /* held as long as something may still be made */
	struct cgroups cg;
	struct zygote_setup setup;
	void *filter[FILTERS];
	zygote_init_fn *init; /* what a session's first process becomes */
	const char *const *env;
};

/* `garret-engine zygote`: the engine's socket is descriptor 3.  Returns the exit status. */
int zygote_main(zygote_init_fn *init, const char *const *env);

/* In a fork of the zygote. */
void helper_main(const struct zygote *z, const struct slot_order *order, int sock, int net_fd)
	__attribute__((noreturn));

/* What the first process of a session has in hand. */
struct build {
	const struct zygote *z;
	uint32_t base;
	int note_fd;  /* to the engine */
	int order_fd; /* from the helper: struct build_order, the init socket, the mounts */
	int userns_fd, cgroup_fd, memory_fd; /* the last two may be -EBADF */
};

/*
 * In the clone: prepare, say so on order_fd (a struct slot_note), wait for the order,
 * build the session around this process and become its init.
 */
void build_main(const struct build *b) __attribute__((noreturn));

#endif
