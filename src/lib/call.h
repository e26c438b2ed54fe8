/*
 * One file operation, blocking: from the caller's paths, through the rules, to the provider's
 * file() and its events.
 */
#ifndef LIB_CALL_H
#define LIB_CALL_H

#include "base/strbuf.h"
#include "core/file_events.h"
#include "garret/search.h"
#include "lib/workspace.h"

struct file_call {
	/* What is asked.  rq.path and rq.to are filled from path and to. */
	enum garret_operation kind;
	const char *path, *to; /* as given; to NULL: there is none */
	struct file_request rq;
	const void *body;
	size_t body_bytes;
	size_t max_data;       /* TOO_LARGE above; 0: none is wanted */
	unsigned search_flags; /* as they were given */
	struct garret_list *list;
	struct garret_matches *matches;
	/* Called in place of collecting; see stream.c. */
	const struct file_events *events;
	void *events_ctx;

	/* What came. */
	struct garret_entry info; /* of what the request named; path NULL: none came */
	struct strbuf data;
	struct file_end end;
	char *end_path; /* "" for none */

	/* Inside. */
	struct garret_workspace *workspace;
	struct operation op;
	char *abs, *abs_to;
	struct box_file *file;
	size_t body_at;
	bool done, body_ended;
	struct garret_error error;
};

/* 0 or -code.  Release the call in any case. */
int file_call(struct garret_workspace *w, struct file_call *call, struct garret_error *err);
void file_call_release(struct file_call *call);

/* The two halves, for a transfer that goes on between calls: begin enters no wait for its end. */
int file_call_begin(struct garret_workspace *w, struct file_call *call, struct garret_error *err);
/* With the lock held. */
int file_call_wait(struct file_call *call, struct garret_error *err);
/* Fill one of ours from what a provider told; dir is where its name is relative to. */
void entry_fill(struct garret_entry *e, const struct file_info *info, const char *dir);

#endif
