/*
 * Sessions of a sandboxd service elsewhere: the published one (0.2.x), or our
 * own garretd, which can do more and is asked for it.
 *
 * A box is a session; its ref is the session's id.  An open with a ref attaches
 * and makes nothing; with a session name it attaches or makes that one, also
 * while another client is opening it; with neither the service makes up a name.
 * forget() is "destroy": it attaches (files of a closed session can only be
 * deleted through a session) and deletes; what isn't there any more is fine.
 *
 * GONE is said only when the service says that the session is no more (404,
 * 410), or when it is seen that others made a new one under its name.  A service
 * that doesn't know the session's token any more is asked to attach again, so a
 * box outlives a restart that kept its files.  A service's token that isn't taken
 * is UNAUTHORIZED, a service that is full EXHAUSTED, and one that fails or can't
 * be reached UNAVAILABLE.
 */
#ifndef PROVIDER_SANDBOXD_H
#define PROVIDER_SANDBOXD_H

#include "core/provider.h"
#include "io/loop.h"

struct httpc_tls;

extern const struct provider_ops sandboxd_ops;

/* All is copied.  What a box_spec doesn't say comes from here. */
struct sandboxd_config {
	struct loop *loop;
	const char *url;             /* http(s)://HOST[:PORT][/PREFIX] */
	const char *socket;          /* a Unix socket instead; NULL: none */
	const struct httpc_tls *tls; /* NULL: defaults */
	const char *token;           /* the service's: opening, policy, purging */

	const char *session_name;     /* NULL: the service makes one up */
	const char *runtime, *tenant; /* NULL: the service's default; none */
	const char *const *env;       /* "NAME=VALUE", below those of a command; NULL: none */
	uint32_t request_ms;          /* 0: 30 s */
	uint32_t opening_ms;          /* 0: 600 s; never below request_ms */
	void (*waiting)(void *ctx);   /* once, when an open takes longer than 3 s; may be NULL */
	void *ctx;
};

/* Nothing is asked yet.  INVALID: a name or a URL that is none, a token that is no header. */
int sandboxd_new(const struct sandboxd_config *config, struct provider **ret,
		 struct garret_error *err);
struct provider *sandboxd_free(struct provider *p); /* boxes must be closed */

/* Of an open box: its work directory, links resolved; whether the service is a garretd. */
const char *sandboxd_work_dir(const struct box *box);
bool sandboxd_is_ours(const struct box *box);

#endif
