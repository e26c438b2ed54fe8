/*
 * File operations for hosts that can only run commands: each becomes a small
 * program of a POSIX shell with the usual tools (coreutils or busybox).
 *
 * A host is described once.  Where its commands can be given standard input, a
 * read or a write is one command and the bytes go as they are; otherwise a write
 * takes a command for so many arguments of 64 KiB base64.  Output that isn't
 * raw (JSON) comes in base64.  Every output ends in a mark, so that what was cut
 * off is never taken for whole, and every input ends in one, so that a transfer
 * that broke off never replaces a file.
 *
 * What a shell can't do exactly is refused as UNSUPPORTED, by name; nothing
 * weaker is done instead.  doc/design/shellfs.md has the list.
 */
#ifndef PROVIDER_SHELLFS_H
#define PROVIDER_SHELLFS_H

#include "core/file_events.h"
#include "io/loop.h"

#define SHELL_ARGUMENT_MAX 65536 /* base64 in one argument: the kernel takes 128 KiB */

struct shell_command {
	const char *const *argv; /* valid UTF-8 */
	bool input;              /* it reads what input() gives it; else nothing */
	uint32_t timeout_ms;     /* 0: none of ours */
};

struct shell_events {
	/* stream 0: standard output, 1: error output.  Text hosts may repair the latter. */
	void (*out)(void *ctx, int stream, const void *data, size_t n);
	void (*room)(void *ctx); /* after input() took less than it was given */
	/* Once, and last.  err: it could not be run, or how it was ended (TIMEOUT, OUTPUT_LIMIT,
	 * GONE, UNAVAILABLE ...); NULL: it ended with that code, and all output was told. */
	void (*end)(void *ctx, int exit_code, const struct garret_error *err);
};

struct shell_run; /* the host's own */

struct shell_host {
	struct loop *loop;
	const char *work_dir;   /* real path of the environment's work directory */
	bool input;             /* commands can have standard input, byte for byte */
	bool raw;               /* standard output comes byte for byte */
	uint64_t output_max;    /* bytes of output that a command may have; 0: any */
	size_t arguments_bytes; /* of content in one command, without input; 0: one argument */

	/* Starts; events come from the loop.  NULL with err: it can't even be asked for. */
	struct shell_run *(*run)(void *ctx, const struct shell_command *cmd,
				 const struct shell_events *events, void *events_ctx,
				 struct garret_error *err);
	/* How many bytes were taken; room() comes when that was less.  Only with `input`. */
	size_t (*input_more)(struct shell_run *run, const void *data, size_t n);
	void (*input_end)(struct shell_run *run);
	void (*pause)(struct shell_run *run, bool pause); /* output; may be NULL */
	/* It is stopped as well as can be; no event comes any more. */
	void (*cancel)(struct shell_run *run);
	void *ctx;
};

/* All operations of one host; the host is copied, its strings borrowed. */
struct shellfs;
struct shellfs *shellfs_new(const struct shell_host *host);
/*
 * Ends what goes on with `why`, and gives up what is being tidied.  The host must still
 * be there for cancel().  NULL is fine; returns NULL.
 */
struct shellfs *shellfs_free(struct shellfs *fs, const struct garret_error *why);

/* As the functions of struct provider_ops; a READ never asks for a pipe. */
struct shellfs_op;
struct shellfs_op *shellfs_file(struct shellfs *fs, const struct file_request *rq,
				const struct file_events *events, void *ctx,
				struct garret_error *err);
size_t shellfs_body(struct shellfs_op *op, const void *data, size_t n);
void shellfs_body_end(struct shellfs_op *op);
void shellfs_pause(struct shellfs_op *op, bool pause);
/* Given up: temporaries are removed by a command that nobody waits for, for at most 10 s. */
void shellfs_leave(struct shellfs_op *op);

#endif
