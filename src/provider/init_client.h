/*
 * Init as its owner sees it: one connection, many runs.  Frames from init are
 * hostile input: everything is bounded and checked, and one violation ends the
 * connection (lost is called).
 */
#ifndef PROVIDER_INIT_CLIENT_H
#define PROVIDER_INIT_CLIENT_H

#include "io/chan.h"
#include "proto/init.h"

struct init_client;

struct init_events {
	void (*ready)(void *ctx);
	void (*lost)(void *ctx, const struct garret_error *err);
	void (*started)(void *ctx, const uint8_t *run, uint32_t pid);
	void (*out)(void *ctx, const uint8_t *run, unsigned stream /* 1, 2 */, uint64_t offset,
		    const void *data, size_t n);
	void (*spooled)(void *ctx, const uint8_t *run, unsigned stream, uint32_t index,
			uint64_t bytes);
	void (*exited)(void *ctx, const uint8_t *run, const struct init_exit *e);
	void (*done)(void *ctx, uint64_t request, const struct garret_error *err);
	void (*stdin_taken)(void *ctx, const uint8_t *run, uint64_t bytes);
	void (*stdin_held)(void *ctx, const uint8_t *run, uint64_t bytes);
	/* Some of the runs; done() comes behind the last ones. */
	void (*listed)(void *ctx, const struct init_known *runs, uint32_t n, const uint32_t *spools,
		       uint32_t n_spools);
	void (*pong)(void *ctx, uint32_t live, uint32_t background);
};

/* Connect to the socket that a session's init listens on. */
int init_connect(const char *path, int *ret_fd, struct garret_error *err);

/* fd passes to the client; events (borrowed) must outlive it. */
int init_client_new(struct loop *l, int fd, const uint8_t nonce[INIT_NONCE],
		    const struct init_events *events, void *ctx, struct init_client **ret,
		    struct garret_error *err);
struct init_client *init_client_free(struct init_client *c);

struct init_start {
	const uint8_t *id;
	uint32_t flags; /* enum init_run_flags, without BODY_FD */
	uint32_t timeout_ms;
	uint64_t output_limit;
	uint16_t rows, columns;
	const char *cwd;                      /* NULL: the work directory */
	const char *const *argv, *const *env; /* NULL-terminated; env may be NULL */
	const int *stdio;                     /* three, with INIT_RUN_FDS */
};

/*
 * -GARRET_TOO_LARGE naming the limit when argv and env don't fit.  The answers
 * come through the events.
 */
int init_client_run(struct init_client *c, const struct init_start *s, struct garret_error *err);
/* Is this argv and env within the kernel's bounds?  The same check, without a session. */
int init_check_strings(const char *const *argv, const char *const *env, struct garret_error *err);

/* The request number, for done(). */
uint64_t init_client_stop(struct init_client *c, const uint8_t *run, uint32_t grace_ms);
void init_client_signal(struct init_client *c, const uint8_t *run, int signo, bool group);
void init_client_attach(struct init_client *c, const uint8_t *run);
void init_client_forget(struct init_client *c, const uint8_t *run);
void init_client_ack(struct init_client *c, const uint8_t *run, unsigned stream, uint64_t offset);
void init_client_stdin(struct init_client *c, const uint8_t *run, const void *data, size_t n);
void init_client_winch(struct init_client *c, const uint8_t *run, uint16_t rows, uint16_t columns);
void init_client_spool(struct init_client *c, uint32_t index, int out_fd, int err_fd);
void init_client_ping(struct init_client *c);
uint64_t init_client_list(struct init_client *c); /* the request number, for done() */
/* Of runs that begin later; 0: as many as the engine allows at all. */
void init_client_processes(struct init_client *c, uint32_t n);
/* Start a file worker in that slot with its end of a socket pair; the number for done(). */
uint64_t init_client_worker(struct init_client *c, uint32_t slot, int sock);
/* Init has much to take already: what can wait should. */
bool init_client_busy(const struct init_client *c);

#endif
