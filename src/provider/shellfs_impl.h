/* The parts of shellfs among themselves. */
#ifndef PROVIDER_SHELLFS_IMPL_H
#define PROVIDER_SHELLFS_IMPL_H

#include <nettle/base64.h>

#include "base/list.h"
#include "base/strbuf.h"
#include "provider/shellfs.h"

/* What our scripts end with, beside 0 and a tool's own 1: no tool uses these. */
enum script_code {
	SCRIPT_NOT_FOUND = 102,
	SCRIPT_CHANGED = 112,
	SCRIPT_DENIED = 113,
	SCRIPT_TOO_LARGE = 114,
	SCRIPT_CUT_OFF = 115, /* the input ended without its mark */
	SCRIPT_EXISTS = 117,
	SCRIPT_NO_TOOL = 118, /* its name is on the error output */
	SCRIPT_WORK_DIR = 119,
	SCRIPT_NOT_DIRECTORY = 120,
	SCRIPT_IS_DIRECTORY = 121,
	SCRIPT_NOT_REGULAR = 122,
	SCRIPT_INTO_ITSELF = 123,
	SCRIPT_SIZE = 124,   /* what was stored isn't what was sent */
	SCRIPT_PATTERN = 125 /* grep says what is wrong with it */
};

#define SCRIPT_MARK 5 /* bytes: "@" code "\n" */
#define SCRIPT_ERROR_MAX 4096
#define SCRIPT_ARGUMENTS 520
#define INPUT_MARK 32

/* ---- one script (shell_script.c) ---- */

struct script;
struct script_events {
	/* Of standard output, decoded, without the mark. May give the script up. */
	void (*data)(void *ctx, const char *data, size_t n);
	void (*room)(void *ctx); /* may be NULL */
	/* code: enum script_code or a tool's; err: the host says otherwise, or what came is
	 * damaged.  The script is gone; errors is its error output. */
	void (*end)(void *ctx, int code, const char *errors, const struct garret_error *err);
};

/* The arguments: words as they are, paths so that they survive any way of sending them. */
struct script_args {
	const char *argv[SCRIPT_ARGUMENTS + 5];
	unsigned n;
	char *own[SCRIPT_ARGUMENTS + 1];
	unsigned n_own;
};
void script_arg(struct script_args *a, const char *word); /* borrowed */
void script_arg_number(struct script_args *a, uint64_t v);
void script_arg_path(struct script_args *a, const char *path);
void script_args_release(struct script_args *a);

struct script *script_start(struct shellfs *fs, const char *body, const struct script_args *a,
			    bool input, uint32_t timeout_ms, const struct script_events *events,
			    void *ctx, struct garret_error *err);
size_t script_input(struct script *s, const void *data, size_t n);
void script_input_end(struct script *s);
void script_pause(struct script *s, bool pause);
void script_cancel(struct script *s); /* no event comes any more */

/* The error of a script that ended with `code` (not 0): what it is about is `path`. */
void script_error(int code, const char *errors, const char *path, struct garret_error *err);

/* ---- operations ---- */

struct shellfs {
	struct shell_host host;
	struct list ops;     /* shellfs_op.link */
	struct list cleanup; /* removal.link */
	bool no_stat;
};

struct shellfs_op {
	struct shellfs *fs;
	struct list link;
	const struct file_events *events;
	void *ctx;
	struct file_request rq; /* its strings are own */
	struct loop_later later;
	const struct shellfs_kind *kind;
	struct script *script;
	bool *gone; /* set when the operation is freed while a callback is on its way */
	bool paused;

	struct strbuf out; /* what the script said and wasn't looked at yet */
	struct file_end end;
	struct strbuf end_path;

	/* READ, TEXT, EDIT, TAR_OUT: how far it is. */
	struct {
		unsigned stage;
		uint64_t at, left; /* the next command's range; at UINT64_MAX: from the end */
		uint64_t skip, due, got;
		struct file_info info;
		bool told, unsized;
		/* All of it is wanted at once, in `content`; NULL: it is told as it comes. */
		void (*whole)(struct shellfs_op *op);
		struct strbuf content;
	} read;

	/* A body on its way. */
	struct {
		struct strbuf data; /* not given to a command yet */
		uint64_t sent;      /* bytes that are stored or on their way */
		char temp[40];      /* name of the temporary; "": there is none */
		char mark[INPUT_MARK + 1];
		bool started; /* the operation wants it */
		bool ended;   /* no more of it comes */
		bool overflow;
		bool begun;  /* a command has seen to the place */
		bool last;   /* so has the last one, or is about to */
		bool marked; /* the mark was put behind it */
	} body;
	bool if_tag; /* only over this file: */
	struct file_tag tag;
	struct strbuf edits; /* EDIT: its body */
	uint8_t digest[32];  /* of what they made */
	bool edited;
	struct strbuf errors;       /* what the last script said on its error output */
	struct garret_error failed; /* told when the temporary is gone */

	struct search *search; /* GLOB, GREP */
};

struct shellfs_kind {
	/* From the loop. */
	void (*begin)(struct shellfs_op *op);
	/* More of op->out, or of the script's data; NULL: it waits for the end. */
	void (*data)(struct shellfs_op *op, const char *data, size_t n);
	/* The script ended well. */
	void (*done)(struct shellfs_op *op);
	void (*room)(struct shellfs_op *op);
	bool body;
	void (*release)(struct shellfs_op *op);
};

extern const struct shellfs_kind shellfs_stat, shellfs_list, shellfs_realpath, shellfs_digest,
	shellfs_change, shellfs_read, shellfs_text, shellfs_write, shellfs_edit, shellfs_tar_out,
	shellfs_tar_in, shellfs_glob, shellfs_grep, shellfs_edit_read;

/* Start a script whose events go to the operation's kind; a failure is told later. */
void shellfs_script(struct shellfs_op *op, const char *body, struct script_args *a, bool input);
void shellfs_fail(struct shellfs_op *op, const struct garret_error *err);
void shellfs_failf(struct shellfs_op *op, enum garret_code code, const char *fmt, ...)
	garret_printf(3, 4);
void shellfs_fail_later(struct shellfs_op *op, const struct garret_error *err);
void shellfs_end(struct shellfs_op *op); /* well, with op->end */
/* The operation's callbacks, which may give it up: true when it is gone then. */
bool shellfs_tell_info(struct shellfs_op *op, const struct file_info *info);
bool shellfs_tell_entry(struct shellfs_op *op, const struct file_info *info);
bool shellfs_tell_match(struct shellfs_op *op, const struct file_match *m);
bool shellfs_tell_data(struct shellfs_op *op, const void *data, size_t n);
bool shellfs_tell_room(struct shellfs_op *op);
/* Choose the name of the temporary, and the mark that the input has to end with. */
void shellfs_name_temp(struct shellfs_op *op);
/* Remove the temporary, then tell op->failed. */
void shellfs_tidy(struct shellfs_op *op);
uint32_t shellfs_timeout(const struct shellfs_op *op);

/* READ's beginning, for all that has to have a file's content. */
void shellfs_read_begin(struct shellfs_op *op);
/* Store op->body.data and what is still to come of it as the request says. */
void shellfs_store(struct shellfs_op *op);

/* "f 81a4 0 0 INODE SIZE MTIME CTIME" (or less where there is no stat) as *ret; false: it's none. */
bool shellfs_parse_info(const char *line, struct file_info *ret);
/* Exactly n decimal numbers with single blanks between them. */
bool shellfs_numbers(const char *line, uint64_t *ret, size_t n);
/* Lines of the script's output: the next one (without its end) as a string in the buffer, or
 * NULL when it isn't there yet. */
char *shellfs_line(struct shellfs_op *op);

/* ---- listings (shellfs_list.c) ---- */

struct shell_entry {
	char *name, *target;
	struct file_info info;
	bool gone;
};
struct shell_entries {
	struct shell_entry *list;
	size_t n, cap;
};
/* Everything that a listing script printed; -code when it isn't what it must be. */
int shell_entries_parse(struct shell_entries *es, const struct strbuf *out,
			struct garret_error *err);
void shell_entries_release(struct shell_entries *es);

#endif
