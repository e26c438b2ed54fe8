#include "engine/identity.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/wire.h"

/* Runs become the main user; what they left is killed and freed whatever its user is. */
#define INIT_CAPS (1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_KILL)

#define CAP_LAST_CAP_LEAST 40 /* CHECKPOINT_RESTORE, older than any kernel we run on */

/* All of it: a new user namespace begins with everything, also what the kernel added lately. */
static int drop_bounding(void)
{
	for (int cap = 0; cap <= 63; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return errno == EINVAL && cap > CAP_LAST_CAP_LEAST ? 0 : -1;
	return 0;
}

static int set_caps(uint32_t low)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { .effective = low, .permitted = low } };

	return (int)syscall(SYS_capset, &h, d);
}

int identity_take(int userns_fd, struct garret_error *err)
{
	if (setgroups(0, NULL) < 0)
		return garret_fail_errno(err, "drop the groups");
	/* A session that could join ours would share our keys. */
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
		return garret_fail_errno(err, "a new session keyring");
	if (setns(userns_fd, CLONE_NEWUSER) < 0)
		return garret_fail_errno(err, "enter the user namespace");
	if (drop_bounding() < 0)
		return garret_fail_errno(err, "drop the bounding set");
	if (prctl(PR_SET_KEEPCAPS, 1) < 0 || setresgid(INIT_ID, INIT_ID, INIT_ID) < 0 ||
	    setresuid(INIT_ID, INIT_ID, INIT_ID) < 0)
		return garret_fail_errno(err, "become init's user");
	if (set_caps(INIT_CAPS) < 0)
		return garret_fail_errno(err, "drop the capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return garret_fail_errno(err, "no new privileges");
	return 0;
}

int identity_rlimits(struct garret_error *err)
{
	/* No core: core_pattern runs on the host.  NOFILE: enough for build tools, and a bound
	 * on what one process can hold in the kernel.  The others are per user, not per session. */
	static const struct {
		int which;
		rlim_t soft, hard;
	} limits[] = {
		{ RLIMIT_CORE, 0, 0 },
		{ RLIMIT_NOFILE, 1024 * 16, 1024 * 64 },
		{ RLIMIT_MEMLOCK, 64 * 1024 * 1024, 64 * 1024 * 1024 },
		{ RLIMIT_MSGQUEUE, 819200, 819200 },
		{ RLIMIT_SIGPENDING, 16384, 16384 },
		{ RLIMIT_RTPRIO, 0, 0 },
		{ RLIMIT_NICE, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct rlimit now, l;

		if (getrlimit(limits[i].which, &now) < 0)
			return garret_fail_errno(err, "read a resource limit");
		/* Raising needs a capability that the engine may not have. */
		l.rlim_max = MIN(limits[i].hard, now.rlim_max);
		l.rlim_cur = MIN(limits[i].soft, l.rlim_max);
		if (setrlimit(limits[i].which, &l) < 0)
			return garret_fail_errno(err, "set a resource limit");
	}
	return 0;
}
