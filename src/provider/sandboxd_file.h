/* One file operation of a sandboxd box, among the files that carry it out. */
#ifndef PROVIDER_SANDBOXD_FILE_H
#define PROVIDER_SANDBOXD_FILE_H

#include "provider/sandboxd_impl.h"

#define FILE_BUFFER (256u << 10)

struct box_file {
	struct list link;
	struct box *box;
	struct file_request rq; /* its strings are own */
	const struct file_events *events;
	void *ctx;
	struct loop_later later;
	bool *gone;
	bool has_body, begun, paused, failing;

	/* What carries it out: one of these. */
	struct ask *ask;
	struct httpc_call *call;
	struct shellfs_op *shell;

	struct strbuf body; /* not given to it yet; of a published write: all of it */
	bool body_ended;
	bool collects; /* a published write, which is one request when its body is whole */

	/* A transfer. */
	bool transfers, streamed;
	bool again;  /* it was refused for its token once */
	char *token; /* it was sent with this one */
	struct token_wait wait;
	int status;
	bool informed, discard;
	uint64_t due, got;
	struct strbuf answer; /* what isn't content */
	struct file_end end;
	struct strbuf end_path;
	struct garret_error error; /* with failing */
};

void sandboxd_file_end(struct box_file *f); /* well, with f->end */
void sandboxd_file_fail(struct box_file *f, const struct garret_error *err);
/* The same from the loop: whoever called us still uses f. */
void sandboxd_file_fail_later(struct box_file *f, const struct garret_error *err);
void sandboxd_file_failf(struct box_file *f, enum garret_code code, const char *fmt, ...)
	garret_printf(3, 4);
/* The listener's callbacks, which may give it up: true when it is gone then. */
bool sandboxd_tell_info(struct box_file *f, const struct file_info *info);
bool sandboxd_tell_entry(struct box_file *f, const struct file_info *info);
bool sandboxd_tell_match(struct box_file *f, const struct file_match *m);
bool sandboxd_tell_data(struct box_file *f, const void *data, size_t n);
/* By commands instead. */
void sandboxd_file_by_shell(struct box_file *f);
/* A status that isn't the wanted one, as the error of a file. */
void sandboxd_file_refused(struct box_file *f, int status, const struct strbuf *body,
			   struct garret_error *err);
uint32_t sandboxd_file_ms(const struct box_file *f);

/* false: it can't be said on that wire; nothing was begun. */
bool sandboxd_published_begin(struct box_file *f);
void sandboxd_published_write(struct box_file *f);
bool sandboxd_v1_begin(struct box_file *f);
bool sandboxd_transfer_begin(struct box_file *f);
/* There is more of the body, or it has ended. */
void sandboxd_transfer_more(struct box_file *f);

bool sandboxd_etag(const char *s, struct file_tag *ret);
void sandboxd_put_etag(const struct file_tag *t, char out[80]);

#endif
