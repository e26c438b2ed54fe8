/*
 * One file operation for one request: it is begun, what it tells becomes an
 * answer, and an answer that grows long is sent while it is made.  The worker
 * rests while the client doesn't take what there is.
 */
#ifndef API_FILE_ANSWER_H
#define API_FILE_ANSWER_H

#include "api/wire.h"

struct file_answer;

struct file_kind {
	const char *log; /* name in the activity log; NULL: not there */
	/* Called for what the operation tells; may be NULL. */
	void (*info)(struct file_answer *a, const struct file_info *info);
	void (*entry)(struct file_answer *a, const struct file_info *info);
	void (*match)(struct file_answer *a, const struct file_match *m);
	void (*data)(struct file_answer *a, const void *data, size_t n);
	/*
	 * It succeeded: put the rest of the answer into out (JSON; empty: 204).
	 * NULL for operations that answer otherwise.
	 */
	void (*end)(struct file_answer *a, const struct file_end *end);
	/*
	 * Instead: it ended in whatever way; true when another was begun with
	 * file_next() and the answer isn't complete.
	 */
	bool (*each)(struct file_answer *a, const struct file_end *end,
		     const struct garret_error *err);
	/* It failed: answer that. NULL: as file_answer_error() does. */
	void (*fail)(struct file_answer *a, const struct garret_error *err);
	/* It succeeded, and the answer isn't what is in out: true when this answered. */
	bool (*finish)(struct file_answer *a);
	void (*release)(struct file_answer *a); /* what extra holds; it is freed itself */
	unsigned exists;                        /* status of EXISTS; 0: 400 */
	bool published; /* errors that the five names don't cover are 409: use the shell */
	bool body;      /* the request's body is the operation's */
};

struct file_answer {
	const struct file_kind *kind;
	struct call *call;
	struct file_call *op;  /* NULL: it has ended */
	struct file_info info; /* its target is `target` */
	char *target;
	char *path, *to; /* as they were asked for */
	char *archive;   /* the id whose kept files are looked at; NULL: the call's session's */
	struct strbuf out;
	size_t sent;
	const char *type; /* of the answer; NULL: JSON */
	unsigned status;  /* NULL: 200 */
	int64_t length;   /* of a streamed answer; -1: not known */
	bool streaming, ended, broken, paused;
	bool held; /* the next operation waits until the client has taken more */
	struct file_request next;
	bool piped;     /* a READ of much: the bytes don't come through here */
	bool discard;   /* bytes that come aren't wanted */
	uint64_t items; /* of the list that is being answered */

	/* A body on its way in. */
	bool body_done, failed;
	struct strbuf body; /* file_send_body(): what wasn't given yet, from body_sent on */
	size_t body_sent;
	struct garret_error error;

	void *extra; /* the kind's own: free() */
};

/*
 * Begin: takes a reference of c.  NULL when that was answered already (refused).
 * rq's path and `to` are checked for a NUL inside.
 */
struct file_answer *file_begin(struct call *c, const struct file_kind *kind,
			       const struct file_request *rq);

/* The same in the kept files of `archive`; rq->path is below their root. */
struct file_answer *file_begin_archive(struct call *c, const struct file_kind *kind,
				       const char *archive, const struct file_request *rq);
/* For info() of a READ with a range: the whole file instead, from its beginning. */
void file_begin_again(struct file_answer *a);
/* A body that is here already (any length): given as there is room. Takes the memory. */
void file_send_body(struct file_answer *a, struct strbuf *body);
/*
 * For each(): the next operation of the same answer, when the client isn't far behind; rq's
 * strings must last until then.  False: the session has ended.
 */
bool file_next(struct file_answer *a, const struct file_request *rq);
/* For info(): what comes from now on is sent as it comes, `length` bytes or -1. */
void file_stream(struct file_answer *a);
/* For info() of a READ: its bytes come through a pipe; answers. */
void file_stream_pipe(struct file_answer *a, uint64_t n);
/* One more item of a list: what is before it may be sent, and gone from out, already. */
void file_next_item(struct file_answer *a);
/* The operation is given up, nothing is answered by it any more: the caller does. */
struct call *file_give_up(struct file_answer *a);
/* For info() of a READ: none of its bytes are wanted. */
void file_skip(struct file_answer *a, uint64_t n);

void file_answer_error(struct call *c, const struct file_kind *kind,
		       const struct garret_error *err);

/* ---- shapes ---- */

/* Published: {name, path, is_dir, size, modified_at}. */
void file_put_entry(struct strbuf *out, const char *name, const char *path,
		    const struct file_info *info);
/* Ours: type, mode, link, etag and more as well. */
void file_put_details(struct strbuf *out, const char *name, const char *path,
		      const struct file_info *info);
void file_put_raw_path(struct strbuf *out, const char *path); /* "raw_path", when it isn't UTF-8 */
const char *file_base_name(const char *path);
/* One of the five names, or the Python class that fits best. */
const char *file_any_error_name(const struct garret_error *err);
void file_put_etag(const struct file_tag *t, char out[72]);
bool file_get_etag(const char *s, struct file_tag *ret);
/* "dir/name" without doubled slashes. */
void file_join(struct strbuf *out, const char *dir, const char *name);

#endif
