/* What the files of the state provider share; nobody else includes this. */
#ifndef PROVIDER_STATE_IMPL_H
#define PROVIDER_STATE_IMPL_H

#include "base/list.h"
#include "provider/state.h"
#include "provider/state_doc.h"

/* One document, as long as a box is open on it or the provider keeps it. */
struct state_held {
	struct list link; /* provider.docs */
	char id[65];
	struct state_doc *doc;
	uint64_t version;
	bool removed;
	bool stale; /* it has what was not saved: to be read again before anything else */
	unsigned boxes;
};

struct provider {
	struct loop *loop;
	struct state_store store;
	size_t max_bytes;
	struct list docs;
};

struct box {
	struct state_held *held;
	struct provider *p;
	struct list files;
	box_opened_fn opened;
	void *opened_ctx;
	box_died_fn died;
	void *died_ctx;
	box_done_fn closed;
	void *closed_ctx;
	struct garret_error error;
	struct loop_later later;
};

struct box_file {
	struct list link; /* box.files */
	struct box *box;
	struct file_request rq; /* its strings are ours */
	char *path, *to, *pattern, *include;
	const struct file_events *events;
	void *ctx;
	struct strbuf body, out;
	size_t out_at;
	bool body_ended, carried_out, paused;
	struct loop_later later;
	struct file_end end;
	char *end_path;
	struct garret_error error;
};

/* Carry a request out (state_files.c): 0 or -code, what it has to say told or left in f->out. */
int state_carry_out(struct box_file *f, struct garret_error *err);
/* The document as the store has it now, as far as that is cheap to know, or `always`. */
int state_refresh(struct box *b, bool always, struct garret_error *err);
/*
 * Change the document by `change`, saved when this returns 0.  It may be called again after
 * another writer's change, unless that touched what is at the request's paths: CHANGED.
 */
int state_change(struct box_file *f, int (*change)(struct box_file *f, struct garret_error *err),
		 struct garret_error *err);

/* state_files.c: what both kinds of operations need. */
void state_info(struct file_info *info, const struct state_node *n, const char *name);
void state_tell(const struct box_file *f, const struct state_node *n);
int state_not_found(const char *path, struct garret_error *err);
/* NOT_FOUND, NOT_DIRECTORY when a file is in the way. */
int state_find(struct box_file *f, const char *path, struct state_node **ret,
	       struct garret_error *err);
int state_find_file(struct box_file *f, const char *path, struct state_node **ret,
		    struct garret_error *err);

/* state_change.c, for state_change() */
int state_change_write(struct box_file *f, struct garret_error *err);
int state_change_make_dir(struct box_file *f, struct garret_error *err);
int state_change_remove(struct box_file *f, struct garret_error *err);
int state_change_rename(struct box_file *f, struct garret_error *err);
int state_change_copy(struct box_file *f, struct garret_error *err);
int state_change_edit(struct box_file *f, struct garret_error *err);

#endif
